"""The results of a finished run: success of its policies, costs, and where to look next."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.printing.formats import duration, level, rate_cells, rate_columns, with_n
from flows.printing.output import Output
from flows.printing.table import Column, Table

if TYPE_CHECKING:
    from components.tracking.manifest import Costs, Manifest

POLICIES = ("cloned", "dreamed", "refined")
SLOWEST_STAGES = 4
"""Stages whose time the cost table lists."""


def print_run(
    page: Output, directory: Path, promoted: bool, reason: str, wall_seconds: float, *, is_live: bool = True
) -> None:
    """Print a run's success rates, costs, promotion decision and next commands.

    Args:
        directory: of the run, under runs/.
        reason: of the promotion gate's decision.
        is_live: whether a live world was played. If not, only logs and the dream have numbers.
    """
    from components.tracking.manifest import Manifest
    from components.tracking.runs import read_metrics
    from flows.stages.snapshot_buffer import version_commands

    manifest = Manifest.load(directory)
    metrics = read_metrics(directory)
    confidence = manifest.config.get("evaluation", {}).get("confidence", 0.95)
    games = manifest.evaluation
    split = f" ({games.split} split, draw {games.draw})" if games.split else ""
    results = (
        results_table(metrics, confidence, f"Held-out real games{split}")
        if is_live
        else logs_table(metrics, confidence)
    )
    page.table("policies", results)
    page.put(evaluation=games.model_dump(mode="json"))
    columns = [Column("cost"), Column("spent", prose=True)]
    page.table("", Table("", columns, _cost_rows(manifest, wall_seconds), frame=False))
    verdict = "Promoted." if promoted else "Not promoted." if is_live else "Not promoted, not verified."
    page.text(f"{verdict} {reason}", style="green" if promoted else "yellow")
    page.text(f"Report: {directory / 'report.html'}")
    for command in version_commands(manifest):
        page.text(command)
    page.text("Compare runs and models in the browser: `dreamgym ui` (or `make ui`)")
    page.put(run=manifest.run_id, directory=str(directory), promoted=promoted)
    page.put(reason=reason, seconds=wall_seconds)
    page.put(report=str(directory / "report.html"), metrics=str(directory / "metrics.json"))
    page.put(costs=manifest.costs.model_dump(mode="json"))
    page.put(data={"dvc_in": manifest.data.dvc_in, "dvc_out": manifest.data.dvc_out})
    stages = [
        {"name": stage.name, "seconds": stage.seconds, "reused": stage.reused} for stage in manifest.stages
    ]
    page.put(stages=stages)


def results_table(
    metrics: Mapping[str, Mapping[str, Any]], confidence: float, title: str = "Held-out real games"
) -> Table:
    """Return a row for each policy: its success on held-out real games, and its confirmed dreamed successes.

    A dreamed success is confirmed if replaying its actions in the real engine succeeds too.

    Args:
        confidence: level of the success rates' intervals; that of the confirmed shares is always 95 %.
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


def logs_table(metrics: Mapping[str, Mapping[str, Any]], confidence: float) -> Table:
    """Return a row for each policy of a run without a live world: what the dream and held-out logs say.

    Args:
        confidence: level of the intervals; that of the logged actions is always 95 %.
    """
    columns = [
        Column("policy"),
        *rate_columns("success in the dream", confidence, "tasks"),
        Column(f"logged action taken ({level(0.95)})", "same_action", right=True),
    ]
    rows = [
        [
            policy,
            *rate_cells(metrics.get(f"logs/{policy}/dreamed_success_rate", {})),
            with_n(metrics.get(f"logs/{policy}/same_action_rate", {})),
        ]
        for policy in POLICIES[:2]
    ]
    return Table("Held-out tasks of the logs, in the dream: NOT verified in a live world", columns, rows)


def _cost_rows(manifest: Manifest, wall_seconds: float) -> list[list[str]]:
    costs = manifest.costs
    restarts = (
        f"; {costs.replayed_episodes:,} episodes restarted after a failure" if costs.replayed_episodes else ""
    )
    earlier = (
        f"; {costs.earlier_real_interactions:,} in the rounds before"
        if costs.earlier_real_interactions
        else ""
    )
    interactions = (
        f"{costs.real_interactions:,} for training, "
        f"{costs.check_interactions:,} for checks and evaluation{restarts}{earlier}"
    )
    tokens = f"{costs.tokens_trained:,} trained on, {costs.tokens_generated:,} generated"
    before, after = manifest.data.dvc_in, manifest.data.dvc_out
    return [
        ["real interactions", interactions],
        ["tokens", tokens],
        *_endpoint_rows(costs),
        *_time_rows(manifest, wall_seconds),
        ["data (DVC hash)", f"{before} -> {after or before}"],
    ]


def _endpoint_rows(costs: Costs) -> list[list[str]]:
    """Return the row about the LLM endpoint; none if it was not used."""
    if not costs.endpoint_calls and not costs.endpoint_cached_calls:
        return []
    tokens = f"{costs.endpoint_prompt_tokens:,} tokens read and {costs.endpoint_completion_tokens:,} written"
    calls = f"{costs.endpoint_calls:,} answers, {costs.endpoint_cached_calls:,} more from the cache"
    return [["endpoint", f"{tokens} in {calls}"]]


def _time_rows(manifest: Manifest, wall_seconds: float) -> list[list[str]]:
    computed = [stage for stage in manifest.stages if not stage.reused]
    reused = [stage for stage in manifest.stages if stage.reused]
    stages = f"{len(computed)} made, {len(reused)} reused"
    if reused:
        stages += f" (saved {duration(sum(stage.seconds for stage in reused))})"
    rows = [["stages", stages], ["wall time", duration(wall_seconds)]]
    slowest = sorted(computed, key=lambda stage: -stage.seconds)[:SLOWEST_STAGES]
    if slowest:
        times = ", ".join(f"{stage.name} {duration(stage.seconds)}" for stage in slowest)
        rows.append(["slowest stages", times])
    return rows
