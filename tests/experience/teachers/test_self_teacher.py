"""The `self` teacher: which of a chat model's reasons are kept, and what the stage makes of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from builders import VOCABULARY, WORLD, make_episode, make_task
from foreign import CHATML, make_checkpoint
from prefect.logging import disable_run_logger

from components.config import Config, ExperienceModelConfig
from components.errors import ConfigError
from components.experience.formats.choose import world_format
from components.experience.formats.training_examples import render_trajectory
from components.experience.teachers import self_teacher as self_teacher_module
from components.experience.teachers.self_teacher import MAX_REASON_TOKENS, SelfTeacher
from components.language.backbone import load_backbone
from components.language.compute import Compute
from flows.checks.answer_limits import answer_lengths
from flows.run.training.teacher_annotations import RECORD, UNFINISHED, self_teacher, teach

SETTINGS = ExperienceModelConfig(teacher="self", recall=0)
EPISODES = [
    make_episode(
        make_task(),
        ("go to shelf 1", "At shelf 1: mug 1."),
        ("take mug 1", "Took mug 1."),
        ("put mug 1 in desk 1", "Done."),
        won=True,
        episode=name,
    )
    for name in ("a", "b")
]
REASONS = ["the mug is there", "Took mug 1. As said.", "", "so", "it holds the mug now", "x " * 300]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    base = make_checkpoint(
        tmp_path_factory.mktemp("chat"), "llama", template=CHATML, max_position_embeddings=2048
    )
    return load_backbone(base)


def make_teacher(loaded, *, scripted=None, longest_answer=128, seed=0):
    model, vocabulary = loaded
    config = Config(
        experience_model=SETTINGS.model_copy(update={"max_new_tokens": longest_answer}), seed=seed
    )
    teacher = self_teacher(config, model, vocabulary, Compute())
    if scripted is not None:
        given = iter(scripted)
        teacher._write = lambda steps, seed: ([next(given) for _ in steps], 0)
    return teacher


def plain_logprob(loaded, *, reasoning, step):
    """Log-probability of the recorded state and outcome by transformers alone."""
    model, vocabulary = loaded
    text = world_format(vocabulary, SETTINGS.model_copy(update={"reasoning": reasoning}))
    prompt = text.question(make_task(), [step.state], step.action)
    words = f"State: {step.next_state}\nOutcome: {'success' if step.done else 'continue'}"
    start = vocabulary.encode(f"Reasoning: {step.reasoning}\nState:" if reasoning else "State:")
    answer = vocabulary.reply(f"Reasoning: {step.reasoning}\n{words}" if reasoning else words)
    ids = torch.tensor([prompt + answer])
    with torch.no_grad():
        scores = torch.log_softmax(model(ids).logits[0].double(), -1)
    at = range(len(prompt) + len(start), ids.shape[1])
    return sum(float(scores[place - 1, ids[0, place]]) for place in at)


def test_a_reason_is_kept_where_it_makes_the_recorded_answer_likelier(loaded):
    result = make_teacher(loaded, scripted=REASONS).teach(EPISODES)
    assert list(result.kept) == ["a", "b"]
    kept = [reason for reasons in result.kept.values() for reason in reasons]
    steps = [step for episode in EPISODES for step in episode.steps]
    for reason, given, step in zip(kept, REASONS, steps, strict=True):
        helps = plain_logprob(loaded, reasoning=True, step=replace(step, reasoning=given)) > plain_logprob(
            loaded, reasoning=False, step=step
        )
        may_be_kept = bool(given) and step.next_state not in given and len(given) < 100
        assert reason == (given if helps and may_be_kept else "")
    assert 0 < sum(map(bool, kept)) < 4


def test_a_reason_that_makes_the_answer_too_long_is_not_kept(loaded):
    kept = [
        make_teacher(loaded, scripted=REASONS, longest_answer=longest).teach(EPISODES).kept
        for longest in (128, 8)
    ]
    assert any(kept[0]["a"]) and not any(kept[1]["a"] + kept[1]["b"])


def test_the_seed_decides_what_the_model_writes(loaded, monkeypatch):
    """The random model never ends a sentence, so its tokens are read in place of finished reasons."""
    steps = [(EPISODES[0].task, step) for step in EPISODES[0].steps]
    teacher = make_teacher(loaded)
    monkeypatch.setattr(teacher._text, "parse_text", lambda tokens: " ".join(map(str, tokens)))
    first, again, other = (teacher._write(steps, seed) for seed in (0, 0, 1))
    assert first == again and first[0] != other[0]
    assert first[1] == sum(len(text.split()) for text in first[0]) > 0


def test_an_empty_reason_can_be_learnt_and_parsed(loaded):
    _, vocabulary = loaded
    text = world_format(vocabulary, SETTINGS)
    episode = replace(EPISODES[0], steps=tuple(replace(step, reasoning="") for step in EPISODES[0].steps))
    example = render_trajectory(text, episode, [[]] * 3)
    answers = [s.tokens[-sum(map(bool, s.loss)) :] for s in example.segments if any(s.loss)]
    assert [text.parse(answer).reasoning for answer in answers] == [""] * 3


def test_a_small_backbone_has_no_reasons_of_its_own():
    teacher = SelfTeacher(None, VOCABULARY, Compute(), WORLD, WORLD, longest_answer=64, seed=0)
    with pytest.raises(ConfigError, match="no chat model.*make model"):
        teacher.teach(EPISODES)


def test_the_stage_keeps_the_reasons_for_a_training_that_is_interrupted(loaded, tmp_path):
    config = Config(experience_model=SETTINGS)
    with disable_run_logger():
        taught, outcome = teach(
            config,
            tmp_path,
            tmp_path,
            WORLD,
            [*EPISODES, EPISODES[0]],
            make_teacher(loaded, scripted=REASONS),
        )
        again, second = teach(
            config, tmp_path, tmp_path, WORLD, [*EPISODES, EPISODES[0]], make_teacher(loaded, scripted=[])
        )
    assert taught == again and outcome.metrics == second.metrics and (tmp_path / RECORD).is_file()
    assert taught[0] == taught[2] and any(step.reasoning for episode in taught for step in episode.steps)
    assert outcome.metrics["teacher/kept_rate"].n == 6 and outcome.outputs == {"annotations": RECORD}


def test_the_limit_of_answers_leaves_room_for_a_reason(loaded):
    _, vocabulary = loaded
    config = Config(experience_model=SETTINGS)
    plain = Config(experience_model=SETTINGS.model_copy(update={"teacher": "programmatic"}))
    silent = [
        replace(episode, steps=tuple(replace(step, reasoning="") for step in episode.steps))
        for episode in EPISODES
    ]
    data = (vocabulary, silent)
    lengths = [
        answer_lengths(one, experience=data, policy=data)["experience_model.max_new_tokens"]
        for one in (config, plain)
    ]
    assert [longer - shorter for longer, shorter in zip(*lengths, strict=True)] == [MAX_REASON_TOKENS] * 6
    with pytest.raises(ConfigError, match="no chat model"):
        answer_lengths(config, experience=(VOCABULARY, EPISODES), policy=(VOCABULARY, EPISODES))


def test_an_interrupted_teacher_goes_on_with_the_reasons_that_it_has(loaded, tmp_path, monkeypatch):
    """The third of three batches breaks; a torn line of it, as a kill leaves one, is not counted.

    The random model never ends a sentence, so its tokens are read in place of finished reasons, and all kept.
    """
    monkeypatch.setattr(self_teacher_module, "ROWS", 2)
    monkeypatch.setattr(SelfTeacher, "_keep_helpful", lambda self, steps, reasons: list(reasons))

    def writing():
        teacher = make_teacher(loaded)
        monkeypatch.setattr(teacher._text, "parse_text", lambda tokens: " ".join(map(str, tokens)))
        return teacher

    def taught(folder, teacher):
        folder.mkdir(exist_ok=True)
        with disable_run_logger():
            return teach(Config(experience_model=SETTINGS), folder, folder, WORLD, EPISODES, teacher)

    whole, outcome = taught(tmp_path / "whole", writing())
    breaking = writing()
    write, asked = breaking._write, []

    def break_at_the_third(steps, seed):
        asked.append(seed)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return write(steps, seed)

    breaking._write = break_at_the_third
    with pytest.raises(KeyboardInterrupt):
        taught(tmp_path / "broken", breaking)
    assert not (tmp_path / "broken" / RECORD).exists()
    with (tmp_path / "broken" / UNFINISHED).open("a") as file:
        file.write('{"reasons": ["so')
    breaking._write = lambda steps, seed: asked.append(seed) or write(steps, seed)
    resumed, after = taught(tmp_path / "broken", breaking)
    assert asked == [0, 2, 4, 4], "only the third batch is asked for again"
    assert len({step.reasoning for episode in whole for step in episode.steps}) == 6
    assert resumed == whole and after.costs == outcome.costs and outcome.costs["tokens_generated"] > 0
    assert (tmp_path / "broken" / RECORD).read_bytes() == (tmp_path / "whole" / RECORD).read_bytes()
    assert not (tmp_path / "broken" / UNFINISHED).exists()
