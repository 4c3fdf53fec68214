"""Scheduled runs on a Prefect server: deployments, schedules, automations, the watch for new data."""
