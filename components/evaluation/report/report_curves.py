"""The curves of a report: one panel per series, grouped by stage, with its title and explanation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from components.evaluation.report import charts
from components.evaluation.report.blocks import Block, Heading, Panel, Panels, Text
from components.evaluation.report.metric_titles import explanation_of, group_of, title_of

LEARNING_CURVES = (
    "success_rate",
    "policy_entropy",
    "approx_kl",
    "zero_variance_groups",
    "episode_length",
    "impossible_actions",
    "rollout_agreement",
    "unparsable_episodes",
)
"""Last parts of the names of the curves that show whether the policy learns, in reading order."""

Series = Mapping[str, Sequence[float]]


def learning_curves(series: Series) -> list[Block]:
    """Return the curves that show whether the policy learns; `all_curves` returns the others too."""
    curves = {
        name: values
        for name, values in _measured_series(series).items()
        if name.rpartition("/")[2] in LEARNING_CURVES
    }
    ordered_names = sorted(curves, key=lambda name: LEARNING_CURVES.index(name.rpartition("/")[2]))
    return _grouped_panels({name: curves[name] for name in ordered_names})


def all_curves(series: Series) -> list[Block]:
    """Return every curve that varies, and the values of the constant ones."""
    curves = _measured_series(series)
    varying = {name: values for name, values in curves.items() if len(set(_finite(values))) > 1}
    constants = {name: _finite(values)[0] for name, values in curves.items() if name not in varying}
    blocks = _grouped_panels(varying)
    if constants:
        listed = ", ".join(f"{name} {value:.3g}" for name, value in constants.items())
        blocks.append(Text(f"Constant over all iterations: {listed}."))
    return blocks


def _grouped_panels(curves: Mapping[str, list[float]]) -> list[Block]:
    groups: dict[str, list[Panel]] = {}
    for name, values in curves.items():
        svg = charts.curve_svg(name, values, rate=name.endswith("_rate"))
        panel = Panel(title_of(name), name, explanation_of(name), svg, _curve_text(values))
        groups.setdefault(group_of(name), []).append(panel)
    return [block for group, panels in groups.items() for block in (Heading(group), Panels(panels))]


def _curve_text(values: Sequence[float]) -> str:
    """Return the curve as a sparkline with its first and last value, or its values if they are too few."""
    finite = _finite(values)
    if len(finite) < charts.MIN_POINTS_FOR_LINE:
        return ", ".join(f"{value:.3g}" for value in finite)
    return f"{charts.sparkline(values)}  {finite[0]:.3g} -> {finite[-1]:.3g} ({len(values)})"


def _measured_series(series: Series) -> dict[str, list[float]]:
    """Return the series with at least one finite value; missing values are NaN."""
    curves = {
        name: [math.nan if value is None else float(value) for value in values]
        for name, values in series.items()
    }
    return {name: values for name, values in curves.items() if _finite(values)}


def _finite(values: Sequence[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]
