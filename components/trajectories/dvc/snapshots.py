"""Versions of `data/` under DVC: `data.dvc` names the parts, their bytes lie in the cache and in remotes.

`seed` lies in git beside the code (`seed/`, at most 20 MB) and holds the first version: it is DVC's default,
so that a plain `dvc pull` serves a fresh clone without a login. `local` (`.dreamgym/dvc-remote`, ignored by
git) takes every new one, unless `core.remote` names another remote, such as an object store. A default that
the user sets is never changed or shadowed.

DVC fails quietly in four ways that are closed here: a fetch of a missing object succeeds, also where an HTTP
remote does not answer, a checkout writes damaged cache bytes, and a held lock ends a command after three
seconds. So every checkout is compared with the hashes in `data.dvc`, and commands wait for each other
(dvc_command.py). `dvc status` is no such comparison: it trusts what checkout noted and calls damaged bytes up
to date.
"""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from components.errors import DataError, ServiceUnreachable
from components.files import read_text, write_text
from components.trajectories.dvc.data_state import (
    Drift,
    data_hash,
    data_parts,
    drift,
    hash_data,
    left_over_files,
    missing_files,
    part_hash,
    parts_lying,
    version_hash,
)
from components.trajectories.dvc.dvc_cache import (
    LOCAL,
    SEED,
    cache_directory,
    dvc_config,
    file_digest,
    files_of,
    missing_objects,
    object_path,
    remote_names,
    remote_to_push_to,
)
from components.trajectories.dvc.dvc_command import disk_is_full, failed, is_silence, reason_of, run_dvc
from components.trajectories.dvc.pointer import DATA, POINTER, Out, read_pointer, write_pointer

__all__ = [
    "LOCAL",
    "SEED",
    "Drift",
    "Snapshot",
    "data_hash",
    "data_parts",
    "drift",
    "missing_files",
    "part_hash",
]

SEED_LIMIT_BYTES = 20_000_000
KEEP = "Type `dreamgym data save` to keep it as a new version"
UNDO = "`dvc checkout --force data.dvc` to undo it"
_IGNORED = "# What DVC never needs to look at.\n.venv\n/runs\n/mlflow\n/seed\n*.tmp\n"


@dataclass(frozen=True)
class Snapshot:
    """A version of `data/`: DVC's hash of all its files, the number of files, their bytes, and its parts."""

    hash: str
    files: int
    size: int
    parts: tuple[Out, ...] = ()


def init_if_needed(root: Path) -> None:
    """Put `root` under DVC, unless it is already, and name both remotes where it has none to push to.

    Raises:
        DataError: it is no git repository.
    """
    if not (root / ".git").exists():
        raise DataError(
            f"{root.absolute()} is no git repository.",
            "DVC keeps data.dvc in git.",
            "Type `git init` there, then the same again.",
        )
    if not (root / ".dvc" / "config").exists():
        _dvc(root, "init")
        (root / ".dvcignore").write_text(_IGNORED, encoding="utf-8")
    if not set(remote_names(root)) - {SEED}:
        configure_remotes(root)


def configure_remotes(root: Path) -> None:
    """Write the two remotes into `.dvc/config`, relative to it; another default remote that was set there
    stays the default.
    """
    from dvc.config import Config
    from dvc.config_schema import RelPath

    with Config(dvc_dir=str(root.absolute() / ".dvc")).edit("repo") as config:
        core = config.setdefault("core", {})
        core.update(analytics="false", autostage="false", remote=core.get("remote", SEED))
        for name, place in ((SEED, "seed"), (LOCAL, ".dreamgym/dvc-remote")):
            config.setdefault("remote", {})[name] = {
                "url": RelPath(str(root.absolute() / place)),
                "verify": "true",
            }


def snapshot(root: Path) -> Snapshot:
    """Version `data/` as it is now: update `data.dvc` and the cache. The same data gives the same hash.

    Raises:
        DataError: there is no data or no git repository, the disk is full, or DVC stays locked; `data.dvc` is
            then as it was.
    """
    init_if_needed(root)
    lying = hash_data(root)
    if not lying:
        raise DataError(
            f"{root / DATA} holds no files.",
            "Expected data to take a snapshot of.",
            "Type `dreamgym collect` first.",
        )
    path = root / POINTER
    before = read_pointer(path) if path.is_file() else ()
    outs = parts_lying(root, lying, {out.path: out.options for out in before})
    if outs != before or missing_objects(cache_directory(root), outs):
        _commit_pointer(root, outs)
    return _snapshot_of(root)


