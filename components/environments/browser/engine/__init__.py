"""The real Chromium: browser processes, one tab per episode, and the reading of a page."""
