"""Augmented copies of episodes: with another instruction (hindsight), or with other names."""
