"""Prepares the commands that go on from logs or from a finished run."""
