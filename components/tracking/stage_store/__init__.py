"""Content-addressed store of finished stages: results, keys and hashes."""
