"""`dreamgym play`: a person steps into the dream."""
