"""Optimisers of supervised training: AdamW for all weights, or Muon for the matrices of the blocks.

With Muon, AdamW still trains the other weights. Muon (Jordan et al. 2024) orthogonalises the momentum of a
matrix. Scaled as in "Muon is Scalable for LLM Training" (arXiv 2502.16982) it takes AdamW's learning rate. A
small model learns to copy in fewer updates with it (docs/experiments).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
from torch.nn import Module, Parameter
from torch.optim import AdamW, Muon, Optimizer

from components.errors import ConfigError, TrainingError
from components.language.training.checkpoints import RESTART_STAGE
from components.language.training.sharding import divided_like, is_requested

OptimizerName = Literal["adamw", "muon"]

BETAS = (0.9, 0.98)
WEIGHT_DECAY: dict[OptimizerName, float] = {"adamw": 0.01, "muon": 0.1}
"""Of all weights. Muon's updates are larger and need the larger decay to keep the weights small."""


class Optimizers:
    """One or two optimisers that step together with one learning rate."""

    def __init__(self, parts: Sequence[Optimizer]) -> None:
        self.parts = list(parts)

    def step(self, rate: float) -> None:
        """Update all weights once with the learning rate `rate`, then delete the gradients."""
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = rate
            part.step()
            part.zero_grad(set_to_none=True)

    def state_dict(self) -> list[dict[str, Any]]:
        """The states of the parts, in order."""
        return [part.state_dict() for part in self.parts]

    def check(self, states: Sequence[dict[str, Any]]) -> None:
        """Check that `states` belong to the same optimisers over weights of the same shapes.

        torch does not check the shapes of the moments and would write beyond their end.

        Raises:
            TrainingError: they do not.
        """
        if len(states) != len(self.parts):
            raise _misfit(f"states of {len(states)} optimisers", f"{len(self.parts)}")
        for part, state in zip(self.parts, states, strict=True):
            outline = _outline(state["param_groups"])
            expected_outline = _outline(part.state_dict()["param_groups"])
            if outline != expected_outline:
                raise _misfit(f"an optimiser of {outline}", expected_outline)
            weights = [weight for group in part.param_groups for weight in group["params"]]
            for number, moments in state["state"].items():
                for name, value in moments.items():
                    if name != "step" and value.shape != weights[number].shape:
                        raise _misfit(
                            f"{name} of {tuple(value.shape)} for weight {number}",
                            f"{tuple(weights[number].shape)}",
                        )

    def load_state_dict(self, states: Sequence[dict[str, Any]]) -> None:
        """Continue from `states`.

        Raises:
            TrainingError: they do not fit (`check`).
        """
        self.check(states)
        for part, state in zip(self.parts, states, strict=True):
            weights = [weight for group in part.param_groups for weight in group["params"]]
            moments = {
                number: {name: divided_like(weights[number], value) for name, value in values.items()}
                for number, values in state["state"].items()
            }
            part.load_state_dict({**state, "state": moments})


def _outline(groups: Sequence[dict[str, Any]]) -> str:
    """The kinds of the optimisers and the number of their weights, for messages."""
    kinds = ", ".join("Muon" if "momentum" in group else "AdamW" for group in groups)
    return f"{kinds} over {sum(len(group['params']) for group in groups)} weights"


def _misfit(content: str, expected: str) -> TrainingError:
    return TrainingError(
        f"The checkpoint does not fit the optimiser: it holds {content}.",
        f"Expected {expected}.",
        RESTART_STAGE,
    )


def make_optimizers(
    model: Module,
    name: OptimizerName,
    learning_rate: float,
    *,
    betas: tuple[float, float] = BETAS,
    weight_decay: float | None = None,
) -> Optimizers:
    """Optimisers of the trainable weights of `model`.

    Args:
        model: its 2-D weights inside the blocks go to Muon if `name` is "muon".
        name: "adamw" or "muon".
        learning_rate: of the first step.
        betas: of AdamW.
        weight_decay: of all weights; None is `WEIGHT_DECAY[name]`.
    """
    decay = WEIGHT_DECAY[name] if weight_decay is None else weight_decay
    trainable = [(key, weight) for key, weight in model.named_parameters() if weight.requires_grad]
    if name == "muon" and is_requested():
        raise ConfigError(
            "The optimizer is muon, and the launch divides the weights (FSDP).",
            "Muon needs whole matrices.",
            "Set experience_model.optimizer=adamw, or launch without --use_fsdp.",
        )
    if name == "adamw":
        return Optimizers([_adamw((weight for _, weight in trainable), learning_rate, betas, decay)])
    matrices = [weight for key, weight in trainable if weight.ndim == 2 and ".layers." in f".{key}"]
    matrix_ids = {id(weight) for weight in matrices}
    other_weights = [weight for _, weight in trainable if id(weight) not in matrix_ids]
    parts: list[Optimizer] = []
    if matrices:
        parts.append(Muon(matrices, lr=learning_rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw"))
    if other_weights:
        parts.append(_adamw(other_weights, learning_rate, betas, decay))
    return Optimizers(parts)


def _adamw(
    weights: Iterable[Parameter], learning_rate: float, betas: tuple[float, float], decay: float
) -> torch.optim.Optimizer:
    fused = not is_requested()  # the fused kernel takes no divided weights on a CPU
    return AdamW(list(weights), lr=learning_rate, betas=betas, weight_decay=decay, fused=fused)
