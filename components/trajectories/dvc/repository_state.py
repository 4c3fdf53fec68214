"""What of a repository's own files stops DVC or git later: a lock file that DVC cannot read, a merge
conflict, an index that is locked.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

from components.errors import DataError
from components.files import read_text

INDEX_LOCK_SECONDS = 60.0
"""Age from which a lock on git's index counts as left behind: git holds it for moments."""
LOCK_WRITE_SECONDS = 2.0
"""How long DVC's lock file may be unreadable: each DVC command empties it and writes it again."""
_MARKERS = ("<<<<<<< ", ">>>>>>> ")


def require_working_dvc(root: Path) -> None:
    """Raise DataError for what would stop `dvc add`, or the run's commit, after all training."""
    _require_readable_lock(root)
    _require_writable_index(root)
    if conflict := pointer_conflict(root):
        raise conflict


def pointer_conflict(root: Path) -> DataError | None:
    """What to tell the user of a data.dvc with two versions in it; None if it has one, or is not there."""
    path = root / "data.dvc"
    try:
        text = read_text(path) if path.is_file() else ""
    except (OSError, UnicodeDecodeError, DataError):
        return None  # reading it says more
    unmerged = bool(_git(root, "ls-files", "--unmerged", "data.dvc"))
    if not unmerged and not any(line.startswith(_MARKERS) for line in text.splitlines()):
        return None
    found = f"{path} is in a merge conflict: it names two versions of data/."
    if unmerged:
        ours = "git checkout --ours data.dvc && git add data.dvc"
        cure = (
            f"To keep the version of the present branch, type `{ours}`; for the other one, --theirs in "
            "place of --ours."
        )
    else:
        cure = (
            "Take a version from before it was committed so: git log --oneline data.dvc; git checkout "
            "COMMIT -- data.dvc"
        )
    return DataError(found, "Expected one version.", cure)


def hidden_default_remote(root: Path) -> Path | None:
    """The file .dvc/config.local if its `core.remote` is `local`, as earlier versions wrote it; None if not.

    It takes precedence over the default remote of .dvc/config.
    """
    from configobj import ConfigObj, ConfigObjError

    path = root / ".dvc" / "config.local"
    try:
        settings = ConfigObj(str(path), encoding="utf-8", file_error=True, interpolation=False)
    except (OSError, UnicodeDecodeError, ConfigObjError):
        return None  # DVC says what is wrong with the file
    core = settings.get("core", {})
    return path if isinstance(core, dict) and core.get("remote") == "local" else None


def _require_readable_lock(root: Path) -> None:
    path = root / ".dvc" / "tmp" / "rwlock"
    deadline = time.monotonic() + LOCK_WRITE_SECONDS
    while not _is_whole(path):
        if time.monotonic() > deadline:
            size = path.stat().st_size if path.is_file() else 0
            found = (
                f"DVC's lock file {path} ({size:,} bytes) is damaged; a command that was killed leaves "
                "such a file."
            )
            cure = f"See that no DVC command is running, then type: rm -f {path}"
            raise DataError(
                found, "Expected JSON with `read` and `write`. DVC refuses every command otherwise.", cure
            )
        time.sleep(LOCK_WRITE_SECONDS / 20)


def _is_whole(path: Path) -> bool:
    """Whether DVC can read its lock file, or there is none. While a DVC command rewrites it, it is empty or
    cut off for a moment.
    """
    try:
        held = json.loads(read_text(path))
    except FileNotFoundError:
        return True
    except (OSError, ValueError, RecursionError, DataError):
        return not path.exists()
    return isinstance(held, dict) and all(isinstance(held.get(mode, {}), dict) for mode in ("read", "write"))


def _require_writable_index(root: Path) -> None:
    named = _git(root, "rev-parse", "--git-path", "index.lock")
    path = root / named
    if not named or not path.is_file():
        return
    age = time.time() - path.stat().st_mtime
    if age > INDEX_LOCK_SECONDS:
        found = (
            f"git's index is locked by {path}, {age / 60:.0f} minutes old; a git command that was "
            "killed leaves such a file."
        )
        cure = f"See that no git command is running, then type: rm -f {path}"
        raise DataError(found, "A run ends with a commit of its own, which git would refuse.", cure)


def _git(root: Path, *arguments: str) -> str:
    """What git prints; empty if it refuses."""
    return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True).stdout.strip()
