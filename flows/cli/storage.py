"""Commands about results on disk: `load` shows a stage's outputs, `gc` removes what is not needed.

Libraries are imported inside the commands, so that `--help` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.command import ConfigFile, Debug, Overrides, Root, load_settings, report_failures
from flows.printing.output import JsonFile, Output, output
from flows.printing.table import Cell, Column, Table

if TYPE_CHECKING:
    from pathlib import Path

    from components.config import Config
    from components.tracking.disk_usage import Champions, StoredItem
    from components.tracking.stage_store.loading import LoadedStage

verbs = typer.Typer()


@verbs.command()
def load(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's id under runs/, or `latest`.")],
    stage: Annotated[
        str, typer.Argument(metavar="STAGE", help="A stage of the run, such as clone or synthetic_rl.")
    ],
    output_name: Annotated[
        str, typer.Argument(metavar="OUTPUT", help="Name of one output: print its path alone.")
    ] = "",
    json_file: JsonFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Show a stage of a run: paths of its outputs, metrics, curves. Every file is verified by its hash.

    In Python: `from components.tracking.stage_store.loading import load_stage`.

    Examples:

        dreamgym load latest synthetic_rl

        ls $(dreamgym load latest sim_to_real policy)

        dreamgym load 20260131-142530-9f3a evaluate --json
    """
    with report_failures(debug), output(json_file) as page:
        _, workspace = load_settings(None, [], root)
        from components.tracking.stage_store.loading import load_stage, path_of

        loaded = load_stage(run, stage, workspace)
        if output_name:
            path = path_of(loaded, output_name)
            page.put(run=loaded.run, stage=loaded.stage, output=output_name)
            page.put(path=str(path), hash=loaded.hashes[output_name])
            page.text(str(path))
            return
        _print_stage(page, loaded)


@verbs.command()
def gc(
    delete: Annotated[
        bool, typer.Option("--delete", help="Remove what is not needed. Without it nothing is changed.")
    ] = False,
    older_than: Annotated[
        float,
        typer.Option(min=0, metavar="DAYS", help="Remove only what was last changed this many days ago."),
    ] = 7.0,
    keep: Annotated[
        int, typer.Option(min=0, metavar="N", help="Number of newest runs that keep their stages.")
    ] = 3,
    overrides: Overrides = None,
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Show the size of stages, runs, embeddings, downloads, worktrees; --delete removes what is not needed.

    Kept is what one of these needs: a run in progress; a run that `dreamgym resume` can continue; a champion,
    or a version that `dreamgym rollback` may return to; a run's commit; one of the newest runs. So are the
    runs that a champion or one of the newest went on from. Versions of data and MLflow's files are never
    removed.

    Examples:

        dreamgym gc

        dreamgym gc --delete --older-than 30 --keep 5
    """
    with report_failures(debug), output(json_file) as page:
        settings, workspace = load_settings(config, overrides, root)
        from components.tracking.disk_usage import remove, survey

        items = survey(workspace, _champions(settings, workspace), older_than_days=older_than, keep=keep)
        _print_survey(page, items, workspace)
        unneeded = [item for item in items if not item.reason_kept]
        size = _size_text(sum(item.bytes for item in unneeded))
        page.put(unneeded_bytes=sum(item.bytes for item in unneeded), removed_bytes=0)
        if not unneeded:
            page.text("Nothing to remove.")
        elif delete:
            removed, freed = remove(workspace, items)
            page.put(removed_bytes=freed)
            page.text(f"Removed: {len(removed)} of {len(unneeded)} entries, {_size_text(freed)}.")
        else:
            page.text(f"Not needed: {len(unneeded)} entries, {size}. To remove them: dreamgym gc --delete")


def _champions(settings: Config, root: Path) -> Champions:
    """Return the runs and stages of all champions so far. Raises TrackingError if MLflow fails."""
    from components.tracking.disk_usage import Champions
    from components.tracking.mlflow_adapter.tracker import Tracker
    from flows.stages.promote import PROMOTED_AT, champion_directory

    tracker = Tracker(settings.tracking, root)
    current = tracker.alias("policy", "champion")
    promoted = [
        tags
        for version, tags in tracker.versions("policy").items()
        if PROMOTED_AT in tags or version == current
    ]
    runs = frozenset(tags["dreamgym.run_id"] for tags in promoted if "dreamgym.run_id" in tags)
    keys = frozenset(tags["dreamgym.stage_key"] for tags in promoted if "dreamgym.stage_key" in tags)
    return Champions(runs, keys, champion_directory(tracker, root, current).name if current else "")


def _print_stage(page: Output, loaded: LoadedStage) -> None:
    origin = "reused from an earlier run" if loaded.reused else "computed in this run"
    page.put(run=loaded.run, stage=loaded.stage, key=loaded.key, directory=str(loaded.directory))
    page.put(seconds=loaded.seconds, reused=loaded.reused, hashes=loaded.hashes, curves=loaded.curves)
    page.text(
        f"Stage {loaded.stage} of run {loaded.run}: {origin}, {loaded.seconds:.0f} s, key {loaded.key[:12]}."
    )
    rows = [[name, str(path)] for name, path in loaded.paths.items()]
    page.table("outputs", Table("Outputs", [Column("output"), Column("path")], rows))
    if loaded.metrics:
        columns = [Column("metric"), *(Column(name, right=True) for name in ("value", "low", "high", "n"))]
        cells = [
            [name, *(_number_cell(entry[key]) for key in ("value", "low", "high", "n"))]
            for name, entry in loaded.metrics.items()
        ]
        page.table("metrics", Table("Metrics", columns, cells))
    if loaded.curves:
        points = [
            [name, len(values), _number_cell(values[-1] if values else None)]
            for name, values in loaded.curves.items()
        ]
        page.table(
            "",
            Table(
                "Curves", [Column("curve"), Column("points", right=True), Column("last", right=True)], points
            ),
        )


def _number_cell(value: float | int | None) -> Cell:
    return Cell(
        value, "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value), ""
    )


def _print_survey(page: Output, items: list[StoredItem], root: Path) -> None:
    columns = [
        Column("kind"),
        Column("path"),
        Column("size", "bytes", right=True),
        Column("days", right=True),
        Column("kept", prose=True),
    ]
    rows = [
        [
            item.kind,
            str(item.path.relative_to(root)),
            Cell(item.bytes, _size_text(item.bytes)),
            Cell(round(item.age_days, 2), f"{item.age_days:.1f}"),
            item.reason_kept or Cell("", "not needed", "yellow"),
        ]
        for item in items
    ]
    page.table("entries", Table("On the disk", columns, rows))
    page.table("totals", _totals_table(items))


def _totals_table(items: list[StoredItem]) -> Table:
    """Return a row for each kind: its entries, their size, and the size that is not needed."""
    totals: dict[str, list[int]] = {}
    for item in items:
        sums = totals.setdefault(item.kind, [0, 0, 0])
        sums[0] += 1
        sums[1] += item.bytes
        sums[2] += 0 if item.reason_kept else item.bytes
    heads = [Column("kind"), Column("entries", right=True), Column("size", "bytes", right=True)]
    heads += [Column("not needed", "unneeded_bytes", right=True)]
    lines = [
        [kind, count, Cell(size, _size_text(size)), Cell(free, _size_text(free))]
        for kind, (count, size, free) in totals.items()
    ]
    return Table("By kind", heads, lines)


def _size_text(count: int) -> str:
    """Return a number of bytes as text, in GB, MB or kB."""
    if count >= 1e9:
        return f"{count / 1e9:.2f} GB"
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"
