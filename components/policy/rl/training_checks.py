"""Checks that stop RL training: numbers that are not finite, a gap between sampler and trainer, a collapsed
policy, and iterations without a learning signal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from components.errors import TrainingError

LOGPROB_GAP_LIMIT = 0.05
"""Maximum mean gap of the sampler's and the trainer's log-probabilities of one policy, in nats per token."""
MAX_ITERATIONS_WITHOUT_SIGNAL = 8
"""Number of consecutive iterations without a learning signal after which the loop stops."""
COLLAPSE_WINDOW = 4
"""Number of iterations over which success rates are averaged, at the start and at the end."""
COLLAPSE_ROLLOUTS = 128
"""Number of rollouts that suffices for a shorter window: half of the iterations so far."""
COLLAPSE_SHARE = 0.5
"""A policy has collapsed if its last success rate is below this share of its first."""
COLLAPSE_MIN_SUCCESS = 0.1
"""Lowest first success rate for which a collapse is detected."""


def check_logprob_gap(gap: float) -> None:
    """Check the gap before the first step of an iteration, when trainer and sampler are the same policy.

    Raises:
        TrainingError: the gap exceeds LOGPROB_GAP_LIMIT.
    """
    if gap > LOGPROB_GAP_LIMIT:
        raise TrainingError(
            f"Sampler and trainer differ by {gap:.3g} nats per token on the same policy.",
            f"Expected at most {LOGPROB_GAP_LIMIT}.",
            "The engine does not compute what the model computes: report the backbone's architecture.",
        )


def check_finite(name: str, value: float) -> None:
    """Check a number before the optimiser step, so that weights and checkpoint remain those of the last good
    step.

    Raises:
        TrainingError: the value is infinite or NaN.
    """
    if not math.isfinite(value):
        raise TrainingError(
            f"The {name} is {value}.", "Expected a finite number.", "Lower the stage's learning_rate."
        )


def check_learning_signal(iterations_without_signal: int) -> None:
    """Check the number of consecutive iterations without a learning signal.

    Raises:
        TrainingError: there are MAX_ITERATIONS_WITHOUT_SIGNAL of them.
    """
    if iterations_without_signal >= MAX_ITERATIONS_WITHOUT_SIGNAL:
        raise TrainingError(
            f"There was nothing to learn for {iterations_without_signal} consecutive iterations: no task had "
            "both a success and a failure (meta_rewarding: episodes that it judged differently), so all "
            "advantages were zero, or there was no pair to compare.",
            "Expected tasks that the policy sometimes solves and sometimes does not.",
            "Raise the stage's temperature or num_generations, or clone more (cloning.demonstrations).",
        )


def check_collapse(success_rates: Sequence[float], rollouts_per_iteration: int) -> None:
    """Check that the policy does not succeed far less often than at the start: it would not recover.

    Args:
        success_rates: one per iteration so far.

    Raises:
        TrainingError: the mean of the last window is below COLLAPSE_SHARE of the mean of the first.
    """
    window = min(COLLAPSE_WINDOW, len(success_rates) // 2)
    if window < COLLAPSE_WINDOW and window * rollouts_per_iteration < COLLAPSE_ROLLOUTS:
        return
    first = sum(success_rates[:window]) / window
    last = sum(success_rates[-window:]) / window
    if first >= COLLAPSE_MIN_SUCCESS and last < COLLAPSE_SHARE * first:
        raise TrainingError(
            f"The policy collapsed: its success rate is {last:.2f} over the last {window} iterations, "
            f"{first:.2f} over the first.",
            f"Expected at least {COLLAPSE_SHARE:g} times the first.",
            "Lower the stage's learning_rate or the algorithm's optimizer_steps, or set the algorithm's "
            "beta (KL divergence from the initial policy).",
        )


def check_staleness(staleness: int, engine: str) -> None:
    """Raise TrainingError if several iterations cannot be in the making with the engine of this machine.

    Args:
        staleness: updates that the policy that plays is behind the trained one.
        engine: resolved name, not `auto`.
    """
    if staleness > 1 and engine != "kept-cache":
        raise TrainingError(
            f"rl.dream.staleness is {staleness}, and the engine of this machine is {engine}, which holds one "
            "version of the policy's weights.",
            "Expected 0 or 1 with it.",
            "Set rl.dream.staleness=1, or engine=kept-cache.",
        )


def check_partner(engine: str) -> None:
    """Raise TrainingError if two policies cannot play together with the engine of this machine.

    Args:
        engine: resolved name, not `auto`.
    """
    if engine != "kept-cache":
        raise TrainingError(
            f"rl.algorithm.cross_policy_share is set, and the engine of this machine is {engine}, which "
            "holds one policy.",
            "Expected the engine kept-cache with it.",
            "Set rl.algorithm.cross_policy_share=0, or engine=kept-cache.",
        )
