"""Any world with Gymnasium's interface whose observations and actions are text, as a real environment."""
