"""Old config keys and their new names, for messages and for recorded configs.

    python -m components.config.migration runs/ID/config.json      # prints the config with today's keys

`migrate` translates a resolved config of an earlier version, such as those in the cells under docs/results/.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from components.errors import ConfigError

STAGES = {"synthetic_rl": "dream", "sim_to_real": "real", "real_rl": "baseline"}
"""Earlier sections of RL -> those below `rl`."""
_OF_STAGE = {
    "group": "num_generations",
    "kl": "algorithm.beta",
    "clip": "algorithm.epsilon",
    "clip_high": "algorithm.epsilon_high",
    "epochs": "algorithm.num_iterations",
    "updates": "algorithm.optimizer_steps",
    "loss_mean": "algorithm.loss_aggregation",
    "reward": "algorithm.reward",
    "discount": "algorithm.discount",
    "idle_penalty": "algorithm.idle_penalty",
    "algorithm": "algorithm.type",
    "grpo.step_weight": "algorithm.step_weight",
    "grpo.negative_weight": "algorithm.negative_advantage_weight",
    "grpo.normalise": "algorithm.scale_rewards",
    "ppo.gae_lambda": "algorithm.gae_lambda",
    "dpo.beta": "algorithm.beta",
    "dpo.sync_every": "algorithm.sync_every",
    "rft.most": "algorithm.max_successes",
    "rft.epochs": "algorithm.epochs",
    "rft.learning_rate": "learning_rate",
}
_REMOVED_OF_STAGE: dict[str, Any] = {
    "interpolation": 1.0,
    "optimizer": "adamw",
    "schedule": None,
    "demonstration_tokens": 2048,
    "check_replays": 16,
    "hero.alpha": 0.05,
    "hero.beta": 0.05,
    "hero.weighting": "appendix",
    "ppo.value_weight": 0.5,
    "ppo.value_rate": 0.001,
    "ppo.value_clip": 0.2,
    "ppo.clusters": 8,
    "dpo.sync_reference": True,
    "rft.step_tokens": 4096,
}
_TEXT_WORLD = ("instruction", "success", "actions", "refusals", "demonstrations")
_LORA = ("rank", "alpha", "targets")
_PHASE = (
    "copy_tokens",
    "compare_tokens",
    "edit_tokens",
    "number_tokens",
    "exercise_rehearsal",
    "copy_repeats",
    "tokens",
    "hindsight",
    "renamed",
    "rehearsal",
    "copy_rehearsal",
    "recall_rehearsal",
    "learning_rate",
    "text_rate",
)
_OF_TEXT = ("hindsight", "renamed", "rehearsal", "copy_rehearsal", "recall_rehearsal", "text_rate")
RENAMED: dict[str, str] = {
    **{f"{old}.{key}": f"rl.{new}.{to}" for old, new in STAGES.items() for key, to in _OF_STAGE.items()},
    **{
        f"{section}.lora.{key}": f"lora.{key}"
        for section in ("cloning", "experience_model", *STAGES)
        for key in _LORA
    },
    **{f"pretrain.{key}": f"{key} in an entry of pretrain.phases" for key in _PHASE},
    "timeout_minutes.stage": "stage_timeout_minutes",
    "backbone.chat_template": "backbone.format",
    "rl.dream.overlap": "rl.dream.staleness",
    "environment.openenv.timeout_seconds": "environment.timeout_seconds",
    **{
        f"environment.{world}.{key}": f"environment.text.{key}"
        for world in ("gymnasium", "openenv")
        for key in _TEXT_WORLD
    },
}
"""Earlier key -> key today. Keys of RL that are not here only changed their section."""
REMOVED: dict[str, Any] = {
    **{f"{old}.{key}": value for old in STAGES for key, value in _REMOVED_OF_STAGE.items()},
    "cloning.optimizer": "adamw",
    "data.max_text_chars": 4000,
    "environment.browser.action_seconds": 5.0,
    "evaluation.confidence": 0.95,
    "cloning.alternatives": 3,
    "experience_model.checkpoint_every": 200,
    "experience_model.max_unannotated_share": 0.05,
    "experience_model.refresh_epochs": 4.0,
    "pretrain.optimizer": "muon",
    "retrieval.action_weight": 0.7,
    **{f"rl{stage}.algorithm.length_tolerance": 0.32 for stage in ("", ".dream", ".real", ".baseline")},
    "study.real_rows": 4,
    "timeout_minutes.experience_model": None,
    "timeout_minutes.synthetic_rl": None,
    "timeout_minutes.sim_to_real": None,
    "timeout_minutes.real_rl": None,
}
"""Earlier key that is no option any more -> the value that is always used; None: none."""


def new_name(key: str) -> str | None:
    """What to say of a key of an earlier version: its new name or why it is gone; None for other keys."""
    if key in REMOVED:
        value = REMOVED[key]
        return "removed" if value is None else f"removed; its value is always {json.dumps(value)}"
    if key in RENAMED:
        return RENAMED[key]
    section, _, rest = key.partition(".")
    return f"rl.{STAGES[section]}{f'.{rest}' if rest else ''}" if section in STAGES else None


def require_current_keys(values: Mapping[str, Any], path: Path | str | None) -> None:
    """Raise ConfigError if `values` have keys of an earlier version, with the new name of each."""
    renamed = [(key, name) for key in _leaves(values) if (name := new_name(key)) is not None]
    if renamed:
        lines = " ".join(f"{key} is {'' if 'removed' in name else 'now '}{name}." for key, name in renamed)
        where = f" {path}" if path else ""
        raise ConfigError(
            f"The configuration{where} has keys of an earlier version. {lines}",
            next_step="Rename them, or type: python -m components.config.migration FILE (prints the config "
            "with today's keys).",
        )


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def migrate(values: Mapping[str, Any], *, allow_removed: bool = False) -> dict[str, Any]:
    """A resolved config of an earlier version with today's keys; today's configs come back as they are.

    Args: allow_removed: drop removed options with other values than those that are always used now.

    Raises:
        ConfigError: there is such an option, and it may not be dropped.
    """
    copied: dict[str, Any] = json.loads(json.dumps(values))
    if not allow_removed:
        for key, value in removed_options(copied).items():
            raise ConfigError(
                f"The recorded config has {key}={json.dumps(value)}.",
                f"The option was removed: {json.dumps(REMOVED[key])} is always used.",
                "Reproduce the run from its own commit: dreamgym reproduce RUN",
            )
    return _migrate(copied)


def removed_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Removed options in a config of an earlier version whose values differ from those always used now.

    Options that had no effect there, such as PPO's with GRPO, do not count.
    """
    differing: dict[str, Any] = {}
    for key in _leaves(values):
        section, _, rest = key.partition(".")
        value = _value_at(values, key)
        if REMOVED.get(key) is None or value == REMOVED[key]:
            continue
        kind = values[section].get("algorithm", "grpo") if section in STAGES else ""
        own_of = rest.partition(".")[0]
        if own_of in ("ppo", "dpo", "rft") and own_of != kind:
            continue
        differing[key] = value
    return differing


