"""The methods that a study compares: where and with which algorithm each trains, and its config."""

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

REAL_BUDGET_DIVISOR = 10
"""A method that trains in the dream first gets this fraction (1/N) of the real interactions of one that does
not.
"""
BASE = "grpo-real"
"""Method that most others are compared with."""
DREAM = "dream-grpo"
"""Method that ablations of the dream are compared with."""
TRANSFER = "transfer-grpo-real"
"""Method that transfer methods are compared with."""
RFT_BATCH_FACTOR = {"dream": 4, "baseline": 2}
"""RL stage -> factor of RFT's iterations: so many times as large, and so many times fewer.

RFT trains on all successes from the start in each iteration.
"""

LOGGED_LEARNING_RATE = 5e-5
"""A tenth of RL's: the log-probability of a whole episode is a sum over hundreds of tokens."""
PLAIN = {"step_weight": 0.0, "negative_advantage_weight": 1.0, "idle_penalty": 0.0}
"""Options of GRPO without ours: GiGPO's advantages of steps, halved negative ones, the idle penalty."""
WITHOUT_KNOWLEDGE: Mapping[str, Mapping[str, Any]] = {
    "environment": {"knowledge": False},
    "experience_model": {
        **VARIANTS["no-reasoning"]["experience_model"],
        **{"premise": False, "coherent": False, "grounded": False},
    },
}
"""All hand-written parts off: what the adapter knows, reasoning, premises, and the checks by its rules."""


@dataclass(frozen=True)
class Method:
    """A method of the study.

    Args:
        about: what it is, in words.
        dream: algorithm of RL in the dream; empty: none.
        real: algorithm of RL in the real environment; empty: none.
        logged: algorithm that learns from recorded episodes, with the settings of `rl.baseline` and
            `LOGGED_LEARNING_RATE`; empty: none.
        changes: section of the config -> options that differ.
        transfer: train on the first half of the task families only.
        plain: GRPO as in its paper (`PLAIN`).
        like_dream: RL in reality has the iterations and rollouts of RL in the dream, and no other limit.
        is_control: a dream that must not help. RL in it is not watched, which would end it.
        base: method that it is compared with.
    """

    about: str
    dream: str = ""
    real: str = ""
    logged: str = ""
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    transfer: bool = False
    plain: bool = False
    like_dream: bool = False
    is_control: bool = False
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
    def last(self) -> str:
        """The stage whose policy plays the held-out games."""
        return (self.stages or ["clone"])[-1]


