"""Synthetic exercises for a small backbone: copy, edit, compare, recall."""
