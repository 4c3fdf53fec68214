"""Reinforcement learning: the loop, the learner, and one file an algorithm."""
