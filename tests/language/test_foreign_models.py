"""Any causal language model from a path can be loaded, fine-tuned on branches, saved and decoded."""

from __future__ import annotations

import shutil

import pytest
import torch
from builders import make_episode, make_task
from foreign import CHATML, make_checkpoint
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from components.config import CloningConfig, ExperienceModelConfig, LoraConfig
from components.errors import ConfigError, DataError
from components.experience.decoding.prediction_batch import Query
from components.experience.formats.choose import world_format
from components.experience.formats.training_examples import render_trajectory
from components.experience.model import ExperienceModel
from components.language.adapters import add_lora, merge_lora
from components.language.backbone import load_backbone, save_model
from components.language.engines.kept_cache import KeptCacheEngine
from components.language.training.fine_tuning import supervised_finetune
from components.language.vocabulary.markers import MARKERS
from components.policy.behaviour_cloning import clone
from components.policy.policy import Policy

WORKING = ["llama", "qwen2", "qwen3", "mistral", "gemma", "gpt_neox", "gpt2", "phi3"]
EPISODES = [
    make_episode(
        make_task(n),
        ("go to desk 1", f"At desk 1: mug {n}."),
        ("take mug", f"Took mug {n}. Holding mug {n}."),
        won=True,
    )
    for n in range(4)
]
SETTINGS = {"epochs": 3, "learning_rate": 3e-3, "batch_tokens": 600, "seed": 0}


def training_examples(vocabulary):
    text = world_format(vocabulary, ExperienceModelConfig())
    return [render_trajectory(text, episode, [[EPISODES[0].steps[0]], []]) for episode in EPISODES]


def first_tokens(vocabulary):
    """The tokens that a dream of the first episode begins with."""
    return next(segment.tokens for segment in training_examples(vocabulary)[0].segments if segment.tokens)


@pytest.mark.parametrize("template", ["", CHATML], ids=["plain", "chat"])
@pytest.mark.parametrize("kind", WORKING)
def test_a_model_is_fine_tuned_and_saved_and_decodes_like_generate(kind, template, tmp_path):
    model, vocabulary = load_backbone(make_checkpoint(tmp_path / "base", kind, template=template))
    assert len(vocabulary.added) == (0 if template else len(MARKERS))
    assert model.get_input_embeddings().weight.shape[0] == len(vocabulary)
    record = supervised_finetune(model, training_examples(vocabulary), **SETTINGS)
    assert record.losses[-1] < record.losses[0]
    save_model(model, vocabulary, tmp_path / "tuned")
    assert {file.suffix for file in (tmp_path / "tuned").iterdir()} <= {".safetensors", ".json", ".jinja"}
    loaded, words = load_backbone(tmp_path / "tuned")
    prompt = first_tokens(vocabulary)
    assert not words.added and first_tokens(words) == prompt
    prompts = {0: prompt, 1: prompt[:5]}
    generations = (
        KeptCacheEngine(loaded, words)
        .open(2, 16)
        .generate(prompts, stop=set(), max_new_tokens=12, temperature=0.0)
    )
    untouched = AutoModelForCausalLM.from_pretrained(tmp_path / "tuned")
    for row, tokens in prompts.items():
        plain = untouched.generate(
            torch.tensor([tokens]), max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=0
        )
        assert generations[row].tokens == plain[0, len(tokens) :].tolist()


@pytest.mark.parametrize("kind", ["qwen3", "gpt_neox"])
def test_policy_and_experience_model_run_on_such_a_model(kind, tmp_path):
    base = make_checkpoint(tmp_path / "base", kind, template=CHATML)
    policy = Policy.load(base, max_new_tokens=6)
    clone(
        policy,
        EPISODES,
        CloningConfig(epochs=1),
        0,
        lora=LoraConfig(rank=2, targets="all-linear"),
    )
    policy.save(tmp_path / "policy")
    assert Policy.load(tmp_path / "policy").vocabulary.format == "chat"
    model = ExperienceModel.load(base, ExperienceModelConfig(max_new_tokens=8, resamples=1))
    episode_predictions = model.begin([make_task()])
    assert set(episode_predictions.predict({0: Query("At desk 1: mug 1.", "go to desk 1")})) == {0}
    episode_predictions.advance({0: ("go to desk 1", "At desk 1: mug 1.")})
    assert model.tokens > 0 and len(model.vary([make_task()], seed=0)) == 1


@pytest.mark.parametrize(
    ("kind", "words"), [("bloom", "bloom cannot be trained on branches"), ("mpt", "branches mpt is off by")]
)
def test_an_architecture_that_cannot_take_branches_is_refused(kind, words, tmp_path):
    model, vocabulary = load_backbone(make_checkpoint(tmp_path, kind))
    with pytest.raises(ConfigError, match=f"{words}.*Llama, Qwen or Mistral"):
        supervised_finetune(model, training_examples(vocabulary), **SETTINGS)


def test_an_architecture_with_unsupported_attention_is_refused(tmp_path):
    model, vocabulary = load_backbone(make_checkpoint(tmp_path, "gemma2"))
    with pytest.raises(ConfigError, match="gemma2 cannot use the kept cache: its attention has softcap"):
        KeptCacheEngine(model, vocabulary)


