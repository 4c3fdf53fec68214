"""Metrics with their n and interval."""
