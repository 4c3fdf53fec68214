"""Games that policies, or models behind an endpoint, play in the real environment."""
