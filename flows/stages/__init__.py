"""The stages of a run, one file a stage."""
