"""Engines that generate: over a kept key-value cache, or with transformers alone."""
