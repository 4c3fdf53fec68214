"""Losses and gradients equal those of TRL's trainers on the same batch of episodes with several replies."""

from __future__ import annotations

import copy
import random

import pytest
import torch
from builders import VOCABULARY, make_episode, make_model, make_task
from datasets import Dataset
from trl import DPOConfig as TRLDPOConfig
from trl import DPOTrainer, GRPOTrainer, SFTConfig, SFTTrainer
from trl import GRPOConfig as TRLGRPOConfig

from components.config import RLConfig
from components.config.algorithm_config import DPOConfig, GRPOConfig, RFTConfig
from components.language.training.examples import Example, Segment
from components.policy.policy import Policy
from components.policy.rl.algorithms.choose import make_algorithm
from components.policy.rl.loop import Loop
from components.policy.rl.players.player import LocalPlayer
from components.policy.rl.reference import Reference
from components.policy.rl.task_source import EvenTasks
from components.policy.rl.training_sample import TrainingSample
from components.policy.rollout import Rollout
from components.records import Trajectory

PAD = VOCABULARY.marker_id("<pad>")
PLAIN = {"use_cpu": True, "bf16": False, "report_to": [], "gradient_checkpointing": False}


def episodes(policy, count=4):
    """Return episodes of random tokens with two or three replies each.

    The sampler's log-probabilities differ from the policy's by Gaussian noise.
    """
    rng = random.Random(0)
    rollouts = []
    for _ in range(count):
        segments = [Segment(tokens(rng, 5), [False] * 5)]
        for _ in range(rng.choice([2, 3])):
            reply_length = rng.randint(2, 6)
            state_length = rng.randint(2, 4)
            segments += [
                Segment(tokens(rng, reply_length), [True] * reply_length),
                Segment(tokens(rng, state_length), [False] * state_length),
            ]
        rollouts.append(Rollout(Trajectory(make_task()), Example(segments)))
    for rollout, logprobs in zip(rollouts, Reference(policy, 1.0, 4096).logprobs(rollouts), strict=True):
        rollout.logprobs = [value + rng.gauss(0, 0.3) for value in logprobs]
    return rollouts


def tokens(rng, count):
    return [rng.randrange(20, 300) for _ in range(count)]


def flat(rollout):
    """Return (token, whether the policy wrote it) of an episode."""
    return [
        pair
        for segment in rollout.example.segments
        for pair in zip(segment.tokens, segment.loss, strict=True)
    ]


def padded(rows, fill):
    width = max(map(len, rows))
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows])


def compute_loss(policy, samples, algorithm):
    """Return the loss of one update over `samples`, and its gradients."""
    config = RLConfig(demonstration_weight=0.0, algorithm=algorithm)
    loop = Loop(
        policy,
        LocalPlayer(None),
        EvenTasks([make_task()]),
        make_algorithm(config, policy),
        config,
        max_steps=1,
        seed=0,
    )
    weights = loop.algorithm.token_weights(samples)
    with policy.compute.training(policy.model):
        total = sum(sample.token_count for sample in samples)
        figures = loop.learner._gradient.add_samples(samples, weights, total)
    return figures["loss"], gradients(policy.model)


def gradients(model):
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def assert_same(mine, theirs):
    assert mine[0] == pytest.approx(theirs[0], abs=1e-5)
    assert mine[1].keys() == theirs[1].keys()
    for name, gradient in mine[1].items():
        torch.testing.assert_close(gradient, theirs[1][name], atol=1e-5, rtol=1e-3)


def tokenizer():
    copied_tokenizer = copy.deepcopy(VOCABULARY.tokenizer)
    copied_tokenizer.pad_token = "<pad>"
    copied_tokenizer.eos_token = "<end>"
    return copied_tokenizer


