"""What must hold before a flow is started: a git repository with an identity, and the versioned data in its
place.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from components.config import Config, PretrainPhase
from components.config.migration import migrate_pretrain
from components.errors import ConfigError, DataError
from components.experience.retrieval.encoders import encoder_identity
from components.files import parse_json, read_text
from components.trajectories.columns import examine
from components.trajectories.store import (
    TRANSITION_DEFAULTS,
    TRANSITION_SCHEMA,
    DataLayout,
    read_table,
    read_tasks,
)

OF_EVERY_USE = ("path", "chat_template", "gradient_checkpointing")
"""Keys of `backbone` that say how one is used, not how it is made."""
LEAST_FREE_BYTES = 20_000_000
"""Room without which not even Prefect's server starts; what a run needs beside it, `dreamgym doctor` says."""


def require_repository(root: Path) -> None:
    """Fail at once where a run would fail after minutes; lend git an identity if the machine has none.

    Raises:
        DataError: `root` is not the top of a git repository, or the repository has no commit.
    """
    if not (root / ".git").exists():
        found = f"{root.absolute()} is not the top of a git repository."
        next_step = (
            "Type `cd` to the clone, or in this folder: git init && git add . && git commit -m 'First commit'"
        )
        raise DataError(found, "Every run records the commit that made it.", next_step)
    if _git(root, "rev-parse", "--verify", "HEAD") is None:
        found = f"The git repository {root.absolute()} has no commit that git would show."
        raise DataError(
            found,
            "Every run records the commit that made it.",
            "Type `git add . && git commit -m 'First commit'`.",
        )
    if not has_identity(root):
        for role in ("AUTHOR", "COMMITTER"):
            os.environ.setdefault(f"GIT_{role}_NAME", "dreamgym")
            os.environ.setdefault(f"GIT_{role}_EMAIL", "dreamgym@localhost")


def require_room(root: Path) -> None:
    """Raise DataError if the disk of `root` or of Prefect's database is full: Prefect would only say that it
    cannot be reached.
    """
    for place in (root, Path(os.environ.get("PREFECT_HOME", root))):
        if place.is_dir() and (free := shutil.disk_usage(place).free) < LEAST_FREE_BYTES:
            found = f"The disk is full: {free:,} bytes are free where {place} lies."
            next_step = (
                "Free some space (`dvc gc --workspace --all-experiments` drops versions that no run "
                "made) and type the same again."
            )
            raise DataError(
                found,
                f"Expected at least {LEAST_FREE_BYTES:,} for Prefect's database and the run's records.",
                next_step,
            )


def has_identity(root: Path) -> bool:
    """True if git knows who commits here."""
    return _git(root, "var", "GIT_COMMITTER_IDENT") is not None


def ensure_data(
    root: Path, config: Config, say: Callable[[str], None], *, backbone: bool = True, versioned: bool = True
) -> None:
    """Pull the versioned data if any of it is missing, as in a fresh clone, or if data.dvc names another
    version, as after `git pull`.

    `backbone` says whether the run needs that of `data/<environment>/`, `versioned` whether it records the
    version in data.dvc; without, what is there is left as it is.

    Raises:
        DataError: it is in none of the remotes or not part of the snapshot, data/ holds changes that are in
            no version, or there is no
            data.dvc to record.
        ServiceUnreachable: it is in none of the remotes that answer, and one does not.
    """
    missing = missing_data(root, config, backbone)
    if missing:
        _pull(root, missing, say)
    if versioned and (unsaved := _follow_pointer(root, say)):
        raise _in_no_version(unsaved)
    if missing := missing_data(root, config, backbone):
        raise not_in_snapshot(missing)


def version_in_words(root: Path) -> str:
    """The version of data/ that data.dvc names, for a title."""
    from components.trajectories.dvc.snapshots import data_hash

    try:
        return f"data {data_hash(root)[:12]}"
    except DataError:
        return "data in no version"


