"""From judgements and replays to the `fidelity/*` metrics, each with its n and interval, and the gates before
and after RL.

Splits of the single steps: by how many facts the real step changed (0, 1-2, 3+); by whether the history
determined the outcome or the step revealed something new (what lies in a cabinet cannot be known: there only
the form can be right); by held-out tasks of known worlds or held-out worlds; by whether the real world
carried the action out, refused it, or could not read it; and by who acted. Steps of one task resemble each
other, so all intervals are those of clusters by task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from components.config import FidelityConfig
from components.errors import FidelityGateClosed
from components.evaluation.metrics.intervals import Estimate, clustered_proportion, proportion
from components.experience.real_replay import Replay
from components.experience.step_judgements import Judgement

EXAMINED = ("untrained", "cloned", "dreamed")
"""The policies on whose real steps a dream is examined; there they are a judgement's behaviour."""
CHANGE_CLASSES = ("changed_0", "changed_1_2", "changed_3_plus")
Metrics = dict[str, Estimate]

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
"""Name of a split -> which judgements are in it."""


def fidelity_metrics(judgements: Sequence[Judgement]) -> Metrics:
    """All single-step metrics of held-out real steps: in all, by split, by who acted; of determined ones by
    change and by world.
    """
    metrics = _metrics_of(judgements)
    for name, belongs in SPLITS.items():
        metrics |= _metrics_of([j for j in judgements if belongs(j)], f"/{name}")
    for name in (*CHANGE_CLASSES, "held_out_tasks", "held_out_worlds"):
        chosen = [j for j in judgements if SPLITS[name](j) and not j.revealing]
        metrics |= _shares({"next_state_exact": [j.exact for j in chosen]}, chosen, f"/determined/{name}")
    for behaviour in sorted({j.transition.behaviour for j in judgements}):
        metrics |= _metrics_of(
            [j for j in judgements if j.transition.behaviour == behaviour], f"/{behaviour}"
        )
    return metrics


def _metrics_of(judgements: Sequence[Judgement], suffix: str = "") -> Metrics:
    shares = {
        "next_state_exact": [j.exact for j in judgements],
        "inconsistency_rate": [j.incoherent for j in judgements],
        "unparsable_rate": [not j.parsed for j in judgements],
    }
    tasks, claims = _tasks(judgements), [j.claims for j in judgements]
    facts = {
        "fact_precision": ([j.right for j in judgements], claims),
        "fact_recall": ([j.right for j in judgements], [j.truths for j in judgements]),
        "hallucination_rate": ([j.contradicted for j in judgements], claims),
    }
    counted = {
        f"fidelity/{name}{suffix}": clustered_proportion(n, tasks, weights=of)
        for name, (n, of) in facts.items()
    }
    return _shares(shares, judgements, suffix) | counted | _reward_metrics(judgements, "reward", suffix)


def _shares(values: dict[str, list[bool]], judgements: Sequence[Judgement], suffix: str) -> Metrics:
    return {
        f"fidelity/{name}{suffix}": clustered_proportion(found, _tasks(judgements))
        for name, found in values.items()
    }


def _tasks(judgements: Sequence[Judgement]) -> list[str]:
    return [j.transition.task_id for j in judgements]


def _reward_metrics(judgements: Sequence[Judgement], name: str, suffix: str = "") -> Metrics:
    claimed = [j for j in judgements if j.predicted_reward > 0.5]
    earned = [j for j in judgements if j.reward > 0.5]
    return {
        f"fidelity/{name}_precision{suffix}": clustered_proportion(
            [j.reward > 0.5 for j in claimed], _tasks(claimed)
        ),
        f"fidelity/{name}_recall{suffix}": clustered_proportion(
            [j.predicted_reward > 0.5 for j in earned], _tasks(earned)
        ),
    }


def examined_policies(judgements: Sequence[Judgement]) -> Metrics:
    """Single steps of policies' real episodes (the behaviour is the policy's name): of each, and the rewards
    of all together.
    """
    metrics = _reward_metrics(judgements, "policy_reward")
    for policy in dict.fromkeys(j.transition.behaviour for j in judgements):
        metrics |= _metrics_of([j for j in judgements if j.transition.behaviour == policy], f"/{policy}")
    return metrics


def policy_metrics(
    judgements: Sequence[Judgement],
    replays: Sequence[Replay],
    dreamed: int,
    wins: int,
    *,
    suffix: str,
    played: int | None = None,
) -> Metrics:
    """The dream on the policy at hand: its verdict on the policy's real steps, and the real engine's on the
    dreamed successes.

    Args:
        judgements: of the policy's real episodes.
        replays: of its dreamed successes.
        dreamed: dreamed episodes in all.
        wins: real episodes won.
        played: real episodes in all; None: as many as were dreamed.
    """
    agreeing, episodes = [r.agreeing for r in replays], [str(number) for number in range(len(replays))]
    state_agreement = clustered_proportion(agreeing, episodes, weights=[r.compared for r in replays])
    return _reward_metrics(judgements, "policy_reward", f"/{suffix}") | {
        f"fidelity/rollout_agreement/{suffix}": proportion(sum(r.confirmed for r in replays), len(replays)),
        f"fidelity/rollout_state_agreement/{suffix}": state_agreement,
        f"fidelity/dreamed_success_rate/{suffix}": proportion(len(replays), dreamed),
        f"fidelity/real_success_rate/{suffix}": proportion(wins, dreamed if played is None else played),
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
    missed = [
        f"{name} is {metrics[name]}, floor {floor} ({key})"
        for name, (floor, key) in floors.items()
        if metrics[name].value < floor
    ]
    unparsable = metrics["fidelity/unparsable_rate"]
    if unparsable.value > config.max_unparsable_rate:
        missed.append(
            f"fidelity/unparsable_rate is {unparsable}, ceiling {config.max_unparsable_rate} "
            "(max_unparsable_rate)"
        )
    _close(missed)


def check_agreement(metrics: Metrics, config: FidelityConfig, suffix: str) -> None:
    """Stop the run where the real engine denies too many of the policy's dreamed successes.

    Raises:
        FidelityGateClosed: rollout_agreement of the policy `suffix` is below its floor.
    """
    found = metrics[f"fidelity/rollout_agreement/{suffix}"]
    if found.n and found.value < config.min_rollout_agreement:
        _close(
            [
                f"rollout_agreement of the {suffix} policy is {found}, floor {config.min_rollout_agreement} "
                "(min_rollout_agreement)"
            ]
        )


def _close(missed: list[str]) -> None:
    if missed:
        raise FidelityGateClosed(
            "The dream may not be trusted: " + "; ".join(missed) + ".",
            next_step="Look at fidelity/* in the run's metrics; collect more near misses (data.near_miss), "
            "train longer "
            "(experience_model.epochs), or lower the floor in the fidelity section if you know why.",
        )
