"""The files of a model directory: which ones hold weights, whether they are sound, how large they are."""
