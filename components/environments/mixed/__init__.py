"""Several worlds as one: a policy and a dream that learn all of them in one training."""
