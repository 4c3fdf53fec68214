"""The reference policy: it keeps its weights while the policy trains, with LoRA without a second model."""

from __future__ import annotations

import pytest
import torch
from builders import VOCABULARY, make_model
from policy.rl.loop_builders import LORA, TASKS, Rewarding, even_rows, make_loop

from components.language.adapters import add_lora
from components.policy.policy import Policy
from components.policy.rl.reference import Reference
from components.policy.rollout import play


def make_policy(has_adapters):
    model = make_model(hidden=32)
    return Policy(add_lora(model, LORA) if has_adapters else model, VOCABULARY, max_new_tokens=6)


def train(policy):
    with torch.no_grad():
        for weight in policy.model.parameters():
            if weight.requires_grad:
                weight.add_(0.05)


def values(reference, rollouts):
    return torch.tensor([value for row in reference.logprobs(rollouts) for value in row])


@pytest.mark.parametrize("has_adapters", [False, True], ids=["all weights", "LoRA"])
def test_it_scores_with_its_own_weights_until_they_are_copied(has_adapters):
    policy = make_policy(has_adapters)
    rollouts = play(policy, Rewarding(even_rows), TASKS, max_steps=1, temperature=1.0, seed=0)
    reference = Reference(policy, 1.0, 256)
    at_first = values(reference, rollouts)
    torch.testing.assert_close(
        at_first,
        torch.tensor([value for rollout in rollouts for value in rollout.logprobs]),
        atol=1e-4,
        rtol=0,
    )
    train(policy)
    trained = {name: weight.clone() for name, weight in policy.model.named_parameters()}
    assert torch.equal(values(reference, rollouts), at_first)
    for name, weight in policy.model.named_parameters():
        assert torch.equal(weight, trained[name]), "scoring leaves the trained weights as they are"
    saved = {name: weight.clone() for name, weight in reference.state_dict().items()}
    reference.copy_weights(policy)
    assert not torch.equal(values(reference, rollouts), at_first)
    reference.load_state_dict(saved)
    assert torch.equal(values(reference, rollouts), at_first)


def test_with_lora_no_second_model_is_kept():
    policy = make_policy(True)
    state = Reference(policy, 1.0, 256).state_dict()
    assert state and all("lora_" in name for name in state)
    assert sum(weight.numel() for weight in state.values()) < 0.2 * sum(
        weight.numel() for weight in policy.model.parameters()
    )


@pytest.mark.parametrize("algorithm", ["grpo", "dpo"])
def test_a_loop_with_lora_compares_with_the_policy_before_its_adapters(algorithm):
    options = {"beta": 0.1} if algorithm == "grpo" else {}
    loop = make_loop(Rewarding(even_rows), algorithm=algorithm, iterations=2, lora=LORA, **options)
    state = loop.run()
    assert all(value == value for value in state.series["loss"])
    if algorithm == "grpo":
        assert state.series["kl"][1] > 0
