"""Replaces a HOME that is missing or cannot be written, as in many containers.

Matplotlib, Hugging Face, ALFWorld, Great Expectations and others write files below HOME when they are
imported, and fail without it.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

READ_FROM_HOME = {
    "GIT_CONFIG_GLOBAL": ".gitconfig",
    "DVC_GLOBAL_CONFIG_DIR": ".config/dvc",
    "PREFECT_PROFILES_PATH": ".prefect/profiles.toml",
    "AWS_SHARED_CREDENTIALS_FILE": ".aws/credentials",
    "AWS_CONFIG_FILE": ".aws/config",
}
"""Variable -> settings file of the user, below the old HOME, that is still read there."""


def replace_unusable_home(root: Path) -> str:
    """Set HOME to `.dreamgym/home` below `root` if the present one cannot be written.

    Returns:
        a message that says so, empty if HOME was kept.

    Raises:
        OSError: the directory in the workspace cannot be made either.
    """
    try:
        home = Path.home()
    except RuntimeError:  # no HOME, and no user of that number
        home = Path(os.devnull)
    if home.is_dir() and _can_write(home):
        return ""
    new_home = root / ".dreamgym" / "home"
    new_home.mkdir(parents=True, exist_ok=True)
    for variable, name in READ_FROM_HOME.items():
        if _exists(home / name):
            os.environ.setdefault(variable, str(home / name))
    os.environ["HOME"] = str(new_home)
    return (
        f"HOME ({home}) cannot be written: caches go to {new_home}. To choose another place: export "
        "HOME=DIRECTORY"
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _can_write(directory: Path) -> bool:
    probe = directory / f".dreamgym-{secrets.token_hex(4)}.tmp"
    try:
        probe.write_bytes(b"")
        probe.unlink()
    except OSError:
        return False
    return True
