"""What must hold before a flow is started: a git repository with an identity, and the versioned data in its place."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from components.config import Config
from components.errors import ConfigError, DataError
from components.trajectories.store import DataLayout


def require_repository(root: Path) -> None:
    """Fail at once where a run would fail after minutes; lend git an identity if the machine has none.

    Raises:
        DataError: `root` is not the top of a git repository, or the repository has no commit.
    """
    if not (root / ".git").exists():
        found = f"{root.absolute()} is not the top of a git repository."
        next_step = "Type `cd` to the clone, or in this folder: git init && git add . && git commit -m 'First commit'"
        raise DataError(found, "Every run records the commit that made it.", next_step)
    if _git(root, "rev-parse", "--verify", "HEAD") is None:
        found = f"The git repository {root.absolute()} has no commit that git would show."
        raise DataError(found, "Every run records the commit that made it.", "Type `git add . && git commit -m 'First commit'`.")
    if not has_identity(root):
        for role in ("AUTHOR", "COMMITTER"):
            os.environ.setdefault(f"GIT_{role}_NAME", "dreamgym")
            os.environ.setdefault(f"GIT_{role}_EMAIL", "dreamgym@localhost")


def has_identity(root: Path) -> bool:
    """True if git knows who commits here."""
    return _git(root, "var", "GIT_COMMITTER_IDENT") is not None


def ensure_data(root: Path, say: Callable[[str], None], *, backbone: bool = True) -> None:
    """Pull the versioned data if any of it is missing, as in a fresh clone; what is there is left as it is.

    `backbone` says whether the run needs the one under data/.

    Raises:
        DataError: it is in none of the remotes or not part of the snapshot, or a file was changed beside the missing ones.
    """
    missing = missing_data(root, backbone)
    if missing:
        _pull(root, missing, say)
    if missing := missing_data(root, backbone):
        raise not_in_snapshot(missing)


def complete_data(root: Path, say: Callable[[str], None]) -> None:
    """Pull what `data.dvc` names and `data/` lacks, so that the next snapshot keeps it; nothing to do without a `data.dvc`.

    Raises:
        DataError: as `ensure_data`.
    """
    from components.trajectories.snapshots import missing_files

    if (root / "data.dvc").is_file() and (missing := missing_files(root)):
        _pull(root, missing, say)


def not_in_snapshot(missing: Sequence[str]) -> DataError:
    """What to tell the user when the version that `data.dvc` names has no such files."""
    makes = "pretrain" if list(missing) == ["data/backbone"] else "collect"
    next_step = f"Type `dreamgym {makes}` to make it, or check out a data.dvc that has it (`git log data.dvc` lists them)."
    return DataError(f"The version of data/ that data.dvc names has no {', '.join(missing)}.", "A run reads it.", next_step)


def _pull(root: Path, missing: Sequence[str], say: Callable[[str], None]) -> None:
    from components.trajectories.snapshots import pull

    shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
    say(f"Not there yet: {shown}. Pulling the snapshot that data.dvc names ...")
    made = pull(root)
    say(f"Pulled {made.files} files, {made.size / 1e6:.1f} MB, DVC hash {made.hash}.")


def check_settings(root: Path, config: Config, file: Path | None = None) -> None:
    """Refuse a config that asks for other games or episodes than those recorded under `data/`: it would silently do nothing.

    Data without settings.json (recorded elsewhere) is taken as it is. `environment.max_steps` may differ: it is a limit of play.

    Raises:
        ConfigError: a setting differs; the message names it with both values.
        DataError: settings.json is damaged.
    """
    path = DataLayout(root / "data").settings
    if not path.is_file():
        return
    try:
        recorded = [(section, *entry) for section, values in json.loads(path.read_text()).items() for entry in values.items()]
    except (ValueError, AttributeError) as error:
        raise DataError(f"{path} cannot be read: {error}", "Expected the settings of collect.", "Type `dvc checkout data.dvc`.") from None
    differing = {
        f"{section}.{name}": (value, asked)
        for section, name, value in recorded
        if (asked := getattr(getattr(config, section, None), name, value)) != value and (section, name) != ("environment", "max_steps")
    }
    if differing:
        there = ", ".join(f"{name}={value}" for name, (value, _) in differing.items())
        here = ", ".join(f"{name}={asked}" for name, (_, asked) in differing.items())
        raise ConfigError(
            f"data/ was recorded with {there}; this config asks for {here}.",
            "Training on it would not be what the config says.",
            f"Record anew with the same config and overrides: dreamgym collect{f' --config {file}' if file else ''} "
            "(the old data stays in DVC's cache). Or keep the data and give its values.",
        )


def missing_data(root: Path, backbone: bool = True) -> list[str]:
    """The parts of `data/` that a run reads and that are not there."""
    parts = [f"data/tasks/{name}.parquet" for name in ("train", "fidelity", "test")]
    parts += [f"data/trajectories/{name}.parquet" for name in ("train", "fidelity")]
    if backbone:
        parts.append("data/backbone")
    return [part for part in parts if not (root / part).exists()]


def _git(root: Path, *arguments: str) -> str | None:
    """What git prints, None if it refuses."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    except FileNotFoundError:
        raise DataError("There is no git on this machine.", "Every run records the commit that made it.", "Install git.") from None
    return done.stdout.strip() if done.returncode == 0 else None
