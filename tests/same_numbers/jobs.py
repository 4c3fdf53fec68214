"""The small jobs whose numbers are compared: the commands of each environment.

Together they run every stage, every algorithm of RL, and the pretraining of a backbone with every exercise.
Retrieval is exact, because a graph index differs from build to build.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

Command = tuple[str, ...]

SMALL = (
    "experience_model.epochs=0.1",
    "experience_model.transitions=3000",
    "fidelity.tasks=2",
    "fidelity.policy_tasks=4",
    "fidelity.open_loop_tasks=3",
    "cloning.demonstrations=6",
    "evaluation.tasks=6",
    "rl.dream.iterations=2",
    "rl.dream.tasks=2",
    "rl.dream.num_generations=2",
    "rl.dream.processes=2",
    "rl.real.iterations=2",
    "rl.real.tasks=2",
    "rl.real.num_generations=2",
    "rl.real.budget=170",
    "fidelity.min_next_state_exact=0",
    "fidelity.min_reward_precision=0",
    "fidelity.max_unparsable_rate=1",
    "fidelity.min_rollout_agreement=0",
    "promotion.threshold=0",
    "tracking.dvc_experiment=false",
)
"""Overrides for a whole main job in a minute; no gate closes, so every stage runs."""

REAL = (
    "rl.baseline.iterations=2",
    "rl.baseline.tasks=2",
    "rl.baseline.num_generations=2",
    "rl.baseline.budget=170",
    "study.curve_every=1",
)
"""Overrides for RL in the real environment alone, as in a cell of a study."""

EXERCISES = {
    "copy_tokens": 4000,
    "compare_tokens": 4000,
    "edit_tokens": 4000,
    "number_tokens": 2000,
    "exercise_rehearsal": 0.5,
}
NO_EXERCISES = {"copy_tokens": 0, "compare_tokens": 0, "edit_tokens": 0}
TEXT = {
    "tokens": 20_000,
    "rehearsal": 0.2,
    "copy_rehearsal": 0.1,
    "recall_rehearsal": 0.1,
    "copy_repeats": 0.5,
}
OWN = {
    "environment": {
        "name": "own",
        "max_steps": 12,
        "own": {"adapter": "components.environments.template:TemplateAdapter"},
    },
    "data": {"train_tasks": 24, "fidelity_tasks": 6, "fidelity_worlds": 0},
    "curriculum": {"enabled": False},
    "experience_model": {"premise": False},
    "backbone": {"hidden": 64, "layers": 2},
    "pretrain": {
        "tasks": 12,
        "sizes": [8],
        "max_steps": 12,
        "phases": [EXERCISES | TEXT, NO_EXERCISES | TEXT],
    },
}


WORLDS = ("alfworld", "webshop", "own", "browser")


def jobs(world: str, clone: Path) -> Mapping[str, Command]:
    """Return job -> arguments of `dreamgym`, in the order in which they run in `clone`.

    Each job leaves a run or a backbone.
    """
    return {"alfworld": _alfworld, "webshop": _webshop, "own": _own, "browser": _browser}[world](clone)


def _alfworld(clone: Path) -> Mapping[str, Command]:
    return {
        "grpo": ("retrain", *SMALL),
        "world_modelling": (
            "retrain",
            *SMALL,
            "cloning.early_experience=world_modelling",
            "cloning.behaviours=[expert]",
        ),
    }


def _webshop(clone: Path) -> Mapping[str, Command]:
    shop = ("retrain", "--config", "configs/quick-webshop.yaml", *SMALL)
    return {
        "ppo": (
            *shop,
            *_algorithm("ppo"),
            "rl.dream.algorithm.reward=hero",
            "cloning.early_experience=self_reflection",
            "cloning.behaviours=[expert]",
            "rl.max_new_tokens=80",
        )
    }


def _own(clone: Path) -> Mapping[str, Command]:
    config = clone / "own.yaml"
    config.write_text(yaml.safe_dump(OWN))
    own = ("--config", "own.yaml")
    retrain = ("retrain", *own, *SMALL)
    return {
        "collect": ("collect", *own),
        "pretrain": ("pretrain", *own),
        "grpo": (*retrain, *_algorithm("grpo")),
        "dpo": (*retrain, *_algorithm("dpo")),
        "rft": (*retrain, *_algorithm("rft")),
        "real": (
            "study",
            *own,
            "--methods",
            "gigpo-real",
            "--seeds",
            "1",
            "--cells",
            "runs/cells",
            *SMALL,
            *REAL,
        ),
    }


def _browser(clone: Path) -> Mapping[str, Command]:
    return {"grpo": ("retrain", "--config", "configs/quick-browser.yaml", *SMALL)}


def _algorithm(name: str) -> Command:
    return f"rl.dream.algorithm.type={name}", f"rl.real.algorithm.type={name}"
