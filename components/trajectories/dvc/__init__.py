"""Versions of `data/` under DVC."""
