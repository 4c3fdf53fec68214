"""Metrics: each value carries its number of observations and a confidence interval."""
