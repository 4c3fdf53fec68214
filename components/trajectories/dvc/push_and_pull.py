"""Copy versions of `data/` to and from DVC remotes.

DVC reports no failure when it fetches a missing object, or when an HTTP remote does not answer. So the cache
is inspected after each fetch.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from components.errors import DataError, ServiceUnreachable
from components.trajectories.dvc.dvc_cache import (
    LOCAL,
    SEED,
    cache_directory,
    dvc_config,
    missing_objects,
    remote_names,
    remote_to_push_to,
)
from components.trajectories.dvc.dvc_command import (
    command_error,
    disk_is_full,
    is_unreachable,
    reason_of,
    run_checked,
    run_dvc,
)
from components.trajectories.dvc.pointer import POINTER, Out, read_pointer

SEED_LIMIT_BYTES = 20_000_000
_CONNECT_TIMEOUT_SECONDS = 10


def push(root: Path, remote: str = "") -> str:
    """Copy the version that data.dvc names to a remote.

    Args:
        remote: name of the remote; empty for the configured one (`local` if that is `seed`).

    Returns:
        Name of the remote.

    Raises:
        DataError: the cache lacks a part of it, the remote cannot be written, or `seed` would exceed 20 MB.
        ServiceUnreachable: the remote is a server that does not answer.
    """
    outs = read_pointer(root / POINTER)
    remote = choose_remote(root, outs, remote)
    run_checked(root, "push", "--remote", remote, POINTER)
    return remote


def choose_remote(root: Path, outs: Sequence[Out], remote: str = "") -> str:
    """The remote to which a version is pushed.

    Raises:
        DataError: the cache lacks a part of the version, or `seed` would exceed 20 MB.
    """
    remote = remote or remote_to_push_to(root)
    size = sum(out.size for out in outs)
    if remote == SEED and size > SEED_LIMIT_BYTES:
        raise DataError(
            f"The snapshot has {size:,} bytes: too many for the seed remote, which is part of the git "
            "repository.",
            f"Expected at most {SEED_LIMIT_BYTES:,}.",
            f"Push it to {LOCAL}, or to an object store.",
        )
    if missing := missing_objects(cache_directory(root), outs):
        raise DataError(
            f"The cache lacks {len(missing)} objects of data.dvc: {', '.join(missing[:3])}.",
            next_step="Type `dreamgym data pull`, or `dreamgym data save` to version data/ as it is.",
        )
    return remote


def fetch(root: Path, repository: Path, outs: Sequence[Out]) -> None:
    """Bring the objects of `outs` into the cache of `repository`, whose data.dvc names them.

    Args:
        root: the clone whose remotes are tried, in order.

    Raises:
        DataError: an object is in none of the remotes.
        ServiceUnreachable: an object is in none of the remotes that answer, and one does not answer.
    """
    cache = cache_directory(repository)
    remotes = remote_names(root)
    reasons: list[str] = []
    missing = missing_objects(cache, outs)
    for remote in remotes if missing else ():
        reasons.append(_fetch_from(repository, remote))
        missing = missing_objects(cache, outs)
        if not missing:
            break
    if missing:
        raise _missing_objects_error(missing, remotes, reasons)


def _missing_objects_error(
    missing: Sequence[str], remotes: Sequence[str], reasons: Sequence[str]
) -> DataError | ServiceUnreachable:
    attempts = "; ".join(f"{remote} ({reason})" for remote, reason in zip(remotes, reasons, strict=True))
    problem = (
        f"{len(missing)} objects of the version that data.dvc names are missing: "
        f"{', '.join(missing[:3])}. Tried {attempts or 'no remote: none is configured'}."
    )
    if any(is_unreachable(reason) for reason in reasons):
        return ServiceUnreachable(
            problem,
            next_step="Check that the remote's server runs and can be reached, then type the same again.",
        )
    return DataError(
        problem,
        "Expected them in the cache or in a remote of this clone (`dvc remote list`).",
        "Ask the author of the version to type `dvc push`, and add that remote here: dvc remote add -d "
        "team PATH_OR_URL",
    )


def _fetch_from(repository: Path, remote: str) -> str:
    """Fetch the objects that `remote` has, and return the reason for missing ones.

    Whether an object is missing is seen in the cache afterwards, not in this reason.
    """
    done = run_dvc(repository, "fetch", "--remote", remote, POINTER)
    if disk_is_full(done.stderr):
        raise command_error(repository, "fetch", done.stderr)
    if done.returncode:
        return reason_of(done.stderr)
    return _connection_failure(str(dvc_config(repository).get("remote", {})[remote]["url"])) or "not there"


def _connection_failure(url: str) -> str:
    """Why an HTTP remote does not answer; empty if it answers, or for other remotes, which DVC reports."""
    address = urlsplit(url)
    if address.scheme not in ("http", "https") or not address.hostname:
        return ""
    port = address.port or (443 if address.scheme == "https" else 80)
    try:
        socket.create_connection((address.hostname, port), timeout=_CONNECT_TIMEOUT_SECONDS).close()
    except OSError as error:
        return f"cannot connect to {address.hostname}: {error}"
    return ""
