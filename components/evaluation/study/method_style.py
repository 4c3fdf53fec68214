"""Colours and line styles of a study's methods, derived from their names."""

from __future__ import annotations

from components.evaluation.report.charts import COLOURS

LINE_WIDTH = 1.8
CONTROL_COLOUR = "#c2603a"
"""Of negative controls."""
_LINE_STYLES = {"ppo": "--", "rft": ":", "dpo": "-."}
"""RL algorithm in a method's name -> line style; other methods have a solid line."""
_LABEL_OFFSETS = {"ppo": -10, "rft": 16, "dpo": -22}
"""RL algorithm in a method's name -> vertical offset of its label in points, so that labels do not
overlap.
"""
_CONTROLS = {"untrained-dream": "--", "flipped-dream": ":", "swapped-dream": "-."}
"""Negative control -> line style; all have one colour."""


def method_colour(method: str) -> str:
    """Return the colour of a method: by where RL takes place (dream, dream then reality, control, other)."""
    if method in _CONTROLS:
        return CONTROL_COLOUR
    name = method.removeprefix("transfer-")
    if name.startswith("dream"):
        return COLOURS["dreamed"]
    return COLOURS["refined"] if name.startswith("s2r") else COLOURS["cloned"]


def method_line_style(method: str) -> str:
    """Return the line style of the method's RL algorithm, or of the negative control."""
    if method in _CONTROLS:
        return _CONTROLS[method]
    return next((style for algorithm, style in _LINE_STYLES.items() if algorithm in method), "-")


def method_label_offset(method: str) -> int:
    """Return the vertical offset of the method's label, in points."""
    return next((offset for algorithm, offset in _LABEL_OFFSETS.items() if algorithm in method), 4)
