"""The config of each cell of a study, and which methods change something in a config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from components.config import Config
from components.config.algorithm_config import DPOConfig, merged_algorithm
from components.config.reading.config_file import explained
from components.errors import ConfigError
from components.evaluation.study.ablation_results import apply_variant
from flows.checks.reward_checks import has_progress
from flows.jobs.studies.method import CLONE
from flows.jobs.studies.method_groups import GROUPS
from flows.jobs.studies.study_methods import METHODS

REAL_BUDGET_DIVISOR = 10
"""A method that trains in the dream first gets this fraction (1/N) of the real interactions of one that does
not.
"""
RFT_BATCH_FACTOR = {"dream": 4, "baseline": 2}
"""RL stage -> factor of RFT's iterations: at most so many times as large, and so many times fewer.

RFT trains on all successes from the start in each iteration. A factor that does not divide the iterations is
lowered until it does, so that RFT has as many rollouts as the others.
"""

PREFERENCE_LEARNING_RATE = 5e-5
"""DPO's on the logs and in the dream, a tenth of RL's: the log-probability of a whole episode is a sum over
hundreds of tokens.
"""
FINE = 4
"""At most so many times as many steps have rows of DPO that synchronise seldom, on as many rollouts.

Of 12 steps, those of GiGPO in configs/methods.yaml, an update at each 10th reaches the last two alone.
"""
REFLECTING_TOKENS = 192
"""`rl.max_new_tokens` of a policy cloned with reflections: its replies have up to 183 tokens in ALFWorld."""


def chosen_methods(config: Config, names: str) -> list[str]:
    """Return the named methods in the order of METHODS; if none is named, all that change something.

    HERO with the adapter's progress is then left out where the world measures none.

    Args:
        names: separated by commas; empty: those of `study.methods`. The name of a group stands for its
            methods, which no other name includes.

    Raises:
        ConfigError: there is no such method, or with this config it is the one that it is compared with.
    """
    requested = [name.strip() for name in names.split(",") if name.strip()] or list(config.study.methods)
    requested = [method for name in requested for method in GROUPS.get(name, (name,))]
    unknown = [name for name in requested if name not in METHODS]
    if unknown:
        raise ConfigError(f"There is no method {unknown[0]!r}.", f"Expected some of {', '.join(METHODS)}.")
    candidates = requested or [
        name
        for name, method in METHODS.items()
        if not any(name in group for group in GROUPS.values())
        and (config.backbone.path or not method.needs_chat_model)
        and (method.options.get("reward") != "hero" or has_progress(config))
    ]
    same = {name: other for name in candidates if (other := _same_method(config, name))}
    if requested and same:
        name, other = next(iter(same.items()))
        raise ConfigError(
            f"The method {name} is {other} with this config: it changes nothing.",
            next_step=f"Leave {', '.join(same)} out of the methods.",
        )
    return [name for name in METHODS if name in candidates and name not in same]


def _same_method(config: Config, name: str) -> str:
    """Return the method that `name` is the same as in `config`; empty if it changes something."""
    method = METHODS[name]
    if method.dream == "dpo":
        dream = _values(config, name, config.seed, ())["rl"]["dream"]
        if 0 < dream["iterations"] <= dream["algorithm"]["sync_every"] > 1:
            return "dream-dpo-offline-fine" if method.is_fine else "dream-dpo-offline"
    if method.needs_failures:
        return CLONE if all(map(config.cloning.needs_success, config.cloning.behaviours)) else ""
    is_like_its_base = (method.dream, method.real) == (METHODS[method.base].dream, METHODS[method.base].real)
    if not is_like_its_base or not (method.changes or method.options or method.settings):
        return ""
    own, base = (method_config(config, one, config.seed, ()).model_dump() for one in (name, method.base))
    return method.base if own == base else ""


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
    values["study"].pop("methods")  # which cells a study has is no part of a cell
    rl = values["rl"]
    if values["cloning"]["only_successes"] and config.study.success_epochs:
        values["cloning"]["epochs"] = config.study.success_epochs
    if method.dream:
        rl["dream"] = with_algorithm("dream", rl["dream"], method.dream)
    if method.real:
        section = "real" if method.dream else "baseline"
        rl[section] = with_algorithm(section, rl[section], method.real)
    if method.is_control or method.is_graded:
        rl["dream"]["check_every"] = 0
        rl["dream"]["end_early"] = False
    if method.logged:
        rl["baseline"] = with_algorithm("baseline", rl["baseline"], method.logged)
        rl["baseline"]["learning_rate"] = PREFERENCE_LEARNING_RATE
    if method.dream == "dpo":
        factor = _fine_factor(config, rl["dream"]) if method.is_fine else 1
        rl["dream"] = _with_iterations_of_one_step(rl["dream"], factor)
        if not method.keeps_rate:
            rl["dream"]["learning_rate"] = PREFERENCE_LEARNING_RATE
        values["study"]["curve_every"] *= factor  # as many points of the learning curve
    if values["cloning"]["early_experience"] == "self_reflection":
        for stage in ("dream", "real", "baseline"):
            rl[stage]["max_new_tokens"] = max(rl[stage]["max_new_tokens"], REFLECTING_TOKENS)
    only_stage = rl["dream" if method.dream else "baseline"]
    only_stage |= method.settings
    only_stage["algorithm"] |= method.options
    if method.like_dream:
        rl["baseline"] |= {name: rl["dream"][name] for name in ("iterations", "tasks", "num_generations")}
        rollouts = rl["dream"]["iterations"] * rl["dream"]["tasks"] * rl["dream"]["num_generations"]
        rl["baseline"]["budget"] = rollouts * config.environment.max_steps
    if method.rounds > config.study.rounds:
        values["study"]["rounds"] = method.rounds
        _divide_among_rounds(rl, method.rounds)
    if method.real_steps:
        section = "real" if method.dream else "baseline"
        rl[section] |= _with_budget(config, rl["real"], method.real_steps)
    elif method.dream and method.real:
        rl["real"]["budget"] = _budget_after_dream(config, rl["real"], method.rounds)
    if method.transfer:
        values["data"]["families"] = _first_half(name, families)
    return values


def _fine_factor(config: Config, settings: Mapping[str, Any]) -> int:
    """Return FINE, or less so that an iteration has a task; 1 for a cell's own config."""
    if isinstance(config.rl.dream.algorithm, DPOConfig):
        return 1
    return max(1, min(FINE, int(settings["tasks"]) // _steps(settings)))


def _steps(settings: Mapping[str, Any]) -> int:
    return int(settings["algorithm"]["optimizer_steps"])


def _with_iterations_of_one_step(settings: Mapping[str, Any], factor: int = 1) -> dict[str, Any]:
    """Return the settings with one optimiser step an iteration, and the same rollouts in all.

    `sync_every` then counts steps, as in the paper. The number of tasks is rounded down.

    Args:
        factor: 1: as many steps as before; more: so many times as many, on fewer tasks.
    """
    steps = _steps(settings) * factor
    iterations = settings["iterations"] * steps
    return {
        **settings,
        "iterations": iterations,
        "tasks": max(1, settings["tasks"] // steps),
        "check_every": min(settings["check_every"] * steps, iterations),
        "algorithm": {**settings["algorithm"], "optimizer_steps": 1},
    }


def _divide_among_rounds(rl: dict[str, Any], rounds: int) -> None:
    """Give a round its part of the iterations in the dream, the real tasks and the real interactions."""
    dream, real = rl["dream"], rl["real"]
    dream["iterations"] = -(-dream["iterations"] // rounds)
    dream["check_every"] = min(dream["check_every"], dream["iterations"])
    real["tasks"] = max(1, real["tasks"] // rounds)
    real["budget"] //= rounds


def _with_budget(config: Config, real: Mapping[str, Any], steps: int) -> dict[str, Any]:
    """Return what RL in reality has of a budget: the tasks of `rl.real`, or fewer, so that an iteration fits.

    Episodes that end early leave steps for more iterations, up to twice as many as the longest would allow.

    Raises:
        ConfigError: the rollouts of one task may take more steps.
    """
    task_steps = real["num_generations"] * config.environment.max_steps
    tasks = min(real["tasks"], steps // task_steps)
    if not tasks:
        raise ConfigError(
            f"The rollouts of one task may take {task_steps} real steps; the method has {steps}.",
            next_step="Lower rl.real.num_generations.",
        )
    iterations = 2 * -(-steps // (tasks * task_steps))
    same = {name: real[name] for name in ("num_generations", "learning_rate")}
    return {**same, "tasks": tasks, "iterations": iterations, "budget": steps}


def _budget_after_dream(config: Config, settings: Mapping[str, Any], rounds: int) -> int:
    """Return the real interactions of a round: a share of the baseline's, at most those configured."""
    budget = min(settings["budget"], config.rl.baseline.budget // REAL_BUDGET_DIVISOR // rounds)
    iteration_steps = settings["tasks"] * settings["num_generations"] * config.environment.max_steps
    if iteration_steps > budget:
        raise ConfigError(
            f"A {REAL_BUDGET_DIVISOR}th of rl.baseline.budget is "
            + (f"{budget} steps in each of {rounds} rounds" if rounds > 1 else f"{budget} steps")
            + f"; an iteration of rl.real may take {iteration_steps}.",
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
            "Leave the transfer methods out: --methods clone,gigpo-real,s2r-gigpo.",
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
        factors = range(RFT_BATCH_FACTOR.get(stage, 1), 0, -1)
        factor = next(one for one in factors if settings["iterations"] % one == 0)
        changed["tasks"] = settings["tasks"] * factor
        changed["iterations"] = settings["iterations"] // factor
        if "check_every" in settings:  # the same share of rollouts is checked
            changed["check_every"] = -(-settings["check_every"] // factor)
    return changed
