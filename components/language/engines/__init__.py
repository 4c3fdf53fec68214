"""Generation engines: the interface, the kept key-value cache, vLLM, and transformers' own `generate`."""
