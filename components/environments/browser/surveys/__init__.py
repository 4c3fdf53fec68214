"""Command-line surveys of the browser tasks: what policies achieve, what pages pay, screenshots, speed."""
