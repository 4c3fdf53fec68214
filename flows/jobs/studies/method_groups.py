"""Methods that run only as a group: dreams of graded quality, and reality at rising budgets."""

from __future__ import annotations

from collections.abc import Mapping

from flows.jobs.studies.method import DREAM, Method

REAL_STEPS = (500, 1000, 2000, 5000, 20_000)
"""Budgets of RL in reality."""


def _graded(about: str, option: str = "", value: float = 0) -> Method:
    changes = {"experience_model": {option: value}} if option else {}
    return Method(f"GiGPO in {about}", dream="grpo", changes=changes, is_graded=True, base=DREAM)


GRADED: dict[str, Method] = {
    "graded-full": _graded("the dream, compared with reality at the end"),
    **{
        f"graded-{steps}-steps": _graded(f"a dream that learnt from {steps} steps", "transitions", steps)
        for steps in (500, 2000, 5000, 10_000)
    },
    **{
        f"graded-{percent}-flipped": _graded(
            f"a dream that learnt {percent} % of the outcomes wrong", "flipped_outcomes", percent / 100
        )
        for percent in (5, 10, 20, 40)
    },
    **{
        f"graded-{percent}-swapped": _graded(
            f"a dream that learnt {percent} % of the next states from other steps",
            "swapped_states",
            percent / 100,
        )
        for percent in (5, 10, 20, 40)
    },
}
"""Dreams of graded quality: which measure of fidelity predicts the success of the policy trained in them?"""
BUDGETS: dict[str, Method] = {
    **{
        f"gigpo-real-{steps}": Method(f"GiGPO in reality, {steps:,} steps", real="grpo", real_steps=steps)
        for steps in REAL_STEPS
    },
    **{
        f"s2r-gigpo-{steps}": Method(
            f"GiGPO in the dream, then {steps:,} steps in reality",
            dream="grpo",
            real="grpo",
            real_steps=steps,
            base=f"gigpo-real-{steps}",
        )
        for steps in REAL_STEPS
    },
}
"""RL in reality with and without the dream before it, at equal budgets, tasks an iteration and first rates.

The rate of the refinement falls to 0 with the budget, as in the pipeline; that of RL in reality alone stays,
since a falling one was not better there (docs/experiments/dpo-and-annealing.md).
"""

GROUPS: Mapping[str, Mapping[str, Method]] = {"graded": GRADED, "budgets": BUDGETS}
"""Name of a group, which stands for its methods in `--methods` -> these; they run only if they are named."""
