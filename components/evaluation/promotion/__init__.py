"""Promotion gate: whether a challenger policy replaces the champion."""
