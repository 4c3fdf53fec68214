"""Reads the JSON files under docs/results, and formats their numbers for Markdown tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from components.evaluation.metrics.intervals import Estimate
from components.evaluation.study.cells import Cell
from flows.jobs.studies.study_methods import METHODS

ROOT = Path(__file__).parents[2]
RESULTS = Path("docs/results")
SUCCESS = "evaluate/success_rate"
EXACT = "fidelity/next_state_exact/determined"
Metrics = Mapping[str, Estimate]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def estimates(values: Mapping[str, Mapping[str, Any]]) -> dict[str, Estimate]:
    """Return metric name -> estimate. Args: values: metrics as they are written to JSON."""
    return {
        name: Estimate(value["value"], value["n"], value["low"], value["high"])
        for name, value in values.items()
        if isinstance(value, Mapping)
    }


def read_json(name: str) -> Any:
    """Return the content of `docs/results/NAME.json`."""
    return json.loads((ROOT / RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def read_metrics(name: str) -> dict[str, dict[str, Estimate]]:
    """Return variant or method -> its metrics, from `docs/results/NAME.json`."""
    return {variant: estimates(values) for variant, values in read_json(name).items()}


def read_cells(*names: str) -> dict[str, list[Cell]]:
    """Return method -> its cells, from each folder `docs/results/NAME` in the order of the seeds."""
    all_cells = [
        Cell(**json.loads(path.read_text(encoding="utf-8")))
        for name in names
        for path in sorted((ROOT / RESULTS / name).glob("*.json"))
    ]
    cells = {method: [cell for cell in all_cells if cell.method == method] for method in METHODS}
    return {method: method_cells for method, method_cells in cells.items() if method_cells}


def interval(estimate: Estimate, form: str = ".3f") -> str:
    """Return `value (low to high)`, or the value alone if it has no interval. Args: form: of each number."""
    if estimate.low == estimate.high:
        return f"{estimate.value:{form}}"
    return f"{estimate.value:{form}} ({estimate.low:{form}} to {estimate.high:{form}})"


def with_count(estimate: Estimate | None) -> str:
    """Return `value (low to high), n=...`; `n=0` without observations, empty if not measured."""
    if estimate is not None and not estimate.n:
        return "n=0"
    return "" if estimate is None else f"{interval(estimate)}, n={estimate.n:,}"


def short(estimate: Estimate) -> str:
    """Return `value (low–high)`. The interval is one word, because README.md has a limit of words."""
    return f"{estimate.value:.3f} ({estimate.low:.3f}–{estimate.high:.3f})"
