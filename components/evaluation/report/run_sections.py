"""The sections of a run's report, built from its metrics, stages, decision, curriculum and examples.

Each function returns the blocks of one section, or no blocks if the run has no such data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from components.evaluation.metrics.intervals import proportion
from components.evaluation.report.blocks import (
    Bar,
    Bars,
    Block,
    Cell,
    Code,
    Figure,
    Heading,
    Name,
    Table,
    Text,
)
from components.evaluation.report.curriculum_figure import (
    CurriculumHistory,
    curriculum_summary,
    curriculum_svg,
)
from components.evaluation.report.episode import parse_episode
from components.evaluation.report.metric_titles import condition_in_words, explanation_of, group_of, title_of
from components.evaluation.report.number_format import (
    MetricEntry,
    format_duration,
    format_interval,
    format_number,
    format_value,
    is_measured,
)

Metrics = Mapping[str, MetricEntry]

_POLICY_ORDER = {"cloned": 0, "dreamed": 1, "refined": 2}
_POLICY_MEANINGS = {
    "cloned": "trained to imitate the logged episodes",
    "dreamed": "the cloned policy after RL in the dream",
    "refined": "the dreamed policy after RL with a few real interactions",
}
_INTERACTIONS = r"(.*/)?(real|check)_interactions"
COST_METRICS = rf"{_INTERACTIONS}|cost/.*"
"""Pattern of the metrics in the section on costs."""
_GATE_METRICS = (
    "next_state_exact(/determined)?",
    "token_f1(/determined)?",
    "calibration/(error|auroc)",
    "hallucination_rate(/determined)?",
    "inconsistency_rate",
    "unparsable_rate",
    "reward_precision(/near_miss)?",
    "reward_recall(/near_miss)?",
    "policy_reward_precision",
    "policy_reward_recall",
    "as_used/.*",
    "rollout_agreement",
    "dreamed_success_rate",
    "unanswered_episodes",
    "real_success_rate",
    "kindness",
    "refused_answers_a_step",
)
"""Patterns of the metrics in the section on fidelity; the others are only in the list of all metrics."""
_FILES = {
    "metrics.json": "every metric with its n and interval",
    "manifest.json": "code, data, config, versions and hardware of the run",
    "config.json": "the resolved config; pass it to --config",
    "git.diff": "uncommitted changes of the workspace",
}


def success_blocks(metrics: Metrics, notes: Sequence[str], confidence: float) -> list[Block]:
    """Return the policies' success rates, the cost sentences and the notes."""
    bars = _success_bars(metrics)
    sentences = (_interactions_sentence(metrics), _tokens_sentence(metrics), *notes)
    note_blocks: list[Block] = [Text(text) for text in sentences if text]
    if not bars:
        return [Text("This run did not reach the evaluation."), *note_blocks]
    rows: list[list[Cell]] = [
        [
            Name(bar.label, "", _POLICY_MEANINGS.get(bar.label, "")),
            f"{bar.value:.1%}",
            f"{bar.low:.1%} to {bar.high:.1%}",
            f"{bar.n:,}",
        ]
        for bar in bars
    ]
    caption = (
        "Success rate of each policy: the share of held-out games that it solves. The line is the interval."
    )
    headers = ["policy", "success", _interval_header(confidence), "games"]
    return [Bars(caption, bars), Table(headers, rows), *note_blocks]


def unverified_blocks(
    metrics: Metrics, unverified: Sequence[str], notes: Sequence[str], confidence: float
) -> list[Block]:
    """Return what a run without a live world does not know, and what logs and dream say in its place."""
    warning = Text(
        "No live world was at hand: no number here says how often a policy succeeds in reality.",
        badge="Unverified",
        good=False,
    )
    table = metric_table(metrics, r"logs/.*", confidence)
    sentences = (*unverified, _tokens_sentence(metrics), *notes)
    return [warning, *(Text(text) for text in sentences if text), *table]


