"""The `fidelity/*` metrics computed from judgements and replays, and the gates before and after RL.

Single steps are split by:

- how many facts the real step changed (0, 1-2, 3+);
- whether the history determined the outcome or the step revealed something new. The contents of a closed
  cabinet cannot be known; for such a step only the form can be right;
- held-out tasks of known worlds, or held-out worlds;
- whether the real world executed the action, refused it, or could not parse it;
- the behaviour that took the step.

Steps of one task are correlated, so all intervals are clustered by task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from components.config import FidelityConfig
from components.errors import FidelityGateClosed
from components.evaluation.metrics.calibration import calibration_metrics
from components.evaluation.metrics.intervals import (
    Estimate,
    clustered_proportion,
    proportion,
)
from components.evaluation.metrics.paired_outcomes import paired_difference
from components.evaluation.metrics.text_agreement import text_metrics
from components.experience.real_replay import Replay
from components.experience.step_judgements import Judgement

EXAMINED_POLICIES = ("untrained", "cloned", "dreamed")
"""Policies on whose real steps a dream is measured; the judgement's behaviour is the policy's name."""
CHANGE_CLASSES = ("changed_0", "changed_1_2", "changed_3_plus")
Metrics = dict[str, Estimate]
MAX_UNANSWERED = 0.5
"""Ceiling of the share of a policy's dreamed episodes without an answer, for the low end of its interval.

