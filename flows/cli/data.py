"""The verbs of `dreamgym data`: which version of data/ this clone uses.

Runs never move data.dvc or data/. These verbs do, because a person types them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.command import Debug, Root, begin, check_machine, reported, say
from flows.printing.output import Cell, Column, JsonFile, Output, Table, output

if TYPE_CHECKING:
    from components.trajectories.dvc.pointer import Out, PartChange

verbs = typer.Typer(
    name="data", help="Save, pull or switch the version of data/ that this clone uses.", no_args_is_help=True
)
COMMIT = "To keep this version in git: git commit data.dvc -m 'New data'"


@verbs.command()
def save(json_file: JsonFile = None, root: Root = None, debug: Debug = False) -> None:
    """Version data/ as it lies: data.dvc names it afterwards.

    Example:

        dreamgym data save
    """
    with reported(debug), output(json_file) as page:
        _, place = begin(None, [], root)
        from components.trajectories.dvc.snapshots import push, snapshot
        from flows.checks.preflight import require_repository

        require_repository(place)
        check_machine(place)
        made = snapshot(place)
        remote = push(place)
        _show_parts(page, made.parts)
        page.text(f"data.dvc names the version {made.hash}, pushed to the remote {remote}.")
        page.text(COMMIT)
        page.put(dvc_hash=made.hash, remote=remote)


@verbs.command()
def pull(
    force: Annotated[
        bool, typer.Option("--force", help="Replace files of data/ that are in no version, too.")
    ] = False,
    json_file: JsonFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Bring data/ to the version that data.dvc names, from every cache and remote that DVC knows here, and
    verify each file.

    Example:

        dreamgym data pull
    """
    with reported(debug), output(json_file) as page:
        _, place = begin(None, [], root)
        from components.trajectories.dvc.snapshots import pull as bring

        check_machine(place)
        say("Looking for the version that data.dvc names ...")
        made = bring(place, force=force)
        _show_parts(page, made.parts)
        page.text(f"data/ is the version {made.hash}.")
        page.put(dvc_hash=made.hash)


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
        typer.Option("--remote", metavar="NAME", help="A remote that DVC knows here; else the default one."),
    ] = "",
    json_file: JsonFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Copy a run's version of data/ to a remote, so that others can reproduce the run.

    `dvc exp push` reads the remotes of the run's commit: one that was added later it does not know.

    Example:

        dreamgym data push latest --remote team
    """
    with reported(debug), output(json_file) as page:
        _, place = begin(None, [], root)
        from components.trajectories.dvc.versions import push_outs
        from flows.past_runs.use_data import version_of_run

        check_machine(place)
        run_id, outs = version_of_run(place, run)
        name = push_outs(place, outs, remote)
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
        bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")
    ] = False,
    json_file: JsonFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Make a run's version of data/ the one that this clone uses: data/ and data.dvc move, the next run
    starts from it.

    A run's version is that of its start with its dreamed transitions in the replay log. Unsaved files are
    never replaced.

    Examples:

        dreamgym data use latest --dry-run

        dreamgym data use 20260131-142530-9f3a
    """
    with reported(debug), output(json_file) as page:
        _, place = begin(None, [], root)
        from flows.past_runs.use_data import adopt, plan_adoption

        check_machine(place)
        plan = plan_adoption(place, run)
        columns = [Column("part"), Column("now"), Column("then"), Column("files", right=True)]
        rows = [_change_cells(change) for change in plan.changes]
        page.table("changes", Table(f"What changes with the data of run {plan.run_id}", columns, rows))
        page.put(run=plan.run_id, applied=bool(plan.changes) and not dry_run)
        if not plan.changes:
            page.text("data.dvc names that version already.")
        elif dry_run:
            page.text(f"Nothing was changed. To change it: dreamgym data use {run}")
        else:
            adopt(place, plan)
            page.text(
                f"data/ and data.dvc are the version of run {plan.run_id}. Back: git checkout data.dvc && "
                "dreamgym data pull"
            )
            page.text(f"To keep it in git: git commit data.dvc -m 'Data of run {plan.run_id}'")


def _change_cells(change: PartChange) -> list[str | int]:
    before, after = (side.md5 if side else "-" for side in (change.before, change.after))
    return [change.path, before, after, change.after.files if change.after else 0]


def _show_parts(page: Output, parts: Sequence[Out]) -> None:
    columns = [
        Column("part"),
        Column("DVC hash", "md5"),
        Column("files", right=True),
        Column("size", "bytes", right=True),
    ]
    rows = [[part.path, part.md5, part.files, Cell(part.size, f"{part.size / 1e6:.2f} MB")] for part in parts]
    page.table("parts", Table("Parts of data/", columns, rows))
