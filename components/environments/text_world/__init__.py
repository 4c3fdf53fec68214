"""Parts of an adapter for a world of text that the pipeline has no knowledge of."""