@pytest.mark.parametrize(("loss_mean", "loss_type"), [("episode", "grpo"), ("token", "bnpo")])
@pytest.mark.parametrize("kl", [0.0, 0.1])
def test_grpo(tmp_path, loss_mean, loss_type, kl):
    model = make_model(scale=2.0)
    policy = Policy(model, VOCABULARY)
    other = copy.deepcopy(model)
    played = episodes(policy)
    advantages = [1.0, -0.5, 0.25, -2.0]
    rng = random.Random(1)
    far = [[value + rng.gauss(0, 0.5) for value in rollout.logprobs] for rollout in played]
    samples = [
        TrainingSample((r,), {"advantage": [a] * r.token_count, "reference": ref})
        for r, a, ref in zip(played, advantages, far, strict=True)
    ]
    mine = compute_loss(
        policy,
        samples,
        GRPOConfig(loss_aggregation=loss_mean, epsilon=0.2, epsilon_high=0.28, beta=kl),
    )

    args = TRLGRPOConfig(
        str(tmp_path),
        loss_type=loss_type,
        epsilon=0.2,
        epsilon_high=0.28,
        beta=0.0,
        temperature=1.0,
        use_bias_correction_kl=False,
        per_device_train_batch_size=4,
        num_generations=4,
        **PLAIN,
    )
    data = Dataset.from_list([{"prompt": "go to desk 1"}])
    trainer = GRPOTrainer(
        other, lambda completions, **_: [0.0] * len(completions), args, data, processing_class=tokenizer()
    )
    trainer.current_gradient_accumulation_steps = 1
    # Set after construction, which would load a reference model; the batch has reference numbers already.
    trainer.beta = kl
    rows = [flat(r) for r in played]
    written = [[flag for _, flag in row[5:]] for row in rows]
    width = max(map(len, written))

    def spread(values):
        matrix = torch.zeros(len(played), width)
        for place, (row, flags) in enumerate(zip(values, written, strict=True)):
            matrix[place, torch.tensor([i for i, flag in enumerate(flags) if flag])] = torch.tensor(row)
        return matrix

    inputs = {
        "prompt_ids": torch.tensor([[token for token, _ in row[:5]] for row in rows]),
        "prompt_mask": torch.ones(4, 5, dtype=torch.long),
        "completion_ids": padded([[token for token, _ in row[5:]] for row in rows], PAD),
        "completion_mask": padded([[1] * len(flags) for flags in written], 0),
        "tool_mask": padded([[int(flag) for flag in flags] for flags in written], 0),
        "advantages": torch.tensor(advantages),
        "old_per_token_logps": spread([r.logprobs for r in played]),
        "ref_per_token_logps": spread(far),
    }
    trainer.model.train()
    loss = trainer._compute_loss(trainer.model, inputs)
    loss.backward()
    assert_same(mine, (loss.item(), gradients(other)))


def test_dpo(tmp_path):
    model = make_model(scale=2.0)
    start = make_model(seed=2, scale=2.0)
    policy = Policy(model, VOCABULARY)
    other = copy.deepcopy(model)
    played = episodes(policy)
    reference_logprobs = Reference(Policy(start, VOCABULARY), 1.0, 4096).logprobs(played)
    pairs = [
        TrainingSample(
            (played[won], played[lost]), {"reference": reference_logprobs[won] + reference_logprobs[lost]}
        )
        for won, lost in ((0, 2), (1, 3))
    ]
    mine = compute_loss(policy, pairs, DPOConfig(beta=0.3))

    args = TRLDPOConfig(str(tmp_path), beta=0.3, **PLAIN)
    data = Dataset.from_list([{"prompt": "go", "chosen": "to desk 1", "rejected": "to fridge 1"}])
    trainer = DPOTrainer(other, start, args, train_dataset=data, processing_class=tokenizer())
    rows = [flat(played[place]) for place in (0, 1, 2, 3)]  # the chosen ones first
    inputs = {
        "input_ids": padded([[token for token, _ in row] for row in rows], PAD),
        "attention_mask": padded([[1] * len(row) for row in rows], 0),
        "completion_mask": padded([[int(flag) for _, flag in row] for row in rows], 0),
    }
    trainer.model.train()
    loss = trainer._compute_loss(trainer.model, inputs, return_outputs=False)
    loss.backward()
    assert_same(mine, (loss.item(), gradients(other)))


def test_rft(tmp_path):
    """The supervised loss of RFT, with the tokens of idle replies among those without loss.

    RFT divides by all written tokens, those of idle replies included; TRL by those that have a loss.
    """
    model = make_model(scale=2.0)
    policy = Policy(model, VOCABULARY)
    other = copy.deepcopy(model)
    played = episodes(policy)
    for row, rollout in enumerate(played):
        rollout.trajectory = make_episode(make_task(row), ("look", "s"), won=True)
        rollout.idle = [row == 1 and reply == 0 for reply in range(len(rollout.reply_lengths))]
    algorithm = make_algorithm(RLConfig(demonstration_weight=0.0, algorithm=RFTConfig()), policy)
    samples = algorithm.training_samples([[rollout] for rollout in played], policy)
    mine = compute_loss(policy, samples, RFTConfig())

    data = Dataset.from_list([{"input_ids": [20, 21, 22], "labels": [20, 21, 22]}])
    trainer = SFTTrainer(
        other, SFTConfig(str(tmp_path), **PLAIN), train_dataset=data, processing_class=tokenizer()
    )
    idle_tokens = played[1].reply_lengths[0]
    trained = [[flag for _, flag in flat(rollout)] for rollout in played]
    first = next(place for place, flag in enumerate(trained[1]) if flag)
    trained[1][first : first + idle_tokens] = [False] * idle_tokens
    rows = [flat(rollout) for rollout in played]
    labels = [
        [token if has_loss else -100 for (token, _), has_loss in zip(row, flags, strict=True)]
        for row, flags in zip(rows, trained, strict=True)
    ]
    inputs = {
        "input_ids": padded([[token for token, _ in row] for row in rows], PAD),
        "attention_mask": padded([[1] * len(row) for row in rows], 0),
        "labels": padded(labels, -100),
    }
    trainer.model.train()
    written = sum(rollout.token_count for rollout in played)
    loss = trainer.compute_loss(trainer.model, inputs, num_items_in_batch=torch.tensor(written))
    loss.backward()
    assert_same(mine, (loss.item(), gradients(other)))
    assert written > sum(map(sum, trained)), "the idle reply is among the written tokens"
