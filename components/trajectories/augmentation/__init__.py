"""Episodes told again: under another instruction, or with other names."""
