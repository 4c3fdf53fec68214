"""Compare the files of `data/` with the hashes of `data.dvc`, and hash files by their content.

`dvc status` is not enough: it trusts what checkout recorded, and reports damaged files as up to date.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from components.errors import DataError
from components.trajectories.dvc.dvc_cache import cache_directory, file_digest, files_of, object_path
from components.trajectories.dvc.dvc_command import run_checked
from components.trajectories.dvc.pointer import DATA, POINTER, read_pointer

SAVE_ADVICE = "Type `dreamgym data save` to keep it as a new version"
UNDO_ADVICE = "`dvc checkout --force data.dvc` to undo it"


def verify(root: Path) -> None:
    """Compare the content of every file of `data/` with the hashes of `data.dvc`.

    Raises:
        DataError: a file differs or is missing; the message names the first one.
    """
    for relative, digest in files_of(cache_directory(root), read_pointer(root / POINTER)).items():
        path = root / DATA / relative
        if not path.is_file():
            raise DataError(
                f"{path} is missing.", f"data.dvc names it ({digest}).", "Type `dvc checkout data.dvc`."
            )
        if file_digest(path) != digest:
            raise _different_file_error(root, path, digest)
    status = json.loads(run_checked(root, "status", "--json", POINTER) or "{}")
    if status:
        raise DataError(f"data/ differs from data.dvc: {json.dumps(status)}.", next_step=f"{SAVE_ADVICE}.")


def _different_file_error(root: Path, path: Path, digest: str) -> DataError:
    cached = object_path(cache_directory(root), digest)
    if cached.is_file() and file_digest(cached) != digest:
        return DataError(
            f"{path} is damaged, because its cache object {cached} is.",
            f"Expected the MD5 {digest}.",
            f"Type `rm -f {cached} {path}`, then `dreamgym data pull`.",
        )
    return DataError(
        f"{path} was changed after its snapshot.",
        f"Expected the MD5 {digest}.",
        f"{SAVE_ADVICE}, or {UNDO_ADVICE}.",
    )


def tree_hash(path: Path) -> str:
    """SHA-256 of a file's bytes, or of a directory's sorted relative paths and their contents.

    `__pycache__` is left out. Time stamps and the directory's own path do not count.

    Raises:
        DataError: `path` does not exist.
    """
    if path.is_file():
        return file_digest(path, "sha256")
    if not path.is_dir():
        raise DataError(
            f"There is no {path} to hash.",
            next_step="Type `dreamgym data pull`, or run the stage that makes it again.",
        )
    files = {
        str(file.relative_to(path).as_posix()): file
        for file in path.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    total = hashlib.sha256()
    for relative in sorted(files):
        total.update(f"{relative}\0{file_digest(files[relative], 'sha256')}\n".encode())
    return total.hexdigest()
