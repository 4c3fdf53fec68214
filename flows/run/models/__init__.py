"""The models of a run: what it began with, what it registers, what it exports."""
