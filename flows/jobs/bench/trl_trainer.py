"""Optimiser steps of TRL's GRPOTrainer on recorded episodes; nothing is generated."""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from components.config import LoraConfig, RLConfig
from components.language.adapters import add_lora
from flows.jobs.bench.recorded_batch import WARM_UP, Batch

QUIET: dict[str, Any] = {
    "report_to": [],
    "save_strategy": "no",
    "logging_strategy": "no",
    "disable_tqdm": True,
}
"""Settings of TRL's trainers that write and print nothing, for a measurement."""


def seconds_of_trl(batch: Batch, settings: RLConfig, steps: int, lora: LoraConfig = LoraConfig()) -> float:
    """Return the seconds of `steps` optimiser steps of TRL's trainer over the same episodes.

    Args:
        settings: of which `batch_tokens` counts.
        lora: adapters that are trained; with rank 0 all weights are.
    """
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOTrainer

    ends: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(time.perf_counter())

    tokenizer = copy.deepcopy(batch.policy.vocabulary.tokenizer)
    tokenizer.pad_token = "<pad>"
    tokenizer.eos_token = "<end>"
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            add_lora(copy.deepcopy(batch.policy.model), lora, frozen=batch.policy.compute.frozen),
            _recorded_reward,
            _trl_config(folder, batch, settings, steps),
            Dataset.from_list([{"prompt": "play"}] * len(batch.rollouts)),
            processing_class=tokenizer,
            rollout_func=lambda prompts, _: _recorded_rollouts(batch, len(prompts)),
            callbacks=[Clock()],
        )
        trainer.train()
    return ends[-1] - ends[WARM_UP - 1]


def _trl_config(folder: str, batch: Batch, settings: RLConfig, steps: int) -> Any:
    """Return the config of TRL's trainer: GRPO without a reference model, one optimiser step over all."""
    from trl import GRPOConfig as TRLConfig

    rows = _rows_per_pass(batch, settings)
    compute = batch.policy.compute
    return TRLConfig(
        folder,
        max_steps=steps + WARM_UP,
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=len(batch.rollouts) // rows,
        num_generations=batch.group,
        beta=0.0,
        loss_type="grpo",
        learning_rate=1e-6,
        bf16=compute.precision == "bf16",
        use_cpu=compute.device != "cuda",
        **QUIET,
        gradient_checkpointing=compute.gradient_checkpointing,
    )


def _rows_per_pass(batch: Batch, settings: RLConfig) -> int:
    """Return the most episodes of one forward pass within `batch_tokens` that divide their number."""
    count = len(batch.rollouts)
    longest = max(len(rollout.example) for rollout in batch.rollouts)
    limit = max(1, min(count, settings.batch_tokens // longest))
    return next(rows for rows in range(limit, 0, -1) if count % rows == 0)


def _recorded_reward(completions: Sequence[Any], outcome: Sequence[float], **_: Any) -> list[float | None]:
    return list(outcome)


def _recorded_rollouts(batch: Batch, count: int) -> dict[str, Any]:
    """Return the episodes as TRL's rollout function does.

    The first segment is the prompt, the rest the completion with a mask of the policy's tokens.
    """
    columns: dict[str, Any] = {
        "prompt_ids": [],
        "completion_ids": [],
        "logprobs": [],
        "env_mask": [],
        "outcome": [],
    }
    for rollout in batch.rollouts[:count]:
        first, *rest = rollout.example.segments
        flags = [int(flag) for segment in rest for flag in segment.loss]
        logprobs = iter(rollout.logprobs)
        columns["prompt_ids"].append(list(first.tokens))
        columns["completion_ids"].append([token for segment in rest for token in segment.tokens])
        columns["logprobs"].append([next(logprobs) if flag else 0.0 for flag in flags])
        columns["env_mask"].append(flags)
        columns["outcome"].append(rollout.reward)
    return columns
