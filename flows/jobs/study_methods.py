"""The methods that a study compares: what each trains, where, with which algorithm, and how its config
differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from components.config import Config
from components.config.reading.config_file import explained
from components.errors import ConfigError
from components.evaluation.study.ablation_results import VARIANTS, varied

SHARE = 10
"""A method that was trained in the dream first has one of so many of the real interactions of one that was
not.
"""
BASE = "grpo-real"
"""What most others are compared with; ablations of the dream are with the whole of it, transfer with transfer
from reality.
"""
DREAM, TRANSFER = "dream-grpo", "transfer-grpo-real"
SURROGATE = ("discount", "idle_penalty", "loss_mean", "clip", "clip_high", "kl", "reward", "hero")
IDLE_WITH = {
    "grpo": ("ppo", "dpo", "rft"),
    "ppo": ("grpo", "dpo", "rft"),
    "dpo": ("grpo", "ppo", "rft", *SURROGATE),
    "rft": ("grpo", "ppo", "dpo", *SURROGATE, "updates", "epochs", "learning_rate", "schedule"),
}
"""Options of a section that have no effect with an algorithm."""
RFT_LARGER = {"synthetic_rl": 4, "real_rl": 2}
"""RFT's iterations are so many times as large, and in the dream as many times fewer: every one of them trains
anew on all that was won.
"""


@dataclass(frozen=True)
class Method:
    """`dream` and `real`: the algorithm of RL there, "" for none. `changes`: section -> options that differ.

    `transfer`: it learns from the first half of the task families alone. `base`: what it is compared with.
    """

    about: str
    dream: str = ""
    real: str = ""
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    transfer: bool = False
    base: str = BASE

    @property
    def stages(self) -> list[str]:
        """The stages of RL in their order."""
        return ["synthetic_rl"] * bool(self.dream) + (["sim_to_real"] if self.dream else ["real_rl"]) * bool(
            self.real
        )

    @property
    def last(self) -> str:
        """The stage whose policy plays the held-out games."""
        return (self.stages or ["clone"])[-1]


METHODS: dict[str, Method] = {
    "clone": Method("cloning alone"),
    "dpo-offline": Method("DPO on what the clone did in reality", real="dpo"),
    "grpo-real": Method("GRPO in reality", real="grpo"),
    "ppo-real": Method("PPO in reality", real="ppo"),
    "rft-real": Method("RFT in reality", real="rft"),
    "dream-grpo": Method("GRPO in the dream", dream="grpo"),
    "dream-ppo": Method("PPO in the dream", dream="ppo"),
    "dream-rft": Method("RFT in the dream", dream="rft"),
    "s2r-grpo": Method("GRPO in the dream, then in reality", dream="grpo", real="grpo"),
    "s2r-ppo": Method("PPO in the dream, then in reality", dream="ppo", real="ppo"),
    "s2r-rft": Method("RFT in the dream, then in reality", dream="rft", real="rft"),
    "no-retrieval": Method(
        "GRPO in a dream without demonstrations", dream="grpo", changes=VARIANTS["no-retrieval"], base=DREAM
    ),
    "no-reasoning": Method(
        "GRPO in a dream without reasoning", dream="grpo", changes=VARIANTS["no-reasoning"], base=DREAM
    ),
    "no-history": Method(
        "GRPO in a dream without history", dream="grpo", changes=VARIANTS["no-history"], base=DREAM
    ),
    "no-curriculum": Method(
        "GRPO in the dream, tasks drawn evenly",
        dream="grpo",
        changes={"curriculum": {"enabled": False}},
        base=DREAM,
    ),
    "transfer-clone": Method("cloning, half of the families", transfer=True, base=TRANSFER),
    "transfer-grpo-real": Method(
        "GRPO in reality, half of the families", real="grpo", transfer=True, base=TRANSFER
    ),
    "transfer-dream-grpo": Method(
        "GRPO in the dream, half of the families", dream="grpo", transfer=True, base=TRANSFER
    ),
}


BASES = {name: method.base for name, method in METHODS.items()}


def chosen_methods(names: str) -> list[str]:
    """The methods named, separated by commas; all of them if none is.

    Raises:
        ConfigError: there is no such method.
    """
    asked = [name.strip() for name in names.split(",") if name.strip()]
    wrong = [name for name in asked if name not in METHODS]
    if wrong:
        raise ConfigError(f"There is no method {wrong[0]!r}.", f"Expected some of {', '.join(METHODS)}.")
    return [name for name in METHODS if not asked or name in asked]


def configured(config: Config, name: str, seed: int, families: Sequence[str]) -> Config:
    """The config of one cell. Args: families: all that there are, of which a transfer method learns from the
    first half.

    Raises:
        ConfigError: a tenth of the real budget allows no iteration of sim-to-real, or the method refuses an
            option.
    """
    try:
        return Config.model_validate(_values(config, name, seed, families))
    except ValidationError as error:
        raise explained(error, f"of the method {name}", Config) from None


def _values(config: Config, name: str, seed: int, families: Sequence[str]) -> dict[str, Any]:
    method = METHODS[name]
    values = varied(config, method.changes, seed).model_dump(mode="json")
    if method.dream:
        values["synthetic_rl"] = with_algorithm("synthetic_rl", values["synthetic_rl"], method.dream)
    if method.real:
        stage = method.stages[-1]
        values[stage] = with_algorithm(stage, values[stage], method.real)
    if method.dream and method.real:
        budget = min(values["sim_to_real"]["budget"], config.real_rl.budget // SHARE)
        least = values["sim_to_real"]["tasks"] * values["sim_to_real"]["group"] * config.environment.max_steps
        if least > budget:
            found = (
                f"A {SHARE}th of real_rl.budget is {budget} steps; an iteration of sim_to_real may take "
                f"{least}."
            )
            raise ConfigError(
                found, next_step="Lower sim_to_real.tasks or sim_to_real.group, or raise real_rl.budget."
            )
        values["sim_to_real"]["budget"] = budget
    if method.transfer:
        if len(set(families)) < 2:
            found = (
                f"{name} learns from half of the families of tasks; the training tasks are of "
                f"{len(set(families))}."
            )
            raise ConfigError(
                found,
                "Expected two or more.",
                "Leave the transfer methods out: --methods clone,grpo-real,s2r-grpo.",
            )
        values["data"]["families"] = sorted(families)[: len(families) // 2]
    return values


def with_algorithm(name: str, section: Mapping[str, Any], algorithm: str) -> dict[str, Any]:
    """The RL section `name` with another algorithm, without the options that this makes idle.

    PPO plays as many tasks once as others rollouts; DPO, in a study an offline method, never synchronises;
    RFT has few large iterations.
    """
    kept = {name: value for name, value in section.items() if name not in IDLE_WITH[algorithm]} | {
        "algorithm": algorithm
    }
    if algorithm == "ppo" and section["algorithm"] != "ppo":
        kept |= {"tasks": section["tasks"] * section["group"], "group": 1}
    if algorithm == "dpo":
        kept["dpo"] = {"beta": section["dpo"]["beta"], "sync_every": 0}
    if algorithm == "rft" and section["algorithm"] != "rft":
        larger = RFT_LARGER.get(name, 1)
        kept |= {"tasks": section["tasks"] * larger, "iterations": -(-section["iterations"] // larger)}
        if "check_every" in section:  # of what is played the same share is looked at
            kept["check_every"] = -(-section["check_every"] // larger)
    return kept
