"""Checks before a flow starts, used by every command and by `dreamgym doctor`."""
