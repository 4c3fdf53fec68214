"""A run of the pipeline, the only way to run a stage, and shared parts of the stages."""
