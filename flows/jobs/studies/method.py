"""What a method of a study is: where it trains, with which algorithm, and what it is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

CLONE = "clone"
"""Method that all others start from."""
BASE = "gigpo-real"
"""Method that most others are compared with."""
DREAM = "dream-gigpo"
"""Method that ablations of the dream are compared with."""
TRANSFER = "transfer-gigpo-real"
"""Method that transfer methods are compared with."""


@dataclass(frozen=True)
class Method:
    """A method of the study.

    Args:
        about: what it is, in words.
        dream: algorithm of RL in the dream; empty: none.
        real: algorithm of RL in the real environment; empty: none.
        logged: algorithm that learns from recorded episodes, with the settings of `rl.baseline` and
            `PREFERENCE_LEARNING_RATE`; empty: none.
        changes: section of the config -> options that differ.
        transfer: train on the first half of the task families only.
        rounds: of dream and reality; each has an equal part of the real interactions and of the iterations in
            the dream, and from the second on the experience model is trained on the real episodes before.
        options: of the algorithm of its only stage of RL.
        settings: of its only stage of RL.
        keeps_rate: DPO in the dream has RL's learning rate, not `PREFERENCE_LEARNING_RATE`.
        is_fine: DPO in the dream has `FINE` times as many iterations, of fewer tasks: as many rollouts.
        like_dream: RL in reality has the iterations and rollouts of RL in the dream, and no other limit.
        needs_failures: it is the clone itself where only successes are cloned.
        needs_chat_model: it is left out with the small backbone, unless it is named.
        is_control: a dream that must not help. RL in it is not watched and has all its iterations.
        is_graded: a dream of another quality. RL in it is not watched, and its policy's episodes are compared
            with reality at the end.
        real_steps: most real interactions of RL in reality, with the tasks of `rl.real`; 0: as configured.
        base: method that it is compared with.
    """

    about: str
    dream: str = ""
    real: str = ""
    logged: str = ""
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    transfer: bool = False
    rounds: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    keeps_rate: bool = False
    is_fine: bool = False
    like_dream: bool = False
    needs_failures: bool = False
    needs_chat_model: bool = False
    is_control: bool = False
    is_graded: bool = False
    real_steps: int = 0
    base: str = BASE

    @property
    def stages(self) -> list[str]:
        """The stages of RL in their order."""
        if self.logged:
            return ["logged_rl"]
        stages = ["synthetic_rl"] if self.dream else []
        if self.real:
            stages.append("sim_to_real" if self.dream else "real_rl")
        return stages

    @property
    def sections(self) -> list[str]:
        """The sections of `rl` that the stages of RL read."""
        if self.logged or not self.dream:
            return ["baseline"] if self.logged or self.real else []
        return ["dream", "real"] if self.real else ["dream"]

    @property
    def last(self) -> str:
        """The stage whose policy plays the held-out games."""
        return (self.stages or ["clone"])[-1]


def in_dream(about: str, base: str = DREAM, **differences: Any) -> Method:
    """Return GiGPO in a dream, compared with the full dream if no other base is named."""
    return Method(f"GiGPO in {about}", dream="grpo", base=base, **differences)
