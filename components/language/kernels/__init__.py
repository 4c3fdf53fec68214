"""Attention functions and a joined decoder that make the kept cache and training fast."""
