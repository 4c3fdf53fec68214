"""The probe of a sync: are the weights in vLLM those of the trainer?

The log-probabilities of one fixed text are compared. In fp32 the two agree to about 1e-5 nats on a CPU. In
bf16 both round, each in its own order.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from components.errors import TrainingError
from components.language.compute import Compute
from components.language.evaluation_mode import evaluating

PROBE_TOKENS = 32
TOLERANCE = {"fp32": 1e-3, "bf16": 0.15}
"""Nats by which the mean over the text may differ."""
NEXT_STEP = "Set engine=kept-cache, and report it with the versions of vLLM, torch and transformers."


def probe_text(ids: Sequence[int]) -> list[int]:
    """`PROBE_TOKENS` of the ids that a tokenizer knows, always the same ones."""
    stream = random.Random(0)
    return [stream.choice(ids) for _ in range(PROBE_TOKENS)]


def trainer_logprobs(model: Any, text: list[int], compute: Compute) -> Tensor:
    """The log-probability in nats [len(text) - 1] of each token of `text` but the first, under `model`."""
    ids = torch.tensor([text], device=model.device)
    # A model that only vLLM uses stays in the CPU's memory.
    rounds = compute.precision == "bf16"
    context = torch.autocast(model.device.type, dtype=torch.bfloat16) if rounds else nullcontext()
    with evaluating(model), context:
        logits = model(input_ids=ids).logits[0, :-1].float()
    return logits.log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0].cpu()


def mean_gap(expected: Tensor, found: Tensor) -> float:
    """The mean absolute difference."""
    return float((expected - found).abs().mean())


class SyncProbe:
    """Compares vLLM with the trainer after every sync.

    It also remembers the numbers before: in bf16 one small update may stay below the tolerance, but it moves
    the numbers of both. `gap` is the last mean difference in nats, `before` the last numbers of both.
    """

    def __init__(self, precision: str) -> None:
        self.tolerance = TOLERANCE[precision]
        self.gap = 0.0
        self.before: tuple[Tensor, Tensor] | None = None

    def require_arrived(self, expected: Tensor, found: Tensor, place: str) -> None:
        """Raise TrainingError if the weights did not arrive.

        Args:
            expected: log-probabilities of the probe's text under the trainer.
            found: the same in vLLM.
            place: name of that vLLM, for the message.
        """
        self.gap = mean_gap(expected, found)
        before, self.before = self.before, (expected, found)
        if not self.gap <= self.tolerance:
            raise TrainingError(
                f"After a sync of weights {place} is off by {self.gap:.2g} nats a token on the probe.",
                f"Expected at most {self.tolerance:g}.",
                NEXT_STEP,
            )
        has_moved = before is not None and not torch.equal(before[0], expected)
        if before is not None and has_moved and torch.equal(before[1], found):
            raise TrainingError(
                f"A sync of weights did not arrive: the trainer's numbers changed, those of {place} did not.",
                next_step=NEXT_STEP,
            )
