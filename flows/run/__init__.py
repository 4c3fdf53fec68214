"""A run of the pipeline, the one way to run a stage, and what the stages share."""
