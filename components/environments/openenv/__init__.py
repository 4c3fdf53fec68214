"""Any world behind an OpenEnv server whose observations and actions are text, as a real environment."""
