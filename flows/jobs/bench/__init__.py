"""Benchmarks of `dreamgym bench`, one module each."""
