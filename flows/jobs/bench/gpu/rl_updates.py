"""RL updates in `dreamgym bench gpu`: ours beside TRL's GRPOTrainer, on the same made-up episodes."""

from __future__ import annotations

import random
from dataclasses import replace

from components.config import LoraConfig, RLConfig
from components.language.compute import Compute
from components.language.training.examples import Example, Segment
from components.language.vocabulary.compact_vocabulary import CompactVocabulary
from components.policy.policy import Policy
from components.policy.rl.log_probabilities import score_without_gradients
from components.policy.rollout import Rollout
from components.records import Task, Trajectory, Transition
from flows.jobs.bench.gpu.device import Figures, peak_memory_gb, reset_memory
from flows.jobs.bench.gpu.shapes import LOSS_SHARE, Shape
from flows.jobs.bench.gpu.training import placeholder_tokenizer
from flows.jobs.bench.our_updates import seconds_of_ours
from flows.jobs.bench.recorded_batch import Batch
from flows.jobs.bench.trl_trainer import seconds_of_trl

GROUPS, GROUP = 4, 8
"""Tasks, and episodes a task."""
STEPS = 4
"""Measured optimiser steps, each over all episodes."""


def measure_rl_updates(shape: Shape, compute: Compute, *, trl: bool = False) -> Figures:
    """Tokens per second and memory of RL updates.

    Args:
        trl: of TRL's GRPOTrainer in place of our loop.
    """
    name = "rl_trl" if trl else "rl"
    compute = replace(compute, gradient_checkpointing=shape.lora.rank > 0 and compute.device == "cuda")
    reset_memory(compute)
    batch = _made_up_batch(shape, compute)
    settings = RLConfig(batch_tokens=shape.batch_tokens)
    seconds = (seconds_of_trl if trl else seconds_of_ours)(batch, settings, STEPS, shape.lora)
    return {
        f"{name}/{shape.name}/tokens_per_second": STEPS * batch.tokens / seconds,
        f"{name}/{shape.name}/memory_gb": peak_memory_gb(compute),
    }


def _made_up_batch(shape: Shape, compute: Compute) -> Batch:
    """A model of random weights and episodes of random tokens; half of each group won."""
    model = replace(shape, lora=LoraConfig()).model(compute)
    policy = Policy(model, CompactVocabulary(placeholder_tokenizer()), compute=compute)
    stream = random.Random(0)
    rollouts = [
        Rollout(_trajectory(number), _episode(shape, stream), thoughts=[""], idle=[False])
        for number in range(GROUPS * GROUP)
    ]
    scores = score_without_gradients(policy, rollouts, temperature=1.0, batch_tokens=shape.batch_tokens)
    for row, found in scores:
        rollouts[row].logprobs = found.logprobs.float().tolist()
    return Batch(policy, rollouts, GROUP)


def _trajectory(number: int) -> Trajectory:
    task = Task(f"task-{number // GROUP}", "own", "train", "do it", "Here.")
    step = Transition(
        task.id, f"episode-{number}", 0, "Here.", "act", "There.", reward=float(number % 2), done=True
    )
    return Trajectory(task, (step,))


def _episode(shape: Shape, stream: random.Random) -> Example:
    """A prompt, then tokens of which a share is the policy's."""
    length = stream.randint(shape.length // 2, shape.length)
    prompt = shape.tokens(stream, min(shape.prompt, length // 2))
    turns = shape.tokens(stream, length - len(prompt))
    every = round(1 / LOSS_SHARE)
    return Example(
        [
            Segment(prompt, [False] * len(prompt)),
            Segment(turns, [number % every == 0 for number in range(len(turns))]),
        ]
    )
