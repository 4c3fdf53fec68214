"""The `dreamgym` command: one verb for one job.

Libraries are imported inside the verbs, after `flows.settings.prepare`, so that `--help` is quick and the
settings count. The verbs that measure are in `examine.py`, those that open worlds in `worlds.py`, what all
share in `command.py`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from components.child_processes import end_with_parent
from flows.cli import data as data_verbs
from flows.cli import examine as measuring
from flows.cli import operate as operating
from flows.cli import storage, worlds
from flows.cli.command import (
    ConfigFile,
    Debug,
    Overrides,
    Root,
    begin,
    check_machine,
    err,
    finish_retrain,
    out,
    prepared,
    quiet,
    reported,
    say,
)
from flows.printing.output import JsonFile, VerbGroup, open_closed_streams, output
from flows.settings import MLFLOW_PORT

_EPILOG = (
    "Every verb takes KEY=VALUE overrides of the config, such as rl.dream.iterations=10; "
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
    """Run the command; or, in every process of a launch but the first, help it to train."""
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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what is reused, what runs, and why.")
    ] = False,
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """From offline trajectories to a promoted policy: validate, experience model, dream, refine, evaluate,
    promote.

    What an earlier run made of the same inputs is reused. A fresh clone's data is pulled first. With
    --dry-run nothing runs: each stage is compared with its nearest earlier result, part by part of its key.

    Examples:

        dreamgym retrain

        dreamgym retrain --config configs/cpu.yaml seed=1 rl.real.budget=2000

        dreamgym retrain --dry-run seed=1
    """
    with reported(debug, resumes=True), output(json_file) as page:
        settings, place = prepared(config, overrides, root)
        from flows.retrain import STEPS
        from flows.retrain import retrain as flow

        if dry_run:
            from flows.cli.summary import print_stages
            from flows.run.plan import plan

            print_stages(page, "What a run would do", plan(settings, place, STEPS))
            return

        quiet(debug)
        began = time.monotonic()
        finished = flow(settings, place)
        finish_retrain(page, finished, time.monotonic() - began)


@app.command()
def collect(
    overrides: Overrides = None,
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Record offline trajectories in the real environment, as Parquet under data/, and version them with DVC.

    Expert, noisy, near-miss and random episodes of the training tasks, others to measure fidelity on, and the
    list of held-out games. The same config and seed give the same DVC hash. The old data stays in DVC's
    cache: what a fresh clone has not pulled yet is pulled first.

    Examples:

        dreamgym collect

        dreamgym collect data.train_tasks=600 data.near_miss=3
    """
    with reported(debug), output(json_file) as page:
        settings, place = begin(config, overrides, root)
        from flows.checks.preflight import complete_data, require_repository

        require_repository(place)
        check_machine(place)
        complete_data(place, say)
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        from flows.jobs.collect import collect_data

        quiet(debug)
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=err,
        ) as bar:
            lines = {name: bar.add_task(f"{name} episodes", total=None) for name in ("train", "fidelity")}
            made = collect_data(
                settings,
                place,
                lambda name, done, count: bar.update(lines[name], completed=done, total=count),
            )
        for name, (tasks, episodes, transitions) in made.counts.items():
            page.text(
                f"{name}: {tasks:,} tasks"
                + (f", {episodes:,} episodes, {transitions:,} transitions" if episodes else "")
            )
            page.put(**{name: {"tasks": tasks, "episodes": episodes, "transitions": transitions}})
        page.text(
            f"DVC hash of data/: {made.version.hash} ({made.version.files} files, "
            f"{made.version.size / 1e6:.2f} MB)"
        )
        page.text("The same config and seed give the same files, so the same hash.")
        page.text(data_verbs.COMMIT)
        page.put(dvc_hash=made.version.hash, files=made.version.files, bytes=made.version.size)


