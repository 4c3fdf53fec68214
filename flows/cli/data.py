"""Commands of `dreamgym data`: save, pull, push or switch the version of data/ that this clone uses.

Runs never change data.dvc or data/. Only these commands do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.command import Debug, Root, check_machine, load_settings, print_status, report_failures
from flows.printing.output import JsonFile, Output, output
from flows.printing.table import Cell, Column, Table

if TYPE_CHECKING:
    from components.trajectories.dvc.pointer import Out, PartChange

verbs = typer.Typer(
    name="data", help="Save, pull or switch the version of data/ that this clone uses.", no_args_is_help=True
)
COMMIT_HINT = "To keep this version in git: git commit data.dvc -m 'New data'"


@verbs.command()
def save(json_file: JsonFile = None, root: Root = None, debug: Debug = False) -> None:
    """Save the present content of data/ as a version, and push it to the remote; data.dvc then names it.

    Example:

        dreamgym data save
    """
    with report_failures(debug), output(json_file) as page:
        _, workspace = load_settings(None, [], root)
        from components.trajectories.dvc.snapshots import push, snapshot
        from flows.checks.preflight import require_repository

        require_repository(workspace)
        check_machine(workspace)
        version = snapshot(workspace)
        remote = push(workspace)
        _print_parts(page, version.parts)
        page.text(f"data.dvc names the version {version.hash}, pushed to the remote {remote}.")
        page.text(COMMIT_HINT)
        page.put(dvc_hash=version.hash, remote=remote)


@verbs.command()
def pull(
    force: Annotated[
        bool, typer.Option("--force", help="Replace also files of data/ that are in no version.")
    ] = False,
    json_file: JsonFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Check out the version of data/ that data.dvc names, and verify each file.

    Missing files are fetched from the caches and remotes that DVC is configured with.

    Example:

        dreamgym data pull
    """
    with report_failures(debug), output(json_file) as page:
        _, workspace = load_settings(None, [], root)
        from components.trajectories.dvc.snapshots import pull as pull_version

        check_machine(workspace)
        print_status("Looking for the version that data.dvc names ...")
        version = pull_version(workspace, force=force)
        _print_parts(page, version.parts)
        page.text(f"data/ is the version {version.hash}.")
        page.put(dvc_hash=version.hash)


@verbs.command()
def push(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A run's id, `latest`, or the name or commit of its DVC experiment."
        ),
    ],
    remote: Annotated[
        str,
        typer.Option("--remote", metavar="NAME", help="DVC remote to copy to. Default: the default remote."),
    ] = "",
    json_file: JsonFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Copy a run's version of data/ to a remote, so that others can reproduce the run.

    Use it instead of `dvc exp push`, which uses the remotes of the run's commit and ignores later ones.

    Example:

        dreamgym data push latest --remote team
    """
    with report_failures(debug), output(json_file) as page:
        _, workspace = load_settings(None, [], root)
        from components.trajectories.dvc.versions import push_outs
        from flows.past_runs.use_data import version_of_run

        check_machine(workspace)
        run_id, outs = version_of_run(workspace, run)
        name = push_outs(workspace, outs, remote)
        page.text(
            f"The version of run {run_id} ({sum(part.files for part in outs):,} files) is in the remote "
            f"{name}."
        )
        page.put(run=run_id, remote=name)


@verbs.command()
def use(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A run's id, `latest`, or the name or commit of its DVC experiment."
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; print what would change.")
    ] = False,
    json_file: JsonFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Switch data/ and data.dvc to the version of a run; the next run starts from it.

    The version of a run is the one that it started with, plus its dreamed transitions in the replay log.
    Unsaved files are never replaced.

    Examples:

        dreamgym data use latest --dry-run

        dreamgym data use 20260131-142530-9f3a
    """
    with report_failures(debug), output(json_file) as page:
        _, workspace = load_settings(None, [], root)
        from flows.past_runs.use_data import adopt, plan_adoption

        check_machine(workspace)
        plan = plan_adoption(workspace, run)
        columns = [Column("part"), Column("now"), Column("then"), Column("files", right=True)]
        rows = [_change_cells(change) for change in plan.changes]
        page.table("changes", Table(f"What changes with the data of run {plan.run_id}", columns, rows))
        page.put(run=plan.run_id, applied=bool(plan.changes) and not dry_run)
        if not plan.changes:
            page.text("data.dvc already names that version.")
        elif dry_run:
            page.text(f"Nothing was changed. To switch: dreamgym data use {run}")
        else:
            adopt(workspace, plan)
            page.text(
                f"data/ and data.dvc are the version of run {plan.run_id}. To go back: "
                "git checkout data.dvc && dreamgym data pull"
            )
            page.text(f"To keep it in git: git commit data.dvc -m 'Data of run {plan.run_id}'")


def _change_cells(change: PartChange) -> list[str | int]:
    before, after = (side.md5 if side else "-" for side in (change.before, change.after))
    return [change.path, before, after, change.after.files if change.after else 0]


def _print_parts(page: Output, parts: Sequence[Out]) -> None:
    columns = [
        Column("part"),
        Column("DVC hash", "md5"),
        Column("files", right=True),
        Column("size", "bytes", right=True),
    ]
    rows = [[part.path, part.md5, part.files, Cell(part.size, f"{part.size / 1e6:.2f} MB")] for part in parts]
    page.table("parts", Table("Parts of data/", columns, rows))
