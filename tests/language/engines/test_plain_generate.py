"""`plain_generate` decodes greedily, whatever the checkpoint says about generation."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from builders import make_episode, make_task
from foreign import make_checkpoint
from transformers import AutoModelForCausalLM, GenerationConfig

from components.config import ExperienceModelConfig, RetrievalConfig
from components.experience.model import ExperienceModel
from components.experience.recorded_episodes import (
    EngineDreamer,
    WholePromptDreamer,
    count_differing_answers,
    with_single_greedy_try,
)
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.language.backbone import load_backbone, save_model
from components.language.engines.plain_generate import plain_generate

SETTINGS = [
    {"repetition_penalty": 1.05},
    {"repetition_penalty": 5.0, "no_repeat_ngram_size": 1},
    {"num_beams": 3, "early_stopping": True},
    {"return_dict_in_generate": True, "output_scores": True},
    {"suppress_tokens": list(range(100))},
    {"begin_suppress_tokens": list(range(300))},
    {"forced_eos_token_id": 7},
    {"min_new_tokens": 6, "eos_token_id": [3, 4]},
    {"eos_token_id": list(range(300))},
    {"bad_words_ids": [[token] for token in range(200)]},
    {"do_sample": True, "temperature": 5.0, "top_k": 3, "top_p": 0.5},
    {"do_sample": False, "temperature": 0.6},
    {"max_length": 3},
    {"sequence_bias": [[[5], 100.0]]},
    {"guidance_scale": 3.0},
    {"num_return_sequences": 1, "stop_strings": ["a"]},
]
PROMPTS = [[5, 6, 7, 8], [9]]
STOP = {3}
ids = pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: ",".join(settings))


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("base"), "llama")


def configured(base, directory, settings):
    shutil.copytree(base, directory)
    path = directory / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    return directory


def greedy(model, prompt, stop, new):
    continuation = []
    with torch.no_grad():
        while len(continuation) < new and not (continuation and continuation[-1] in stop):
            continuation.append(
                int(model(input_ids=torch.tensor([prompt + continuation])).logits[0, -1].argmax())
            )
    return continuation


@ids
def test_plain_generate_ignores_the_settings_of_the_checkpoint(base, settings, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(
        configured(base, tmp_path / "model", settings), dtype=torch.float32
    )
    before = model.generation_config
    expected = [greedy(model, prompt, STOP, 5) for prompt in PROMPTS]
    assert plain_generate(model, PROMPTS, stop=STOP, max_new_tokens=5) == expected
    assert model.generation_config is before, "the settings are restored"


@ids
def test_a_saved_model_has_no_sampling_settings(base, settings, tmp_path):
    model, vocabulary = load_backbone(configured(base, tmp_path / "model", settings))
    save_model(model, vocabulary, tmp_path / "saved")
    saved = GenerationConfig.from_pretrained(tmp_path / "saved")
    for name in set(settings) - {"eos_token_id"}:
        assert getattr(saved, name) == getattr(GenerationConfig(), name), name


@pytest.mark.parametrize(
    "settings", [SETTINGS[0], SETTINGS[2], SETTINGS[3]], ids=lambda settings: ",".join(settings)
)
def test_kept_cache_and_plain_generation_agree_on_such_a_checkpoint(base, settings, tmp_path):
    """The comparison of `dreamgym bench dream`, step by step."""
    model, vocabulary = load_backbone(configured(base, tmp_path / "model", settings))
    experience_model = ExperienceModel(
        model, vocabulary, with_single_greedy_try(ExperienceModelConfig(max_new_tokens=8))
    )
    episodes = [
        make_episode(make_task(n), ("go to desk 1", f"At desk 1: mug {n}."), ("take mug", "Took mug."))
        for n in range(2)
    ]
    buffer = ReplayBuffer(RetrievalConfig(k=1, dimensions=32))
    buffer.add([step for episode in episodes for step in episode.steps])
    kept, plain = (
        dreamer(experience_model, buffer, episodes) for dreamer in (EngineDreamer, WholePromptDreamer)
    )
    for step in range(2):
        ours = kept.step(step)
        theirs = plain.step(step)
        assert count_differing_answers(experience_model, plain.prompts, ours, theirs) == 0 and ours == theirs