Dreams that know their world leave 0.02 to 0.42 of RL's episodes unanswered, those from weak logs alone 0.40
to 0.49 (docs/experiments), and one that has learnt nothing all.
"""
NOT_MEASURED = {
    "min_next_state_exact": "no held-out step is determined by its history",
    "min_reward_precision": "no answer granted a reward",
}
"""Floor -> what is the case where its metric has no observation."""

SPLITS: dict[str, Callable[[Judgement], bool]] = {
    "changed_0": lambda j: j.changed == 0,
    "changed_1_2": lambda j: 1 <= j.changed <= 2,
    "changed_3_plus": lambda j: j.changed >= 3,
    "determined": lambda j: not j.revealing,
    "revealing": lambda j: j.revealing,
    "held_out_tasks": lambda j: not j.unseen,
    "held_out_worlds": lambda j: j.unseen,
    "possible": lambda j: not j.refused,
    "impossible": lambda j: j.refused and not j.malformed,
    "malformed": lambda j: j.malformed,
}
"""Name of a split -> predicate of the judgements that belong to it."""


def fidelity_metrics(judgements: Sequence[Judgement]) -> Metrics:
    """Return all single-step metrics of held-out real steps: overall, per split and per behaviour.

    For the determined steps, `next_state_exact` is also split by number of changed facts and by world.
    """
    metrics = _step_metrics(judgements) | text_metrics(judgements) | calibration_metrics(judgements)
    metrics |= _metrics_as_used(judgements)
    for name in ("determined", "revealing"):
        metrics |= text_metrics([j for j in judgements if SPLITS[name](j)], f"/{name}")
    for name, belongs in SPLITS.items():
        metrics |= _step_metrics([j for j in judgements if belongs(j)], f"/{name}")
    for name in (*CHANGE_CLASSES, "held_out_tasks", "held_out_worlds"):
        determined = [j for j in judgements if SPLITS[name](j) and not j.revealing]
        exact_states = {"next_state_exact": [j.exact for j in determined]}
        metrics |= _shares(exact_states, determined, f"/determined/{name}")
    for behaviour in sorted({j.transition.behaviour for j in judgements}):
        metrics |= _step_metrics(
            [j for j in judgements if j.transition.behaviour == behaviour], f"/{behaviour}"
        )
    return metrics


def _metrics_as_used(judgements: Sequence[Judgement]) -> Metrics:
    """Return the metrics of the answers that RL would get; none if they were not recorded."""
    recorded = [j for j in judgements if j.answered is not None]
    if not recorded:
        return {}
    metrics = _shares({"as_used/unanswered_rate": [not j.answered for j in recorded]}, recorded, "")
    for suffix, kept in (
        ("", recorded),
        ("/determined", [j for j in recorded if not j.revealing]),
        ("/revealing", [j for j in recorded if j.revealing]),
    ):
        metrics |= _shares({"as_used/next_state_exact": [j.used_exact for j in kept]}, kept, suffix)
    return metrics | _used_reward_metrics(recorded, "as_used/reward")


def _used_reward_metrics(judgements: Sequence[Judgement], name: str, suffix: str = "") -> Metrics:
    used = [replace(j, predicted_reward=j.used_reward) for j in judgements if j.answered is not None]
    return _reward_metrics(used, name, suffix) if used else {}


def _step_metrics(judgements: Sequence[Judgement], suffix: str = "") -> Metrics:
    shares = {
        "next_state_exact": [j.exact for j in judgements],
        "inconsistency_rate": [j.incoherent for j in judgements],
        "unparsable_rate": [not j.parsed for j in judgements],
    }
    tasks = _task_ids(judgements)
    claims = [j.claims for j in judgements]
    fact_counts = {
        "fact_precision": ([j.right for j in judgements], claims),
        "fact_recall": ([j.right for j in judgements], [j.truths for j in judgements]),
        "hallucination_rate": ([j.contradicted for j in judgements], claims),
    }
    fact_shares = {
        f"fidelity/{name}{suffix}": clustered_proportion(counts, tasks, weights=totals)
        for name, (counts, totals) in fact_counts.items()
    }
    return _shares(shares, judgements, suffix) | fact_shares | _reward_metrics(judgements, "reward", suffix)


def _shares(values: dict[str, list[bool]], judgements: Sequence[Judgement], suffix: str) -> Metrics:
    return {
        f"fidelity/{name}{suffix}": clustered_proportion(outcomes, _task_ids(judgements))
        for name, outcomes in values.items()
    }


def _task_ids(judgements: Sequence[Judgement]) -> list[str]:
    return [j.transition.task_id for j in judgements]


def _reward_metrics(judgements: Sequence[Judgement], name: str, suffix: str = "") -> Metrics:
    predicted_rewards = [j for j in judgements if j.predicted_reward > 0.5]
    real_rewards = [j for j in judgements if j.reward > 0.5]
    return {
        f"fidelity/{name}_precision{suffix}": clustered_proportion(
            [j.reward > 0.5 for j in predicted_rewards], _task_ids(predicted_rewards)
        ),
        f"fidelity/{name}_recall{suffix}": clustered_proportion(
            [j.predicted_reward > 0.5 for j in real_rewards], _task_ids(real_rewards)
        ),
    }


def examined_policy_metrics(judgements: Sequence[Judgement]) -> Metrics:
    """Return the single-step metrics of each policy's real episodes, and the reward metrics of all together.

    The judgement's behaviour is the policy's name.
    """
    metrics = _reward_metrics(judgements, "policy_reward")
    for policy in dict.fromkeys(j.transition.behaviour for j in judgements):
        metrics |= _step_metrics([j for j in judgements if j.transition.behaviour == policy], f"/{policy}")
    return metrics


def policy_metrics(
    judgements: Sequence[Judgement],
    replays: Sequence[Replay],
    dreamed_episodes: int,
    real_wins: Sequence[bool],
    same_tasks: Sequence[tuple[bool, bool]],
    *,
    unanswered: int,
    suffix: str,
) -> Metrics:
    """Return the metrics of the dream on one policy's episodes.

    They compare the dream's rewards on the policy's real steps, and the real engine's verdict on the policy's
    dreamed successes. Kindness is the success in the dream minus that in reality on the same tasks, with
    Newcombe's interval for pairs.

    Args:
        judgements: of the policy's real episodes.
        replays: of its dreamed successes.
        dreamed_episodes: number of dreamed episodes, with those without an answer.
        real_wins: outcome of each real episode.
        same_tasks: (won in the dream, won in reality) of each task that was played in both and that the dream
            answered.
        unanswered: number of dreamed episodes that ended without an answer.
        suffix: name of the policy in the metrics.
    """
    agreeing_states = [replay.agreeing_states for replay in replays]
    compared_states = [replay.compared for replay in replays]
    episode_names = [str(number) for number in range(len(replays))]
    state_agreement = clustered_proportion(agreeing_states, episode_names, weights=compared_states)
    rewards = _reward_metrics(judgements, "policy_reward", f"/{suffix}")
    rewards |= _used_reward_metrics(judgements, "as_used/policy_reward", f"/{suffix}")
    difference = paired_difference([dreamed for dreamed, _ in same_tasks], [real for _, real in same_tasks])
    kindness = Estimate(difference.value, difference.n, difference.low, difference.high)
    return rewards | {
        f"fidelity/rollout_agreement/{suffix}": proportion(sum(r.confirmed for r in replays), len(replays)),
        f"fidelity/rollout_state_agreement/{suffix}": state_agreement,
        f"fidelity/dreamed_success_rate/{suffix}": proportion(len(replays), dreamed_episodes),
        f"fidelity/unanswered_episodes/{suffix}": proportion(unanswered, dreamed_episodes),
        f"fidelity/real_success_rate/{suffix}": proportion(sum(real_wins), len(real_wins)),
        f"fidelity/kindness/{suffix}": kindness,
    }


def check_gate(metrics: Metrics, config: FidelityConfig) -> None:
    """Check the experience model's single-step metrics before RL.

    Raises:
        FidelityGateClosed: a metric violates its floor or ceiling. The message gives each value with its n.
    """
    floors = {
        "fidelity/next_state_exact/determined": (config.min_next_state_exact, "min_next_state_exact"),
        "fidelity/reward_precision": (config.min_reward_precision, "min_reward_precision"),
    }
    failures = [
        f"{name} is {metrics[name]}, floor {floor} ({key})"
        if metrics[name].n
        else f"{name} has nothing to be measured on (n=0: {NOT_MEASURED[key]}), floor {floor} ({key})"
        for name, (floor, key) in floors.items()
        if metrics[name].value < floor
    ]
    unparsable = metrics["fidelity/unparsable_rate"]
    if unparsable.value > config.max_unparsable_rate:
        failures.append(
            f"fidelity/unparsable_rate is {unparsable}, ceiling {config.max_unparsable_rate} "
            "(max_unparsable_rate)"
        )
    if failures:
        raise _gate_closed(failures)


def check_agreement(metrics: Metrics, config: FidelityConfig, suffix: str) -> None:
    """Check how the dreamed successes of the policy `suffix` compare with reality.

    A comparison without any observation shows nothing, so it closes the gate like a value on the wrong side.
    A floor of 0 and a ceiling of 1 ask for nothing. `max_unparsable_rate: 1` allows a dream without answers.

    Raises:
        FidelityGateClosed: the real engine confirms fewer than the floor; the policy surely wins more often
            in the dream than in reality, by more than `max_kindness`; surely more of its dreamed episodes
            than `MAX_UNANSWERED` end without an answer; or there was nothing to compare.
    """
    failures = []
    floor, ceiling = config.min_rollout_agreement, config.max_kindness
    agreement, kindness, unanswered = (
        metrics[f"fidelity/{name}/{suffix}"]
        for name in ("rollout_agreement", "kindness", "unanswered_episodes")
    )
    name = f"rollout_agreement of the {suffix} policy"
    if floor and not agreement.n:
        failures.append(
            f"{name} has nothing to be measured on (n=0: no success in {unanswered.n} dreamed episodes), "
            f"floor {floor} (min_rollout_agreement)"
        )
    elif agreement.value < floor:
        failures.append(f"{name} is {agreement}, floor {floor} (min_rollout_agreement)")
    must_answer = config.max_unparsable_rate < 1
    name = f"success in the dream minus success in reality of the {suffix} policy"
    if must_answer and ceiling < 1 and not kindness.n:
        failures.append(
            f"{name} has nothing to be measured on (n=0: no task was answered in both), ceiling {ceiling} "
            "(max_kindness)"
        )
    elif kindness.n and kindness.low > ceiling:
        failures.append(f"{name} is {kindness}, ceiling of its lower bound {ceiling} (max_kindness)")
    if must_answer and unanswered.low > MAX_UNANSWERED:
        failures.append(
            f"the share of dreamed episodes of the {suffix} policy without an answer is {unanswered}, "
            f"ceiling of its lower bound {MAX_UNANSWERED}"
        )
    if failures:
        raise _gate_closed(failures)


def _gate_closed(failures: list[str]) -> FidelityGateClosed:
    return FidelityGateClosed(
        "The dream is not accurate enough: " + "; ".join(failures) + ".",
        next_step="Read fidelity/* in the run's metrics. Collect more near misses (data.near_miss), or train "
        "longer (experience_model.epochs). Lower the floor in the fidelity section only if you know why.",
    )