def complete_data(root: Path, say: Callable[[str], None]) -> None:
    """Pull what `data.dvc` names and `data/` lacks or has in another version, so that the next snapshot keeps
    it; changes that are in no version stay. Nothing to do without a `data.dvc`.

    Raises:
        DataError: as `ensure_data`.
    """
    from components.trajectories.dvc.snapshots import missing_files

    if not (root / "data.dvc").is_file():
        return
    if missing := missing_files(root):
        _pull(root, missing, say)
    _follow_pointer(root, say)


def _follow_pointer(root: Path, say: Callable[[str], None]) -> list[str]:
    """Bring data/ to the version that data.dvc names, if all that it holds is saved; else what is not saved,
    and nothing is done.
    """
    from components.trajectories.dvc.snapshots import drift, pull

    found = drift(root)
    if found.unsaved or not (found.changed or found.added):
        return found.unsaved
    say(
        "data.dvc names another version than the one in data/, which stays in DVC's cache. Checking it out "
        "..."
    )
    made = pull(root)
    say(f"data/ is the version {made.hash} now: {made.files} files, {made.size / 1e6:.1f} MB.")
    return []


def _in_no_version(unsaved: Sequence[str]) -> DataError:
    found = f"data/ is not what data.dvc names, and what it holds is in no version: {_named(unsaved)}."
    keep = "To keep it, type `dreamgym data save` (or `dreamgym collect` to record anew)"
    take = "to take the version that data.dvc names, `dreamgym data pull --force`."
    return DataError(found, "A run records the version that it reads.", f"{keep}; {take}")


def _named(files: Sequence[str]) -> str:
    return ", ".join(files[:5]) + (f" and {len(files) - 5} more" if len(files) > 5 else "")


def not_in_snapshot(missing: Sequence[str]) -> DataError:
    """What to tell the user when the version that `data.dvc` names has no such files."""
    lacking = [part.endswith("/backbone") for part in missing]
    makes = " and ".join(
        f"`dreamgym {verb}`"
        for verb, there in (("collect", not all(lacking)), ("pretrain", any(lacking)))
        if there
    )
    next_step = (
        f"Type {makes} with the same --config to make it, or check out a data.dvc that has it (`git "
        "log data.dvc` lists them)."
    )
    return DataError(
        f"The version of data/ that data.dvc names has no {', '.join(missing)}.", "A run reads it.", next_step
    )


def _pull(root: Path, missing: Sequence[str], say: Callable[[str], None]) -> None:
    from components.trajectories.dvc.snapshots import pull

    say(f"Not there yet: {_named(missing)}. Pulling the snapshot that data.dvc names ...")
    made = pull(root)
    say(f"Pulled {made.files} files, {made.size / 1e6:.1f} MB, DVC hash {made.hash}.")


def check_settings(root: Path, config: Config, file: Path | None = None, *, training: bool = True) -> None:
    """Refuse a config that asks for other games or episodes than those recorded, for more than there are, for
    a backbone that is not there, or for hardware that this machine does not have.

    `training` says whether the run trains on them; otherwise only what an evaluation uses is looked at.

    Raises:
        ConfigError: the message names what differs with both values, or what a model cannot do.
        ExperienceModelError: the encoder of retrieval is not there.
        DataError: a file under `data/` or of a model is damaged.
    """
    require_device(config)
    if training:
        require_backbone(config)
        encoder_identity(
            config.retrieval
        )  # an encoder that is not there is refused now, not after the first stage
        _same_as_pretrained(root, config, file)
    _same_as_recorded(root, config, file, ("environment", "data") if training else ("environment",))
    _no_more_than_recorded(root, config, training)
    if training:
        from flows.checks.model_checks import check_models

        check_models(root, config)


def require_device(config: Config) -> None:
    """Raise ConfigError if this machine does not have the device that `config` names, or not its bf16."""
    if config.device != "cuda" and config.precision == "fp32":
        return  # holds everywhere; torch takes seconds to load
    from components.language.compute import compute_of

    compute_of(config)