def test_an_example_longer_than_the_model_is_refused_before_training(tmp_path):
    model, vocabulary = load_backbone(make_checkpoint(tmp_path, "gpt2", n_positions=64))
    with pytest.raises(DataError, match=r"has \d+ tokens .*The model takes 64"):
        supervised_finetune(model, training_examples(vocabulary), **SETTINGS)


def test_dropout_is_off_so_that_sampler_and_learner_are_the_same(tmp_path):
    model, vocabulary = load_backbone(make_checkpoint(tmp_path, "gpt2"))
    assert model.config.resid_pdrop == model.config.attn_pdrop == model.config.embd_pdrop == 0
    ids = torch.tensor([vocabulary.encode(["put mug 1"])])
    assert torch.equal(model.train()(input_ids=ids).logits, model.eval()(input_ids=ids).logits)


@pytest.mark.parametrize("targets", [["q_proj", "v_proj"], "all-linear"])
@pytest.mark.parametrize(
    ("kind", "tied"), [("llama", False), ("qwen2", True), ("qwen3", False), ("qwen3", True)]
)
def test_only_adapters_and_new_markers_are_trained_and_both_are_saved_and_merge(
    kind, tied, targets, tmp_path
):
    model, vocabulary = load_backbone(
        make_checkpoint(tmp_path / "base", kind, scale=1.0, tie_word_embeddings=tied)
    )
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    wrapped = add_lora(model, LoraConfig(rank=4, targets=targets), added=vocabulary.added)
    trainable_names = [name for name, weight in wrapped.named_parameters() if weight.requires_grad]
    assert all("lora_" in name or "trainable_tokens" in name for name in trainable_names)
    assert len([name for name in trainable_names if "lora_A" in name]) == (
        4 if targets != "all-linear" else 14
    )
    record = supervised_finetune(
        wrapped, training_examples(vocabulary), **{**SETTINGS, "learning_rate": 2e-2, "epochs": 8}
    )
    assert record.losses[-1] < record.losses[0] - 0.5
    frozen = {
        name.replace(".base_layer", "")
        .replace(".token_adapter", "")
        .removeprefix("base_model.model."): weight
        for name, weight in wrapped.named_parameters()
        if not weight.requires_grad
    }
    for name, weight in before.items():
        assert torch.equal(frozen[name], weight), name
    ids = torch.tensor([training_examples(vocabulary)[0].segments[0].tokens])
    with torch.no_grad():
        adapted = wrapped(input_ids=ids).logits
    save_model(wrapped, vocabulary, tmp_path / "tuned")
    rows = vocabulary.added
    old = [index for index in range(len(vocabulary)) if index not in rows]
    loaded = load_backbone(tmp_path / "tuned")[0]
    with torch.no_grad():
        assert torch.equal(loaded(input_ids=ids).logits, adapted)
    for plain in (merge_lora(loaded), merge_lora(wrapped)):
        with torch.no_grad():
            torch.testing.assert_close(plain(input_ids=ids).logits, adapted, atol=1e-4, rtol=1e-4)
        table = plain.get_input_embeddings().weight
        first = before["model.embed_tokens.weight"]
        assert torch.equal(table[old], first[old]) and not torch.equal(table[rows], first[rows])
        head = plain.get_output_embeddings().weight
        assert torch.equal(head, table) == tied
        if not tied:
            assert torch.equal(head[old], before["lm_head.weight"][old]) and not torch.equal(
                head[rows], before["lm_head.weight"][rows]
            )


def test_the_initial_adapters_depend_only_on_the_seed(tmp_path):
    base = make_checkpoint(tmp_path, "qwen3")

    def first(seed):
        torch.rand(3)
        wrapped = add_lora(load_backbone(base)[0], LoraConfig(rank=2), seed=seed)
        return torch.cat(
            [weight.detach().flatten() for name, weight in wrapped.named_parameters() if "lora_A" in name]
        )

    assert torch.equal(first(1), first(1)) and not torch.equal(first(1), first(2))


def test_errors_name_what_is_wrong_with_a_directory(tmp_path):
    base = make_checkpoint(tmp_path / "base", "llama")
    weights = load_file(base / "model.safetensors")
    save_file(
        {name: weight for name, weight in weights.items() if "layers.1" not in name},
        base / "model.safetensors",
        {"format": "pt"},
    )
    with pytest.raises(
        DataError, match=r"lack weights of the model that its config.json describes: model\.layers\.1\."
    ):
        load_backbone(base)
    (base / "model.safetensors").write_bytes(b"cut off")
    with pytest.raises(DataError, match="cannot be loaded"):
        load_backbone(base)
    (base / "model.safetensors").unlink()
    torch.save(weights, base / "pytorch_model.bin")
    with pytest.raises(
        DataError, match=r"no weights in safetensors \(pytorch_model.bin cannot be used; convert it first\)"
    ):
        load_backbone(base)
    small = make_checkpoint(tmp_path / "small", "llama")
    large = make_checkpoint(tmp_path / "large", "llama")
    config = (small / "config.json").read_text()
    (small / "config.json").write_text(config.replace('"hidden_size": 32', '"hidden_size": 48'))
    with pytest.raises(DataError, match="lack weights|cannot be loaded"):
        load_backbone(small)
    (large / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(DataError, match="causal language model"):
        load_backbone(large)
    shutil.rmtree(large)
