"""The engine vLLM, in the process of the run."""
