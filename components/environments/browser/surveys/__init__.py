"""Measurements and pictures of the browser world, for its documentation."""
