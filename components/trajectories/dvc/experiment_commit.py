"""A run as a DVC experiment: a commit below `refs/exps/`, as `dvc exp save` makes it, without touching
branch, index or workspace.

`dvc exp save` commits the workspace, so the run's data would have to lie in it, and the user's `data.dvc`
would change. Git alone makes the same commit from a temporary index: HEAD, the workspace's changes to tracked
files, the run's `data.dvc`, its record, and `experiment/` with the files that `dvc exp show`, `dvc metrics
diff` and `dvc plots diff` read.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from components.errors import DataError

FOLDER = "experiment"
"""Folder of the commit with dvc.yaml, metrics, params and plots: the same in every run, so that runs are rows
of one table.
"""


def commit_experiment(root: Path, name: str, files: Mapping[str, bytes]) -> str:
    """Commit the workspace with `files` (path -> content) in it as the DVC experiment `name` on HEAD; the
    commit's hash.

    Changes to tracked files are part of it, untracked files are not. One of the same name on the same commit
    is replaced.

    Raises:
        DataError: there is no commit to base it on, or git refuses.
    """
    head = _git(root, "rev-parse", "--verify", "--quiet", "HEAD", check=False)
    if not head:
        found = f"{root.absolute()} has no git commit to base an experiment on."
        raise DataError(found, next_step='Type `git add -A && git commit -m "Start"`, then the same again.')
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        _git(root, "read-tree", head, more=index)
        _git(root, "add", "--update", "--", ":/", more=index)
        entries = [f"100644 {_blob(root, content)}\t{path}" for path, content in sorted(files.items())]
        _git(
            root,
            "update-index",
            "-z",
            "--add",
            "--index-info",
            stdin="\0".join([*entries, ""]).encode(),
            more=index,
        )
        tree = _git(root, "write-tree", more=index)
    commit = _git(root, "commit-tree", tree, "-p", head, "-m", f"dvc: commit experiment {name}")
    _git(root, "update-ref", f"refs/exps/{head[:2]}/{head[2:]}/{name}", commit)
    return commit


def experiments(root: Path) -> dict[str, str]:
    """Name -> commit of every experiment in this clone; of several with one name, made on different commits,
    the newest.
    """
    listed = _git(
        root,
        "for-each-ref",
        "--sort=committerdate",
        "--format=%(objectname) %(refname)",
        "refs/exps/*/*/*",
        check=False,
    )
    return {line.split("/", 4)[4]: line.split(" ")[0] for line in listed.splitlines()}


def _blob(root: Path, content: bytes) -> str:
    return _git(root, "hash-object", "-w", "--stdin", stdin=content)


def _git(
    root: Path,
    *arguments: str,
    stdin: bytes | None = None,
    more: Mapping[str, str] | None = None,
    check: bool = True,
) -> str:
    environment = os.environ | dict(more or {})
    done = subprocess.run(
        ["git", "-C", str(root), *arguments], input=stdin, capture_output=True, env=environment
    )
    if check and done.returncode:
        reason = os.fsdecode(done.stderr).strip() or "it gives no reason"
        raise DataError(f"`git {arguments[0]}` failed while the run was saved as an experiment: {reason}")
    return os.fsdecode(done.stdout).strip()
