"""Logs of other programs as tasks and trajectories: one module a format, and what all formats share."""
