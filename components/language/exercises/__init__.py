"""Synthetic exercises that prepare a small backbone: copy, edit, compare, recall."""
