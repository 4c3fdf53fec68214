"""The table of the run of configs/smollm2.yaml: its dream against targets, and its policies."""

from __future__ import annotations

from fidelity_tables import targets_table
from result_files import EXACT, read_metrics

ROWS = (
    ("determined next states, exact", EXACT, "at least 0.95"),
    ("the same, held-out tasks", f"{EXACT}/held_out_tasks", "at least 0.95"),
    ("the same, floor plans of no training game", f"{EXACT}/held_out_worlds", "at least 0.95"),
    ("states that reveal something, exact", "fidelity/next_state_exact/revealing", ""),
    ("after impossible actions, exact", "fidelity/next_state_exact/impossible", ""),
    ("answers that cannot be parsed", "fidelity/unparsable_rate", ""),
    ("reward precision", "fidelity/reward_precision", "at least 0.95"),
    ("reward recall", "fidelity/reward_recall", "at least 0.90"),
    ("area under the ROC curve of the answer's probability", "fidelity/calibration/auroc", ""),
    ("success of the clone in the dream", "fidelity/dreamed_success_rate/cloned", ""),
    ("success of the clone in reality, same tasks", "fidelity/real_success_rate/cloned", ""),
    ("validation games won by the clone", "evaluate/cloned/success_rate", ""),
    ("validation games won after RL in the dream", "evaluate/dreamed/success_rate", ""),
    ("validation games won after refinement", "evaluate/refined/success_rate", ""),
)


def smollm2() -> str:
    """Return the measures of the run, with their targets."""
    (metrics,) = read_metrics("smollm2").values()
    return targets_table(metrics, ROWS)
