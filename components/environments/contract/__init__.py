"""The promises of an adapter, and the check that `dreamgym check-environment` runs."""
