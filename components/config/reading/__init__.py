"""A YAML file and `key=value` overrides, read into plain values; what to say about one that is refused."""