def _success_bars(metrics: Metrics) -> list[Bar]:
    """Return the policies' success rates: cloned, dreamed, refined, then others by name."""
    entries = {}
    for name, entry in metrics.items():
        match = re.fullmatch(r"evaluate/(?:([^/]+)/)?success_rate", name)
        if match and is_measured(entry):
            entries[match[1] or "policy"] = entry
    last = len(_POLICY_ORDER)
    policies = sorted(entries, key=lambda policy: (_POLICY_ORDER.get(policy, last), policy))
    return [_bar(policy, entries[policy]) for policy in policies]


def _interactions_sentence(metrics: Metrics) -> str:
    training, checks = metrics.get("cost/real_interactions"), metrics.get("cost/check_interactions")
    if training and checks:
        return (
            f"Real interactions spent: {format_value(training)} for training, {format_value(checks)} for "
            f"checks and evaluation{_earlier_interactions(metrics)}."
        )
    counts = [
        f"{format_value(entry)} ({name})"
        for name, entry in metrics.items()
        if re.fullmatch(_INTERACTIONS, name) and entry.get("value") is not None
    ]
    return f"Real interactions spent: {', '.join(counts)}." if counts else ""


def _earlier_interactions(metrics: Metrics) -> str:
    earlier = metrics.get("cost/earlier_real_interactions")
    return f"; {format_value(earlier)} in the rounds before" if earlier else ""


def _tokens_sentence(metrics: Metrics) -> str:
    trained, generated = metrics.get("cost/tokens_trained"), metrics.get("cost/tokens_generated")
    if not (trained and generated):
        return ""
    return f"Tokens: {format_value(trained)} trained on, {format_value(generated)} generated."


def decision_blocks(decision: Mapping[str, Any]) -> list[Block]:
    """Return the promotion decision, its reason and its conditions (`Decision.to_json()`)."""
    if not decision:
        return []
    is_promoted = bool(decision.get("promoted"))
    rows: list[list[Cell]] = []
    for condition in decision.get("conditions", ()):
        name = str(condition.get("name", ""))
        metric = str(condition.get("metric", ""))
        rows.append(
            [
                Name(condition_in_words(name), name),
                Name(title_of(metric), metric, explanation_of(metric)),
                format_number(condition.get("value")),
                format_interval(condition),
                str(condition.get("n", "")),
                format_number(condition.get("threshold")),
                "pass" if condition.get("passed") else "fail",
            ]
        )
    badge = "Promoted" if is_promoted else "Not promoted"
    reason = Text(str(decision.get("reason", "")), badge=badge, good=is_promoted)
    if not rows:
        return [reason]
    return [reason, Table(["condition", "metric", "value", "interval", "n", "needed", "result"], rows)]


def fidelity_blocks(metrics: Metrics, confidence: float) -> list[Block]:
    """Return a table of the most important fidelity metrics, and bars of the exact next states per split."""
    exact_shares = {
        name: entry
        for name, entry in metrics.items()
        if name.startswith("fidelity/") and "next_state_exact" in name.split("/") and is_measured(entry)
    }
    bars = [_bar(_split_in_words(name), entry) for name, entry in exact_shares.items()]
    caption = (
        "Next state exact: the share of predicted states that equal the real state word for word, for all "
        "steps and for groups of steps."
    )
    pattern = f"fidelity/({'|'.join(_GATE_METRICS)})(/(cloned|dreamed))?"
    return [*metric_table(metrics, pattern, confidence), *([Bars(caption, bars)] if bars else [])]


def reliability_blocks(bins: Sequence[Mapping[str, Any]]) -> list[Block]:
    """Return bars of the share of right answers by confidence; no blocks without bins.

    Args:
        bins: with `confidence`, `right` and `n`, as `calibration.reliability` returns them.
    """
    if not bins:
        return []
    bars = []
    for entry in bins:
        share = proportion(round(entry["right"] * entry["n"]), entry["n"])
        bars.append(Bar(f"confidence {entry['confidence']:.3f}", share.value, share.low, share.high, share.n))
    caption = (
        "Reliability: the share of right answers (state and reward) in groups of equal size, by the mean "
        "probability that the model gives to them. In a calibrated model both are the same."
    )
    return [Bars(caption, bars)]


def _split_in_words(name: str) -> str:
    return title_of(name).partition(", ")[2] or "all steps"


