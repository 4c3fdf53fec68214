"""Decoding of one step: batches of episodes, checks of an answer, and the hidden state of an episode."""