@app.command()
def validate(
    overrides: Overrides = None,
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Check the offline data with Great Expectations; episodes that break a rule are set aside with their
    reason.

    Nothing under data/ is changed: the clean copy, the quarantine and the Data Docs lie in
    .dreamgym/validate/.

    Exit code 0: no row was set aside. 6: some were. 1: more than data.quarantine_share broke a rule, or a
    file cannot be read.

    Examples:

        dreamgym validate

        dreamgym validate data.quarantine_share=0
    """
    with reported(debug), output(json_file) as page:
        settings, place = begin(config, overrides, root)
        from components.errors import ROWS_SET_ASIDE
        from components.trajectories.store import DataLayout, read_tasks
        from components.trajectories.validation import validate as check
        from flows.checks.preflight import ensure_data, version_in_words
        from flows.cli.validation_view import print_validation

        check_machine(place, versions=False)
        ensure_data(place, settings, say, backbone=False, versioned=False)
        layout = DataLayout.of(place, settings.environment.name)
        tasks = {name: read_tasks(layout.tasks(name)) for name in ("train", "fidelity", "test")}
        set_aside = 0
        for name in ("train", "fidelity"):
            folder = place / ".dreamgym" / "validate" / name
            title = f"{settings.environment.name} {name} trajectories, {version_in_words(place)}"
            report = check(layout.trajectories(name), tasks, settings.data, folder, split=name, title=title)
            print_validation(page, name, report)
            set_aside += len(report.quarantined)
        if set_aside:
            raise typer.Exit(ROWS_SET_ASIDE)


@app.command()
def pretrain(
    overrides: Overrides = None,
    to: Annotated[
        Path | None, typer.Option(help="Write it to this directory and leave data/ as it is.")
    ] = None,
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Make the small backbone that both models start from (an hour or two of two cores) and version it with
    the data.

    A fresh clone does not need it: its backbone comes with the data. An interrupted one goes on where it was.

    Example:

        dreamgym pretrain pretrain.tokens=20000000

        dreamgym pretrain pretrain.tokens=0 --to models/exercised
    """
    with reported(debug, resumes=True), output(json_file) as page:
        settings, place = begin(config, overrides, root)
        from flows.checks.preflight import complete_data, require_device, require_repository

        require_repository(place)
        check_machine(place, to)
        require_device(settings)
        complete_data(place, say)
        from components.trajectories.dvc.snapshots import push, snapshot
        from flows.jobs.pretrain import pretrain as flow

        quiet(debug)
        target = flow(settings, place, to)
        page.put(backbone=str(target), dvc_hash=None)
        if to is not None:
            page.text(f"Backbone: {target} (how it was made: card.json). data/ is as it was.")
            return
        version = snapshot(place)
        push(place)
        page.put(dvc_hash=version.hash)
        page.text(f"Backbone: {target} (how it was made: card.json). DVC hash of data/: {version.hash}")
        page.text(data_verbs.COMMIT)


@app.command()
def ui(
    overrides: Overrides = None,
    mlflow_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the MLflow UI.")] = MLFLOW_PORT,
    prefect_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the Prefect UI.")] = 4200,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Look at runs and models (MLflow) and at flows (Prefect) in the browser; Ctrl-C stops both.

    Examples:

        dreamgym ui

        dreamgym ui --mlflow-port 5001 --prefect-port 4201
    """
    with reported(debug):
        settings, place = begin(config, overrides, root)
        from flows.deployment.services import (
            Service,
            mlflow_service,
            prefect_service,
            require_free_ports,
            serve,
        )

        def show(name: str, address: str, how: str) -> None:
            out.print(f"{name}: {address}   ({how})", soft_wrap=True)
            if name == "MLflow":
                from components.tracking.dead_runs import close_dead_runs
                from components.tracking.mlflow_adapter.tracker import Tracker

                tracker = Tracker(settings.tracking, place)
                close_dead_runs(place / "runs", tracker)
                out.print(f"  runs side by side: {tracker.page(address)}", soft_wrap=True)
            else:
                from flows.dead_flow_runs import crash_dead_flow_runs

                crash_dead_flow_runs(place / "runs", f"{address}/api")

        wanted = {
            "MLflow": mlflow_service(settings.tracking, place, mlflow_port),
            "Prefect": prefect_service(prefect_port),
        }
        services = [service for service in wanted.values() if isinstance(service, Service)]
        require_free_ports(services)
        for name, address in wanted.items():
            if isinstance(address, str):
                show(name, address, "a server of your own")
        if services:
            say("Starting, which takes about half a minute ...")
            serve(services, place, lambda service: show(service.name, service.address, "Ctrl-C stops it"))


@app.command()
def doctor(
    overrides: Overrides = None,
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Check the set-up, step by step. Each check says what was found and, if it is wrong, what was expected
    and what to type.

    Exit code 0 if a run can start, 1 if something must be corrected first. `doubt` does not stop a run.

    Example:

        dreamgym doctor
    """
    with reported(debug), output(json_file) as page:
        settings, place = begin(config, overrides, root)
        from flows.checks.doctor import climb

        if not climb(settings, place, page):
            raise typer.Exit(1)


@app.command("config")
def show_config(
    overrides: Overrides = None,
    docs: Annotated[
        bool, typer.Option("--docs", help="Print all keys with meaning and default instead.")
    ] = False,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Print the resolved config as JSON, which --config takes back, or the list of all keys.

    Examples:

        dreamgym config seed=3 > mine.json

        dreamgym config --docs > docs/configuration.md
    """
    with reported(debug):
        settings, _ = begin(config, overrides, root)
        from components.config import dump_config
        from flows.cli.config_reference import describe_keys

        typer.echo(describe_keys() if docs else dump_config(settings), nl=False)


app.add_typer(measuring.verbs)
app.add_typer(operating.verbs)
app.add_typer(storage.verbs)
app.add_typer(worlds.verbs)
app.add_typer(data_verbs.verbs)


if __name__ == "__main__":
    main()
