"""What a command prints at its end: tables, read from what the run wrote. Each function puts its results into
an `Output`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.printing.formats import (
    duration,
    interval,
    level,
    rate_cells,
    rate_columns,
    seconds_text,
    share,
    with_n,
)
from flows.printing.output import Cell, Column, Output, Table

if TYPE_CHECKING:
    from components.evaluation.metrics.intervals import Estimate
    from components.tracking.manifest import Manifest
    from components.tracking.run_differences import Difference
    from flows.deployment.deploy import Deployed
    from flows.jobs.index import Indexed
    from flows.jobs.reproduce import Reproduction
    from flows.run.plan import Planned

POLICIES = ("cloned", "dreamed", "refined")


def print_run(page: Output, directory: Path, promoted: bool, reason: str, wall_seconds: float) -> None:
    """The results of a finished run, how it came to them, and where to look."""
    from components.tracking.manifest import Manifest
    from components.tracking.runs import read_metrics
    from flows.stages.snapshot_buffer import version_commands

    manifest, metrics = Manifest.load(directory), read_metrics(directory)
    confidence, played = manifest.config.get("evaluation", {}).get("confidence", 0.95), manifest.evaluation
    which = f" ({played.split} split, draw {played.draw})" if played.split else ""
    page.table("policies", results_table(metrics, confidence, f"Held-out real games{which}"))
    page.put(evaluation=played.model_dump(mode="json"))
    page.table(
        "",
        Table("", [Column("cost"), Column("spent", prose=True)], _costs(manifest, wall_seconds), frame=False),
    )
    page.text(
        f"{'Promoted.' if promoted else 'Not promoted.'} {reason}", style="green" if promoted else "yellow"
    )
    page.text(f"Report: {directory / 'report.html'}")
    for command in version_commands(manifest):
        page.text(command)
    page.text("Runs and models side by side: `dreamgym ui` (or `make ui`)")
    page.put(
        run=manifest.run_id, directory=str(directory), promoted=promoted, reason=reason, seconds=wall_seconds
    )
    page.put(
        report=str(directory / "report.html"),
        metrics=str(directory / "metrics.json"),
        costs=manifest.costs.model_dump(mode="json"),
    )
    page.put(data={"dvc_in": manifest.data.dvc_in, "dvc_out": manifest.data.dvc_out})
    page.put(
        stages=[
            {"name": stage.name, "seconds": stage.seconds, "reused": stage.reused}
            for stage in manifest.stages
        ]
    )


def results_table(
    metrics: Mapping[str, Mapping[str, Any]], confidence: float, title: str = "Held-out real games"
) -> Table:
    """Success of each policy on held-out real games, and the share of its dreamed successes that the real
    engine confirmed.

    `confidence` is the level of the success rates' intervals; that of the confirmed shares is always 95 %.
    """
    columns = [
        Column("policy"),
        *rate_columns("success", confidence, "games"),
        Column(f"dreamed successes confirmed ({level(0.95)})", "confirmed", right=True),
    ]
    rows = []
    for policy in POLICIES:
        success = metrics.get(f"evaluate/{policy}/success_rate", {})
        agreement = metrics.get(f"fidelity/rollout_agreement/{policy}", {})
        rows.append([policy, *rate_cells(success), with_n(agreement)])
    return Table(title, columns, rows)


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


def print_fidelity(page: Output, directory: Path) -> None:
    """The examination of an experience model in one table, and where the rest is."""
    from components.tracking.runs import read_metrics

    metrics = read_metrics(directory)
    rows = [[Cell(label.strip(), label), *rate_cells(entry)] for label, entry in _fidelity_rows(metrics)]
    columns = [Column("measure"), *rate_columns("value", 0.95)]
    page.table("fidelity", Table("The experience model on held-out tasks", columns, rows))
    denied = metrics.get("fidelity/denied_successes", {}).get("value", 0)
    page.text(
        f"Dreamed successes that the real engine denies: {denied:.0f} (transcripts: denied.json of the "
        "stage `fidelity`)."
    )
    page.text(f"All metrics: {directory / 'metrics.json'}")
    page.put(run=directory.name, denied_successes=denied, metrics=metrics)


def _fidelity_rows(metrics: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    classes = [
        metrics.get(f"fidelity/next_state_exact/determined/changed_{name}", {})
        for name in ("0", "1_2", "3_plus")
    ]
    worst = min((entry for entry in classes if entry.get("n")), key=lambda entry: entry["value"], default={})
    return [
        (label, worst if name == "worst" else metrics.get(name, {})) for label, name in FIDELITY_ROWS.items()
    ]


def print_ablation(page: Output, found: Mapping[str, Mapping[str, Any]]) -> None:
    """One row a metric, one column a variant. The JSON is one object a variant, with all of its metrics.

    A star stands where the interval of the paired difference from the full model leaves out zero.
    """
    plain = {
        name: {metric: entry.to_json() for metric, entry in metrics.items()}
        for name, metrics in found.items()
    }
    page.table("", _ablation_table(plain))
    page.text("* the 95 % interval of the paired difference, for further tasks and seeds, leaves out zero")
    page.replace(plain)


def _ablation_table(plain: Mapping[str, Mapping[str, Any]]) -> Table:
    rows: list[list[str]] = []
    for label, _ in _fidelity_rows({}):
        entries = {name: dict(_fidelity_rows(metrics))[label] for name, metrics in plain.items()}
        rows.append([label, *(share(entry) for entry in entries.values())])
    for score in dict.fromkeys(
        metric for metrics in plain.values() for metric in metrics if metric.startswith("difference/")
    ):
        name, _, seed = score.removeprefix("difference/").partition("/seed_")
        label = f"  {name}, seed {seed}" if seed else f"{name}, minus full"
        rows.append([label, *(_signed(metrics.get(score)) for metrics in plain.values())])
    columns = [Column("measure"), *(Column(name, right=True) for name in plain)]
    return Table("Ablations of the experience model", columns, rows)


def print_transfer(page: Output, found: Mapping[str, Mapping[str, Estimate]]) -> None:
    """Two tables, rows the worlds that are played, columns those that were trained in: games won, states told
    word for word.

    The JSON is one object a world, with all of its metrics.
    """
    shown = {
        "Held-out games won by the policy dreamed in": "success_rate/dreamed",
        "States told by the model of": "next_state_exact",
    }
    for title, metric in shown.items():
        columns = [Column("in"), *(Column(source, right=True) for source in found)]
        rows = [
            [world, *(with_n(own[f"transfer/{source}/{metric}"].to_json()) for source in found)]
            for world, own in found.items()
        ]
        page.table("", Table(title, columns, rows))
    page.replace(
        {world: {name: estimate.to_json() for name, estimate in own.items()} for world, own in found.items()}
    )


def _signed(entry: Mapping[str, Any] | None) -> str:
    if not entry or not entry.get("n"):
        return ""
    return f"{entry['value']:+.3f}{'*' if entry['low'] > 0 or entry['high'] < 0 else ' '}"


def _costs(manifest: Manifest, wall_seconds: float) -> list[list[str]]:
    rows: list[list[str]] = []
    reused = [stage for stage in manifest.stages if stage.reused]
    saved = sum(stage.seconds for stage in reused)
    stages = f"{len(manifest.stages) - len(reused)} made, {len(reused)} reused" + (
        f" (saved {duration(saved)})" if reused else ""
    )
    slowest = sorted(
        (stage for stage in manifest.stages if not stage.reused), key=lambda stage: -stage.seconds
    )[:4]
    costs = manifest.costs
    again = f"; {costs.replayed_episodes:,} broken episodes begun again" if costs.replayed_episodes else ""
    spent = (
        f"{costs.real_interactions:,} for training, {costs.check_interactions:,} for checks and "
        f"evaluation{again}"
    )
    rows.append(["real interactions", spent])
    rows.append(["tokens", f"{costs.tokens_trained:,} trained on, {costs.tokens_generated:,} generated"])
    if costs.endpoint_calls or costs.endpoint_cached_calls:
        tokens = (
            f"{costs.endpoint_prompt_tokens:,} tokens read and {costs.endpoint_completion_tokens:,} written"
        )
        rows.append(
            [
                "endpoint",
                f"{tokens} in {costs.endpoint_calls:,} answers, {costs.endpoint_cached_calls:,} more from "
                "the cache",
            ]
        )
    rows.append(["stages", stages])
    rows.append(["wall time", duration(wall_seconds)])
    if slowest:
        rows.append(
            ["slowest stages", ", ".join(f"{stage.name} {duration(stage.seconds)}" for stage in slowest)]
        )
    rows.append(
        ["data (DVC hash)", f"{manifest.data.dvc_in} -> {manifest.data.dvc_out or manifest.data.dvc_in}"]
    )
    return rows


def print_pooled(
    page: Output, rates: Mapping[str, Mapping[str, float]], pooled: Mapping[str, Mapping[str, Any]]
) -> None:
    """Success of each run (name -> policy -> rate) and of all together, then the differences between
    policies.
    """
    columns = [
        Column("policy"),
        *(Column(name, right=True) for name in rates),
        *rate_columns("all runs", 0.95, "games"),
    ]
    rows = []
    for name, entry in pooled.items():
        policy = name.split("/")[1]
        own = [f"{run[policy]:.1%}" if policy in run else "" for run in rates.values()]
        if "_minus_" in policy:
            later, earlier = policy.split("_minus_")
            own = [f"{run[later] - run[earlier]:+.1%}" for run in rates.values()]
            policy = f"{later} minus {earlier}"
        rows.append([policy, *own, *rate_cells(entry)])
    page.table("", Table("The same held-out real games, all runs", columns, rows))
    page.replace({"runs": rates, "pooled": pooled})


def print_index(page: Output, made: Indexed, k: int) -> None:
    """What `dreamgym index` did, and its figures."""
    page.text(made.done)
    estimate = made.recall.to_json()
    rows = [
        [
            "transitions in the log",
            f"{made.transitions:,} ({made.dreamed:,} dreamed), {made.held:,} held to retrieve from",
        ],
        ["different steps", f"{made.steps:,}"],
        ["encoder", made.encoder],
        [
            f"recall@{k} against exact search",
            f"{share(estimate)} ({interval(estimate)}, n={made.recall.n:,} neighbours)",
        ],
        ["size on disk", f"{made.size_bytes / 1e6:.1f} MB"],
        ["time", duration(made.seconds)],
    ]
    page.table("", Table("", [Column("figure"), Column("value", prose=True)], rows, frame=False))
    page.put(**{name: value for name, value in vars(made).items() if name != "recall"}, k=k, recall=estimate)


def print_study(page: Output, cells: Mapping[str, Any], metrics: Mapping[str, Mapping[str, Any]]) -> None:
    """One row a method: success, its difference (p: Holm's), real steps and minutes of training; crashed
    cells below.

    The JSON is one object a method, with all of its metrics.
    """
    columns = [
        Column("method"),
        *(
            Column(name, right=True)
            for name in ("success", "95 %", "seeds", "minus base", "p", "steps", "min")
        ),
    ]
    rows: list[list[str]] = []
    for name, found in cells.items():
        own = {metric: estimate.to_json() for metric, estimate in metrics[name].items()}
        if "evaluate/success_rate" not in own:
            rows.append([name, "-", *[""] * 6])
            continue
        rate, change = own["evaluate/success_rate"], own.get("difference/success_rate")
        seeds = " ".join(f"{cell.success:.2f}" for cell in found if not cell.crash)
        difference = (
            f"{change['value']:+.3f} ({change['low']:+.3f} to {change['high']:+.3f})" if change else ""
        )
        p_value = f"{own['difference/p_value']['value']:.3f}" if change else ""
        spent, minutes = own["cost/real_interactions"]["value"], own["cost/seconds"]["value"] / 60
        rows.append(
            [name, share(rate), interval(rate), seeds, difference, p_value, f"{spent:,.0f}", f"{minutes:.0f}"]
        )
    page.table("", Table("Held-out real games, by method", columns, rows))
    for cell in (cell for found in cells.values() for cell in found if cell.crash):
        page.text(f"{cell.method}, seed {cell.seed} crashed: {cell.crash}", style="red")
    page.replace(
        {
            name: {metric: found.to_json() for metric, found in own.items()}
            for name, own in metrics.items()
            if own
        }
    )


FATES = {
    "reused": "green",
    "goes on": "yellow",
    "made": "yellow",
    "made again": "red",
    "open": "dim",
    "stops": "red",
}


def print_plan(page: Output, manifest: Manifest, steps: Sequence[Planned]) -> None:
    """What will become of each stage, before anything starts."""
    print_stages(page, f"Run {manifest.run_id} ({manifest.status}), gone on with today", steps)
    page.put(run=manifest.run_id, status=manifest.status)


def print_stages(page: Output, title: str, steps: Sequence[Planned]) -> None:
    """A table of the stages: what happens, how long the compared result took, and why. JSON has each change
    of a key.
    """
    from flows.run.plan import reasons, seconds_to_run

    columns = [
        Column("stage"),
        Column("what happens"),
        Column("last time", right=True),
        Column("why", prose=True),
    ]
    rows = [
        [
            step.name,
            Cell(step.fate, style=FATES[step.fate]),
            seconds_text(step.seconds),
            "\n".join(reasons(step)),
        ]
        for step in steps
    ]
    page.table("", Table(title, columns, rows))
    seconds = seconds_to_run(steps)
    page.put(stages=[step.to_json() for step in steps], seconds_to_run=seconds)
    to_run = [step.name for step in steps if step.fate not in ("reused", "stops")]
    if not to_run:
        page.text("No stage runs.")
    elif seconds is None:
        page.text(
            f"Stages that run: {len(to_run)}. One of them was never made here: how long they take is not "
            "known."
        )
    else:
        page.text(f"Stages that run: {len(to_run)}. Last time they took {seconds_text(seconds)}.")


MOST_ROWS = 100
"""Metrics that a repetition's table has a row for each; of more, those that are equal are counted by the
beginning of their names.
"""


def print_surroundings(page: Output, found: Mapping[str, Sequence[Difference]]) -> None:
    """What of the packages and the machine is not as it was, before the run is made again."""
    for section, entries in found.items():
        for change in entries:
            page.text(f"{section}: {change.name} was {change.first}, is {change.second}")
    if not found:
        page.text("Packages and machine are as they were.")
    page.put(
        surroundings={section: [asdict(change) for change in entries] for section, entries in found.items()}
    )


def print_reproduction(page: Output, found: Reproduction) -> None:
    """Every metric then and now, with its verdict, and how many have which. The JSON has all of the
    metrics.
    """
    grouped = len(found.verdicts) > MOST_ROWS
    shown = [entry for entry in found.verdicts if not grouped or entry.verdict != "equal"]
    rows = [
        [entry.name, *(_exactly(value) for value in (entry.first, entry.second)), entry.verdict]
        for entry in shown
    ]
    same = Counter(
        entry.name.partition("/")[0] for entry in found.verdicts if grouped and entry.verdict == "equal"
    )
    rows += [[f"{name}: {count} metric{'s' * (count > 1)}", "", "", "equal"] for name, count in same.items()]
    columns = [Column("metric"), Column("then", right=True), Column("now", right=True), Column("verdict")]
    page.table("", Table(f"Run {found.run_id}, made again", columns, rows))
    counts = Counter(entry.verdict for entry in found.verdicts)
    verdicts = [
        {"metric": entry.name, "then": entry.first, "now": entry.second, "verdict": entry.verdict}
        for entry in found.verdicts
    ]
    for reason in dict.fromkeys(found.left_out.values()):
        names = [name for name, why in found.left_out.items() if why == reason]
        page.text(f"Not compared ({reason}): {', '.join(names)}")
    page.text(
        ", ".join(f"{count} metric{'s' * (count > 1)} {verdict}" for verdict, count in counts.items()) + "."
    )
    page.put(run=found.run_id, succeeded=found.succeeded, metrics=verdicts, left_out=found.left_out)


def _exactly(value: float | None) -> str:
    return "-" if value is None else f"{value:.8g}"


def print_deployments(page: Output, found: Sequence[Deployed]) -> None:
    """What the server runs and when, and what is still to be typed."""
    columns = [Column("deployment"), Column("schedule", "schedules"), Column("is on", "active")]
    rows = [
        [
            one.name,
            Cell(list(one.schedules), ", ".join(one.schedules)),
            Cell(one.active, "on" if one.active else "off"),
        ]
        for one in found
    ]
    page.table("deployments", Table("Deployments on the server", columns, rows))
    page.text("On the machine that shall run them, from this directory: prefect worker start --pool dreamgym")
    if not any(one.active for one in found):
        page.text("No schedule is on. Switch one on: dreamgym deploy --on retrain")