def _commit_pointer(root: Path, outs: Sequence[Out]) -> None:
    """Write `data.dvc` and let DVC put what it names into the cache; after a failure the old one is back."""
    path = root / POINTER
    before = read_text(path) if path.is_file() else None
    _ignore_data(root)
    write_pointer(path, outs)
    try:
        _dvc(root, "commit", "--force", POINTER)
    except BaseException:
        if before is None:
            path.unlink(missing_ok=True)
        else:
            write_text(path, before)
        raise


def _ignore_data(root: Path) -> None:
    """Have git ignore `data/` as a whole; DVC would else write a `.gitignore` into each world's folder."""
    if not git_output(root, "check-ignore", f"{DATA}/"):
        path = root / ".gitignore"
        before = read_text(path) if path.is_file() else ""
        write_text(path, before + "\n" * bool(before and not before.endswith("\n")) + f"/{DATA}/\n")


def _remove_left_over(root: Path) -> None:
    lying = hash_data(root)
    for relative in left_over_files(root, read_pointer(root / POINTER), lying):
        path = root / DATA / relative
        path.unlink(missing_ok=True)
        for folder in path.relative_to(root / DATA).parents:
            if folder.name and not any((root / DATA / folder).iterdir()):
                (root / DATA / folder).rmdir()


def push(root: Path, remote: str = "") -> str:
    """Copy the version that data.dvc names to `remote`, by default the configured one (`local` where that is
    `seed`); its name.

    Raises:
        DataError: the cache lacks a part of it, the remote cannot be written, or `seed` would exceed its 20
            MB.
        ServiceUnreachable: the remote is a server that does not answer.
    """
    outs = read_pointer(root / POINTER)
    remote = choose_remote(root, outs, remote)
    _dvc(root, "push", "--remote", remote, POINTER)
    return remote


def choose_remote(root: Path, outs: Sequence[Out], remote: str = "") -> str:
    """The remote that a version is pushed to. Raises DataError if the cache lacks a part of it, or `seed`
    would exceed its 20 MB.
    """
    remote = remote or remote_to_push_to(root)
    size = sum(out.size for out in outs)
    if remote == SEED and size > SEED_LIMIT_BYTES:
        found = (
            f"The snapshot has {size:,} bytes: too many for the seed remote, which is part of the git "
            "repository."
        )
        raise DataError(
            found, f"Expected at most {SEED_LIMIT_BYTES:,}.", f"Push it to {LOCAL}, or to an object store."
        )
    if missing := missing_objects(cache_directory(root), outs):
        found = f"The cache lacks {len(missing)} objects of data.dvc: {', '.join(missing[:3])}."
        raise DataError(
            found, next_step="Type `dreamgym data pull`, or `dreamgym data save` to version data/ as it is."
        )
    return remote


def pull(root: Path, *, force: bool = False) -> Snapshot:
    """Bring `data/` to the snapshot that `data.dvc` names, from every remote that DVC knows here, the default
    first; verified.

    Args: force: replace files that are in no version, too.

    Raises:
        DataError: an object is in none of them, a file arrived damaged, or `data/` holds changes that were
            never versioned.
        ServiceUnreachable: an object is in none of those that answer, and one does not.
    """
    fetch(root, root, read_pointer(root / POINTER))
    _remove_left_over(root)
    _dvc(root, "checkout", *["--force"] * force, POINTER)
    verify(root)
    return _snapshot_of(root)