METHODS: dict[str, Method] = {
    "clone": Method("cloning alone"),
    "clone-successes": Method(
        "cloning of the successful episodes alone", changes={"cloning": {"only_successes": True}}
    ),
    "clone-weighted": Method(
        "cloning of all episodes, weighted by their advantage",
        changes={"cloning": {"advantage_temperature": 0.5}},
    ),
    "dpo-logs": Method("DPO on the logs' own pairs", logged="dpo"),
    "dpo-offline": Method("DPO on what the clone did in reality", real="dpo"),
    "grpo-real": Method("GRPO in reality", real="grpo"),
    "plain-grpo-real": Method("GRPO as in its paper, in reality", real="grpo", plain=True),
    "engine-as-dream": Method(
        "GRPO in reality with as many rollouts as in the dream, at a constant rate, tasks drawn evenly",
        real="grpo",
        like_dream=True,
        base=DREAM,
    ),
    "ppo-real": Method("PPO in reality", real="ppo"),
    "rft-real": Method("RFT in reality", real="rft"),
    "dream-grpo": Method("GRPO in the dream", dream="grpo"),
    "dream-plain-grpo": Method(
        "GRPO as in its paper, in the dream", dream="grpo", plain=True, base="plain-grpo-real"
    ),
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
    "no-premise": Method(
        "GRPO in a dream without premises",
        dream="grpo",
        changes={"experience_model": {"premise": False}},
        base=DREAM,
    ),
    "no-coherence": Method(
        "GRPO in a dream that may contradict itself",
        dream="grpo",
        changes={"experience_model": {"coherent": False}},
        base=DREAM,
    ),
    "no-verifier": Method(
        "GRPO in a dream whose quotations are not checked",
        dream="grpo",
        changes={"experience_model": {"grounded": False}},
        base=DREAM,
    ),
    "no-knowledge": Method(
        "GRPO in a dream without hand-written parts but those of the backbone's pretraining",
        dream="grpo",
        changes=WITHOUT_KNOWLEDGE,
        base=DREAM,
    ),
    "untrained-dream": Method(
        "GRPO in the dream of the backbone itself, fine-tuned on next to nothing",
        dream="grpo",
        changes={"experience_model": {"epochs": 1e-6}},
        is_control=True,
        base=DREAM,
    ),
    "flipped-dream": Method(
        "GRPO in a dream that learnt half of the outcomes wrong",
        dream="grpo",
        changes={"experience_model": {"flipped_outcomes": 0.5}},
        is_control=True,
        base=DREAM,
    ),
    "swapped-dream": Method(
        "GRPO in a dream that learnt the next states of other steps",
        dream="grpo",
        changes={"experience_model": {"swapped_states": 1.0}},
        is_control=True,
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


def bases_against(against: str) -> dict[str, str]:
    """Return method -> the method that it is compared with, where `against` takes the place of BASE.

    Raises:
        ConfigError: there is no such method.
    """
    if against not in METHODS:
        raise ConfigError(f"There is no method {against!r}.", f"Expected one of {', '.join(METHODS)}.")
    return {name: against if base == BASE else base for name, base in BASES.items()}


def _is_its_base(config: Config, name: str) -> bool:
    """Whether the method `name` changes nothing in `config`."""
    method = METHODS[name]
    if name == "clone-weighted":  # successes alone all have the same weight
        return all(map(config.cloning.needs_success, config.cloning.behaviours))
    if method.base != DREAM or not method.changes:
        return False
    own, base = (method_config(config, one, config.seed, ()).model_dump() for one in (name, DREAM))
    return own == base


def chosen_methods(config: Config, names: str) -> list[str]:
    """Return the named methods in the order of METHODS; if none is named, all that change something.

    Args:
        names: separated by commas.

    Raises:
        ConfigError: there is no such method, or with this config it is the one that it is compared with.
    """
    requested = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in requested if name not in METHODS]
    if unknown:
        raise ConfigError(f"There is no method {unknown[0]!r}.", f"Expected some of {', '.join(METHODS)}.")
    same = [name for name in requested or METHODS if _is_its_base(config, name)]
    if requested and same:
        raise ConfigError(
            f"The method {same[0]} is {'clone' if same[0] == 'clone-weighted' else DREAM} with this config: "
            "it changes nothing.",
            next_step=f"Leave {', '.join(same)} out of --methods.",
        )
    return [name for name in METHODS if (not requested or name in requested) and name not in same]


def method_config(config: Config, name: str, seed: int, families: Sequence[str]) -> Config:
    """Return the config of one cell.

    Args:
        families: all task families; a transfer method trains on the first half of them.

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
    if method.is_control:
        rl["dream"]["check_every"] = 0
    if method.logged:
        rl["baseline"] = with_algorithm("baseline", rl["baseline"], method.logged)
        rl["baseline"]["learning_rate"] = LOGGED_LEARNING_RATE
    if method.plain:
        rl["dream" if method.dream else "baseline"]["algorithm"] |= PLAIN
    if method.like_dream:
        rl["baseline"] |= {name: rl["dream"][name] for name in ("iterations", "tasks", "num_generations")}
        rollouts = rl["dream"]["iterations"] * rl["dream"]["tasks"] * rl["dream"]["num_generations"]
        rl["baseline"]["budget"] = rollouts * config.environment.max_steps
    if method.dream and method.real:
        rl["real"]["budget"] = _budget_after_dream(config, rl["real"])
    if method.transfer:
        values["data"]["families"] = _first_half(name, families)
    return values


def _budget_after_dream(config: Config, settings: Mapping[str, Any]) -> int:
    """Return the real interactions of sim-to-real: a share of the baseline's, at most those configured."""
    budget = min(settings["budget"], config.rl.baseline.budget // REAL_BUDGET_DIVISOR)
    iteration_steps = settings["tasks"] * settings["num_generations"] * config.environment.max_steps
    if iteration_steps > budget:
        raise ConfigError(
            f"A {REAL_BUDGET_DIVISOR}th of rl.baseline.budget is {budget} steps; an iteration of rl.real may "
            f"take {iteration_steps}.",
            next_step="Lower rl.real.tasks or rl.real.num_generations, or raise rl.baseline.budget.",
        )
    return int(budget)


def _first_half(name: str, families: Sequence[str]) -> list[str]:
    """Return the task families that the transfer method `name` trains on."""
    if len(set(families)) < 2:
        raise ConfigError(
            f"{name} learns from half of the families of tasks; the training tasks are of "
            f"{len(set(families))}.",
            "Expected two or more.",
            "Leave the transfer methods out: --methods clone,grpo-real,s2r-grpo.",
        )
    return sorted(families)[: len(families) // 2]


def with_algorithm(stage: str, settings: Mapping[str, Any], algorithm: str) -> dict[str, Any]:
    """Return the settings of an RL stage with another algorithm, without options that it does not have.

    PPO plays each task once, with the same number of rollouts. DPO is an offline method in a study and never
    updates its reference. RFT has few large iterations.

    Args:
        stage: `dream`, `real` or `baseline`.
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
        factor = RFT_BATCH_FACTOR.get(stage, 1)
        changed["tasks"] = settings["tasks"] * factor
        changed["iterations"] = -(-settings["iterations"] // factor)
        if "check_every" in settings:  # the same share of rollouts is checked
            changed["check_every"] = -(-settings["check_every"] // factor)
    return changed
