"""The stages of a run, one module each; their numbers are the steps of `flows/retrain.py`."""