def fetch(root: Path, place: Path, outs: Sequence[Out]) -> None:
    """Bring the objects of `outs` into the cache of `place`, whose data.dvc names them, from the remotes that
    `root` knows.

    Raises DataError or ServiceUnreachable as `pull`.
    """
    cache, remotes, reasons = cache_directory(place), remote_names(root), []
    missing = missing_objects(cache, outs)
    for remote in remotes if missing else ():
        reasons.append(_fetch(place, remote))
        missing = missing_objects(cache, outs)
        if not missing:
            break
    if not missing:
        return
    tried = (
        "; ".join(f"{remote} ({reason})" for remote, reason in zip(remotes, reasons, strict=True))
        or "no remote: none is configured"
    )
    found = (
        f"{len(missing)} objects of the version that data.dvc names are missing: "
        f"{', '.join(missing[:3])}. Tried {tried}."
    )
    if any(is_silence(reason) for reason in reasons):
        raise ServiceUnreachable(
            found, next_step="See that the remote's server runs and can be reached, then type the same again."
        )
    next_step = (
        "Ask who made the version to type `dvc push`, and add that remote here: dvc remote add -d "
        "team PATH_OR_URL"
    )
    raise DataError(
        found, "Expected them in the cache or in a remote that DVC knows here (`dvc remote list`).", next_step
    )


def _fetch(place: Path, remote: str) -> str:
    """Fetch what `remote` has of the version; the reason if DVC refuses. What counts is what then lies in the
    cache.
    """
    done = run_dvc(place, "fetch", "--remote", remote, POINTER)
    if disk_is_full(done.stderr):
        raise failed(place, "fetch", done.stderr)
    if done.returncode:
        return reason_of(done.stderr)
    return _silence(str(dvc_config(place).get("remote", {})[remote]["url"])) or "not there"


def _silence(url: str) -> str:
    """Why nobody answers at the address of a remote; empty if somebody does, or if it is none of HTTP: DVC
    tells of the others itself.
    """
    address = urlsplit(url)
    if address.scheme not in ("http", "https") or not address.hostname:
        return ""
    try:
        socket.create_connection(
            (address.hostname, address.port or (443 if address.scheme == "https" else 80)), timeout=10
        ).close()
    except OSError as error:
        return f"cannot connect to {address.hostname}: {error}"
    return ""


def verify(root: Path) -> None:
    """Compare every file of `data/` with the hashes of `data.dvc`, byte by byte. Raises DataError naming the
    first that differs.
    """
    for relative, digest in files_of(cache_directory(root), read_pointer(root / POINTER)).items():
        path = root / DATA / relative
        if not path.is_file():
            raise DataError(
                f"{path} is missing.", f"data.dvc names it ({digest}).", "Type `dvc checkout data.dvc`."
            )
        if file_digest(path) != digest:
            raise _differs(root, path, digest)
    status = json.loads(_dvc(root, "status", "--json", POINTER) or "{}")
    if status:
        raise DataError(f"data/ differs from data.dvc: {json.dumps(status)}.", next_step=f"{KEEP}.")


def tree_hash(path: Path) -> str:
    """SHA-256 of a file's bytes, or of a directory's sorted relative paths and their contents (`__pycache__`
    left out).

    Neither time stamps nor the place matter. Raises DataError if `path` does not exist.
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


def _differs(root: Path, path: Path, digest: str) -> DataError:
    cached = object_path(cache_directory(root), digest)
    if cached.is_file() and file_digest(cached) != digest:
        found = f"{path} is damaged, because its cache object {cached} is."
        return DataError(
            found, f"Expected the MD5 {digest}.", f"Type `rm -f {cached} {path}`, then `dreamgym data pull`."
        )
    return DataError(
        f"{path} was changed after its snapshot.", f"Expected the MD5 {digest}.", f"{KEEP}, or {UNDO}."
    )


def _snapshot_of(root: Path) -> Snapshot:
    outs = read_pointer(root / POINTER)
    return Snapshot(
        version_hash(root, outs), sum(out.files for out in outs), sum(out.size for out in outs), outs
    )


def git_output(root: Path, *arguments: str) -> str:
    """What git prints; empty if it refuses."""
    return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True).stdout.strip()


def _dvc(root: Path, *arguments: str) -> str:
    """What one DVC command prints on stdout. Raises DataError with DVC's reason if it fails."""
    done = run_dvc(root, *arguments)
    if done.returncode:
        needed = sum(out.size for out in read_pointer(root / POINTER)) if arguments[0] == "checkout" else 0
        raise failed(root, " ".join(arguments), done.stderr, needed)
    return done.stdout
