"""The files of a model directory: which ones hold weights, whether they are intact, how large they are."""
