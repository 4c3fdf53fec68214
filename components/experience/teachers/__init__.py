"""Where the reasoning comes from that the experience model learns to write."""
