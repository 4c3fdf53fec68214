"""Supervised fine-tuning: examples, optimisers, checkpoints, data parallelism."""
