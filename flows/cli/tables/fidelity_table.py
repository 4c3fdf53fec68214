"""Tables about experience models: their fidelity, ablations, and transfer between environments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.printing.formats import rate_cells, rate_columns, share, with_n
from flows.printing.output import Output
from flows.printing.table import Cell, Column, Table

if TYPE_CHECKING:
    from components.evaluation.metrics.intervals import Estimate

FIDELITY_ROWS = {
    "next state exact, where determined": "fidelity/next_state_exact/determined",
    "  the worst class of change": "worst",
    "  in held-out worlds": "fidelity/next_state_exact/determined/held_out_worlds",
    "facts that reality contradicts, where determined": "fidelity/hallucination_rate/determined",
    "reward precision, near misses": "fidelity/reward_precision/near_miss",
    "reward recall": "fidelity/reward_recall",
    "reward precision, policies' steps": "fidelity/policy_reward_precision",
    "reward recall, policies' steps": "fidelity/policy_reward_recall",
    "answers that cannot be read": "fidelity/unparsable_rate",
    "next state exact, where determined, as RL uses it": "fidelity/as_used/next_state_exact/determined",
    "reward precision, as RL uses it": "fidelity/as_used/reward_precision",
    "reward recall, as RL uses it": "fidelity/as_used/reward_recall",
    "steps without an answer, as RL uses it": "fidelity/as_used/unanswered_rate",
    "dreamed successes confirmed, 20 steps": "fidelity/rollout_agreement/20",
    "10th dreamed state exact": "fidelity/open_loop_exact/10",
}
"""Label of a row -> its metric. The labels are values in the JSON of `dreamgym fidelity --json`."""


def print_fidelity(page: Output, directory: Path) -> None:
    """Print the fidelity metrics of the run in `directory`, and the file that holds all metrics."""
    from components.tracking.runs import read_metrics

    metrics = read_metrics(directory)
    rows = [[Cell(label.strip(), label), *rate_cells(entry)] for label, entry in _fidelity_rows(metrics)]
    columns = [Column("measure"), *rate_columns("value", 0.95)]
    page.table("fidelity", Table("The experience model on held-out tasks", columns, rows))
    denied = metrics.get("fidelity/denied_successes", {}).get("value")
    if denied is None:
        page.text("No policy was examined and no dream replayed: there is no live world.")
    else:
        page.text(
            f"Dreamed successes that the real engine denies: {denied:.0f} "
            "(transcripts: denied.json of the stage `fidelity`)."
        )
    for axis in sorted(name for name in metrics if name.count("/") == 1 and name.startswith("judge/")):
        page.text(f"{axis}: {metrics[axis]['value']:.2f} (n={metrics[axis]['n']})")
    page.text(f"All metrics: {directory / 'metrics.json'}")
    page.put(run=directory.name, denied_successes=denied, metrics=metrics)


def _fidelity_rows(metrics: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return (label, metric entry) of each row; an entry without a measurement is empty."""
    change_classes = [
        metrics.get(f"fidelity/next_state_exact/determined/changed_{name}", {})
        for name in ("0", "1_2", "3_plus")
    ]
    measured = (entry for entry in change_classes if entry.get("n"))
    worst = min(measured, key=lambda entry: entry["value"], default={})
    return [
        (label, worst if name == "worst" else metrics.get(name, {})) for label, name in FIDELITY_ROWS.items()
    ]


def print_ablation(page: Output, metrics_by_variant: Mapping[str, Mapping[str, Estimate]]) -> None:
    """Print a row for each metric and a column for each variant; the JSON has all metrics by variant.

    A star marks a paired difference from the full model whose interval does not contain zero.
    """
    values = {
        variant: {metric: estimate.to_json() for metric, estimate in metrics.items()}
        for variant, metrics in metrics_by_variant.items()
    }
    page.table("", _ablation_table(values))
    page.text(
        "* the 95 % interval of the paired difference, for further tasks and seeds, does not contain zero"
    )
    page.replace(values)


def _ablation_table(values: Mapping[str, Mapping[str, Any]]) -> Table:
    rows: list[list[str]] = []
    for label, _ in _fidelity_rows({}):
        entries = [dict(_fidelity_rows(metrics))[label] for metrics in values.values()]
        rows.append([label, *(share(entry) for entry in entries)])
    all_metrics = (metric for metrics in values.values() for metric in metrics)
    for difference in dict.fromkeys(metric for metric in all_metrics if metric.startswith("difference/")):
        name, _, seed = difference.removeprefix("difference/").partition("/seed_")
        label = f"  {name}, seed {seed}" if seed else f"{name}, minus full"
        rows.append([label, *(_signed_text(metrics.get(difference)) for metrics in values.values())])
    columns = [Column("measure"), *(Column(variant, right=True) for variant in values)]
    return Table("Ablations of the experience model", columns, rows)


def _signed_text(entry: Mapping[str, Any] | None) -> str:
    """Return a difference with its sign, and a star if its interval does not contain zero."""
    if not entry or not entry.get("n"):
        return ""
    return f"{entry['value']:+.3f}{'*' if entry['low'] > 0 or entry['high'] < 0 else ' '}"


def print_transfer(page: Output, metrics: Mapping[str, Mapping[str, Estimate]]) -> None:
    """Print games won and states predicted exactly: rows are evaluated environments, columns training ones.

    The JSON has all metrics by evaluated environment.
    """
    tables = {
        "Held-out games won by the policy trained in the dream of": "success_rate/dreamed",
        "Next states predicted exactly by the model of": "next_state_exact",
    }
    for title, metric in tables.items():
        columns = [Column("in"), *(Column(source, right=True) for source in metrics)]
        rows = [
            [environment, *(with_n(own[f"transfer/{source}/{metric}"].to_json()) for source in metrics)]
            for environment, own in metrics.items()
        ]
        page.table("", Table(title, columns, rows))
    page.replace(
        {
            environment: {name: estimate.to_json() for name, estimate in own.items()}
            for environment, own in metrics.items()
        }
    )
