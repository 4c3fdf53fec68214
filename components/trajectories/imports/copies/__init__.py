"""What a log has more than once: lines, episodes, and windows of longer conversations."""
