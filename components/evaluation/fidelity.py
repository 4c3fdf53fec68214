"""From judgements to the `fidelity/*` metrics, each with its n and interval, and the gate before RL.

Splits: by how many facts the real step changed (0, 1-2, 3+), and by whether the history determined the outcome or the step
revealed something new (what lies in a cabinet cannot be known: there only the form can be right).
"""

from __future__ import annotations

from collections.abc import Sequence

from components.config import FidelityConfig
from components.errors import FidelityGateClosed
from components.evaluation.intervals import Estimate, proportion
from components.experience.agreement import Replay
from components.experience.fidelity import Judgement

CLASSES = {"changed_0": (0, 0), "changed_1_2": (1, 2), "changed_3_plus": (3, 10**9)}
Metrics = dict[str, Estimate]


def fidelity_metrics(judgements: Sequence[Judgement]) -> Metrics:
    """All single-step metrics of held-out real transitions."""
    metrics = _metrics_of(judgements, "fidelity")
    for name, (least, most) in CLASSES.items():
        metrics |= _metrics_of([j for j in judgements if least <= j.changed <= most], "fidelity", f"/{name}")
    metrics |= _metrics_of([j for j in judgements if not j.revealing], "fidelity", "/determined")
    metrics |= _metrics_of([j for j in judgements if j.revealing], "fidelity", "/revealing")
    metrics |= _metrics_of([j for j in judgements if not j.unseen], "fidelity", "/held_out_tasks")
    metrics |= _metrics_of([j for j in judgements if j.unseen], "fidelity", "/held_out_worlds")
    for behaviour in sorted({j.transition.behaviour for j in judgements}):
        metrics |= _reward_metrics([j for j in judgements if j.transition.behaviour == behaviour], "fidelity/reward", f"/{behaviour}")
    return metrics


def _metrics_of(judgements: Sequence[Judgement], prefix: str, suffix: str = "") -> Metrics:
    claims, truths = sum(j.claims for j in judgements), sum(j.truths for j in judgements)
    right, wrong = sum(j.right for j in judgements), sum(j.contradicted for j in judgements)
    return {
        f"{prefix}/next_state_exact{suffix}": proportion(sum(j.exact for j in judgements), len(judgements)),
        f"{prefix}/fact_precision{suffix}": proportion(right, claims),
        f"{prefix}/fact_recall{suffix}": proportion(right, truths),
        f"{prefix}/hallucination_rate{suffix}": proportion(wrong, claims),
        f"{prefix}/inconsistency_rate{suffix}": proportion(sum(j.incoherent for j in judgements), len(judgements)),
        f"{prefix}/unparsable_rate{suffix}": proportion(sum(not j.parsed for j in judgements), len(judgements)),
    } | _reward_metrics(judgements, f"{prefix}/reward", suffix)


def _reward_metrics(judgements: Sequence[Judgement], prefix: str, suffix: str = "") -> Metrics:
    claimed = [j for j in judgements if j.predicted_reward > 0.5]
    earned = [j for j in judgements if j.reward > 0.5]
    both = sum(j.reward > 0.5 for j in claimed)
    return {f"{prefix}_precision{suffix}": proportion(both, len(claimed)), f"{prefix}_recall{suffix}": proportion(both, len(earned))}


def policy_metrics(judgements: Sequence[Judgement], replays: Sequence[Replay], dreamed: int, wins: int, *, suffix: str) -> Metrics:
    """The dream on the policy at hand: its verdict on the policy's real steps, and the real engine's on the dreamed successes.

    Args:
        judgements: of the policy's real episodes.
        replays: of its dreamed successes.
        dreamed: dreamed episodes in all; wins: real episodes won (of as many).
    """
    agreeing, compared = sum(r.agreeing for r in replays), sum(r.compared for r in replays)
    return _reward_metrics(judgements, "fidelity/policy_reward", f"/{suffix}") | {
        f"fidelity/rollout_agreement/{suffix}": proportion(sum(r.confirmed for r in replays), len(replays)),
        f"fidelity/rollout_state_agreement/{suffix}": proportion(agreeing, compared),
        f"fidelity/dreamed_success_rate/{suffix}": proportion(len(replays), dreamed),
        f"fidelity/real_success_rate/{suffix}": proportion(wins, dreamed),
    }


def check_gate(metrics: Metrics, config: FidelityConfig) -> None:
    """Stop the run before RL where the dream may not be trusted.

    Raises:
        FidelityGateClosed: one of the configured floors is missed; the message gives each number with its n.
    """
    floors = {
        "fidelity/next_state_exact/determined": (config.min_next_state_exact, "min_next_state_exact"),
        "fidelity/reward_precision": (config.min_reward_precision, "min_reward_precision"),
    }
    missed = [f"{name} is {metrics[name]}, floor {floor} ({key})" for name, (floor, key) in floors.items() if metrics[name].value < floor]
    unparsable = metrics["fidelity/unparsable_rate"]
    if unparsable.value > config.max_unparsable_rate:
        missed.append(f"fidelity/unparsable_rate is {unparsable}, ceiling {config.max_unparsable_rate} (max_unparsable_rate)")
    _close(missed)


def check_agreement(metrics: Metrics, config: FidelityConfig, suffix: str) -> None:
    """Stop the run where the real engine denies too many of the policy's dreamed successes.

    Raises:
        FidelityGateClosed: rollout_agreement of the policy `suffix` is below its floor.
    """
    found = metrics[f"fidelity/rollout_agreement/{suffix}"]
    if found.n and found.value < config.min_rollout_agreement:
        _close([f"rollout_agreement of the {suffix} policy is {found}, floor {config.min_rollout_agreement} (min_rollout_agreement)"])


def _close(missed: list[str]) -> None:
    if missed:
        raise FidelityGateClosed(
            "The dream may not be trusted: " + "; ".join(missed) + ".",
            next_step="Look at fidelity/* in the run's metrics; collect more near misses (data.near_miss), train longer "
            "(experience_model.epochs), or lower the floor in the fidelity section if you know why.",
        )
