"""What a Prefect server runs by itself: deployments, schedules, automations, the watch for new data."""
