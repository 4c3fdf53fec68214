"""Save a run as a DVC experiment: a commit below `refs/exps/`, as `dvc exp save` makes it.

Branch, index and workspace stay unchanged. `dvc exp save` would commit the workspace, so the run's data would
have to be there and the user's `data.dvc` would change. Instead git makes the commit from a temporary index.
It holds HEAD, the workspace's changes to tracked files, the run's `data.dvc`, its record, and `experiment/`
with the files that `dvc exp show`, `dvc metrics diff` and `dvc plots diff` read.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from components.errors import DataError

FOLDER = "experiment"
"""Folder of the commit with dvc.yaml, metrics, params and plots. It has the same name in every run, so that
all runs are rows of one table.
"""


def commit_experiment(root: Path, name: str, files: Mapping[str, bytes]) -> str:
    """Commit the workspace with `files` as the DVC experiment `name` on HEAD.

    Changes to tracked files are part of the commit, untracked files are not. An experiment of the same name
    on the same commit is replaced.

    Args:
        files: path -> content.

    Returns:
        Hash of the commit.

    Raises:
        DataError: there is no commit to base it on, or git refuses.
    """
    head = _git(root, "rev-parse", "--verify", "--quiet", "HEAD", check=False)
    if not head:
        problem = f"{root.absolute()} has no git commit to base an experiment on."
        raise DataError(problem, next_step='Type `git add -A && git commit -m "Start"`, then the same again.')
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        _git(root, "read-tree", head, environment=index)
        _git(root, "add", "--update", "--", ":/", environment=index)
        entries = [f"100644 {_blob(root, content)}\t{path}" for path, content in sorted(files.items())]
        index_info = "\0".join([*entries, ""]).encode()
        _git(root, "update-index", "-z", "--add", "--index-info", stdin=index_info, environment=index)
        tree = _git(root, "write-tree", environment=index)
    commit = _git(root, "commit-tree", tree, "-p", head, "-m", f"dvc: commit experiment {name}")
    _git(root, "update-ref", f"refs/exps/{head[:2]}/{head[2:]}/{name}", commit)
    return commit


def experiments(root: Path) -> dict[str, str]:
    """Name -> commit of every experiment in this clone.

    Of several experiments with one name, on different commits, it is the newest.
    """
    arguments = ("--sort=committerdate", "--format=%(objectname) %(refname)", "refs/exps/*/*/*")
    refs = _git(root, "for-each-ref", *arguments, check=False)
    return {line.split("/", 4)[4]: line.split(" ")[0] for line in refs.splitlines()}


def _blob(root: Path, content: bytes) -> str:
    return _git(root, "hash-object", "-w", "--stdin", stdin=content)


def _git(
    root: Path,
    *arguments: str,
    stdin: bytes | None = None,
    environment: Mapping[str, str] | None = None,
    check: bool = True,
) -> str:
    variables = os.environ | dict(environment or {})
    command = ["git", "-C", str(root), *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, env=variables)
    if check and done.returncode:
        reason = os.fsdecode(done.stderr).strip() or "it gives no reason"
        raise DataError(f"`git {arguments[0]}` failed while the run was saved as an experiment: {reason}")
    return os.fsdecode(done.stdout).strip()
