"""The methods that a study compares: what each trains, where, with which algorithm, and how its config
differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from components.config import Config
from components.config.algorithm_config import merged_algorithm
from components.config.reading.config_file import explained
from components.errors import ConfigError
from components.evaluation.study.ablation_results import VARIANTS, apply_variant

SHARE = 10
"""A method that was trained in the dream first has one of so many of the real interactions of one that was
not.
"""
BASE = "grpo-real"
"""What most others are compared with; ablations of the dream are with the whole of it, transfer with transfer
from reality.
"""
DREAM, TRANSFER = "dream-grpo", "transfer-grpo-real"
RFT_LARGER = {"dream": 4, "baseline": 2}
"""Factor of RFT's iterations: that many times as large, and as many times fewer, since each one trains anew
on all successes.
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
    values = apply_variant(config, method.changes, seed).model_dump(mode="json")
    rl = values["rl"]
    if method.dream:
        rl["dream"] = with_algorithm("dream", rl["dream"], method.dream)
    if method.real:
        section = "real" if method.dream else "baseline"
        rl[section] = with_algorithm(section, rl[section], method.real)
    if method.dream and method.real:
        budget = min(rl["real"]["budget"], config.rl.baseline.budget // SHARE)
        needed = rl["real"]["tasks"] * rl["real"]["num_generations"] * config.environment.max_steps
        if needed > budget:
            raise ConfigError(
                f"A {SHARE}th of rl.baseline.budget is {budget} steps; an iteration of rl.real may "
                f"take {needed}.",
                next_step="Lower rl.real.tasks or rl.real.num_generations, or raise rl.baseline.budget.",
            )
        rl["real"]["budget"] = budget
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


def with_algorithm(stage: str, settings: Mapping[str, Any], algorithm: str) -> dict[str, Any]:
    """The settings of an RL stage with another algorithm, without options that it does not have.

    PPO plays each task once, and as many rollouts in all; DPO, in a study an offline method, never
    synchronises; RFT has few large iterations.
    """
    before = settings["algorithm"]["type"]
    changed = dict(settings)
    changed["algorithm"] = merged_algorithm(settings["algorithm"], algorithm)
    if algorithm == "dpo":
        changed["algorithm"]["sync_every"] = 0
    if algorithm == before:
        return changed
    if "rft" in (algorithm, before):
        changed.pop("learning_rate")  # its default depends on the algorithm
    if algorithm == "ppo":
        changed |= {"tasks": settings["tasks"] * settings["num_generations"], "num_generations": 1}
    if algorithm == "rft":
        factor = RFT_LARGER.get(stage, 1)
        changed["tasks"] = settings["tasks"] * factor
        changed["iterations"] = -(-settings["iterations"] // factor)
        if "check_every" in settings:  # the same share of rollouts is checked
            changed["check_every"] = -(-settings["check_every"] // factor)
    return changed
