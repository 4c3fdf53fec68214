"""Adapters stay adapters between the stages: saved, loaded, trained on; the weights below do not change."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from builders import AGENT, VOCABULARY, make_episode, make_model, make_task
from peft import PeftModel

from components.config import CloningConfig, LoraConfig
from components.errors import DataError
from components.language.adapters import ADAPTER, add_lora, merge_lora, without_adapters
from components.language.backbone import load_backbone, save_model
from components.language.compute import Compute
from components.language.training.examples import collate
from components.language.training.token_scores import token_logprobs
from components.policy.behaviour_cloning import clone
from components.policy.formats.demonstrations import render_demonstration
from components.policy.policy import Policy

LORA = LoraConfig(rank=2, targets="all-linear")
EPISODE = make_episode(make_task(), ("go to desk 1", "At desk 1: mug 1."), ("take mug 1", "Took mug 1."))
BF16 = Compute(precision="bf16")


def cloned(compute=Compute(), epochs=2):
    policy = Policy(make_model(hidden=32), VOCABULARY, compute=compute)
    clone(policy, [EPISODE], CloningConfig(epochs=epochs, learning_rate=1e-2), 0, lora=LORA)
    return policy


def scores(policy):
    batch = collate([render_demonstration(AGENT, EPISODE)], 0)
    with torch.no_grad(), policy.compute.forward():
        return token_logprobs(policy.model, batch).logprobs


def adapters(policy):
    return {name: weight for name, weight in policy.model.named_parameters() if "lora_" in name}


@pytest.mark.parametrize("compute", [Compute(), BF16])
def test_a_saved_policy_is_the_same_function_and_its_base_has_not_changed(tmp_path, compute):
    base = make_model(hidden=32)
    save_model(base, VOCABULARY, tmp_path / "base", torch.bfloat16)
    policy = Policy.load(tmp_path / "base", compute=compute)
    clone(policy, [EPISODE], CloningConfig(epochs=2, learning_rate=1e-2), 0, lora=LORA)
    policy.save(tmp_path / "policy")
    loaded = Policy.load(tmp_path / "policy", compute=compute)
    torch.testing.assert_close(
        scores(loaded), scores(policy), atol=0 if compute == Compute() else 2e-2, rtol=0
    )
    before, _ = load_backbone(tmp_path / "base")
    after = without_adapters(loaded.model).state_dict()
    for name, weight in before.state_dict().items():
        kept = after.get(name, after.get(name.replace(".weight", ".base_layer.weight")))
        assert torch.equal(kept, weight), name
    assert {weight.requires_grad for weight in loaded.model.parameters()} == {False}


def test_the_next_stage_goes_on_with_the_same_adapters(tmp_path):
    policy = cloned()
    policy.save(tmp_path / "policy")
    loaded = Policy.load(tmp_path / "policy")
    again = add_lora(loaded.model, LORA, seed=7)
    assert again is loaded.model
    trained = {name for name, weight in again.named_parameters() if weight.requires_grad}
    assert trained == adapters(loaded).keys() and trained
    for name, weight in adapters(policy).items():
        assert torch.equal(adapters(loaded)[name], weight), name
    other = add_lora(loaded.model, LoraConfig(rank=3), seed=7)
    assert other is not again and isinstance(other, PeftModel)
    loaded.model = other
    torch.testing.assert_close(scores(loaded), scores(policy), atol=1e-5, rtol=0)
    plain = add_lora(other, LoraConfig())
    assert not isinstance(plain, PeftModel) and all(weight.requires_grad for weight in plain.parameters())


def test_frozen_matrices_are_bf16_and_shared_with_the_sampler():
    policy = cloned(BF16)
    types = {(weight.requires_grad, weight.dim() > 1, weight.dtype) for weight in policy.model.parameters()}
    assert types == {
        (True, True, torch.float32),
        (False, True, torch.bfloat16),
        (False, False, torch.float32),
    }
    copied = dict(BF16.for_decoding(policy.model).named_parameters())
    for name, weight in policy.model.named_parameters():
        is_shared = copied[name].data_ptr() == weight.data_ptr()
        assert is_shared == (weight.dtype == torch.bfloat16), name
        assert copied[name].dtype == torch.bfloat16


def test_merged_weights_are_fp32_and_the_same_function():
    policy = cloned(BF16, epochs=20)
    exact = Policy(merge_lora(policy.model), VOCABULARY)
    assert {weight.dtype for weight in exact.model.parameters()} == {torch.float32}
    torch.testing.assert_close(scores(exact), scores(cloned(BF16, epochs=20)), atol=0.05, rtol=0)


SAVE = """
import sys
sys.path.insert(0, "tests")
from language.test_adapters import cloned
cloned().save(sys.argv[1])
"""


def test_equal_adapters_give_equal_files_without_a_path_of_this_machine(tmp_path):
    contents = []
    for hash_seed in ("1", "2"):
        target = tmp_path / hash_seed / "policy"
        environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(filter(None, sys.path))}
        subprocess.run([sys.executable, "-c", SAVE, str(target)], check=True, env=environment, timeout=300)
        files = sorted(path for path in target.rglob("*") if path.is_file())
        contents.append({path.relative_to(target).as_posix(): path.read_bytes() for path in files})
    assert contents[0] == contents[1]
    assert f"{ADAPTER}/adapter_model.safetensors" in contents[0]
    settings = json.loads(contents[0][f"{ADAPTER}/adapter_config.json"])
    assert settings["base_model_name_or_path"] == ".." and settings["r"] == 2


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_config.json", "lora.json"])
@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_damaged_adapters_are_refused(tmp_path, name, damage):
    cloned().save(tmp_path / "policy")
    file = tmp_path / "policy" / ADAPTER / name
    content = file.read_bytes()
    file.unlink()
    if damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match="adapters in .* cannot be loaded"):
        Policy.load(tmp_path / "policy")
