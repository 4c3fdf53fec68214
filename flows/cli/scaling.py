"""The command `scale`: a simulation of RL on more devices.

Libraries are imported inside the command, so that `--help` is quick.
"""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.command import Debug, Root, load_settings, report_failures
from flows.printing.output import JsonFile, output

verbs = typer.Typer()


@verbs.command()
def scale(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or `latest`.")] = "latest",
    devices: Annotated[str, typer.Option(help="Numbers of rollout workers.")] = "1,2,8,64",
    trainers: Annotated[int, typer.Option(min=1, help="Training devices.")] = 1,
    training_efficiency: Annotated[
        float, typer.Option(min=0, max=1, help="Share of its speed that each further training device adds.")
    ] = 0.9,
    sync_seconds: Annotated[
        float, typer.Option(min=0, help="From an update's end until the workers have the weights.")
    ] = 0.0,
    straggling: Annotated[
        float, typer.Option(min=0, max=3, help="Deviation of the logarithm of a turn's time; 0: none.")
    ] = 0.0,
    staleness: Annotated[int, typer.Option(min=2, help="Updates that asynchronous workers are behind.")] = 4,
    json_file: JsonFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Simulate an iteration of RL on more devices from the times of a run, and name what limits it.

    Examples:

        dreamgym scale

        dreamgym scale latest --devices 1,8,64 --trainers 8 --sync-seconds 2 --straggling 0.5
    """
    with report_failures(debug), output(json_file) as page:
        from components.evaluation.scaling.loop_simulator import Cluster
        from flows.past_runs import scale as simulation

        _, workspace = load_settings(None, None, root)
        counts = _positive_numbers(devices)
        cluster = Cluster(1, trainers, training_efficiency, sync_seconds, straggling, staleness)
        times, found = simulation.scale(workspace, run, counts, cluster)
        simulation.print_scale(page, times, found)
        page.replace(simulation.as_json(times, found))


def _positive_numbers(text: str) -> list[int]:
    """Return the numbers of a list with commas. Raises ConfigError if one is no positive whole number."""
    from components.errors import ConfigError

    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() and int(part) for part in parts):
        raise ConfigError(f"--devices is {text!r}.", "Expected positive whole numbers, such as 1,8,64.")
    return [int(part) for part in parts]
