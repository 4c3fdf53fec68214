"""The real Chromium: a pool of browsers, one tab an episode, and what of a page is read."""
