"""Fidelity metrics of hand-written judgements, and the gates before and after RL."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import make_episode, make_task, make_transition

from components.config import FidelityConfig
from components.errors import FidelityGateClosed
from components.evaluation.metrics.fidelity_metrics import (
    MAX_UNANSWERED,
    check_agreement,
    check_gate,
    fidelity_metrics,
    policy_metrics,
)
from components.experience.real_replay import Replay
from components.experience.step_judgements import Judgement

GOOD = Judgement(
    transition=make_transition(behaviour="expert"),
    predicted="s",
    parsed=True,
    exact=True,
    claims=4,
    right=4,
    truths=4,
    contradicted=0,
    incoherent=False,
    changed=1,
    revealing=False,
    unseen=False,
    refused=False,
    malformed=False,
    reward=0.0,
    predicted_reward=0.0,
)


def make_judgement(behaviour="expert", **changes) -> Judgement:
    return replace(GOOD, transition=make_transition(behaviour=behaviour), **changes)


MIXED = [
    make_judgement(changed=0),
    make_judgement(changed=2, exact=False, claims=3, right=2, contradicted=1),
    make_judgement(
        "near_miss",
        changed=3,
        revealing=True,
        exact=False,
        claims=5,
        right=1,
        truths=6,
        contradicted=2,
        predicted_reward=1.0,
    ),
    make_judgement("near_miss", changed=1, parsed=False, exact=False, claims=0, right=0),
    make_judgement(changed=1, reward=1.0, predicted_reward=1.0),
    make_judgement(changed=4, reward=1.0, predicted_reward=0.0, exact=False, claims=2, right=2),
]


def pairs(metrics, *names):
    return [(round(metrics[name].value, 6), metrics[name].n) for name in names]


def test_each_metric_is_a_share_with_its_n():
    metrics = fidelity_metrics(MIXED)
    names = [
        "next_state_exact",
        "fact_precision",
        "fact_recall",
        "hallucination_rate",
        "unparsable_rate",
        "reward_precision",
        "reward_recall",
    ]
    assert pairs(metrics, *(f"fidelity/{name}" for name in names)) == [
        (round(2 / 6, 6), 6),
        (round(13 / 18, 6), 18),
        (round(13 / 26, 6), 26),
        (round(3 / 18, 6), 18),
        (round(1 / 6, 6), 6),
        (0.5, 2),
        (0.5, 2),
    ]


def test_each_split_counts_its_own_judgements():
    metrics = fidelity_metrics(MIXED)
    assert pairs(
        metrics,
        *(f"fidelity/next_state_exact/{split}" for split in ("changed_0", "changed_1_2", "changed_3_plus")),
    ) == [(1.0, 1), (round(1 / 3, 6), 3), (0.0, 2)]
    assert pairs(metrics, "fidelity/next_state_exact/determined", "fidelity/next_state_exact/revealing") == [
        (0.4, 5),
        (0.0, 1),
    ]
    assert pairs(
        metrics, "fidelity/hallucination_rate/revealing", "fidelity/hallucination_rate/determined"
    ) == [
        (0.4, 5),
        (round(1 / 13, 6), 13),
    ]
    with_new_world = fidelity_metrics([*MIXED, make_judgement(unseen=True, exact=False)])
    names = [f"fidelity/next_state_exact/held_out_{kind}" for kind in ("tasks", "worlds")]
    assert pairs(with_new_world, *names) == [(round(2 / 6, 6), 6), (0.0, 1)]
    assert pairs(metrics, "fidelity/reward_precision/expert", "fidelity/reward_precision/near_miss") == [
        (1.0, 1),
        (0.0, 1),
    ]
    assert pairs(metrics, "fidelity/reward_recall/expert", "fidelity/reward_recall/near_miss") == [
        (0.5, 2),
        (0.0, 0),
    ]


def test_the_answers_that_rl_gets_have_metrics_of_their_own_where_they_were_recorded():
    used = [
        make_judgement(answered=True, used_exact=True, reward=1.0, used_reward=1.0),
        make_judgement(answered=False, reward=1.0, predicted_reward=1.0),
        make_judgement(answered=True, used_exact=False, revealing=True, predicted_reward=1.0),
        make_judgement(answered=True, used_exact=False, used_reward=1.0),
        make_judgement(),
    ]
    metrics = fidelity_metrics(used)
    prefix = "fidelity/as_used"
    assert pairs(
        metrics,
        f"{prefix}/next_state_exact",
        f"{prefix}/next_state_exact/determined",
        f"{prefix}/next_state_exact/revealing",
        f"{prefix}/unanswered_rate",
    ) == [(0.25, 4), (0.333333, 3), (0.0, 1), (0.25, 4)]
    assert pairs(metrics, f"{prefix}/reward_precision", f"{prefix}/reward_recall") == [(0.5, 2), (0.5, 2)]
    assert pairs(metrics, "fidelity/reward_precision", "fidelity/reward_recall") == [(0.5, 2), (0.5, 2)]
    assert not any("as_used" in name for name in fidelity_metrics(MIXED)), "older judgements lack them"
    of_policy = policy_metrics(used, [], 2, [], [], unanswered=0, suffix="cloned")
    assert pairs(of_policy, f"{prefix}/policy_reward_precision/cloned") == [(0.5, 2)]


def test_without_judgements_every_interval_is_zero_to_one():
    metrics = fidelity_metrics([])
    assert metrics and all((m.value, m.n, m.low, m.high) == (0.0, 0, 0.0, 1.0) for m in metrics.values())


def test_policy_metrics_count_dreamed_and_real_successes():
    episode = make_episode(make_task(), ("go", "s"), ("go", "s"), won=True)
    replays = [
        Replay(episode, won, same)
        for won, same in ((True, (True, True)), (False, (True, False)), (False, (False, False)))
    ]
    real = [True, True] + [False] * 6
    same_tasks = [(True, True), (True, False), (True, False), (False, False), (False, True)]
    metrics = policy_metrics(MIXED, replays, 8, real, same_tasks, unanswered=2, suffix="cloned")
    names = [
        "rollout_agreement",
        "rollout_state_agreement",
        "dreamed_success_rate",
        "real_success_rate",
        "kindness",
        "policy_reward_precision",
    ]
    assert pairs(metrics, *(f"fidelity/{name}/cloned" for name in names)) == [
        (round(1 / 3, 6), 3),
        (0.5, 6),
        (round(3 / 8, 6), 8),
        (0.25, 8),
        (0.2, 5),  # 3 - 2 of the 5 tasks that both answered
        (0.5, 2),
    ]


def test_states_of_one_dreamed_episode_are_one_cluster():
    """Sixteen replays of twenty states each, eight of them right throughout.

    The interval is as wide as for sixteen observations, not for 320.
    """
    episode = make_episode(make_task(), *[("go", "s")] * 20, won=True)
    replays = [Replay(episode, n % 2 == 0, (n % 2 == 0,) * 20) for n in range(16)]
    agreement = policy_metrics(MIXED, replays, 16, [], [], unanswered=0, suffix="cloned")[
        "fidelity/rollout_state_agreement/cloned"
    ]
    assert (agreement.value, agreement.n) == (0.5, 320)
    assert agreement.low < 0.3 and agreement.high > 0.7


def gate_metrics(exact=9, precision=9, unparsable=0):
    """Return the metrics of 100 judgements.

    Of ten determined steps `exact` are right. Of ten predicted successes `precision` are real. Of the hundred
    answers `unparsable` cannot be parsed.
    """
    judgements = [make_judgement(exact=n < exact) for n in range(10)]
    judgements += [
        make_judgement(revealing=True, reward=float(n < precision), predicted_reward=1.0) for n in range(10)
    ]
    judgements += [make_judgement(revealing=True, parsed=n >= unparsable, exact=False) for n in range(80)]
    return fidelity_metrics(judgements)


def test_the_gate_is_open_at_its_floors():
    check_gate(gate_metrics(8, 8, 2), FidelityConfig())
    check_gate(
        gate_metrics(0, 0, 80),
        FidelityConfig(min_next_state_exact=0, min_reward_precision=0, max_unparsable_rate=1),
    )


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        (
            (7, 9, 0),
            r"fidelity/next_state_exact/determined is 0\.700 \(n=10, .*\), floor 0\.8 "
            r"\(min_next_state_exact\)\.",
        ),
        (
            (9, 7, 0),
            r"fidelity/reward_precision is 0\.700 \(n=10, .*\), floor 0\.8 \(min_reward_precision\)\.",
        ),
        (
            (9, 9, 3),
            r"fidelity/unparsable_rate is 0\.030 \(n=100, .*\), ceiling 0\.02 \(max_unparsable_rate\)\.",
        ),
        (
            (7, 7, 3),
            "not accurate enough: .*next_state_exact.*; fidelity/reward_precision.*; "
            "fidelity/unparsable_rate.*near misses",
        ),
    ],
)
def test_a_closed_gate_names_the_metric_its_value_n_and_floor(counts, words):
    with pytest.raises(FidelityGateClosed, match=words) as closed:
        check_gate(gate_metrics(*counts), FidelityConfig())
    assert closed.value.exit_code == 3


def test_revealing_steps_do_not_close_the_gate():
    metrics = gate_metrics()
    assert metrics["fidelity/next_state_exact"].value < 0.3
    check_gate(metrics, FidelityConfig())


def test_the_gate_is_closed_without_any_predicted_success():
    metrics = fidelity_metrics([make_judgement() for _ in range(50)])
    with pytest.raises(FidelityGateClosed, match=r"reward_precision has nothing .*n=0: no answer granted"):
        check_gate(metrics, FidelityConfig())


def agreement_of(confirmed, count, real_wins=8, unanswered=0):
    episode = make_episode(make_task(), ("go", "s"), won=True)
    return policy_metrics(
        [],
        [Replay(episode, n < confirmed, (True,)) for n in range(count)],
        dreamed_episodes=20,
        real_wins=[n < real_wins for n in range(20)],
        same_tasks=[(n < count, n < real_wins) for n in range(20 - unanswered)],
        unanswered=unanswered,
        suffix="dreamed",
    )


def test_too_few_confirmed_successes_close_the_gate_of_the_policy():
    check_agreement(agreement_of(8, 10), FidelityConfig(), "dreamed")
    words = (
        r"rollout_agreement of the dreamed policy is 0\.700 \(n=10, .*\), floor 0\.8 "
        r"\(min_rollout_agreement\)"
    )
    with pytest.raises(FidelityGateClosed, match=words):
        check_agreement(agreement_of(7, 10), FidelityConfig(), "dreamed")


def test_a_dream_that_is_surely_kinder_than_reality_closes_the_gate():
    """20 of 20 dreamed successes against 10 of 20 real ones is sure; against 14 it may be chance."""
    check_agreement(agreement_of(20, 20, real_wins=14), FidelityConfig(), "dreamed")
    kind = agreement_of(20, 20, real_wins=10)
    assert kind["fidelity/kindness/dreamed"].value == pytest.approx(0.5)
    with pytest.raises(FidelityGateClosed, match=r"minus success in reality of the dreamed policy is 0\.500"):
        check_agreement(kind, FidelityConfig(), "dreamed")
    check_agreement(kind, FidelityConfig(max_kindness=0.6), "dreamed")


def test_a_comparison_without_an_observation_closes_the_gate():
    """Twenty episodes without a success, and twenty without an answer."""
    words = r"rollout_agreement of the dreamed policy has nothing .*n=0: no success in 20 dreamed episodes"
    with pytest.raises(FidelityGateClosed, match=words) as closed:
        check_agreement(agreement_of(0, 0), FidelityConfig(), "dreamed")
    assert "minus success in reality" not in str(closed.value) and closed.value.exit_code == 3
    silent = agreement_of(0, 0, unanswered=20)
    assert silent["fidelity/unanswered_episodes/dreamed"].value == 1.0
    with pytest.raises(
        FidelityGateClosed, match=r"n=0: no task was answered in both.*without an answer is 1\.0"
    ):
        check_agreement(silent, FidelityConfig(min_rollout_agreement=0), "dreamed")
    off = FidelityConfig(min_rollout_agreement=0, max_unparsable_rate=1)
    check_agreement(silent, off, "dreamed")
    check_agreement(agreement_of(0, 0), FidelityConfig(min_rollout_agreement=0), "dreamed")


def test_a_dream_that_surely_leaves_most_episodes_unanswered_closes_the_gate():
    """14 of 20 may be half by chance, 15 of 20 not: the interval's low end is 0.481 and 0.531."""
    check_agreement(agreement_of(4, 4, unanswered=14), FidelityConfig(), "dreamed")
    with pytest.raises(FidelityGateClosed, match=r"without an answer is 0\.750 \(n=20, 0\.531 to"):
        check_agreement(agreement_of(4, 4, unanswered=15), FidelityConfig(), "dreamed")


def test_the_power_of_the_gate_is_the_documented_one():
    """With 48 tasks kindness closes it from 0.354 on, and 31 episodes without an answer do."""
    for extra, is_closed in ((16, False), (17, True)):
        pairs = [(n < 12 + extra, n < 12) for n in range(48)]
        metrics = policy_metrics([], [], 48, [], pairs, unanswered=0, suffix="cloned")
        assert (metrics["fidelity/kindness/cloned"].low > FidelityConfig().max_kindness) == is_closed
    for count, is_closed in ((30, False), (31, True)):
        metrics = policy_metrics([], [], 48, [], [], unanswered=count, suffix="cloned")
        assert (metrics["fidelity/unanswered_episodes/cloned"].low > MAX_UNANSWERED) == is_closed