def require_backbone(config: Config) -> None:
    """Raise ConfigError if a `path` of the config names no directory with a model: a run hashes its files, so
    a hub name is none.
    """
    for section, named in (
        ("backbone", config.backbone.path),
        ("experience_model", config.experience_model.path),
    ):
        path = Path(named)
        if named and not any(path.glob("*.safetensors")):
            raise ConfigError(
                f"{section}.path is {named!r}: "
                f"{'it holds no *.safetensors' if path.is_dir() else 'there is no such directory'}.",
                "Expected a directory with a causal LM in safetensors and its tokenizer; a hub name cannot "
                "be used, nothing is downloaded.",
                "Mend the path, download the model first (`hf download NAME --local-dir models/base`), or "
                f"leave {section}.path empty.",
            )


def _same_as_pretrained(root: Path, config: Config, file: Path | None) -> None:
    """What a config asks of `backbone` and `pretrain` must be what the backbone was begun with, whatever
    followed.

    A key at its default asks for nothing. A backbone without a card is taken as it is.
    """
    path = DataLayout.of(root, config.environment.name).backbone / "card.json"
    if config.backbone.path or not path.is_file():
        return
    try:
        card = parse_json(read_text(path))
        first = [*card.get("went_on_from", []), card][0]
        sections = {
            "backbone": dict(first["backbone"]),
            "pretrain": _current_recipe(first.get("recipe", first["pretrain"])),
        }
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} cannot be read: {error!r}",
            "Expected the card of pretrain.",
            "Type `dvc checkout data.dvc`.",
        ) from None
    pairs = [(section, name, value) for section, values in sections.items() for name, value in values.items()]
    made = {f"{section}.{name}": value for section, name, value in pairs if name not in OF_EVERY_USE}
    asked = {f"{section}.{name}": value for section in sections for name, value in _plain(config, section)}
    if world := first.get("environment", {}).get("name"):
        made["environment.name"], asked["environment.name"] = world, config.environment.name
    usual = {f"{section}.{name}": value for section in sections for name, value in _plain(Config(), section)}
    named = [
        name for name, value in made.items() if asked.get(name, value) not in (value, usual.get(name, value))
    ]
    unnamed = [
        name
        for name in asked
        if name not in made and name.split(".")[1] not in OF_EVERY_USE and asked[name] != usual[name]
    ]
    differing = named + unnamed
    if differing:
        found = ", ".join(f"{name}={made[name]}" if name in made else f"no {name}" for name in differing)
        raise ConfigError(
            f"{path.parent.relative_to(root)} was made with {found}; "
            f"this config asks for {', '.join(f'{name}={asked[name]}' for name in differing)}.",
            "These keys have no effect on a backbone that is there.",
            f"Make it anew: dreamgym pretrain{f' --config {file}' if file else ''}. Or leave them out.",
        )


def _current_recipe(values: Mapping[str, Any]) -> dict[str, Any]:
    """The section `pretrain` of a card with today's keys; options that it lacks have their defaults."""
    recipe = migrate_pretrain(values)
    phases = [PretrainPhase(**phase).model_dump(mode="json") for phase in recipe.get("phases", [])]
    return recipe | ({"phases": phases} if phases else {})


def _plain(config: Config, section: str) -> Iterable[tuple[str, Any]]:
    """The keys of a section with values as JSON has them, as a card does."""
    values: dict[str, Any] = config.model_dump(mode="json", include={section})[section]
    return values.items()


