"""Imported logs: a world that nobody can play in."""
