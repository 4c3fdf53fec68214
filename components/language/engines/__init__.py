"""Generation engines: the interface, the kept key-value cache, and transformers' own `generate`."""
