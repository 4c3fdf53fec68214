"""Shared parts of all commands: options, the resolved config, messages, and how a failure ends a command.

Exit codes:

    0    done
    1    a stage failed
    2    the config or the command line is refused
    3    the dream is not faithful enough
    4    the promotion was refused (a normal outcome)
    5    `reproduce`: some metrics differ from the original run
    6    `validate`: some rows were set aside
    130  interrupted
"""

from __future__ import annotations

import os
import time
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
    from components.evaluation.study.cells import Cell
    from flows.retrain import RetrainResult

QUICK = Path("configs/quick.yaml")
INTERRUPTED = 130

out = Console(markup=False, emoji=False)
err = Console(stderr=True, markup=False, emoji=False)

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="Config file (YAML, or resolved JSON). Default: configs/quick.yaml, else the built-in defaults.",
    ),
]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Config values that replace the file's.")
]
Root = Annotated[
    Path | None,
    typer.Option(help="Repository to work in. Default: the one that contains the current directory."),
]
Debug = Annotated[
    bool,
    typer.Option("--debug", envvar="DREAMGYM_DEBUG", help="Show the traceback of expected failures too."),
]


@contextmanager
def report_failures(debug: bool, resumes: bool = False) -> Iterator[None]:
    """End the command with one red paragraph and the failure's exit code; a bug keeps its traceback.

    Args:
        debug: show the traceback of expected failures too.
        resumes: whether the same command, typed again, continues after an interruption.
    """
    try:
        yield
    except KeyboardInterrupt:
        hint = " Finished stages are kept: the same command goes on from there." if resumes else ""
        err.print(f"Interrupted.{hint}", style="yellow")
        raise typer.Exit(INTERRUPTED) from None
    except typer.Exit:
        raise
    except Exception as error:
        from flows.failures import expected_failure

        failure = None if debug else expected_failure(error)
        if failure is None:
            raise
        _exit_with_failure(failure)


def _exit_with_failure(failure: DreamGymError) -> NoReturn:
    from flows.failures import print_failure

    print_failure(err, failure)
    raise typer.Exit(failure.exit_code) from None


def load_settings(config: Path | None, overrides: list[str] | None, root: Path | None) -> tuple[Config, Path]:
    """Return the resolved config and the repository; set the environment variables of all libraries first."""
    from flows.settings import prepare

    workspace = (root or _repository_around(Path.cwd())).resolve()
    prepare(workspace)
    from components.config import load_config

    default = workspace / QUICK
    file = config or (default if default.is_file() else None)
    return load_config(file, overrides or []), workspace


def quick_config(environment: str, root: Path | None) -> Path:
    """Return `configs/quick-NAME.yaml` of an environment; for ALFWorld `configs/quick.yaml`.

    The file may be missing: `load_settings` reports that.
    """
    file = QUICK if environment == "alfworld" else QUICK.with_name(f"quick-{environment}.yaml")
    return default_config(file, root)


def default_config(file: Path, root: Path | None) -> Path:
    """Return the path of a config that comes with the repository, such as configs/logs.yaml."""
    return (root or _repository_around(Path.cwd())) / file


def _repository_around(directory: Path) -> Path:
    """Return the nearest directory at or above with a git repository; `directory` itself without one."""
    above = (directory, *directory.parents)
    return next((candidate for candidate in above if (candidate / ".git").exists()), directory)


def prepare_flow_logs(debug: bool) -> None:
    """Call before a flow: tag its Prefect runs with this process; hide tracebacks of expected failures.

    Args:
        debug: keep these tracebacks in the log.
    """
    from flows.dead_flow_runs import tag_flow_runs
    from flows.failures import hide_expected_tracebacks

    tag_flow_runs()
    if not debug:
        hide_expected_tracebacks()


def print_status(message: str) -> None:
    """Print a progress message on stderr, apart from the results."""
    err.print(message, style="dim", soft_wrap=True, highlight=False)


def check_machine(workspace: Path, *outputs: Path | None, versions: bool = True) -> None:
    """Raise DataError for what would stop a long command at its end.

    Checked are free disk space, write permission, temporary files and the locks of DVC and git.

    Args:
        outputs: further files or directories that the command writes.
        versions: whether the command uses DVC and git.
    """
    from components.files import require_writable
    from flows.checks.machine import require_machine
    from flows.checks.preflight import require_disk_space

    require_disk_space(workspace)
    require_machine(workspace, versions=versions)
    for path in outputs:
        if path is not None:
            require_writable(path.absolute() if path.is_dir() else path.absolute().parent)


