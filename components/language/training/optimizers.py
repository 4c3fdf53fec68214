"""Optimisers of supervised training: AdamW for everything, or Muon for the matrices inside the blocks and
AdamW for the rest.

Muon (Jordan et al. 2024) orthogonalises the momentum of a matrix; scaled as in "Muon is Scalable for LLM
Training" (arXiv
2502.16982) it takes AdamW's learning rate. A small model learns to copy in fewer updates with it
(docs/experiments).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
from torch.nn import Module, Parameter
from torch.optim import AdamW, Muon, Optimizer

from components.errors import TrainingError

OptimizerName = Literal["adamw", "muon"]

BETAS = (0.9, 0.98)
WEIGHT_DECAY: dict[OptimizerName, float] = {"adamw": 0.01, "muon": 0.1}
"""Of all weights; Muon's larger rate needs the larger decay to keep them small."""


class Optimizers:
    """One or two optimisers that step together under one learning rate."""

    def __init__(self, parts: Sequence[Optimizer]) -> None:
        self.parts = list(parts)

    def step(self, rate: float) -> None:
        """One update of all weights at the learning rate `rate`; the gradients are then gone."""
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = rate
            part.step()
            part.zero_grad(set_to_none=True)

    def state_dict(self) -> list[dict[str, Any]]:
        """The states of the parts, in order."""
        return [part.state_dict() for part in self.parts]

    def check(self, states: Sequence[dict[str, Any]]) -> None:
        """Raises TrainingError unless `states` are of the same optimisers over weights of the same shapes.

        torch itself takes moments of any shape and then writes beyond their end.
        """
        if len(states) != len(self.parts):
            raise _misfit(f"states of {len(states)} optimisers", f"{len(self.parts)}")
        for part, state in zip(self.parts, states, strict=True):
            there, wanted = _outline(state["param_groups"]), _outline(part.state_dict()["param_groups"])
            if there != wanted:
                raise _misfit(f"an optimiser of {there}", wanted)
            weights = [weight for group in part.param_groups for weight in group["params"]]
            for number, moments in state["state"].items():
                for name, value in moments.items():
                    if name != "step" and value.shape != weights[number].shape:
                        raise _misfit(
                            f"{name} of {tuple(value.shape)} for weight {number}",
                            f"{tuple(weights[number].shape)}",
                        )

    def load_state_dict(self, states: Sequence[dict[str, Any]]) -> None:
        """Go on from `states`. Raises TrainingError as `check` does."""
        self.check(states)
        for part, state in zip(self.parts, states, strict=True):
            part.load_state_dict(state)


def _outline(groups: Sequence[dict[str, Any]]) -> str:
    """What tells AdamW from Muon, and the number of weights."""
    kinds = ", ".join("Muon" if "momentum" in group else "AdamW" for group in groups)
    return f"{kinds} over {sum(len(group['params']) for group in groups)} weights"


def _misfit(found: str, wanted: str) -> TrainingError:
    return TrainingError(
        f"The checkpoint does not fit the optimiser: it holds {found}.",
        f"Expected {wanted}.",
        "Delete the stage's .partial directory under .dreamgym/stages to train from the start.",
    )


def make_optimizers(
    model: Module,
    name: OptimizerName,
    learning_rate: float,
    *,
    betas: tuple[float, float] = BETAS,
    weight_decay: float | None = None,
) -> Optimizers:
    """Optimisers of the trainable weights of `model`; with "muon" the 2-D weights of its blocks go to Muon.

    Args: betas: AdamW's; weight_decay: that of WEIGHT_DECAY if None.
    """
    decay = WEIGHT_DECAY[name] if weight_decay is None else weight_decay
    trained = [(key, weight) for key, weight in model.named_parameters() if weight.requires_grad]
    if name == "adamw":
        return Optimizers([_adamw((weight for _, weight in trained), learning_rate, betas, decay)])
    matrices = [weight for key, weight in trained if weight.ndim == 2 and ".layers." in f".{key}"]
    chosen = {id(weight) for weight in matrices}
    rest = [weight for _, weight in trained if id(weight) not in chosen]
    muon = (
        [Muon(matrices, lr=learning_rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw")]
        if matrices
        else []
    )
    return Optimizers([*muon, *([_adamw(rest, learning_rate, betas, decay)] if rest else [])])


def _adamw(
    weights: Iterable[Parameter], learning_rate: float, betas: tuple[float, float], decay: float
) -> torch.optim.Optimizer:
    return AdamW(list(weights), lr=learning_rate, betas=betas, weight_decay=decay, fused=True)
