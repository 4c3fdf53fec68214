"""The table of what the studies on weak logs should reach, met or missed."""

from __future__ import annotations

from budget_table import budget_differences, minutes_to_success
from result_files import interval, read_metrics, table
from study_tables import kept_of_reality

from components.evaluation.metrics.intervals import Estimate
from components.evaluation.study.study_results import MARGIN

STUDIES = ("study-logs-only", "study-weak")
"""Of dreams that have read the logs alone, and of dreams that knew the world before."""
CONTROLS = ("untrained-dream", "flipped-dream", "swapped-dream")
NOT_MEASURED = "not measured"


def targets() -> str:
    """Return each target with what the studies show: met, missed or not measured; one seed has no verdict."""
    rows = [
        [
            "RL in the dream above the clone of the successes, by more than the interval",
            *(_signed(name, "dream-grpo", above=True) for name in STUDIES),
        ],
        *(
            [
                f"`{control}` clearly below the dream",
                *(_signed(name, control, above=False) for name in STUDIES),
            ]
            for control in CONTROLS
        ),
        [
            f"surely {MARGIN} of the success of RL in reality, with a tenth of its steps",
            _beside_reality("study-logs-only", "study-weak"),
            _share_of_reality("study-weak", "s2r-grpo"),
        ],
        [
            "dream, then reality above reality alone at every budget up to 5,000 steps",
            f"1 seed: {', '.join(budget_differences(most=5000))}",
            NOT_MEASURED,
        ],
        [
            "a third of reality's time where a real step takes 0.5 s",
            "{} minutes, reality {} to as much success, 1 seed".format(*minutes_to_success("study-slow")),
            NOT_MEASURED,
        ],
    ]
    return table(["target", "dreams that have read the logs alone", "dreams that knew the world"], rows)


def _signed(name: str, method: str, *, above: bool) -> str:
    own = read_metrics(name)[method]
    difference = own["difference/success_rate"]
    seeds = sum(key.startswith("evaluate/success_rate/seed_") for key in own)
    is_met = difference.low > 0 if above else difference.high < 0
    verdict = f"{_word(is_met)}: " if seeds > 1 else ""
    return f"{verdict}{interval(difference, '+.3f')}, {seeds} seed{'s' * (seeds > 1)}"


def _share_of_reality(name: str, method: str) -> str:
    ratio: Estimate = kept_of_reality(name, method)
    return f"{_word(ratio.low >= MARGIN)}: {interval(ratio)}"


def _beside_reality(name: str, other: str) -> str:
    """Return the success of dream, then reality, and of reality in a study of the same policy and games.

    Only of the first seed: one seed is no test.
    """
    own, reality = read_metrics(name)["s2r-grpo"], read_metrics(other)["grpo-real"]
    seed = "evaluate/success_rate/seed_0"
    steps = own["cost/real_interactions"].value
    return f"1 seed: {own[seed].value:.3f} after {steps:,.0f} steps, reality {reality[seed].value:.3f}"


def _word(is_met: bool) -> str:
    return "met" if is_met else "**missed**"