def prepare_run(config: Path | None, overrides: list[str] | None, root: Path | None) -> tuple[Config, Path]:
    """Return the config and the repository of a run, with its data pulled and its settings checked."""
    settings, workspace = load_settings(config, overrides, root)
    from flows.checks.config_checks import check_settings
    from flows.checks.preflight import ensure_data, require_repository

    require_repository(workspace)
    check_machine(workspace)
    ensure_data(workspace, settings, print_status, backbone=not settings.backbone.path)
    settings, _ = fit_to_recorded_world(settings, workspace, overrides)
    check_settings(workspace, settings, config)
    print_status("Starting (the libraries take some seconds to load) ...")
    return settings, workspace


def fit_to_recorded_world(
    settings: Config, workspace: Path, overrides: list[str] | None
) -> tuple[Config, dict[str, Any]]:
    """Return the config with the values that the data decides, and these values; print each.

    Imported logs decide on the world and the limits of lengths, the data of a world of the user's on counts
    and on who is imitated. The config of another world stays as it is.
    """
    if settings.environment.name == "recorded":
        from flows.checks.fit_to_logs import fit_to_logs

        set_by_user = [text.partition("=")[0] for text in overrides or []]
        settings, fitted = fit_to_logs(workspace, settings, set_by_user)
        origin = "the logs"
    else:
        from flows.checks.fit_to_data import fit_to_data

        settings, fitted = fit_to_data(workspace, settings)
        origin = "the recorded data"
    for key, value in fitted.items():
        shown = repr(value) if len(repr(value)) < 80 else f"{repr(value)[:76]} ..."
        print_status(f"Set from {origin}: {key}={shown}")
    return settings, fitted


@contextmanager
def show_progress(settings: Config, workspace: Path, debug: bool) -> Iterator[None]:
    """Show the progress of a retraining on stderr within this block: what is going on, and the time left.

    Prefect's log lines go to a file in `.dreamgym/logs/`.

    Args:
        debug: leave Prefect's log lines on the terminal.
    """
    if debug:
        yield
        return
    from components.tracking.stage_store.stage_store import StageStore
    from flows.printing.run_progress import STEPS, expected_seconds, run_progress

    store = StageStore(workspace / ".dreamgym" / "stages")
    expected: dict[str, float] = {}
    if not settings.backbone.path:  # how long a model of the user's takes is not known
        earlier = {stage: results[0].seconds for stage in STEPS if (results := store.earlier_results(stage))}
        expected = expected_seconds(settings.environment.name, earlier)
    log_file = (
        workspace / ".dreamgym" / "logs" / f"retrain-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    )
    print_status(f"Full log: {log_file.relative_to(workspace)}")
    with run_progress(err, log_file, expected):
        yield


def finish_retrain(page: Output, result: RetrainResult, seconds: float = 0.0) -> None:
    """Print a run's results; exit with code 4 if the promotion was refused.

    Of a run without a live world nothing is promoted, which is no refusal.
    """
    from components.errors import PROMOTION_REFUSED
    from flows.cli.tables.run_table import print_run

    decision = result.decision
    print_run(page, result.directory, decision.promoted, decision.reason, seconds, is_live=result.is_live)
    if result.is_live and not decision.promoted:
        raise typer.Exit(PROMOTION_REFUSED)


def run_study(
    page: Output,
    settings: Config,
    workspace: Path,
    methods: Sequence[str],
    seeds: Sequence[int],
    cells: Path,
    *,
    finished: bool = False,
    against: str = "",
) -> tuple[dict[str, list[Cell]], dict[str, Any]]:
    """Run or read the cells of a study and print them; return the cells of each method and their metrics.

    Args:
        cells: directory of the cells' files.
        finished: only read finished cells, run no other.
        against: the method that most others are compared with; empty: BASE.
    """
    from components.evaluation.study.study_results import summarise
    from flows.cli.tables.methods_table import print_study
    from flows.jobs.studies.method import BASE
    from flows.jobs.studies.study import study
    from flows.jobs.studies.study_methods import CONTROLS, bases_against

    base = against or BASE
    bases = bases_against(base)
    cells_by_method = study(settings, workspace, methods, seeds, cells, finished=finished)
    metrics = summarise(cells_by_method, base, bases, methods, CONTROLS)
    print_study(page, cells_by_method, metrics)
    return cells_by_method, metrics


def exit_if_crashed(cells: Mapping[str, Sequence[Cell]]) -> None:
    """Exit with code 1 if a cell crashed."""
    if any(cell.crash for method_cells in cells.values() for cell in method_cells):
        raise typer.Exit(1)
