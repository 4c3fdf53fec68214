"""The text of an experience model in two formats, behind one interface."""
