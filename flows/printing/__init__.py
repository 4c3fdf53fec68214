"""Output of the commands: tables as text or JSON, and numbers as text."""