def _value_at(values: Mapping[str, Any], key: str) -> Any:
    value: Any = values
    for part in key.split("."):
        value = value[part]
    return value


def _migrate(values: dict[str, Any]) -> dict[str, Any]:
    lora: dict[str, Any] = {}
    for section in ("cloning", "experience_model"):
        lora |= _taken(values.get(section, {}), "lora") or {}
    drop_removed_options(values)
    backbone = values.get("backbone", {})
    if "chat_template" in backbone:
        is_off = backbone.pop("chat_template") in ("off", False)  # as YAML reads `off`
        backbone["format"] = "compact" if is_off else "auto"
    environment = values.get("environment", {})
    for world in ("gymnasium", "openenv"):
        section = environment.get(world, {})
        seconds = section.pop("timeout_seconds", None)
        if seconds is not None and environment.get("name") in (world, "mixed"):
            environment["timeout_seconds"] = seconds
        text = {key: section.pop(key) for key in _TEXT_WORLD if key in section}
        if text and environment.get("name", world) == world:
            environment["text"] = text
    rl = dict(values.pop("rl", {}))
    for old, new in STAGES.items():
        if old in values:
            stage = values.pop(old)
            lora |= _taken(stage, "lora") or {}
            rl[new] = migrate_stage(stage)
    if "dream" in rl:
        # Before it was an option, unanswered episodes were left out.
        dream = {"unanswered": "left_out", **rl["dream"]}
        if "overlap" in dream:
            dream["staleness"] = int(dream.pop("overlap"))
        rl["dream"] = dream
    for stage in rl.values():
        algorithm = stage.get("algorithm") if isinstance(stage, dict) else None
        if not isinstance(algorithm, dict) or algorithm.get("type") != "ppo":
            continue
        if algorithm.get("reward") == "outcome":  # another one is refused: PPO has no such option
            del algorithm["reward"]
    if rl:
        values["rl"] = rl
    if lora:
        values["lora"] = lora
    if "pretrain" in values:
        values["pretrain"] = migrate_pretrain(values["pretrain"])
    minutes = _taken(values, "timeout_minutes")
    if isinstance(minutes, dict) and "stage" in minutes:
        values["stage_timeout_minutes"] = minutes["stage"]
    return values


