"""The one adapter to MLflow."""
