"""OpenTelemetry exports: spans with messages become records of conversations with their outcomes."""
