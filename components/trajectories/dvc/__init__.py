"""Versions of `data/` under DVC, and run records as DVC experiments."""
