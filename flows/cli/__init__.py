"""The `dreamgym` command, one module for each group of its commands."""


def main() -> None:
    """Run the command with the arguments of this process."""
    from flows.cli.app import main as run_app

    run_app()
