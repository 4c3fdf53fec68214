"""What a command prints at its end: tables for people, read from what the run wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from components.evaluation.intervals import Estimate
    from components.tracking.comparison import Difference
    from components.tracking.manifest import Manifest
    from components.trajectories.validation import ValidationReport
    from flows.deploy import Deployed
    from flows.index import Indexed
    from flows.reproduce import Reproduction
    from flows.resume import Planned

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


FIDELITY_ROWS = {
    "next state exact, where determined": "fidelity/next_state_exact/determined",
    "  the worst class of change": "worst",
    "  in worlds never seen": "fidelity/next_state_exact/determined/held_out_worlds",
    "facts that reality contradicts, where determined": "fidelity/hallucination_rate/determined",
    "reward precision, near misses": "fidelity/reward_precision/near_miss",
    "reward recall": "fidelity/reward_recall",
    "reward precision, policies' steps": "fidelity/policy_reward_precision",
    "reward recall, policies' steps": "fidelity/policy_reward_recall",
    "answers that cannot be read": "fidelity/unparsable_rate",
    "dreamed successes confirmed, 20 steps": "fidelity/rollout_agreement/20",
    "10th dreamed state exact": "fidelity/open_loop_exact/10",
}
"""What a fidelity table shows -> the metric behind it."""


def print_fidelity(console: Console, directory: Path) -> None:
    """The examination of an experience model in one table, and where the rest is."""
    from components.tracking.runs import read_metrics

    metrics = read_metrics(directory)
    table = Table(title="The experience model on held-out tasks", title_justify="left")
    for name in ("", "value", level(0.95), "n"):
        table.add_column(name, justify="left" if not name else "right")
    for label, entry in _fidelity_rows(metrics):
        table.add_row(label, share(entry), interval(entry), f"{entry.get('n', 0):,}")
    console.print(table)
    denied = metrics.get("fidelity/denied_successes", {}).get("value", 0)
    console.print(f"Dreamed successes that the real engine denies: {denied:.0f} (transcripts: denied.json of the stage `fidelity`).")
    console.print(f"All metrics: {directory / 'metrics.json'}", soft_wrap=True, highlight=False)


LABEL_WIDTH, COLUMN_WIDTH = 44, 16
"""Characters that a row's name and a variant's column take in a table of ablations, its lines included."""


def _fidelity_rows(metrics: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    classes = [metrics.get(f"fidelity/next_state_exact/determined/changed_{name}", {}) for name in ("0", "1_2", "3_plus")]
    worst = min((entry for entry in classes if entry.get("n")), key=lambda entry: entry["value"], default={})
    return [(label, worst if name == "worst" else metrics.get(name, {})) for label, name in FIDELITY_ROWS.items()]


def print_ablation(console: Console, found: Mapping[str, Mapping[str, Any]]) -> None:
    """One row a metric, one column a variant, in as many tables beside the full model as the terminal's width asks for.

    A star stands where the interval of the paired difference from the full model leaves out zero.
    """
    plain = {name: {metric: entry.to_json() for metric, entry in metrics.items()} for name, metrics in found.items()}
    first, others = next(iter(plain)), list(plain)[1:]
    wide = max(1, (console.width - LABEL_WIDTH) // COLUMN_WIDTH - 1)
    for start in range(0, max(1, len(others)), wide):
        beside = others[start : start + wide]
        console.print(_ablation_table({name: plain[name] for name in (first, *beside)}))
    star = "* the 95 % interval of the paired difference, for further tasks and seeds, leaves out zero"
    console.print(star, highlight=False)


def _ablation_table(plain: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(title="Ablations of the experience model", title_justify="left")
    table.add_column("")
    for name in plain:
        table.add_column(name, justify="right")
    for label, _ in _fidelity_rows({}):
        rows = {name: dict(_fidelity_rows(metrics))[label] for name, metrics in plain.items()}
        table.add_row(label, *(share(entry) for entry in rows.values()))
    for score in dict.fromkeys(metric for metrics in plain.values() for metric in metrics if metric.startswith("difference/")):
        name, _, seed = score.removeprefix("difference/").partition("/seed_")
        label = f"  {name}, seed {seed}" if seed else f"{name}, minus full"
        table.add_row(label, *(_signed(metrics.get(score)) for metrics in plain.values()))
    return table


def print_transfer(console: Console, found: Mapping[str, Mapping[str, Estimate]]) -> None:
    """Two tables, rows the worlds that are played, columns those that were trained in: games won, states told word for word."""
    shown = {"Held-out games won by the policy dreamed in": "success_rate/dreamed", "States told by the model of": "next_state_exact"}
    for title, metric in shown.items():
        table = Table(title=title, title_justify="left")
        table.add_column("in")
        for source in found:
            table.add_column(source, justify="right")
        for world, own in found.items():
            table.add_row(world, *(_with_n(own[f"transfer/{source}/{metric}"].to_json()) for source in found))
        console.print(table)


def _signed(entry: Mapping[str, Any] | None) -> str:
    if not entry or not entry.get("n"):
        return ""
    return f"{entry['value']:+.3f}{'*' if entry['low'] > 0 or entry['high'] < 0 else ' '}"


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
    again = f"; {costs.replayed_episodes:,} broken episodes begun again" if costs.replayed_episodes else ""
    spent = f"{costs.real_interactions:,} for training, {costs.check_interactions:,} for checks and evaluation{again}"
    table.add_row("real interactions", spent)
    table.add_row("tokens", f"{costs.tokens_trained:,} trained on, {costs.tokens_generated:,} generated")
    if costs.endpoint_calls or costs.endpoint_cached_calls:
        tokens = f"{costs.endpoint_prompt_tokens:,} tokens read and {costs.endpoint_completion_tokens:,} written"
        table.add_row("endpoint", f"{tokens} in {costs.endpoint_calls:,} answers, {costs.endpoint_cached_calls:,} more from the cache")
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


def print_study(console: Console, cells: Mapping[str, Any], metrics: Mapping[str, Mapping[str, Any]]) -> None:
    """One row a method: success, its difference (p: Holm's), real steps and minutes of training; crashed cells below."""
    table = Table(title="Held-out real games, by method", title_justify="left")
    for name in ("method", "success", "95 %", "seeds", "minus base", "p", "steps", "min"):
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    for name, found in cells.items():
        own = {metric: estimate.to_json() for metric, estimate in metrics[name].items()}
        if "evaluate/success_rate" not in own:
            table.add_row(name, "-", *[""] * 6)
            continue
        rate, change = own["evaluate/success_rate"], own.get("difference/success_rate")
        seeds = "\n".join(f"{cell.success:.2f}" for cell in found if not cell.crash)
        difference = f"{change['value']:+.3f}\n({change['low']:+.3f} to\n{change['high']:+.3f})" if change else ""
        p_value = f"{own['difference/p_value']['value']:.3f}" if change else ""
        spent, minutes = own["cost/real_interactions"]["value"], own["cost/seconds"]["value"] / 60
        ends = interval(rate).replace(" to", "\nto")
        table.add_row(name, share(rate), ends, seeds, difference, p_value, f"{spent:,.0f}", f"{minutes:.0f}")
    console.print(table)
    for cell in (cell for found in cells.values() for cell in found if cell.crash):
        console.print(f"[red]{cell.method}, seed {cell.seed} crashed:[/red] {escape(cell.crash)}", soft_wrap=True)


FATES = {"reused": "green", "goes on": "yellow", "made": "yellow", "made again": "red", "open": "dim", "stops": "red"}


def print_plan(console: Console, manifest: Manifest, steps: Sequence[Planned]) -> None:
    """What will become of each stage, before anything starts."""
    table = Table(title=f"Run {manifest.run_id} ({manifest.status}), gone on with today", title_justify="left")
    for name in ("stage", "", ""):
        table.add_column(name, overflow="fold")
    for step in steps:
        table.add_row(step.name, f"[{FATES[step.fate]}]{step.fate}[/]", escape(step.note))
    console.print(table)


MOST_ROWS = 100
"""Metrics that a repetition's table has a row for each; of more, those that are equal are counted by the beginning of their names."""


def print_surroundings(console: Console, found: Mapping[str, Sequence[Difference]]) -> None:
    """What of the packages and the machine is not as it was, before the run is made again."""
    for section, entries in found.items():
        for change in entries:
            console.print(f"{section}: {change.name} was {change.first}, is {change.second}", highlight=False, markup=False, soft_wrap=True)
    if not found:
        console.print("Packages and machine are as they were.")


def print_reproduction(console: Console, found: Reproduction) -> None:
    """Every metric then and now, with its verdict, and how many have which."""
    grouped = len(found.verdicts) > MOST_ROWS
    table = Table(title=f"Run {found.run_id}, made again", title_justify="left")
    for name in ("metric", "then", "now", ""):
        table.add_column(name, justify="left" if name in ("metric", "") else "right", overflow="fold")
    for entry in found.verdicts:
        if not grouped or entry.verdict != "equal":
            then, now = ("-" if value is None else f"{value:.8g}" for value in (entry.first, entry.second))
            table.add_row(entry.name, then, now, entry.verdict)
    same = Counter(entry.name.partition("/")[0] for entry in found.verdicts if grouped and entry.verdict == "equal")
    for name, count in same.items():
        table.add_row(f"{name}: {count} metric{'s' * (count > 1)}", "", "", "equal")
    console.print(table)
    counts = Counter(entry.verdict for entry in found.verdicts)
    console.print(", ".join(f"{count} metric{'s' * (count > 1)} {verdict}" for verdict, count in counts.items()) + ".")


def print_deployments(console: Console, found: Sequence[Deployed]) -> None:
    """What the server runs and when, and what is still to be typed."""
    table = Table(title="Deployments on the server", title_justify="left")
    for name in ("deployment", "schedule", ""):
        table.add_column(name)
    for deployed in found:
        table.add_row(deployed.name, ", ".join(deployed.schedules), "[green]on[/]" if deployed.active else "off")
    console.print(table)
    console.print("On the machine that shall run them, from this directory: prefect worker start --pool dreamgym", soft_wrap=True)
    if not any(deployed.active for deployed in found):
        console.print("No schedule is on. Switch one on: dreamgym deploy --on retrain", soft_wrap=True)
