"""Meta-Rewarding: replies, ranking and pairs, with a judge by script and a tiny chat model's own words."""

from __future__ import annotations

import math

import pytest
from builders import VOCABULARY, make_episode, make_model, make_task
from foreign import CHATML, make_checkpoint
from loop_builders import Rewarding, even_rows, make_config, make_loop

from components.errors import ConfigError, TrainingError
from components.language.engines.engine_protocol import Generation
from components.language.training.examples import Example, Segment
from components.policy.policy import Policy
from components.policy.rl.algorithms.meta_rewarding import (
    MetaRewarding,
    _as_rollout,
    acting_pair,
)
from components.policy.rl.preferences import area_under_curve
from components.policy.rl.rewards.self_judge import (
    JudgedEpisode,
    Judgement,
    battle_matrix,
    elo_scores,
    judge_prompt,
    ordered_pairs,
    position_weights,
    read_winner,
    transcript,
)
from components.policy.rollout import Rollout


def judgement(text):
    return Judgement([1], Generation([2, 3], [-0.5, -0.5], True), text)


def rollout(tokens, won=False):
    """Return an episode with a reply of so many tokens."""
    episode = make_episode(make_task(), ("look", "s"), won=won)
    reply = Segment([2] * tokens, [True] * tokens)
    return Rollout(episode, Example([Segment([1], [False]), reply]), [-1.0] * tokens, idle=[False])


def judged(tokens, *points, won=False):
    return JudgedEpisode(rollout(tokens, won), [judgement(f"Good. Points: {value}") for value in points])


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("It looked twice.\nPoints: 3", 3),
        ("Points: 1 at first, then Points: 4.", 4),
        ("Points: 6", None),
        ("Points: 35", None),
        ("no number", None),
        ("", None),
    ],
)
def test_the_points_are_those_that_a_reply_names_last(text, points):
    assert judgement(text).points == points


def test_a_comparison_names_one_of_two():
    replies = ["Better: A", "Better: A? No. Better: B", "Better: C", "", "Better: Both"]
    assert [read_winner(reply) for reply in replies] == [0, 1, None, None, None]


def test_a_judge_that_always_prefers_the_first_decides_nothing():
    """All wins are of the first place, so such a win weighs nothing, and all judgements are equal."""
    winners = dict.fromkeys(ordered_pairs(3), 0)
    matrix = battle_matrix(3, winners, position_weights([winners]))
    assert matrix == [[0.0] * 3] * 3 and elo_scores(matrix) == pytest.approx([1 / 3] * 3)


def test_a_win_weighs_as_much_as_the_other_place_has_wins():
    """By hand: the first place wins three of four comparisons."""
    winners = {(0, 1): 0, (1, 0): 0, (0, 2): 0, (2, 0): 1, (1, 2): None, (2, 1): None}
    weights = position_weights([winners])
    assert weights == (0.25, 0.75)
    assert battle_matrix(3, winners, weights) == [[0, 0.25, 0.25 + 0.75], [0.25, 0, 0], [0, 0, 0]]
    assert position_weights([]) == position_weights([{(0, 1): None}]) == (0.0, 0.0)


def test_the_weights_of_wins_are_those_of_all_episodes_of_the_iteration():
    """By hand: the first place wins 1 of 2 comparisons of one episode, and 5 of 6 of the other: 6 of 8."""
    one = {(0, 1): 0, (1, 0): 1}
    other = dict.fromkeys(ordered_pairs(3), 0) | {(0, 1): 1}
    assert position_weights([one, other]) == (2 / 8, 6 / 8)
    assert battle_matrix(2, one, position_weights([one, other])) == [[0, 2 / 8 + 6 / 8], [0, 0]]