def metric_table(
    metrics: Metrics, pattern: str, confidence: float, *, with_group: bool = False
) -> list[Block]:
    """Return a table of the metrics whose names match the pattern.

    Args:
        metrics: all metrics.
        pattern: regular expression of the whole name.
        confidence: level of the intervals, for the header.
        with_group: whether the titles begin with the metric's group.
    """
    rows: list[list[Cell]] = []
    for name, entry in metrics.items():
        if re.fullmatch(pattern, name):
            has_interval = format_number(entry.get("low")) != format_number(entry.get("high"))
            group = f"{group_of(name)}: " if with_group else ""
            rows.append(
                [
                    Name(group + title_of(name), name, explanation_of(name)),
                    format_value(entry),
                    format_interval(entry) if has_interval else "",
                    f"{int(entry.get('n') or 0):,}",
                ]
            )
    return [Table(["metric", "value", _interval_header(confidence), "n"], rows)] if rows else []


def all_metrics_blocks(metrics: Metrics, confidence: float) -> list[Block]:
    """Return one table per group of metrics."""
    groups: dict[str, str] = {name.partition("/")[0]: group_of(name) for name in sorted(metrics)}
    blocks: list[Block] = []
    for prefix, title in groups.items():
        table = metric_table(metrics, rf"{re.escape(prefix)}(/.*)?", confidence)
        blocks += [Heading(title), *table]
    return blocks


def curriculum_blocks(history: CurriculumHistory, metrics: Metrics, confidence: float) -> list[Block]:
    """Return what the curriculum proposed, and how difficult the played tasks were."""
    pattern = r".*/(generated_task_share|zero_variance_groups)"
    table = metric_table(metrics, pattern, confidence, with_group=True)
    if not history:
        return table
    caption = "Proposed task variations by outcome, and played tasks by difficulty"
    return [Text(curriculum_summary(history)), Figure(curriculum_svg(history), caption), *table]


def stage_blocks(stages: Sequence[Mapping[str, Any]]) -> list[Block]:
    """Return the wall time of each stage, and whether its result was computed or reused."""
    rows = []
    for stage in stages:
        rows.append(
            [
                str(stage.get("name", "")),
                format_duration(stage.get("seconds")),
                "reused" if stage.get("reused") else "computed",
                str(stage.get("key", ""))[:12],
            ]
        )
    if not rows:
        return []
    computed = sum(float(stage.get("seconds") or 0) for stage in stages if not stage.get("reused"))
    saved = sum(float(stage.get("seconds") or 0) for stage in stages if stage.get("reused"))
    sentence = f"The computed stages took {format_duration(computed)}."
    if saved:
        sentence += f" Reusing earlier results saved {format_duration(saved)}."
    return [Text(sentence), Table(["stage", "wall time", "", "key"], rows)]


def example_blocks(examples: Sequence[Mapping[str, Any]] | None) -> list[Block]:
    """Return dreamed episodes next to the real engine's replay; no blocks if the run has no such check."""
    if examples is None:
        return []
    if not examples:
        return [
            Text(
                "No dreamed episode of the last check ended in success. There was nothing to replay in the "
                "real engine."
            )
        ]
    introduction = (
        "These dreamed episodes ended in success. The real engine replayed them action by action. It was "
        "loaded with the world that the dream described, so the dream's inventions are no errors, but its "
        "wrong conclusions are. False successes come first."
    )
    return [Text(introduction), *(parse_episode(example) for example in examples)]


def next_step_blocks(run_directory: Path, next_steps: Sequence[str]) -> list[Block]:
    """Return the run's files and the commands for a closer look."""
    files = [
        f"{run_directory / name}   # {words}"
        for name, words in _FILES.items()
        if (run_directory / name).exists()
    ]
    lines = [*files, *next_steps]
    return [Code("\n".join(lines))] if lines else []


def _bar(label: str, entry: MetricEntry) -> Bar:
    value = float(entry["value"])
    low, high = (value if entry.get(end) is None else float(entry[end]) for end in ("low", "high"))
    return Bar(label, value, low, high, int(entry["n"]), kind=label if label in _POLICY_ORDER else "")


def _interval_header(confidence: float) -> str:
    return f"{confidence:.0%} interval"
