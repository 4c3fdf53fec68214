"""What a GPU should reach in `dreamgym bench gpu`, and whether its figures do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Target:
    """A figure, or the ratio of two, and the least value that it should have.

    Args:
        about: what is compared, for people.
        least: the target.
        figure: its name.
        divisors: names of figures; the greatest of those that were measured divides `figure`.
    """

    about: str
    least: float
    figure: str
    divisors: tuple[str, ...] = ()

    def value(self, figures: Mapping[str, float]) -> float | None:
        """The value that is compared with `least`; None if a figure was not measured."""
        own = figures.get(self.figure)
        if own is None or not self.divisors:
            return own
        others = [figures[name] for name in self.divisors if name in figures]
        return own / max(others) if others else None


def _speed(contestant: str, shape: str) -> str:
    return f"{contestant}/{shape}/tokens_per_second"


def targets(shapes: tuple[str, ...]) -> list[Target]:
    """The targets of each shape: MFU of fine-tuning, training against TRL, rollouts against raw vLLM."""
    found = []
    for shape in shapes:
        least_mfu = {"1.5b": 0.4, "135m": 0.2}.get(shape, 0.0)
        theirs = (_speed("trl", shape), _speed("trl_packed", shape))
        found += [
            Target(f"{shape}: MFU of fine-tuning", least_mfu, f"training/{shape}/mfu"),
            Target(f"{shape}: fine-tuning, times TRL's SFTTrainer", 1, _speed("training", shape), theirs),
            Target(
                f"{shape}: RL update, times TRL's GRPOTrainer",
                1,
                _speed("rl", shape),
                (_speed("rl_trl", shape),),
            ),
            Target(
                f"{shape}: rollouts, times raw vLLM", 0.9, _speed("vllm", shape), (_speed("raw_vllm", shape),)
            ),
        ]
    return found


def verdicts(figures: Mapping[str, float], shapes: tuple[str, ...]) -> list[dict[str, Any]]:
    """Each target with its `value` and whether it was `met`; both None where a figure was not measured."""
    rows = []
    for target in targets(shapes):
        value = target.value(figures)
        rows.append(
            asdict(target) | {"value": value, "met": None if value is None else value >= target.least}
        )
    return rows


def target_rows(found: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return the cells of a table of `verdicts`: compared, target, found, verdict."""
    words = {True: "met", False: "missed", None: "not measured"}
    return [
        [
            row["about"],
            f"{row['least']:g}",
            "" if row["value"] is None else f"{row['value']:.3g}",
            words[row["met"]],
        ]
        for row in found
    ]
