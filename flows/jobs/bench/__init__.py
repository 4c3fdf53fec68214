"""Benchmarks: `dreamgym bench`."""
