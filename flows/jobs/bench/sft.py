"""Fine-tuning in `dreamgym bench train`: ours against TRL's SFTTrainer, on the same recorded episodes.

Loss is on the tokens that the policy wrote. Every trainer makes its own batches of at most `batch_tokens`
tokens, padding included, and passes over the episodes several times; the first pass is not measured. Tokens
are those of the episodes, without padding.
"""

from __future__ import annotations

import copy
import tempfile
import time
from typing import Any

from components.config import RLConfig
from components.language.training.examples import Example
from components.language.training.fine_tuning import supervised_finetune
from flows.jobs.bench.recorded_batch import WARM_UP, Batch
from flows.jobs.bench.trl_trainer import QUIET

LEARNING_RATE = 1e-6


def seconds_of_our_finetuning(batch: Batch, settings: RLConfig, passes: int) -> float:
    """Return the seconds of `passes` passes of `supervised_finetune` over the episodes."""
    ends: list[float] = []

    def on_step(step: int, tokens: int, loss: float) -> None:
        if tokens == batch.tokens * (len(ends) + 1):
            ends.append(time.perf_counter())

    supervised_finetune(
        copy.deepcopy(batch.policy.model),
        [rollout.example for rollout in batch.rollouts],
        epochs=passes + WARM_UP,
        learning_rate=LEARNING_RATE,
        batch_tokens=settings.batch_tokens,
        seed=0,
        pad_id=batch.policy.vocabulary.pad_id,
        on_step=on_step,
    )
    return ends[-1] - ends[WARM_UP - 1]


def seconds_of_trls_finetuning(batch: Batch, settings: RLConfig, passes: int) -> float:
    """Return the seconds of `passes` passes of TRL's SFTTrainer over the episodes, sorted by length.

    Its packing is left out: without FlashAttention, which a CPU has not, it takes several times as long.
    """
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import SFTTrainer

    ends: list[float] = []

    class Clock(TrainerCallback):
        def on_epoch_end(self, *_: Any, **__: Any) -> None:
            ends.append(time.perf_counter())

    examples = [rollout.example for rollout in batch.rollouts]
    tokenizer = copy.deepcopy(batch.policy.vocabulary.tokenizer)
    tokenizer.pad_token, tokenizer.eos_token = "<pad>", "<end>"
    with tempfile.TemporaryDirectory() as folder:
        SFTTrainer(
            copy.deepcopy(batch.policy.model),
            _trl_settings(folder, examples, settings.batch_tokens, passes),
            train_dataset=Dataset.from_list([sft_row(example) for example in examples]),
            processing_class=tokenizer,
            callbacks=[Clock()],
        ).train()
    return ends[-1] - ends[WARM_UP - 1]


def sft_row(example: Example) -> dict[str, list[int]]:
    """The example as TRL reads it: ids, and 1 where a token is predicted."""
    return {
        "input_ids": [token for segment in example.segments for token in segment.tokens],
        "completion_mask": [int(bool(weight)) for segment in example.segments for weight in segment.loss],
    }


def _trl_settings(folder: str, examples: list[Example], batch_tokens: int, passes: int) -> Any:
    from trl import SFTConfig

    longest = max(map(len, examples))
    return SFTConfig(
        folder,
        num_train_epochs=passes + WARM_UP,
        per_device_train_batch_size=max(1, batch_tokens // longest),
        learning_rate=LEARNING_RATE,
        max_length=longest,
        train_sampling_strategy="group_by_length",
        completion_only_loss=True,
        bf16=False,
        use_cpu=True,
        gradient_checkpointing=False,
        **QUIET,
        dataloader_num_workers=0,
    )
