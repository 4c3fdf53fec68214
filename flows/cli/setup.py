"""Commands about the set-up: `ui` starts the user interfaces, `doctor` checks, `config` prints the config.

Libraries are imported inside the commands, so that `--help` is quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.command import (
    ConfigFile,
    Debug,
    Overrides,
    Root,
    load_settings,
    out,
    print_status,
    report_failures,
)
from flows.printing.output import JsonFile, output
from flows.settings import MLFLOW_PORT

if TYPE_CHECKING:
    from components.config import Config

verbs = typer.Typer()


@verbs.command()
def ui(
    overrides: Overrides = None,
    mlflow_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the MLflow UI.")] = MLFLOW_PORT,
    prefect_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the Prefect UI.")] = 4200,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Start the web interfaces of MLflow (runs, models) and Prefect (flows); Ctrl-C stops both.

    Examples:

        dreamgym ui

        dreamgym ui --mlflow-port 5001 --prefect-port 4201
    """
    with report_failures(debug):
        settings, workspace = load_settings(config, overrides, root)
        from flows.deployment.services import (
            Service,
            mlflow_service,
            prefect_service,
            require_free_ports,
            serve,
        )

        servers = {
            "MLflow": mlflow_service(settings.tracking, workspace, mlflow_port),
            "Prefect": prefect_service(prefect_port),
        }
        services = [service for service in servers.values() if isinstance(service, Service)]
        require_free_ports(services)

        def show_started(service: Service) -> None:
            _show_server(settings, workspace, service.name, service.address, "Ctrl-C stops it")

        for name, server in servers.items():
            if isinstance(server, str):
                _show_server(settings, workspace, name, server, "a server of your own")
        if services:
            print_status("Starting, which takes about half a minute ...")
            serve(services, workspace, show_started)


def _show_server(settings: Config, workspace: Path, name: str, address: str, note: str) -> None:
    """Print a server's address, and mark runs whose process was killed as ended on it."""
    out.print(f"{name}: {address}   ({note})", soft_wrap=True)
    if name == "MLflow":
        from components.tracking.dead_runs import close_dead_runs
        from components.tracking.mlflow_adapter.tracker import Tracker

        tracker = Tracker(settings.tracking, workspace)
        close_dead_runs(workspace / "runs", tracker)
        out.print(f"  compare runs: {tracker.page(address)}", soft_wrap=True)
    else:
        from flows.dead_flow_runs import crash_dead_flow_runs

        crash_dead_flow_runs(workspace / "runs", f"{address}/api")


@verbs.command()
def doctor(
    overrides: Overrides = None,
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Check the set-up, and print for each problem what was expected and what to type.

    Exit code 0 if a run can start, 1 if something must be corrected first. `doubt` does not stop a run.

    Example:

        dreamgym doctor
    """
    with report_failures(debug), output(json_file) as page:
        settings, workspace = load_settings(config, overrides, root)
        from flows.checks.doctor import run_checks

        if not run_checks(settings, workspace, page):
            raise typer.Exit(1)


@verbs.command("config")
def show_config(
    overrides: Overrides = None,
    docs: Annotated[
        bool,
        typer.Option("--docs", help="Print all keys with their meaning and default, as Markdown."),
    ] = False,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Print the resolved config as JSON, or the reference of all keys.

    The JSON can be given back with --config.

    Examples:

        dreamgym config seed=3 > mine.json

        dreamgym config --docs > docs/configuration.md
    """
    with report_failures(debug):
        settings, _ = load_settings(config, overrides, root)
        from components.config import dump_config
        from flows.cli.tables.config_reference import describe_keys

        typer.echo(describe_keys() if docs else dump_config(settings), nl=False)
