"""The content-addressed store of finished stages, their keys and hashes."""
