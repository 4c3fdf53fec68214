"""Tables of the runs of configs/smollm2.yaml: dreams against targets, policies, and kinds of transitions."""

from __future__ import annotations

from fidelity_tables import verdict
from result_files import EXACT, read_metrics, table, with_count

ROWS = (
    ("determined next states, exact", EXACT, "at least 0.95"),
    ("the same, held-out tasks", f"{EXACT}/held_out_tasks", "at least 0.95"),
    ("the same, floor plans of no training game", f"{EXACT}/held_out_worlds", "at least 0.95"),
    ("states that reveal something, exact", "fidelity/next_state_exact/revealing", ""),
    ("after impossible actions, exact", "fidelity/next_state_exact/impossible", ""),
    ("answers that cannot be parsed", "fidelity/unparsable_rate", ""),
    ("reward precision", "fidelity/reward_precision", "at least 0.95"),
    ("reward recall", "fidelity/reward_recall", "at least 0.90"),
    ("reward precision, as RL uses it", "fidelity/as_used/reward_precision", ""),
    ("area under the ROC curve of the answer's probability", "fidelity/calibration/auroc", ""),
    ("success of the clone in the dream", "fidelity/dreamed_success_rate/cloned", ""),
    ("success of the clone in reality, same tasks", "fidelity/real_success_rate/cloned", ""),
    ("the clone's dreamed successes that a replay confirms", "fidelity/rollout_agreement/cloned", ""),
    ("reward precision on the clone's own steps", "fidelity/policy_reward_precision/cloned", ""),
    ("success in the dream after RL in it", "fidelity/dreamed_success_rate/dreamed", ""),
    ("the same in reality, same tasks", "fidelity/real_success_rate/dreamed", ""),
    ("dreamed successes after RL that a replay confirms", "fidelity/rollout_agreement/dreamed", ""),
    ("reward precision on its own steps", "fidelity/policy_reward_precision/dreamed", ""),
    ("validation games won by SmolLM2 as it comes, zero-shot", "evaluate/zero_shot/success_rate", ""),
    ("validation games won by the clone", "evaluate/cloned/success_rate", ""),
    ("validation games won after RL in the dream", "evaluate/dreamed/success_rate", ""),
    ("gain over the clone, paired", "evaluate/dreamed_minus_cloned", ""),
    ("validation games won after refinement", "evaluate/refined/success_rate", ""),
    ("gain over RL in the dream, paired", "evaluate/refined_minus_dreamed", ""),
)


def smollm2() -> str:
    """Return the measures of each run, with their targets; the last run's verdict. What it lacks is empty."""
    runs = read_metrics("smollm2")
    names = [name.partition(":")[0] for name in runs]
    *_, last = runs.values()
    rows = [
        [
            title,
            *(with_count(own) if (own := metrics.get(name)) and own.n else "" for metrics in runs.values()),
            target,
            verdict(last[name], target) if target else "",
        ]
        for title, name, target in ROWS
    ]
    return table(["measure", *names, "target", ""], rows)


PARTS = (
    ("tokens of fine-tuning", "experience_model/tokens"),
    *(
        (title, name)
        for title, name, _ in ROWS
        if name.startswith(("fidelity/next_state", "fidelity/unparsable", "fidelity/reward_", EXACT))
    ),
)
"""Measures of the experience model alone."""


def smollm2_parts() -> str:
    """Return the measures of models that differ in reasoning or retrieval and were trained equally long."""
    variants = read_metrics("smollm2-parts")
    rows = [
        [
            title,
            *(
                f"{values[name].value:,.0f}" if name == PARTS[0][1] else with_count(values[name])
                for values in variants.values()
            ),
        ]
        for title, name in PARTS
    ]
    return table(["measure", *(name.partition(":")[0] for name in variants)], rows)


KINDS = (
    ("all", ""),
    ("determined by the history", "/determined"),
    ("that reveal something", "/revealing"),
    ("no fact changes", "/changed_0"),
    ("one or two facts change", "/changed_1_2"),
    ("three or more change", "/changed_3_plus"),
    ("possible actions", "/possible"),
    ("impossible actions", "/impossible"),
    ("malformed actions", "/malformed"),
    ("of experts", "/expert"),
    ("of noisy experts", "/noisy"),
    ("of near misses", "/near_miss"),
    ("of random play", "/random"),
    ("held-out tasks", "/held_out_tasks"),
    ("floor plans of no training game", "/held_out_worlds"),
)


def smollm2_kinds() -> str:
    """Return the last run's exact next states, reward precision and recall by kind of transition."""
    *_, last = read_metrics("smollm2").values()
    measures = ("fidelity/next_state_exact", "fidelity/reward_precision", "fidelity/reward_recall")
    rows = [
        [title, *(with_count(own) if (own := last.get(name + kind)) and own.n else "" for name in measures)]
        for title, kind in KINDS
    ]
    return table(["transitions", "next states, exact", "reward precision", "reward recall"], rows)
