"""What a command prints at its end: tables for people, read from what the run wrote."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from components.tracking.manifest import Manifest
    from components.trajectories.validation import ValidationReport
    from flows.index import Indexed

POLICIES = ("cloned", "dreamed", "refined")


def print_run(console: Console, directory: Path, promoted: bool, reason: str, wall_seconds: float) -> None:
    """The results of a finished run, how it came to them, and where to look."""
    from components.tracking.manifest import Manifest
    from components.tracking.runs import read_metrics

    manifest, metrics = Manifest.load(directory), read_metrics(directory)
    console.print()
    console.print(results_table(metrics, manifest.config.get("evaluation", {}).get("confidence", 0.95)))
    console.print(_costs(manifest, wall_seconds))
    verdict = "[green]Promoted.[/green]" if promoted else "[yellow]Not promoted.[/yellow]"
    console.print(verdict, escape(reason), soft_wrap=True)
    console.print(f"Report: {directory / 'report.html'}", soft_wrap=True, highlight=False)
    console.print("Runs and models side by side: `dreamgym ui` (or `make ui`)", soft_wrap=True, highlight=False)


def results_table(metrics: Mapping[str, Mapping[str, Any]], confidence: float) -> Table:
    """Success of each policy on held-out real games, and the share of its dreamed successes that the real engine confirmed.

    `confidence` is the level of the success rates' intervals; that of the confirmed shares is always 95 %.
    """
    table = Table(title="Held-out real games", title_justify="left")
    for name in ("policy", "success", level(confidence), "games", f"dreamed successes confirmed ({level(0.95)})"):
        table.add_column(name, justify="left" if name == "policy" else "right")
    for policy in POLICIES:
        success = metrics.get(f"evaluate/{policy}/success_rate", {})
        agreement = metrics.get(f"fidelity/rollout_agreement/{policy}", {})
        table.add_row(policy, share(success), interval(success), str(success.get("n", "")), _with_n(agreement))
    return table


def level(confidence: float) -> str:
    """Head of a column of intervals, such as `95 % interval`."""
    return f"{100 * confidence:.6g} % interval"


def share(entry: Mapping[str, Any]) -> str:
    """A rate in percent; `not measured` without observations."""
    return f"{entry['value']:.1%}" if entry.get("n") and entry.get("value") is not None else "not measured"


def interval(entry: Mapping[str, Any]) -> str:
    """Both ends of a rate's interval in percent."""
    return f"{entry['low']:.1%} to {entry['high']:.1%}" if entry.get("n") and entry.get("low") is not None else ""


def _with_n(entry: Mapping[str, Any]) -> str:
    return f"{share(entry)} ({interval(entry)}, n={entry['n']})" if entry.get("n") else ""


def _costs(manifest: Manifest, wall_seconds: float) -> Table:
    table = Table.grid(padding=(0, 2))
    reused = [stage for stage in manifest.stages if stage.reused]
    saved = sum(stage.seconds for stage in reused)
    stages = f"{len(manifest.stages) - len(reused)} made, {len(reused)} reused" + (f" (saved {duration(saved)})" if reused else "")
    slowest = sorted((stage for stage in manifest.stages if not stage.reused), key=lambda stage: -stage.seconds)[:4]
    costs = manifest.costs
    table.add_row("real interactions", f"{costs.real_interactions:,} for training, {costs.check_interactions:,} for checks and evaluation")
    table.add_row("stages", stages)
    table.add_row("wall time", duration(wall_seconds))
    if slowest:
        table.add_row("slowest stages", ", ".join(f"{stage.name} {duration(stage.seconds)}" for stage in slowest))
    table.add_row("data (DVC hash)", f"{manifest.data.dvc_in} -> {manifest.data.dvc_out or manifest.data.dvc_in}")
    return table


def print_pooled(console: Console, rates: Mapping[str, Mapping[str, float]], pooled: Mapping[str, Mapping[str, Any]]) -> None:
    """Success of each run (name -> policy -> rate) and of all together, then the differences between policies."""
    table = Table(title="The same held-out real games, all runs", title_justify="left")
    for name in ("policy", *rates, "all runs", level(0.95), "games"):
        table.add_column(name, justify="left" if name == "policy" else "right")
    for name, entry in pooled.items():
        policy = name.split("/")[1]
        own = [f"{run[policy]:.1%}" if policy in run else "" for run in rates.values()]
        if "_minus_" in policy:
            later, earlier = policy.split("_minus_")
            own = [f"{run[later] - run[earlier]:+.1%}" for run in rates.values()]
            policy = f"{later} minus {earlier}"
        table.add_row(policy, *own, share(entry), interval(entry), str(entry["n"]))
    console.print(table)


def print_validation(console: Console, name: str, report: ValidationReport) -> None:
    """The rules of one file, what was set aside, and where the Data Docs are."""
    table = Table(title=f"{name}: {report.rows:,} rows, {report.valid_rows:,} valid", title_justify="left")
    for column in ("rule", "result", "rows"):
        table.add_column(column, justify="right" if column == "rows" else "left")
    for check in report.checks:
        table.add_row(check.name, "[green]kept[/green]" if check.success else "[red]broken[/red]", f"{check.unexpected:,}")
    console.print(table)
    for _, row in report.quarantined.head(5).iterrows():
        console.print(f"set aside: episode {row['episode_id']} step {row['step']}: {row['reason']}", style="yellow", markup=False)
    if len(report.quarantined):
        console.print(f"{len(report.quarantined)} rows set aside: {report.clean_path.parent / 'quarantine.parquet'}", soft_wrap=True)
    console.print(f"Data Docs: {report.data_docs}", soft_wrap=True, highlight=False)


def print_index(console: Console, made: Indexed, k: int) -> None:
    """What `dreamgym index` did, and its figures."""
    console.print(made.done, soft_wrap=True, highlight=False)
    table = Table.grid(padding=(0, 2))
    table.add_row("transitions in the log", f"{made.transitions:,} ({made.dreamed:,} dreamed), {made.held:,} held to retrieve from")
    table.add_row("different steps", f"{made.steps:,}")
    table.add_row("encoder", made.encoder)
    estimate = made.recall.to_json()
    table.add_row(f"recall@{k} against exact search", f"{share(estimate)} ({interval(estimate)}, n={made.recall.n:,} neighbours)")
    table.add_row("size on disk", f"{made.size_bytes / 1e6:.1f} MB")
    table.add_row("time", duration(made.seconds))
    console.print(table)


def duration(seconds: float) -> str:
    """`42 s`, `3 min 05 s` or `1 h 02 min`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
