"""Pretrained models: one that installs from the package index, and models by hub name."""
