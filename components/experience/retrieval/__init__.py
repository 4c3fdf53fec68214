"""The replay buffer and its vector index: transitions that ground the dream."""
