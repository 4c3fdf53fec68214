"""What `dreamgym check-environment` asks of an adapter, and how its findings read."""
