"""Files of a run's experiment commit that `dvc exp show`, `dvc metrics diff` and `dvc plots diff` read.

The paths are the same in every run. The columns are those that people compare first. All metrics are in
runs/<id>/metrics.json, all settings in runs/<id>/config.json, and `dreamgym compare` shows every difference.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

METRICS = {
    "refined": "evaluate/refined/success_rate",
    "dreamed": "evaluate/dreamed/success_rate",
    "cloned": "evaluate/cloned/success_rate",
    "agreement": "fidelity/rollout_agreement/dreamed",
    "exact": "fidelity/next_state_exact",
    "real_steps": "cost/real_interactions",
}
"""Column of `dvc exp show` -> the run's metric. The names are short because the whole table is 170 characters
wide.
"""
INTEGER_COLUMNS = ("real_steps",)
"""Columns that are written as whole numbers."""
PARAMS = {
    "world": "environment.name",
    "seed": "seed",
    "dream_iterations": "rl.dream.iterations",
    "real_budget": "rl.real.budget",
}
"""Column -> key of the config."""
CURVES = {
    "dream_success": ("synthetic_rl/success_rate", "RL in the dream", "share of episodes won"),
    "real_success": ("sim_to_real/success_rate", "RL in the real environment", "share of episodes won"),
    "dream_entropy": ("synthetic_rl/policy_entropy", "RL in the dream", "entropy of the policy"),
}
"""File -> (name of the curve in it, title, label of the y axis)."""
POLICIES = ("cloned", "dreamed", "refined")
SUCCESS_BARS = "success_by_policy"


def experiment_files(
    metrics: Mapping[str, Mapping[str, Any]], config: Mapping[str, Any], series: Mapping[str, Sequence[float]]
) -> dict[str, str]:
    """Path below the experiment's folder -> text of `dvc.yaml`, `metrics.json`, `params.yaml`, `plots/*.csv`.

    Args:
        metrics: entries {"value", "n", ...} by name.
        config: the resolved config.
        series: curves by name, one value per iteration.
    """
    values = {column: _value(metrics, name) for column, name in METRICS.items()}
    values |= {column: round(value) for column in INTEGER_COLUMNS if (value := values[column]) is not None}
    files = {
        "metrics.json": json.dumps(values, indent=2) + "\n",
        "params.yaml": yaml.safe_dump(
            {column: _setting(config, key) for column, key in PARAMS.items()}, sort_keys=False
        ),
        f"plots/{SUCCESS_BARS}.csv": _table(
            ("policy", "success"), [(name, _value(metrics, METRICS[name])) for name in POLICIES]
        ),
    }
    for file, (name, _, _) in CURVES.items():
        points = [
            (step, value) for step, value in enumerate(series.get(name, ()), start=1) if math.isfinite(value)
        ]
        files[f"plots/{file}.csv"] = _table(("iteration", file), points)
    return files | {"dvc.yaml": _declaration()}


def _value(metrics: Mapping[str, Mapping[str, Any]], name: str) -> float | None:
    entry = metrics.get(name, {})
    value = entry.get("value")
    return None if value is None or entry.get("n") == 0 or not math.isfinite(value) else round(value, 4)


def _setting(config: Mapping[str, Any], key: str) -> Any:
    value: Any = config
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _table(columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    return text.getvalue()


def _declaration() -> str:
    """`dvc.yaml` without stages: it declares the metrics, params and plots files."""
    bars = {
        "x": "success",
        "y": "policy",
        "template": "bar_horizontal",
        "title": "Validation games won, by policy",
    }
    bars |= {"x_label": "share of games won", "y_label": "policy"}
    curves = {
        f"plots/{file}.csv": {
            "x": "iteration",
            "y": file,
            "title": title,
            "x_label": "iteration",
            "y_label": label,
        }
        for file, (_, title, label) in CURVES.items()
    }
    plots = [{path: options} for path, options in ({f"plots/{SUCCESS_BARS}.csv": bars} | curves).items()]
    return yaml.safe_dump(
        {"metrics": ["metrics.json"], "params": ["params.yaml"], "plots": plots}, sort_keys=False
    )
