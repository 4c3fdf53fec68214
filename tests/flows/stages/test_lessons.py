"""Training examples of the experience model: episodes, their renamed and relabelled copies, and exercises."""

import pytest
from builders import VOCABULARY
from name_lists import EPISODES

from components.config import RetrievalConfig, load_config
from components.errors import ConfigError
from components.experience.retrieval.replay_buffer import ReplayBuffer
from flows.run.run_dream import quotation_check
from flows.run.training.experience_training import training_examples

BUFFER = ReplayBuffer(RetrievalConfig(), [step for episode in EPISODES for step in episode.steps])


def lessons(tmp_path, *overrides):
    config = load_config(
        None, ["environment.name=browser", *(f"experience_model.{one}" for one in overrides)]
    )
    return training_examples(config, tmp_path, tmp_path, VOCABULARY, BUFFER, EPISODES)[0]


def test_each_episode_has_as_many_renamed_copies_as_configured(tmp_path):
    once, thrice = lessons(tmp_path), lessons(tmp_path, "renamed=2")
    assert len(thrice) >= 3 * len(EPISODES) > len(once) - len(EPISODES)
    assert len({tuple(example.segments[0].tokens) for example in thrice}) >= 3 * len(EPISODES)


def test_exercises_are_a_share_of_the_episodes_tokens(tmp_path):
    plain, mixed = lessons(tmp_path), lessons(tmp_path, "rehearsal=1")
    assert mixed[: len(plain)] == plain
    own, exercised = sum(map(len, plain)), sum(map(len, mixed[len(plain) :]))
    assert 0.9 * own < exercised < 1.2 * own + 2000  # whole examples, of up to 500 tokens


def test_a_judged_episode_has_a_copy_with_another_instruction(tmp_path):
    assert len(lessons(tmp_path, "hindsight=1")) >= len(lessons(tmp_path)) + len(EPISODES)


def test_quotations_are_checked_by_adapters_that_can():
    browser = load_config(None, ["environment.name=browser", "experience_model.grounded=true"])
    assert (
        quotation_check(browser) is not None
        and quotation_check(load_config(None, ["environment.name=browser"])) is None
    )
    with pytest.raises(
        ConfigError, match="environment alfworld cannot check quotations.*Set experience_model.grounded=false"
    ):
        quotation_check(load_config(None, ["experience_model.grounded=true"]))
