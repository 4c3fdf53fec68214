"""The contract of a checkpoint: it gives transformers' own logits at every stage, or is refused in seconds.

Each case is a shape that people have. A working one is inspected (as `dreamgym doctor` does), loaded,
decoded, trained, saved, and loaded again by us and by transformers alone. The logits agree to rounding each
time.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import trl
from builders import make_episode, make_task
from foreign import CHATML, make_checkpoint
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from components.config import ExperienceModelConfig, load_config
from components.errors import ConfigError, DataError
from components.experience.formats.choose import world_format
from components.experience.formats.training_examples import render_trajectory
from components.language.backbone import load_backbone, save_model
from components.language.checkpoint_files.inspection import inspect_model
from components.language.engines.kept_cache import KeptCacheEngine
from components.language.training.fine_tuning import supervised_finetune
from flows.checks import doctor

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
EMBEDDINGS = "model.embed_tokens.weight"
EPISODE = make_episode(
    make_task(), ("go to desk 1", "At desk 1: mug 1."), ("take mug", "Took mug 1."), won=True
)
PROMPT = [40, 41, 42, 43, 44, 45]


def settings(base, **changes):
    path = base / CONFIG
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def tokenizer_settings(base, **changes):
    path = base / "tokenizer_config.json"
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in values.items() if value is not None}))


def weights(base, change):
    stored = load_file(base / WEIGHTS)
    change(stored)
    save_file(stored, base / WEIGHTS, {"format": "pt"})


def padded(base):
    """64 embedding rows beyond the tokenizer, as Qwen's."""

    def grow(stored):
        rows = stored[EMBEDDINGS]
        stored[EMBEDDINGS] = torch.cat([rows, torch.zeros(64, rows.shape[1])])
        settings(base, vocab_size=len(rows) + 64)

    weights(base, grow)


def few_embeddings(base, rows):
    """A tokenizer of another model."""

    def cut(stored):
        stored[EMBEDDINGS] = stored[EMBEDDINGS][:rows].clone()

    weights(base, cut)
    settings(base, vocab_size=rows)


def in_bf16(base, names=("",)):
    def convert(stored):
        for name in stored:
            if any(part in name for part in names):
                stored[name] = stored[name].bfloat16()

    weights(base, convert)


def sharded(base):
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    (base / WEIGHTS).unlink()
    model.save_pretrained(base, max_shard_size="60KB")


def generation(base, **values):
    (base / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 2], **values}))


def template(base, text):
    (base / "chat_template.jinja").write_text(text)


def official(name):
    """The chat template as its authors publish it, from TRL's package."""
    return (Path(trl.__file__).parent / "chat_templates" / f"{name}.jinja").read_text()


def said_by_doctor(base, root):
    """What `dreamgym doctor backbone.path=BASE` finds, with its state."""
    rung = doctor.run_check(doctor.check_backbone, load_config(None, [f"backbone.path={base}"]), root)
    return rung.state, " ".join(part for part in (rung.found, rung.expected, rung.next_step) if part)