def test_elo_ranks_also_a_judgement_that_always_wins_and_a_circle():
    always = elo_scores([[0, 2, 2], [0, 0, 2], [0, 0, 0]])
    assert always[0] > always[1] > always[2] > 0 and sum(always) == pytest.approx(1)
    circle = elo_scores([[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    assert circle == pytest.approx([1 / 3] * 3), "contradictory judgements are equal"
    two = elo_scores([[0, 3], [1, 0]])
    assert two[0] / two[1] == pytest.approx((3 + 0.05) / (1 + 0.05)), "the maximum in closed form"
    assert elo_scores([[0.0]]) == [1.0]


def test_the_shortest_good_and_the_longest_bad_episode_are_a_pair():
    group = [judged(9, 5, 5), judged(4, 5, 4), judged(7, 1, 1), judged(8, 2, 1), judged(2)]
    chosen, rejected = acting_pair(group, 0.0)
    assert (chosen.token_count, rejected.token_count) == (9, 7), "the highest and the lowest score"
    chosen, rejected = acting_pair(group, 0.2)
    assert (chosen.token_count, rejected.token_count) == (4, 8)
    assert acting_pair([judged(3, 2), judged(4, 2)], 0.0) is None
    assert acting_pair([judged(3)], 0.0) is None and acting_pair([], 0.0) is None
    group[0].rollout.unparsable = True
    chosen, _ = acting_pair(group, 0.0)
    assert chosen.token_count == 4, "the dream did not answer the last step of the best one"


def test_the_area_counts_ties_one_half():
    assert area_under_curve([(3, True), (1, False), (3, False)]) == 0.75
    assert math.isnan(area_under_curve([(3, True)]))


def test_a_judge_reads_task_actions_and_what_they_led_to():
    episode = make_episode(make_task(), ("go to desk 1", "At desk 1: mug 1."))
    lines = transcript(episode).splitlines()
    assert lines[0] == f"Task: {episode.task.instruction}"
    assert lines[-2:] == ["Action: go to desk 1", "Observation: At desk 1: mug 1."]


@pytest.fixture(scope="module")
def chat_policy(tmp_path_factory):
    """A tiny chat model with random weights."""
    directory = tmp_path_factory.mktemp("chat") / "model"
    template = CHATML.replace("{{ strftime_now('%d %b %Y') }}", "")
    make_checkpoint(directory, "llama", template=template, max_position_embeddings=4096)
    return Policy.load(directory, system="You act in a small room.")


def meta_rewarding(policy, **options):
    config = make_config({"algorithm": "meta_rewarding", "optimizer_steps": 1, **options})
    algorithm = MetaRewarding(config, config.algorithm)
    algorithm.start(policy, config)
    return algorithm


def test_pairs_of_episodes_and_of_judgements_come_from_a_judge_by_script(chat_policy, monkeypatch):
    """The judge gives successes 5 and failures 0, but once 2; the comparison prefers the text with a 5."""
    algorithm = meta_rewarding(chat_policy, judgements=2)
    group = [rollout(5, won=True), rollout(6), rollout(7)]
    asked = []

    def script(policy, prompts):
        asked.append(len(prompts))
        if len(asked) == 1:
            points = [5, 5, 0, 2, 0, 0]
            return [judgement(f"Points: {value}") for value in points]
        return [judgement("Better: A"), judgement("Better: B")]

    monkeypatch.setattr(algorithm, "_ask", script)
    acting, judging = algorithm.training_samples([group, []], chat_policy)
    assert asked == [6, 2] and acting.rollouts == (group[0], group[2])
    assert [one.example.segments[1].tokens for one in judging.rollouts] == [[2, 3], [2, 3]]
    assert [len(sample.targets["reference"]) for sample in (acting, judging)] == [12, 4]
    assert algorithm.report() == {
        "judged_share": 1.0,
        "judge_auc": 1.0,
        "acting_pairs": 1.0,
        "judging_pairs": 1.0,
    }


def pairs_of_a_judge(policy, monkeypatch, prefers, groups, points):
    """Return the samples of a judge whose comparison of the texts of two judgements `prefers` decides."""
    algorithm = meta_rewarding(policy, judgements=3)
    names = iter(points)
    texts = {}

    def prompt(text, episode, first, second):
        texts[number := len(texts) + 1000] = (first, second)
        return [number]

    def script(policy, prompts):
        if prompts[0][0] not in texts:
            return [judgement(f"{number} says. Points: {next(names)}") for number, _ in enumerate(prompts)]
        return [judgement(f"Better: {'AB'[prefers(*texts[tokens])]}") for (tokens,) in prompts]

    monkeypatch.setattr("components.policy.rl.algorithms.meta_rewarding.comparison_prompt", prompt)
    monkeypatch.setattr(algorithm, "_ask", script)
    return algorithm.training_samples(groups, policy), algorithm.report()


def test_no_judgements_are_paired_for_their_place_alone(chat_policy, monkeypatch):
    """All episodes of a task have one score, so that there is no pair of episodes either."""
    groups = [[rollout(4)], [rollout(5, won=True)]]
    points = [0, 3, 5, 1, 2, 4]
    for place in (0, 1):
        samples, report = pairs_of_a_judge(
            chat_policy, monkeypatch, lambda first, second, place=place: place, groups, points
        )
        assert samples == [] and report["judging_pairs"] == 0


def test_an_opinion_against_a_preference_for_the_first_place_decides_a_pair(chat_policy, monkeypatch):
    """The judge prefers the first place, but a review with 5 points to one with 0 in both orders."""
    groups = [[rollout(4)], [rollout(5, won=True)]]

    def prefers(first, second):
        return int("Points: 0" in first and "Points: 5" in second)

    algorithm_samples, report = pairs_of_a_judge(
        chat_policy, monkeypatch, prefers, groups, [0, 3, 5, 1, 2, 4]
    )
    (sample,) = algorithm_samples
    assert report["judging_pairs"] == 1 and sample.rollouts[0].trajectory == groups[0][0].trajectory


def test_contradictory_judgements_have_finite_scores_and_no_pair(chat_policy, monkeypatch):
    """A circle has no best judgement, and one that always wins no finite maximum without the prior."""
    circle = {("0", "1"): 0, ("1", "2"): 0, ("2", "0"): 0, ("1", "0"): 1, ("2", "1"): 1, ("0", "2"): 1}
    samples, report = pairs_of_a_judge(
        chat_policy, monkeypatch, lambda *texts: circle[texts[0][0], texts[1][0]], [[rollout(4)]], [0, 3, 5]
    )
    assert samples == [] and report["judging_pairs"] == 0
    best = {("0", "1"): 0, ("1", "0"): 1, ("0", "2"): 0, ("2", "0"): 1, ("1", "2"): 0, ("2", "1"): 0}
    (sample,), report = pairs_of_a_judge(
        chat_policy, monkeypatch, lambda *texts: best[texts[0][0], texts[1][0]], [[rollout(4)]], [0, 3, 5]
    )
    assert report["judging_pairs"] == 1 and len(sample.targets["reference"]) == 4
    winners = {(int(first), int(second)): winner for (first, second), winner in best.items()}
    scores = elo_scores(battle_matrix(3, winners, position_weights([winners])))
    assert all(map(math.isfinite, scores)) and scores[0] > scores[1] == pytest.approx(scores[2])


def test_a_shorter_good_and_a_longer_bad_episode_are_paired(chat_policy, monkeypatch):
    """By hand: with rho 0.32 and scores from 0 to 5, at least 3.4 is good and at most 1.6 is bad."""
    algorithm = meta_rewarding(chat_policy, judgements=2)
    group = [rollout(9, won=True), rollout(3, won=True), rollout(1, won=True), rollout(8), rollout(2)]
    points = iter([5, 5, 4, 4, 3, 3, 1, 1, 0, 0])
    monkeypatch.setattr(
        algorithm, "_ask", lambda policy, prompts: [judgement(f"Points: {next(points)}") for _ in prompts]
    )
    (sample,) = algorithm.training_samples([group], chat_policy)
    assert sample.rollouts == (group[1], group[3]), (
        "without length control it would be the first and the last"
    )


def test_a_model_that_writes_no_points_ends_the_loop_with_what_to_set(chat_policy):
    loop = make_loop(
        Rewarding(even_rows),
        policy=chat_policy,
        iterations=2,
        algorithm="meta_rewarding",
        judgements=2,
        num_generations=2,
    )
    with pytest.raises(TrainingError, match="None of the .* judgements.*cloning.judged_episodes=60"):
        loop.run()


def test_its_own_words_have_the_log_probabilities_that_the_trainer_computes(chat_policy):
    """Otherwise the first update on a judgement would end the run."""
    algorithm = meta_rewarding(chat_policy, judgements=2)
    (written, _) = algorithm._ask(chat_policy, [judge_prompt(chat_policy.text, rollout(1).trajectory)] * 2)
    assert len(written.reply.tokens) == len(written.reply.logprobs) > 0
    (scores,) = algorithm._reference.logprobs([_as_rollout(rollout(1), written)])
    assert scores == pytest.approx(written.reply.logprobs, abs=1e-3)


def test_a_resumed_training_does_not_repeat_its_judgements(chat_policy):
    algorithm = meta_rewarding(chat_policy, judgements=2)
    prompts = [judge_prompt(chat_policy.text, rollout(1).trajectory)] * 2
    algorithm._ask(chat_policy, prompts)
    saved = algorithm.state_dict()
    second = [one.reply.tokens for one in algorithm._ask(chat_policy, prompts)]
    resumed = meta_rewarding(chat_policy, judgements=2)
    first = [one.reply.tokens for one in resumed._ask(chat_policy, prompts)]
    resumed.load_state_dict(saved)
    assert [one.reply.tokens for one in resumed._ask(chat_policy, prompts)] == second != first


def test_a_policy_in_the_compact_format_is_refused():
    with pytest.raises(ConfigError, match="the format compact cannot judge.*backbone.path"):
        meta_rewarding(Policy(make_model(), VOCABULARY))