def _same_as_recorded(root: Path, config: Config, file: Path | None, sections: Sequence[str]) -> None:
    """Data without settings.json (recorded elsewhere) is taken as it is; `environment.max_steps` may differ:
    it is a limit of play.
    """
    path = DataLayout.of(root, config.environment.name).settings
    if not path.is_file():
        return
    try:
        recorded = [
            (section, *entry)
            for section, values in parse_json(read_text(path)).items()
            for entry in values.items()
        ]
    except (ValueError, AttributeError) as error:
        raise DataError(
            f"{path} cannot be read: {error}",
            "Expected the settings of collect.",
            "Type `dvc checkout data.dvc`.",
        ) from None
    values = config.model_dump(mode="json") | {"environment": config.environment.decisive()}
    differing = {
        f"{section}.{name}": (value, asked)
        for section, name, value in recorded
        if section in sections
        and (asked := values.get(section, {}).get(name, value)) != value
        and (section, name) != ("environment", "max_steps")
    }
    if differing:
        there = ", ".join(f"{name}={value}" for name, (value, _) in differing.items())
        here = ", ".join(f"{name}={asked}" for name, (_, asked) in differing.items())
        raise ConfigError(
            f"{path.parent.relative_to(root)} was recorded with {there}; this config asks for {here}.",
            "A run on it would not be what the config says.",
            "Record anew with the same config and overrides: dreamgym "
            f"collect{f' --config {file}' if file else ''} "
            "(the old data stays in DVC's cache). Or keep the data and give its values.",
        )


def _no_more_than_recorded(root: Path, config: Config, training: bool) -> None:
    """A run would play fewer tasks, clone fewer episodes or play a task twice and say nothing, or fail at its
    end.
    """
    layout = DataLayout.of(root, config.environment.name)
    asked = [("evaluation.tasks", config.evaluation.tasks, _tasks(layout.tasks("test")), "held-out tasks")]
    if training:
        there = _demonstrations(layout, config.cloning.behaviours)
        asked += [
            (
                "fidelity.tasks",
                config.fidelity.tasks,
                _tasks(layout.tasks("fidelity")),
                "tasks to measure fidelity on",
            ),
            (
                "fidelity.policy_tasks",
                config.fidelity.policy_tasks,
                _tasks(layout.tasks("train")),
                "training tasks",
            ),
            ("cloning.demonstrations", config.cloning.demonstrations, there, "episodes to clone"),
        ]
    more = [(key, wanted, there, what) for key, wanted, there, what in asked if wanted > there]
    if more:
        raise ConfigError(
            f"This config asks for {', '.join(f'{key}={wanted}' for key, wanted, _, _ in more)}.",
            f"{layout.root.relative_to(root)} has "
            f"{', '.join(f'{there} {what}' for _, _, there, what in more)}.",
            f"Give {' '.join(f'{key}={max(1, there)}' for key, _, there, _ in more)}, or record more with "
            "`dreamgym collect`.",
        )


def _tasks(path: Path) -> int:
    """How many there are; no limit where the file is missing, which is another check's matter."""
    return len(read_tasks(path)) if path.is_file() else sys.maxsize


def _demonstrations(layout: DataLayout, behaviours: Sequence[str]) -> int:
    """Episodes of these behaviours, an expert's only where it won; no limit where a file or column is missing
    (validation judges it).
    """
    path = layout.trajectories("train")
    columns, problems = (
        examine(read_table(path), TRANSITION_SCHEMA, TRANSITION_DEFAULTS) if path.is_file() else (None, [])
    )
    if columns is None or problems:
        return sys.maxsize
    steps = columns.table.to_pandas(ignore_metadata=True)
    episodes = steps.groupby("episode_id").agg(behaviour=("behaviour", "first"), reward=("reward", "max"))
    wanted = episodes["behaviour"].isin(list(behaviours)) & (
        (episodes["behaviour"] != "expert") | (episodes["reward"] == 1)
    )
    return int(wanted.sum())


def missing_data(root: Path, config: Config, backbone: bool = True) -> list[str]:
    """What a run reads of the data of its environment and is not there, relative to `root`."""
    layout = DataLayout.of(root, config.environment.name)
    parts = [layout.tasks(name) for name in ("train", "fidelity", "test")] + [
        layout.trajectories(name) for name in ("train", "fidelity")
    ]
    parts += [layout.backbone] if backbone else []
    return [str(part.relative_to(root)) for part in parts if not part.exists()]


def _git(root: Path, *arguments: str) -> str | None:
    """What git prints, None if it refuses."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    except FileNotFoundError:
        raise DataError(
            "There is no git on this machine.", "Every run records the commit that made it.", "Install git."
        ) from None
    return done.stdout.strip() if done.returncode == 0 else None
