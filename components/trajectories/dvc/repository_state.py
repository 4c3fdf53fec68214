"""Check for repository states that would stop DVC or git later.

These are a lock file that DVC cannot read, a merge conflict in data.dvc, and a locked git index.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

from components.errors import DataError
from components.files import read_text

INDEX_LOCK_SECONDS = 60.0
"""Age from which a lock on git's index counts as left by a killed command. git holds it only briefly."""
LOCK_WRITE_SECONDS = 2.0
"""How long DVC's lock file may be unreadable, since each DVC command empties and rewrites it."""
_CONFLICT_MARKERS = ("<<<<<<< ", ">>>>>>> ")


def require_working_dvc(root: Path) -> None:
    """Check the repository before a run, so that it does not fail after all training.

    Raises:
        DataError: a state that would stop `dvc add` or the run's commit.
    """
    _require_readable_lock(root)
    _require_writable_index(root)
    if conflict := pointer_conflict(root):
        raise conflict


def pointer_conflict(root: Path) -> DataError | None:
    """The error for a data.dvc in a merge conflict; None if there is no conflict or no data.dvc."""
    path = root / "data.dvc"
    try:
        text = read_text(path) if path.is_file() else ""
    except (OSError, UnicodeDecodeError, DataError):
        return None  # reading the file later gives a better message
    unmerged = bool(_git(root, "ls-files", "--unmerged", "data.dvc"))
    if not unmerged and not any(line.startswith(_CONFLICT_MARKERS) for line in text.splitlines()):
        return None
    problem = f"{path} is in a merge conflict: it names two versions of data/."
    if unmerged:
        ours = "git checkout --ours data.dvc && git add data.dvc"
        next_step = (
            f"To keep the version of the current branch, type `{ours}`. For the other version, type "
            "--theirs instead of --ours."
        )
    else:
        next_step = (
            "Take a version from before the conflict was committed: git log --oneline data.dvc; git "
            "checkout COMMIT -- data.dvc"
        )
    return DataError(problem, "Expected one version.", next_step)


def hidden_default_remote(root: Path) -> Path | None:
    """The file .dvc/config.local if its `core.remote` is `local`, as earlier versions wrote it, else None.

    The file has precedence over the default remote of .dvc/config.
    """
    from configobj import ConfigObj, ConfigObjError

    path = root / ".dvc" / "config.local"
    try:
        settings = ConfigObj(str(path), encoding="utf-8", file_error=True, interpolation=False)
    except (OSError, UnicodeDecodeError, ConfigObjError):
        return None  # DVC itself reports what is wrong with the file
    core = settings.get("core", {})
    return path if isinstance(core, dict) and core.get("remote") == "local" else None


def _require_readable_lock(root: Path) -> None:
    path = root / ".dvc" / "tmp" / "rwlock"
    deadline = time.monotonic() + LOCK_WRITE_SECONDS
    while not _is_readable_or_missing(path):
        if time.monotonic() > deadline:
            size = path.stat().st_size if path.is_file() else 0
            raise DataError(
                f"DVC's lock file {path} ({size:,} bytes) is damaged; a killed command leaves such a file.",
                "Expected JSON with `read` and `write`. DVC refuses every command otherwise.",
                f"Check that no DVC command is running, then type: rm -f {path}",
            )
        time.sleep(LOCK_WRITE_SECONDS / 20)


def _is_readable_or_missing(path: Path) -> bool:
    """True if DVC can read its lock file, or if there is none.

    The file is empty or incomplete for a moment while a DVC command rewrites it.
    """
    try:
        locks = json.loads(read_text(path))
    except FileNotFoundError:
        return True
    except (OSError, ValueError, RecursionError, DataError):
        return not path.exists()
    return isinstance(locks, dict) and all(
        isinstance(locks.get(mode, {}), dict) for mode in ("read", "write")
    )


def _require_writable_index(root: Path) -> None:
    relative_path = _git(root, "rev-parse", "--git-path", "index.lock")
    path = root / relative_path
    if not relative_path or not path.is_file():
        return
    age_seconds = time.time() - path.stat().st_mtime
    if age_seconds > INDEX_LOCK_SECONDS:
        raise DataError(
            f"git's index is locked by {path}, {age_seconds / 60:.0f} minutes old; a killed git command "
            "leaves such a file.",
            "A run ends with a commit of its own, which git would refuse.",
            f"Check that no git command is running, then type: rm -f {path}",
        )


def _git(root: Path, *arguments: str) -> str:
    """The output of git; empty if it fails."""
    return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True).stdout.strip()
