"""Lessons in judging: what they ask, what they answer, and that a policy learns to answer."""

import pytest
from builders import VOCABULARY, make_episode, make_model, make_task, with_unknown_outcome
from foreign import CHATML, make_checkpoint

from components.config.cloning_config import CloningConfig
from components.errors import ConfigError
from components.language.engines.engine_protocol import Generation
from components.policy.behaviour_cloning import clone
from components.policy.judging_lessons import judging_lessons, repeats_in_vain, review
from components.policy.policy import Policy
from components.policy.rl.rewards.self_judge import Judgement, read_winner


def episode(won=True, actions=("look", "take mug")):
    return make_episode(make_task(), *((action, "s") for action in actions), won=won)


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """A tiny chat model with random weights."""
    directory = tmp_path_factory.mktemp("chat") / "model"
    template = CHATML.replace("{{ strftime_now('%d %b %Y') }}", "")
    make_checkpoint(directory, "llama", template=template, max_position_embeddings=4096)
    return Policy.load(directory, system="You act in a small room.")


def lessons_of(policy, episodes, count):
    return judging_lessons(policy.text, episodes, count, seed=0, longest=4096)


def answers(policy, lesson):
    """Return the question and the answer of a lesson in words."""
    question, answer = lesson.segments
    assert not any(question.loss) and all(answer.loss)
    return policy.vocabulary.decode(question.tokens), policy.text.parse(answer.tokens)[0]


@pytest.mark.parametrize(
    ("won", "actions", "points"),
    [
        (True, ("look", "take mug"), 5),
        (True, ("look", "look", "look"), 4),
        (False, ("look", "take mug"), 1),
        (False, ("look", "look", "look"), 0),
    ],
)
def test_the_points_follow_from_the_outcome_and_from_repeated_actions(won, actions, points):
    one = episode(won, actions)
    assert repeats_in_vain(one) is (len(set(actions)) == 1)
    assert Judgement([], Generation(), review(one, won)).points == points


def test_a_comparison_names_the_review_that_tells_the_outcome(policy):
    lessons = judging_lessons(
        policy.text, [episode(True)] * 8 + [episode(False)] * 8, 16, seed=0, longest=4096
    )
    winners = []
    for judgement, comparison in zip(lessons[::2], lessons[1::2], strict=True):
        (_, right), (shown, answer) = answers(policy, judgement), answers(policy, comparison)
        winner = read_winner(answer)
        reviews = shown.partition("Review A: ")[2].partition("Review B: ")
        assert right.split(".")[1] in reviews[0 if winner == 0 else 2]
        winners.append(winner)
    assert set(winners) == {0, 1}, "the right one stands in both places"


def test_successes_and_failures_are_drawn_alike(policy):
    episodes = [episode(True)] * 2 + [episode(False)] * 9
    lessons = lessons_of(policy, episodes, 20)
    points = [Judgement([], Generation(), answers(policy, one)[1]).points for one in lessons[::2]]
    assert points == [5, 5, 1, 1]
    assert len(lessons_of(policy, [episode(False)] * 3, 20)) == 6, "of one outcome alone"
    assert len(lessons_of(policy, episodes, 1)) == 2, "one episode"


def test_an_episode_with_a_lesson_that_the_model_cannot_take_is_left_out(policy):
    longest = max(map(len, lessons_of(policy, [episode(True)], 1)))
    episodes = [episode(True), episode(False, ("look", "look " * 300))]
    assert len(judging_lessons(policy.text, episodes, 2, seed=0, longest=longest)) == 2
    assert len(lessons_of(policy, episodes, 2)) == 4


def test_a_small_vocabulary_cannot_judge():
    compact = Policy(make_model(), VOCABULARY)
    with pytest.raises(ConfigError, match="judged_episodes"):
        judging_lessons(compact.text, [episode()], 2, seed=0, longest=4096)


def test_a_policy_learns_the_answers(policy):
    lessons = lessons_of(policy, [episode(True), episode(False)], 2)
    settings = CloningConfig(epochs=60, learning_rate=1e-2)
    before = clone(policy, [episode()], CloningConfig(epochs=1, learning_rate=1e-6), 0, lessons=lessons)
    after = clone(policy, [episode()], settings, 0, lessons=lessons)
    assert after.final_loss < 0.2 * before.final_loss


def test_an_unknown_outcome_teaches_nothing_about_judging(policy):
    unknown = with_unknown_outcome(episode(False))
    assert lessons_of(policy, [unknown] * 4, 4) == []
    known = [episode(True), episode(False)]
    assert lessons_of(policy, [*known, *[unknown] * 8], 8) == lessons_of(policy, known, 8)
