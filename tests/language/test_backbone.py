"""Backbones are built, saved, loaded and adapted without a change of their numbers."""

import shutil

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from components.config import BackboneConfig, LoraConfig
from components.errors import ConfigError, DataError
from components.language.adapters import add_lora, merge_lora
from components.language.backbone import build_backbone, load_backbone, save_model
from components.language.vocabulary.compact_vocabulary import CompactVocabulary
from components.language.vocabulary.markers import MARKERS

TEXTS = [f"put mug {i} in cabinet {i % 5}" for i in range(30)]
SMALL = BackboneConfig(hidden=32, layers=2, heads=4, max_positions=64)


@pytest.fixture(scope="module")
def vocabulary():
    return CompactVocabulary.train(TEXTS, 320)


def logits_of(model):
    with torch.no_grad():
        return model(input_ids=torch.tensor([[2, 20, 30, 40]])).logits


@pytest.mark.parametrize("family", ["llama", "qwen"])
def test_a_seed_gives_the_same_weights_and_keeps_the_global_random_state(family):
    config = SMALL.model_copy(update={"family": family})
    torch.manual_seed(5)
    first = build_backbone(config, 320, seed=1)
    random_number = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(random_number, torch.rand(1))
    assert torch.equal(logits_of(first), logits_of(build_backbone(config, 320, seed=1)))
    assert not torch.equal(logits_of(first), logits_of(build_backbone(config, 320, seed=2)))
    assert first.config.num_key_value_heads == 2
    assert first.get_input_embeddings().weight is first.get_output_embeddings().weight


def test_default_size_is_about_a_million_parameters():
    assert (
        0.8e6
        < sum(weight.numel() for weight in build_backbone(BackboneConfig(), 1024, 0).parameters())
        < 1.2e6
    )


@pytest.mark.parametrize("family", ["llama", "qwen"])
def test_saved_model_loads_equal(family, vocabulary, tmp_path):
    model = build_backbone(SMALL.model_copy(update={"family": family}), len(vocabulary), seed=1).eval()
    save_model(model, vocabulary, tmp_path / "model")
    save_model(model, vocabulary, tmp_path / "model")
    loaded, words = load_backbone(tmp_path / "model")
    assert torch.equal(logits_of(model), logits_of(loaded))
    assert words.encode(TEXTS) == vocabulary.encode(TEXTS)
    assert [file.name for file in tmp_path.iterdir()] == ["model"]


def test_half_precision_weights_load_as_fp32(vocabulary, tmp_path):
    model = build_backbone(SMALL, len(vocabulary), seed=1).eval()
    save_model(model, vocabulary, tmp_path / "full")
    save_model(model, vocabulary, tmp_path / "half", dtype=torch.float16)
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("full", "half")]
    assert sizes[1] < 0.6 * sizes[0]
    loaded, _ = load_backbone(tmp_path / "half")
    assert loaded.dtype == model.dtype == torch.float32
    torch.testing.assert_close(logits_of(loaded), logits_of(model), atol=1e-2, rtol=0)


def test_embeddings_grow_for_markers_that_a_foreign_tokenizer_lacks(tmp_path):
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    )
    foreign = PreTrainedTokenizerFast(tokenizer_object=backend)
    build_backbone(SMALL, len(foreign), seed=1).save_pretrained(tmp_path)
    foreign.save_pretrained(tmp_path)
    first, words = load_backbone(tmp_path)
    second, _ = load_backbone(tmp_path)
    assert first.get_input_embeddings().weight.shape[0] == len(words) == len(foreign) + len(MARKERS)
    assert torch.equal(logits_of(first), logits_of(second))


def test_adapters_start_without_effect_and_merge_into_the_same_function(vocabulary, tmp_path):
    model = build_backbone(SMALL, len(vocabulary), seed=1).eval()
    before = logits_of(model)
    wrapped = add_lora(model, LoraConfig(rank=4, targets=["q_proj", "o_proj"])).eval()
    assert torch.equal(logits_of(wrapped), before)
    trainable = [name for name, weight in wrapped.named_parameters() if weight.requires_grad]
    assert trainable and all("lora" in name for name in trainable)
    with torch.no_grad():
        for name, weight in wrapped.named_parameters():
            if "lora_B" in name:
                weight.normal_(generator=torch.Generator().manual_seed(0))
    after = logits_of(wrapped)
    save_model(wrapped, vocabulary, tmp_path / "half", torch.float16)
    assert torch.equal(logits_of(wrapped), after)
    torch.testing.assert_close(logits_of(load_backbone(tmp_path / "half")[0]), after, atol=1e-2, rtol=0)
    torch.testing.assert_close(logits_of(merge_lora(wrapped)), after, atol=1e-5, rtol=0)
    assert not torch.allclose(after, before)


def test_rank_0_and_plain_models_are_returned_unchanged(vocabulary):
    model = build_backbone(SMALL, len(vocabulary), seed=1)
    assert add_lora(model, LoraConfig()) is model
    assert merge_lora(model) is model


def test_errors_name_the_problem(vocabulary, tmp_path):
    model = build_backbone(SMALL, len(vocabulary), seed=1)
    with pytest.raises(ConfigError, match="hidden is 30 with 4 heads.*multiple of 8"):
        build_backbone(SMALL.model_copy(update={"hidden": 30}), 320, 0)
    with pytest.raises(ConfigError, match="Name some of:.*q_proj"):
        add_lora(model, LoraConfig(rank=2, targets=["attention"]))
    with pytest.raises(DataError, match="no backbone directory"):
        load_backbone(tmp_path / "nowhere")
    vocabulary.save(tmp_path / "empty")
    with pytest.raises(DataError, match="no weights.*safetensors"):
        load_backbone(tmp_path / "empty")
    build_backbone(SMALL, 300, seed=1).save_pretrained(tmp_path / "small")
    with pytest.raises(DataError, match="no tokenizer.json"):
        load_backbone(tmp_path / "small")
    for file in (tmp_path / "empty").iterdir():
        shutil.copy(file, tmp_path / "small")
    with pytest.raises(DataError, match="ids, the model 300 embeddings"):
        load_backbone(tmp_path / "small")
