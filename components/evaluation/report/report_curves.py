"""The curves of a report: one panel a series, grouped by the stage that it belongs to, with its title and
meaning in words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from components.evaluation.report import charts
from components.evaluation.report.metric_titles import explanation_of, group_of, title_of
from components.evaluation.report.render import Block, Heading, Panel, Panels, Text

HEALTH = (
    *("success_rate", "policy_entropy", "approx_kl", "zero_variance_groups", "episode_length"),
    *("impossible_actions", "rollout_agreement", "unparsable_episodes"),
)
"""Last parts of the names of the curves that tell whether the policy learns, in the order in which one reads
them.
"""

Series = Mapping[str, Sequence[float]]


def learning_curves(series: Series) -> list[Block]:
    """The curves that tell whether the policy learns; the others are in a section of their own."""
    chosen = {name: values for name, values in _measured(series).items() if name.rpartition("/")[2] in HEALTH}
    ordered = sorted(chosen, key=lambda name: HEALTH.index(name.rpartition("/")[2]))
    return _grouped({name: chosen[name] for name in ordered})


def all_curves(series: Series) -> list[Block]:
    """Every curve that moves, and the values of those that do not."""
    curves = _measured(series)
    moving = {name: values for name, values in curves.items() if len(set(_finite(values))) > 1}
    still = {name: _finite(values)[0] for name, values in curves.items() if name not in moving}
    blocks = _grouped(moving)
    if still:
        listed = ", ".join(f"{name} {value:.3g}" for name, value in still.items())
        blocks.append(Text(f"The same in every iteration: {listed}."))
    return blocks


def _grouped(curves: Mapping[str, list[float]]) -> list[Block]:
    groups: dict[str, list[Panel]] = {}
    for name, values in curves.items():
        svg = charts.curve_svg(name, values, rate=name.endswith("_rate"))
        panel = Panel(title_of(name), name, explanation_of(name), svg, _in_text(values))
        groups.setdefault(group_of(name), []).append(panel)
    return [block for group, panels in groups.items() for block in (Heading(group), Panels(panels))]


def _in_text(values: Sequence[float]) -> str:
    """The curve as a line of blocks with its ends, or its values where they are too few for a line."""
    finite = _finite(values)
    if len(finite) < charts.LEAST_FOR_A_LINE:
        return ", ".join(f"{value:.3g}" for value in finite)
    return f"{charts.spark(values)}  {finite[0]:.3g} -> {finite[-1]:.3g} ({len(values)})"


def _measured(series: Series) -> dict[str, list[float]]:
    """Those that were measured at least once, what is missing as NaN."""
    found = {
        name: [math.nan if value is None else float(value) for value in values]
        for name, values in series.items()
    }
    return {name: values for name, values in found.items() if _finite(values)}


def _finite(values: Sequence[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]
