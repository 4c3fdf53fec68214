"""Which files of a model directory are used, and which are refused with which message."""

from __future__ import annotations

import json
import re
import shutil

import pytest
import torch
from foreign import make_checkpoint
from safetensors.torch import load_file, save_file

from components.errors import DataError
from components.language.backbone import load_backbone
from components.language.checkpoint_files import model_size
from components.language.checkpoint_files.weight_files import INDEX, LARGEST_SETTINGS, SINGLE, stored_weights

PROMPT = torch.tensor([[5, 6, 7, 8]])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A model in one file."""
    return make_checkpoint(tmp_path_factory.mktemp("whole"), "llama")


@pytest.fixture
def model(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "model")


@pytest.fixture
def sharded(model):
    """The same model in two shards."""
    weights = load_file(model / SINGLE)
    (model / SINGLE).unlink()
    names = sorted(weights)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, part in parts.items():
        save_file({name: weights[name] for name in part}, model / file, {"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: file for file, part in parts.items() for name in part}}
    (model / INDEX).write_text(json.dumps(index))
    return model


def logits_of(directory):
    with torch.no_grad():
        return load_backbone(directory)[0](input_ids=PROMPT).logits


def with_other_weights(source, target):
    save_file({name: weight + 1 for name, weight in load_file(source).items()}, target, {"format": "pt"})


def test_shards_with_an_index_are_loaded(whole, sharded):
    assert torch.equal(logits_of(sharded), logits_of(whole))
    assert len(stored_weights(sharded).files) == 2


def test_shards_and_a_whole_file_are_refused_with_a_command_that_helps(whole, sharded):
    with_other_weights(whole / SINGLE, sharded / SINGLE)
    with pytest.raises(
        DataError, match="two sets of weights.*To use the shards, type mv .*model.safetensors "
    ) as error_info:
        load_backbone(sharded)
    source, target = re.search(r"To use the shards, type mv (\S+) (\S+?);", str(error_info.value)).groups()
    shutil.move(source, target)
    assert torch.equal(logits_of(sharded), logits_of(whole)), "the command of the message solves the problem"


def test_a_whole_file_and_incomplete_shards_are_refused(whole, sharded):
    shutil.copy(whole / SINGLE, sharded / SINGLE)
    (sharded / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(DataError, match=r"two sets of weights.*\(1 of them are missing\)"):
        load_backbone(sharded)


def test_files_that_transformers_does_not_read_are_ignored(whole, model):
    with_other_weights(whole / SINGLE, model / "consolidated.safetensors")
    torch.save(
        {name: weight + 1 for name, weight in load_file(whole / SINGLE).items()}, model / "pytorch_model.bin"
    )
    assert torch.equal(logits_of(model), logits_of(whole))


def test_an_adapter_is_refused(whole, model):
    (model / "adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": str(whole), "peft_type": "LORA"})
    )
    with pytest.raises(
        DataError, match=r"a whole model and an adapter \(adapter_config.json\).*type mkdir .* && mv"
    ):
        load_backbone(model)
    (model / SINGLE).rename(model / "adapter_model.safetensors")
    with pytest.raises(DataError, match="an adapter without its base model.*merge_and_unload"):
        load_backbone(model)


def test_a_missing_shard_is_named(sharded):
    (sharded / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(DataError, match=r"lacks 1 of the 2 shards .*: model-00002-of-00002.safetensors"):
        load_backbone(sharded)
    (sharded / "model-00001-of-00002.safetensors").unlink()
    with pytest.raises(DataError, match="lacks 2 of the 2 shards"):
        load_backbone(sharded)


def test_shards_without_an_index_are_refused(sharded):
    (sharded / INDEX).unlink()
    with pytest.raises(DataError, match="neither model.safetensors nor model.safetensors.index.json"):
        load_backbone(sharded)


@pytest.mark.parametrize("entry", ["../whole.safetensors", "/etc/passwd", 7, "pytorch_model.bin", None])
def test_an_index_may_name_only_files_next_to_it(entry, sharded):
    index = json.loads((sharded / INDEX).read_text())
    index["weight_map"][next(iter(index["weight_map"]))] = entry
    (sharded / INDEX).write_text(json.dumps(index))
    with pytest.raises(DataError, match="as a file of weights.*beside it"):
        load_backbone(sharded)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {}}'])
def test_an_unreadable_index_is_refused(text, sharded):
    (sharded / INDEX).write_text(text)
    with pytest.raises(DataError, match="cannot be read|names no file"):
        load_backbone(sharded)


def test_a_tensor_that_no_shard_holds_is_named(sharded):
    index = json.loads((sharded / INDEX).read_text())
    index["weight_map"]["model.layers.9.mlp.up_proj.weight"] = "model-00001-of-00002.safetensors"
    (sharded / INDEX).write_text(json.dumps(index))
    with pytest.raises(DataError, match="lack 1 of the tensors .*model.layers.9.mlp.up_proj.weight"):
        load_backbone(sharded)


@pytest.mark.parametrize("size", [0, 7, 5_000])
@pytest.mark.parametrize("shape", ["model", "sharded"])
def test_a_cut_off_file_is_refused_with_its_size(shape, size, request):
    directory = request.getfixturevalue(shape)
    file = next(directory.glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(
        DataError, match=f"{file.name} cannot be loaded: it has {size:,} bytes and is cut off"
    ):
        load_backbone(directory)


def test_files_much_larger_than_the_model_are_refused_before_they_are_read(model):
    weights = load_file(model / SINGLE)
    size = sum(weight.numel() for weight in weights.values())
    save_file(weights | {"more": torch.zeros(2 * size)}, model / SINGLE, {"format": "pt"})
    with pytest.raises(
        DataError,
        match=rf"hold {3 * size + 0:,} numbers .*its config.json describes [\d,]+\..*at most 2 times",
    ):
        load_backbone(model)


def test_a_config_of_more_blocks_than_there_are_tensors_is_refused_at_once(model):
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 10**7}))
    with pytest.raises(DataError, match="describes 10,000,000 blocks; the files lack weights"):
        load_backbone(model)


def test_a_model_larger_than_the_free_memory_is_refused_before_loading(model, monkeypatch):
    monkeypatch.setattr(model_size, "ALWAYS_FITS", 0)
    monkeypatch.setattr(model_size, "free_memory", lambda: 50_000)
    monkeypatch.setattr(
        "components.language.backbone.AutoModelForCausalLM.from_pretrained",
        lambda *_, **__: pytest.fail("was loaded"),
    )
    with pytest.raises(
        DataError,
        match=r"has [\d,]+ weights and takes 0.2 MB in fp32; 0.1 MB of memory are free.*smaller model",
    ):
        load_backbone(model)


def test_free_memory_respects_the_limit_of_the_container(monkeypatch, tmp_path):
    monkeypatch.setattr(model_size, "CGROUP", tmp_path)
    of_machine = model_size.free_memory()
    assert of_machine > 2**20
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.stat").write_text("anon 1000000\nfile 1999999\n")
    assert model_size.free_memory() == 2_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert model_size.free_memory() > 2**20


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", INDEX])
def test_oversized_settings_are_refused_before_they_are_read(name, model):
    with (model / name).open("ab") as file:
        file.truncate(LARGEST_SETTINGS + 1)
    with pytest.raises(DataError, match="has 268,435,457 bytes.*mv "):
        load_backbone(model)
