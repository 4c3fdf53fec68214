"""The table of what the studies on weak logs should reach, met or missed."""

from __future__ import annotations

from budget_table import budget_differences, minutes_to_success
from result_files import interval, read_metrics, table
from study_tables import beside

from components.evaluation.study.study_results import MARGIN, MIN_TESTED_SEEDS, reaches_margin

STUDIES = ("study-logs-only", "study-weak")
"""Of dreams that have read the logs alone, and of dreams that knew the world before."""
CONTROLS = ("untrained-dream", "flipped-dream", "swapped-dream")
NOT_MEASURED = "not measured"
TIME_SHARE = 1 / 3
"""Of reality's time: what dream and reality together may take."""


def targets() -> str:
    """Return each target with what the studies show; see `verdict` for the words."""
    rows = [
        [
            "RL in the dream above the clone of the successes, by more than the interval",
            *(_signed(name, "dream-gigpo", above=True) for name in STUDIES),
        ],
        [
            "above DPO on the logs' own pairs, the best baseline without interaction (run after them)",
            *(_above_pairs(name) for name in STUDIES),
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
            "; ".join(
                _share_of_reality("study-logs-only", method) for method in ("s2r-gigpo", "dream-gigpo")
            ),
            "; ".join(_share_of_reality("study-weak", method) for method in ("s2r-gigpo", "dream-gigpo")),
        ],
        [
            "dream, then reality above the better start of reality alone at every budget up to 5,000 steps",
            _above_reality(most=5000),
            NOT_MEASURED,
        ],
        *(
            [f"a third of reality's time where a real step takes {seconds} s", _time(name), NOT_MEASURED]
            for name, seconds in (("study-slow", 0.5), ("study-slow-5", 5))
        ),
    ]
    return table(["target", "dreams that have read the logs alone", "dreams that knew the world"], rows)


def verdict(is_reached: bool, seeds: int) -> str:
    """Return how a target stands after some seeds.

    `met` needs `MIN_TESTED_SEEDS`: with fewer, an interval that lies on the right side is no test. What is
    not reached by the seeds that were run is missed by them.
    """
    in_seeds = f"{seeds} seed{'s' * (seeds > 1)}"
    if seeds >= MIN_TESTED_SEEDS:
        return f"{'met' if is_reached else '**missed**'}, {in_seeds}"
    return f"reached in {in_seeds}, too few to test" if is_reached else f"**missed** in {in_seeds}"


def _signed(name: str, method: str, *, above: bool) -> str:
    own = read_metrics(name)[method]
    difference = own["difference/success_rate"]
    seeds = sum(key.startswith("evaluate/success_rate/seed_") for key in own)
    is_reached = difference.low > 0 if above else difference.high < 0
    return f"{verdict(is_reached, seeds)}: {interval(difference, '+.3f')}"


def _above_pairs(name: str) -> str:
    own, seeds = beside(name, "dream-gigpo", "study-logs-only", "dpo-logs")
    difference = own["difference/success_rate"]
    return f"{verdict(difference.low > 0, seeds)}: {interval(difference, '+.3f')}"


def _share_of_reality(name: str, method: str) -> str:
    """Return the method's share of the success of RL in reality on the same logs, policy and games."""
    own, seeds = beside(name, method, "study-weak")
    ratio, steps = own["ratio/success_rate"], own["cost/real_interactions"].value
    return f"{verdict(reaches_margin(own), seeds)}: `{method}` {interval(ratio)} after {steps:,.0f} steps"


def _above_reality(most: int) -> str:
    differences = budget_differences(most)
    shown = [
        f"{steps:,}: {found.value:+.3f} ({found.low:+.3f} to {found.high:+.3f})"
        + ", one start" * (starts == 1)
        for steps, (found, starts) in differences.items()
    ]
    is_reached = all(found.low > 0 for found, _ in differences.values())
    return f"{verdict(is_reached, 1)}: {'; '.join(shown)}"


def _time(name: str) -> str:
    """Return the minutes of both; no verdict if reality ended before it won as much."""
    own, reality, is_reached = minutes_to_success(name)
    has_verdict = is_reached or own <= TIME_SHARE * reality
    stands = verdict(own <= TIME_SHARE * reality, 1) if has_verdict else "1 seed"
    needed = f"{'' if is_reached else 'more than '}{reality:.0f}"
    return f"{stands}: {own:.0f} minutes, reality {needed} to as much success"
