"""From returns to advantages: of a group, of a family of tasks, and of single steps."""
