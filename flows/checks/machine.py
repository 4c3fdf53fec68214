"""What of the machine and the workspace's directories would stop a run after hours: found before its first
stage, and by `doctor`.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from pathlib import Path

from components.errors import DataError
from components.files import require_writable
from components.trajectories.dvc.repository_state import require_working_dvc

HOST = "127.0.0.1"


WRITTEN = ("runs", "mlflow", "data", ".dreamgym", ".dvc/tmp", ".dvc/cache")
"""Directories of the workspace that a run writes to; one that is not there is made in the workspace."""


def require_machine(root: Path, *, versions: bool = True) -> None:
    """Raise DataError for what would stop a later stage; the message says what to type.

    Args: versions: whether DVC and git are needed, too.
    """
    require_docstrings()
    require_temporary_files()
    for name in WRITTEN:
        require_writable(root / name)
    if versions:
        require_working_dvc(root)


def require_docstrings() -> None:
    """Raise DataError where Python drops docstrings: transformers reads its own when it is imported."""
    if sys.flags.optimize > 1:
        found = (
            f"Python runs without docstrings (PYTHONOPTIMIZE={sys.flags.optimize}); transformers cannot "
            "be imported so."
        )
        raise DataError(found, next_step="Type `unset PYTHONOPTIMIZE`, or set it to 1.")


def require_temporary_files() -> None:
    """Raise DataError if no temporary file can be written where TMPDIR says, or anywhere if it is not set."""
    named = os.environ.get("TMPDIR", "")
    cure = "Type `export TMPDIR=DIRECTORY` with a directory that exists, can be written and has some GB free."
    if named and not Path(named).is_dir():
        raise DataError(
            f"TMPDIR is {named}, which is no directory.", "Expected a directory for temporary files.", cure
        )
    try:
        with tempfile.NamedTemporaryFile(dir=named or None) as file:
            file.write(b"\0" * 4096)
            file.flush()
    except OSError as error:
        place = f"in {named} (TMPDIR)" if named else "anywhere"
        raise DataError(
            f"No temporary file can be written {place}: {error.strerror or error}.", next_step=cure
        ) from error


def port_is_free(port: int) -> bool:
    """True if a server could listen there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
