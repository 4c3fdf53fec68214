"""The text of a policy in two formats, behind one interface."""
