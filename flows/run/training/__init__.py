"""The trainings of a run as its stages call them: of the experience model, by RL, and what they read."""
