"""Parts from which a world of text that nobody knows gets its adapter."""
