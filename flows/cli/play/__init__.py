"""`dreamgym play`: a person plays in the dream."""
