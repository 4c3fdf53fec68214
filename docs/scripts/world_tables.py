"""Tables of the foreign worlds: the fidelity of their dreams."""

from __future__ import annotations

from result_files import read_metrics, table, with_count

ROWS = (
    ("next states, exact", "fidelity/next_state_exact"),
    ("the same where no new word is shown", "fidelity/next_state_exact/determined"),
    ("token F1", "fidelity/token_f1"),
    ("reward precision", "fidelity/reward_precision"),
    ("reward recall", "fidelity/reward_recall"),
    ("answers that cannot be parsed", "fidelity/unparsable_rate"),
    ("area under the ROC curve of the answer's probability", "fidelity/calibration/auroc"),
    ("success of the clone in the dream", "fidelity/dreamed_success_rate/cloned"),
    ("success of the clone in reality, same tasks", "fidelity/real_success_rate/cloned"),
    ("dreamed successes of the clone that a replay confirms", "fidelity/rollout_agreement/cloned"),
    ("success after RL in the dream, in it", "fidelity/dreamed_success_rate/dreamed"),
    ("the same in reality, same tasks", "fidelity/real_success_rate/dreamed"),
    ("dreamed successes after RL that a replay confirms", "fidelity/rollout_agreement/dreamed"),
)

REASONS = (
    ("reasons kept, of all steps trained on", "teacher/kept_rate"),
    *ROWS[:2],
    ("the same, as RL uses it", "fidelity/as_used/next_state_exact/determined"),
    *ROWS[2:5],
    ("reward precision, as RL uses it", "fidelity/as_used/reward_precision"),
    ("reward recall, as RL uses it", "fidelity/as_used/reward_recall"),
    *ROWS[5:7],
)


def own_reasons() -> str:
    """Return the fidelity of a dream without reasoning and of one with the model's own reasons."""
    runs = read_metrics("own-reasons")
    rows = [[title, *(with_count(own.get(name)) for own in runs.values())] for title, name in REASONS]
    return table(["measure", *runs], rows)


def world_fidelity() -> str:
    """Return the fidelity of each world's dream, one column a world."""
    worlds = read_metrics("worlds")
    rows = [[title, *(with_count(own.get(name)) for own in worlds.values())] for title, name in ROWS]
    return table(["measure", *worlds], rows)