WORKING = {
    "llama": ("llama", {}, None),
    "smollm": ("llama", {"tie_word_embeddings": True}, None),
    "qwen2, untied": ("qwen2", {"tie_word_embeddings": False}, None),
    "qwen3": ("qwen3", {"tie_word_embeddings": True}, None),
    "mistral with a wide window": ("mistral", {"sliding_window": 2048}, None),
    "gemma, scaled embeddings": ("gemma", {"tie_word_embeddings": True}, None),
    "gemma3, narrow windows": ("gemma3_text", {"sliding_window": 256}, None),
    "phi, biases and half-turned heads": ("phi", {}, None),
    "phi3": ("phi3", {}, None),
    "padded vocabulary": ("qwen2", {"tie_word_embeddings": True}, padded),
    "stored in bf16": ("llama", {}, in_bf16),
    "bf16 and fp32 mixed": ("llama", {}, lambda base: in_bf16(base, ("mlp",))),
    "shards": ("llama", {}, sharded),
    "no padding and no first token": (
        "llama",
        {},
        lambda base: tokenizer_settings(base, pad_token=None, bos_token=None),
    ),
    "several ends and sampling settings": (
        "qwen3",
        {},
        lambda base: generation(base, repetition_penalty=1.05, top_p=0.8, temperature=0.7),
    ),
    "a template with tools": ("qwen2", {}, lambda base: template(base, official("qwen2_5"))),
    "a template that opens a block of thinking": (
        "qwen3",
        {},
        lambda base: template(base, official("qwen3_5_think")),
    ),
    "a template that needs a system turn": (
        "llama",
        {},
        lambda base: template(
            base,
            "{% if messages[0]['role'] != 'system' %}{{ raise_exception('no system turn') }}{% endif %}"
            + CHATML,
        ),
    ),
    "no end of sequence": ("llama", {}, lambda base: tokenizer_settings(base, eos_token=None)),
}
REFUSED = {
    "attention with a cap": ("gemma2", {}, None, "softcap"),
    "attention with sinks": ("gpt_oss", {}, None, "gpt_oss"),
    "linear attention in some layers": ("qwen3_next", {}, None, "qwen3_next cannot use the kept cache"),
    "a state in place of attention": ("mamba", {}, None, "mamba cannot use the kept cache"),
    "positions by ALiBi": ("bloom", {}, None, "bloom cannot use the kept cache"),
    "ids beyond the embeddings": (
        "llama",
        {"tie_word_embeddings": True},
        lambda base: few_embeddings(base, 100),
        "has 330 ids, the model 100 embeddings",
    ),
    "a missing tensor": (
        "llama",
        {},
        lambda base: weights(base, lambda stored: stored.pop("model.norm.weight")),
        "lack weights.*model.norm.weight",
    ),
    "a template with an error": (
        "llama",
        {},
        lambda base: template(base, "{% for m in messages %}{{ m.content }"),
        "chat template.*TemplateSyntaxError.*backbone.format=compact",
    ),
    "a template that forbids replies": (
        "llama",
        {},
        lambda base: template(base, "{{ raise_exception('only tools') }}"),
        "chat template.*only tools.*backbone.format=compact",
    ),
}


def make(directory, kind, changes, alter):
    base = make_checkpoint(
        directory, kind, template=CHATML, scale=1.0, **{"max_position_embeddings": 2048, **changes}
    )
    if alter is not None:
        alter(base)
    return base


def logits_of(model, ids):
    with torch.no_grad():
        return model.float().eval()(input_ids=torch.tensor([ids])).logits[0]


def require_same_logits(directory, ids=PROMPT):
    """Ours, the engine's and those of transformers alone, for the model in `directory`."""
    model, vocabulary = load_backbone(directory)
    plain = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    ours = logits_of(model, ids)
    torch.testing.assert_close(ours, logits_of(plain, ids), atol=1e-5, rtol=1e-5)
    session = KeptCacheEngine(model, vocabulary).open(1, 64)
    written = session.generate({0: ids[:3]}, stop=set(), max_new_tokens=8, temperature=1.0)[0]
    known = logits_of(model, ids[:3] + written.tokens)[2:-1]
    known[:, vocabulary.unknown_ids(known.shape[1])] = float("-inf")
    expected = known.log_softmax(-1)[range(8), written.tokens]
    assert written.logprobs == pytest.approx(expected.tolist(), abs=1e-4)
    return model, vocabulary


@pytest.mark.parametrize("name", WORKING)
def test_a_checkpoint_gives_transformers_own_logits_through_load_train_save_and_decode(name, tmp_path):
    base = make(tmp_path / "base", *WORKING[name])
    assert inspect_model(base).vocabulary.format == "chat"
    assert said_by_doctor(base, tmp_path)[0] != "wrong"
    model, vocabulary = require_same_logits(base)
    text = world_format(vocabulary, ExperienceModelConfig(reasoning=False, recall=0))
    examples = [render_trajectory(text, EPISODE, [[], []])]
    before = logits_of(model, PROMPT)
    supervised_finetune(model, examples, epochs=2, learning_rate=1e-3, batch_tokens=2048, seed=0)
    after = logits_of(model, PROMPT)
    assert not torch.allclose(before, after)
    save_model(model, vocabulary, tmp_path / "saved")
    again, words = require_same_logits(tmp_path / "saved")
    torch.testing.assert_close(logits_of(again, PROMPT), after, atol=1e-6, rtol=0)
    assert (
        render_trajectory(
            world_format(words, ExperienceModelConfig(reasoning=False, recall=0)), EPISODE, [[], []]
        )
        == examples[0]
    )


@pytest.mark.parametrize("name", REFUSED)
def test_a_checkpoint_that_cannot_be_used_is_refused_before_anything_is_trained(name, tmp_path):
    kind, changes, alter, words = REFUSED[name]
    with pytest.raises((ConfigError, DataError), match=words) as refusal:
        base = make(tmp_path / "base", kind, changes, alter)
        inspect_model(base)
    assert refusal.value.next_step, "it says what does work"
    assert said_by_doctor(base, tmp_path) == ("wrong", str(refusal.value))
