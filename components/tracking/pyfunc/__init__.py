"""The policy and the experience model as MLflow pyfunc models."""
