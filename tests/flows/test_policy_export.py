"""The exported policy is one whole model that any server of transformers models loads."""

from __future__ import annotations

import torch
from builders import VOCABULARY, make_episode, make_model, make_task
from transformers import AutoModelForCausalLM

from components.config import CloningConfig, LoraConfig
from components.language.adapters import ADAPTER
from components.language.compute import Compute
from components.policy.behaviour_cloning import clone
from components.policy.policy import Policy
from flows.run.models.policy_export import write_policy

IDS = torch.tensor([[1, 2, 3]])


def stage_policy(directory, lora, compute=Compute()):
    policy = Policy(make_model(hidden=32), VOCABULARY, compute=compute)
    episode = make_episode(make_task(), ("go to desk 1", "At desk 1: mug 1."))
    clone(policy, [episode], CloningConfig(epochs=9, learning_rate=1e-2), 0, lora=lora)
    policy.save(directory)
    return Policy.load(directory).model(IDS).logits


def test_adapters_are_merged_in_fp32(tmp_path):
    lora = LoraConfig(rank=2, targets="all-linear")
    expected = stage_policy(tmp_path / "stage", lora, Compute(precision="bf16"))
    write_policy(tmp_path / "stage", tmp_path / "run" / "policy")
    assert (tmp_path / "stage" / ADAPTER).is_dir() and not (tmp_path / "run" / "policy" / ADAPTER).exists()
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "policy", dtype="auto")
    assert exported.dtype == torch.float32
    torch.testing.assert_close(exported(IDS).logits, expected, atol=1e-4, rtol=0)


def test_a_whole_model_is_linked_not_copied(tmp_path):
    stage_policy(tmp_path / "stage", LoraConfig())
    write_policy(tmp_path / "stage", tmp_path / "policy")
    names = {path.name for path in (tmp_path / "stage").iterdir()}
    assert {path.name for path in (tmp_path / "policy").iterdir()} == names
    same = [(tmp_path / place / "model.safetensors").stat().st_ino for place in ("stage", "policy")]
    assert same[0] == same[1]