def migrate_stage(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an earlier RL section, such as `synthetic_rl`, as those of a stage below `rl`."""
    kind = str(values.get("algorithm", "grpo"))
    stage: dict[str, Any] = {}
    algorithm: dict[str, Any] = {"type": kind}
    for key in _leaves(values):
        own_of = key.partition(".")[0]
        if own_of in ("grpo", "ppo", "dpo", "rft") and own_of != kind:
            continue
        if key in _REMOVED_OF_STAGE:
            continue
        value = _value_at(values, key)
        if kind == "rft" and key == "learning_rate":
            continue
        to = _OF_STAGE.get(key, key)
        if not to.startswith("algorithm."):
            stage[to] = value
        elif _has_option(kind, key):
            algorithm[to.removeprefix("algorithm.")] = value
    return {"algorithm": algorithm, **stage}


def drop_removed_options(values: dict[str, Any]) -> None:
    """Delete the removed options from the nested mapping `values`, in place; those of RL stages stay."""
    for key in [key for key in _leaves(values) if key in REMOVED and key.partition(".")[0] not in STAGES]:
        *sections, name = key.split(".")
        section = values
        for part in sections:
            section = section[part]
        section.pop(name)


_POLICY_GRADIENT = ("reward", "discount", "idle_penalty", "loss_mean", "clip", "clip_high", "kl")


def _has_option(kind: str, key: str) -> bool:
    if key in _POLICY_GRADIENT:
        return kind in ("grpo", "ppo")
    return kind != "rft" if key in ("epochs", "updates") else True


def migrate_pretrain(values: Mapping[str, Any]) -> dict[str, Any]:
    """An earlier section `pretrain`, or that of a backbone's card, with its recipe as a list of phases."""
    rest = {name: value for name, value in values.items() if name not in (*_PHASE, "phases", "optimizer")}
    own = {name: values[name] for name in _PHASE if name in values}
    if values.get("phases") and not own:
        return dict(values)
    phases = [
        own | {name: value for name, value in phase.items() if value is not None}
        for phase in values.get("phases") or [{}]
    ]
    for phase in phases:
        if phase.get("tokens") == 0:  # options of the text had no effect there
            for name in _OF_TEXT:
                phase.pop(name, None)
    return rest | ({"phases": phases} if own or values.get("phases") else {})


def _taken(values: Any, name: str) -> Any:
    return values.pop(name, None) if isinstance(values, dict) else None


def main(arguments: Sequence[str]) -> None:
    """Print the config in the named file (YAML or JSON) with today's keys, as JSON, which is YAML too.

    Exit with 2 if there is no such file, or it is no mapping.
    """
    if len(arguments) != 1:
        sys.exit("Type: python -m components.config.migration FILE")
    try:
        values = yaml.safe_load(Path(arguments[0]).read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise ConfigError(f"{arguments[0]} is not a mapping of keys to values.")
        migrated = migrate(values)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ConfigError) as error:
        sys.stderr.write(f"{arguments[0]} cannot be migrated: {error}\n")
        sys.exit(2)
    sys.stdout.write(json.dumps(migrated, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
