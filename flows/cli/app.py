"""The `dreamgym` command: the application that all commands are registered in; the jobs that end with a gate.

The other commands are in the modules of this folder, one module a group. Libraries are imported inside the
commands, after `flows.settings.prepare`, so that `--help` is quick and the settings take effect.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from components.child_processes import end_with_parent
from components.errors import ConfigError
from flows.cli import (
    bench,
    champion,
    comparisons,
    evaluation,
    operate,
    prepare,
    scaling,
    setup,
    storage,
    worlds,
)
from flows.cli import data as data_versions
from flows.cli.command import (
    ConfigFile,
    Debug,
    Overrides,
    Root,
    finish_retrain,
    prepare_flow_logs,
    prepare_run,
    report_failures,
    show_progress,
)
from flows.cli.preparation.log_options import (
    CutTexts,
    HeldOutShare,
    LeastSuccess,
    LogBehaviour,
    LogForm,
    LogOutcome,
)
from flows.cli.preparation.logs import prepare_refinement, prepare_run_on_logs
from flows.cli.preparation.rounds import prepare_next_round
from flows.printing.output import JsonFile, Output, VerbGroup, open_closed_streams, output

if TYPE_CHECKING:
    from components.config import Config
    from flows.retrain import RetrainResult

_EPILOG = (
    "Every command takes KEY=VALUE overrides of the config, such as rl.dream.iterations=10; "
    "`dreamgym config --docs` lists all keys."
)

app = typer.Typer(
    name="dreamgym",
    cls=VerbGroup,
    help="Train an agent by RL inside a learned dream of its environment: from offline trajectories to a "
    "promoted policy.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command; in a distributed launch only in the first process, the others train with it."""
    open_closed_streams()
    from components.language.training import parallel

    if parallel.size() > 1:
        end_with_parent()  # the launcher
    if parallel.is_worker():
        parallel.serve()
        return
    try:
        app()
    finally:
        parallel.stop_workers()


@app.command()
def retrain(
    overrides: Overrides = None,
    logs: Annotated[
        list[Path] | None,
        typer.Option(
            "--logs",
            metavar="FILE",
            help="Import this log of an agent first, and train on it alone; may be given several times. "
            "The config is then configs/logs.yaml.",
        ),
    ] = None,
    form: LogForm = "openai",
    outcome: LogOutcome = "",
    success: LeastSuccess = 1.0,
    held_out: HeldOutShare = 0.1,
    behaviour: LogBehaviour = "policy",
    cut: CutTexts = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Run nothing; print which stages would be reused or run, and why."),
    ] = False,
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Train a policy from offline trajectories and promote it if it is better than the champion.

    The steps: validate the data, fine-tune the experience model, clone a policy, RL in the dream, RL in the
    real environment, evaluate, promote. Stages with unchanged inputs are reused from earlier runs. In a fresh
    clone the data is pulled first. --dry-run compares each stage with its nearest earlier result.

    With --logs there is no live world: the policy is trained in the dream alone, and nothing is promoted. The
    logs are read as by `dreamgym import`, with the same options.

    Examples:

        dreamgym retrain

        dreamgym retrain --logs agent.jsonl

        dreamgym retrain --logs steps.jsonl --as steps --success 0.8 --behaviour expert

        dreamgym retrain --config configs/cpu.yaml seed=1 rl.real.budget=2000

        dreamgym retrain --dry-run seed=1
    """
    with report_failures(debug, resumes=True), output(json_file) as page:
        if logs:
            from flows.jobs.import_logs import ImportOptions

            if dry_run:
                raise ConfigError(
                    "--dry-run with --logs: the import itself would replace data/recorded.",
                    next_step="Type dreamgym import FILE, then dreamgym retrain --config configs/logs.yaml "
                    "--dry-run.",
                )
            options = ImportOptions(form, outcome, success, held_out, behaviour, cut, needs_success=True)
            settings, workspace = prepare_run_on_logs(page, logs, options, config, overrides, root)
        elif given := _changed_log_options(form, outcome, success, held_out, behaviour, cut):
            raise ConfigError(
                f"{' and '.join(given)} without --logs.",
                "Expected a log: this says how one is read.",
                f"Add --logs FILE, or leave {' and '.join(given)} out.",
            )
        else:
            settings, workspace = prepare_run(config, overrides, root)
        from flows.retrain import STEPS
        from flows.retrain import retrain as retrain_flow

        if dry_run:
            from flows.cli.tables.plan_table import print_stages
            from flows.run.plan import plan

            print_stages(page, "What a run would do", plan(settings, workspace, STEPS))
            return

        _run_to_report(page, settings, workspace, debug, lambda: retrain_flow(settings, workspace))


def _changed_log_options(*values: object) -> list[str]:
    """Return the names of the options of logs whose values are not the defaults."""
    defaults: dict[str, object] = {
        "--as": "openai",
        "--outcome": "",
        "--success": 1.0,
        "--held-out": 0.1,
        "--behaviour": "policy",
        "--cut": False,
    }
    pairs = zip(defaults.items(), values, strict=True)
    return [name for (name, default), value in pairs if value != default]


@app.command()
def refine(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run on logs: its id, or `latest`.")],
    overrides: Overrides = None,
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Go on with a run on logs in a live world: compare the dream with it, refine the policy, promote.

    The world needs the texts and the actions of the logs, and tasks that `dreamgym collect` has recorded. The
    config is that of the run, with the values given here, such as the address of the world.

    Examples:

        dreamgym refine latest environment.name=openenv environment.openenv.url=http://localhost:8000

        dreamgym refine 20260131-142530-9f3a environment.name=alfworld rl.real.budget=2000
    """
    with report_failures(debug, resumes=True), output(json_file) as page:
        settings, workspace = prepare_refinement(run, config, overrides, root)
        from flows.refine import refine as refine_flow

        _run_to_report(page, settings, workspace, debug, lambda: refine_flow(settings, workspace, run))


@app.command()
def next_round(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A finished run: its id, or `latest`.")],
    overrides: Overrides = None,
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Train the experience model on a run's real episodes, and go on with its policy: dream, reality, gate.

    Real episodes are those of RL in reality, of the comparisons with it, and of replayed dreams. The config
    is that of the run, with the values given here.

    Examples:

        dreamgym next-round latest

        dreamgym next-round 20260131-142530-9f3a rl.real.budget=2000
    """
    with report_failures(debug, resumes=True), output(json_file) as page:
        settings, workspace = prepare_next_round(run, config, overrides, root)
        from flows.next_round import next_round as next_round_flow

        _run_to_report(page, settings, workspace, debug, lambda: next_round_flow(settings, workspace, run))


def _run_to_report(
    page: Output, settings: Config, workspace: Path, debug: bool, run_flow: Callable[[], RetrainResult]
) -> None:
    """Run a job that ends with the promotion gate, showing its progress, and print its result."""
    prepare_flow_logs(debug)
    began = time.monotonic()
    with show_progress(settings, workspace, debug):
        result = run_flow()
    finish_retrain(page, result, time.monotonic() - began)


for _commands in (
    prepare,
    setup,
    evaluation,
    comparisons,
    bench,
    champion,
    operate,
    scaling,
    storage,
    worlds,
    data_versions,
):
    app.add_typer(_commands.verbs)


if __name__ == "__main__":
    main()
