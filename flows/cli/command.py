"""What all verbs of the command share: the options, the resolved config, what is said, and how a failure is
told.

Exit codes: 0 done, 1 a stage failed, 2 the config or the command line is refused, 3 the dream may not be
trusted, 4 the promotion was refused (a normal outcome), 5 a run did not come back as it was, 6 `validate` set
rows aside, 130 interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console

from components.errors import DreamGymError
from flows.printing.output import Output

if TYPE_CHECKING:
    from components.config import Config
    from components.evaluation.study.study_results import Cell
    from flows.retrain import Finished

QUICK = Path("configs/quick.yaml")
INTERRUPTED = 130

out, err = Console(markup=False, emoji=False), Console(stderr=True, markup=False, emoji=False)

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="YAML or resolved JSON; default configs/quick.yaml, else the built-in defaults.",
    ),
]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Overrides on top of the config file.")
]
Root = Annotated[
    Path | None,
    typer.Option(help="The repository to work in; default: the one around the current directory."),
]
Debug = Annotated[
    bool, typer.Option("--debug", envvar="DREAMGYM_DEBUG", help="Show tracebacks of expected failures too.")
]


@contextmanager
def reported(debug: bool, resumes: bool = False) -> Iterator[None]:
    """End the command with one red paragraph and the failure's exit code; a real bug keeps its traceback.

    `resumes` says whether the same command goes on where an interrupted one was.
    """
    try:
        yield
    except KeyboardInterrupt:
        kept = " Finished stages are kept: the same command goes on from there." if resumes else ""
        err.print(f"Interrupted.{kept}", style="yellow")
        raise typer.Exit(INTERRUPTED) from None
    except typer.Exit:
        raise
    except Exception as error:
        from flows.failures import expected_failure

        failure = None if debug else expected_failure(error)
        if failure is None:
            raise
        _give_up(failure)


def _give_up(failure: DreamGymError) -> NoReturn:
    from flows.failures import print_failure

    print_failure(err, failure)
    raise typer.Exit(failure.exit_code) from None


def begin(config: Path | None, overrides: list[str] | None, root: Path | None) -> tuple[Config, Path]:
    """The resolved config and the repository; the settings of all libraries are in place afterwards."""
    from flows.settings import prepare

    place = (root or _around(Path.cwd())).resolve()
    prepare(place)
    from components.config import load_config

    default = place / QUICK
    return load_config(config or (default if default.is_file() else None), overrides or []), place


def quick_config(environment: str, root: Path | None) -> Path:
    """The small job's config of a world: `configs/quick-NAME.yaml`, of ALFWorld `quick.yaml`. Whether there
    is one, `begin` says.
    """
    return (root or _around(Path.cwd())) / (
        QUICK if environment == "alfworld" else QUICK.with_name(f"quick-{environment}.yaml")
    )


def _around(directory: Path) -> Path:
    """The nearest directory at or above with a git repository in it; `directory` itself if there is none."""
    return next((place for place in (directory, *directory.parents) if (place / ".git").exists()), directory)


def quiet(debug: bool) -> None:
    """Before a flow: no tracebacks of expected failures in its log, unless asked for; Prefect knows its
    process.
    """
    from flows.dead_flow_runs import tag_flow_runs
    from flows.failures import hush_tracebacks

    tag_flow_runs()
    if not debug:
        hush_tracebacks()


def say(message: str) -> None:
    """A line beside the results, on the error stream."""
    err.print(message, style="dim", soft_wrap=True, highlight=False)


def check_machine(place: Path, *outputs: Path | None, versions: bool = True) -> None:
    """Refuse at once what would stop a long verb at its end: a full disk, places that cannot be written,
    damaged locks.

    Args: outputs: files or directories that the verb writes besides. versions: whether it uses DVC and git.
    """
    from components.files import require_writable
    from flows.checks.machine import require_machine
    from flows.checks.preflight import require_room

    require_room(place)
    require_machine(place, versions=versions)
    for path in outputs:
        if path is not None:
            require_writable(path.absolute() if path.is_dir() else path.absolute().parent)


def prepared(config: Path | None, overrides: list[str] | None, root: Path | None) -> tuple[Config, Path]:
    """The config and the repository, with the data there and the settings checked."""
    settings, place = begin(config, overrides, root)
    from flows.checks.preflight import check_settings, ensure_data, require_repository

    require_repository(place)
    check_machine(place)
    ensure_data(place, settings, say, backbone=not settings.backbone.path)
    check_settings(place, settings, config)
    say("Starting (the libraries take some seconds to load) ...")
    return settings, place


def finish_retrain(page: Output, finished: Finished, seconds: float = 0.0) -> None:
    """Print a run's results; end the command with its own exit code where the promotion was refused."""
    from components.errors import PROMOTION_REFUSED
    from flows.cli.summary import print_run

    print_run(page, finished.directory, finished.decision.promoted, finished.decision.reason, seconds)
    if not finished.decision.promoted:
        raise typer.Exit(PROMOTION_REFUSED)


def make_study(
    page: Output,
    settings: Config,
    place: Path,
    methods: Sequence[str],
    seeds: Sequence[int],
    cells: Path,
    *,
    finished: bool = False,
) -> tuple[dict[str, list[Cell]], dict[str, Any]]:
    """Make or read the cells, and print them: the cells of each method, and their metrics."""
    from components.evaluation.study.study_results import summarise
    from flows.cli.summary import print_study
    from flows.jobs.study import study
    from flows.jobs.study_methods import BASE, BASES

    found = study(settings, place, methods, seeds, cells, finished=finished)
    metrics = summarise(found, BASE, BASES)
    print_study(page, found, metrics)
    return found, metrics


def fail_on_crash(cells: Mapping[str, Sequence[Cell]]) -> None:
    """End the command with exit code 1 if a cell crashed."""
    if any(cell.crash for of_method in cells.values() for cell in of_method):
        raise typer.Exit(1)
