"""What a run was made on: code (git), packages, Python and hardware.

The difference between the workspace and the commit is saved as a patch that `git apply` takes, new files
included, without touching the index or any branch. New files above 1 MB are not copied into it: their names
and hashes are listed instead.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from importlib import metadata
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict, Field

from components.errors import DataError
from components.files import cannot_write
from components.tracking.stage_store.hashes import file_hash

DIFF = "git.diff"
_LOCK = "constraints.txt"
_LARGEST_NEW_FILE_BYTES = 1_000_000


class Closed(BaseModel):
    """Base of all parts of the manifest: an unknown field is refused, and assigned values are checked."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)


class Git(Closed):
    """The code: a commit, and what the workspace had beside it."""

    commit: str = Field(description="Hash of HEAD.")
    branch: str = Field("", description="Branch that was checked out, empty for none.")
    dirty: bool = Field(False, description="True if the workspace differed from the commit.")
    diff_hash: str = Field("", description="sha256 of the saved difference, empty if there was none.")
    code_diff_hash: str | None = Field(
        None, description="The same without *.dvc, which a run changes; None in a manifest of before."
    )
    diff_path: str = Field("", description="Where the difference is saved, relative to the repository.")
    left_out: dict[str, str] = Field(
        default_factory=dict, description="New files too large for the difference -> their sha256."
    )


class Hardware(Closed):
    """The machine."""

    cpu: str = Field("", description="Model of the processor.")
    cores: int = Field(0, description="Cores that this process may use.")
    memory_bytes: int = Field(0, description="Main memory.")
    threads: int = Field(0, description="torch threads the run was given.")
    device: str = Field("", description="Where the run's models train and decode: cpu or cuda.")
    gpus: list[str] = Field(
        default_factory=list, description="Name and memory of each NVIDIA GPU, as nvidia-smi says it."
    )


class Environment(Closed):
    """Code, packages and machine of a run."""

    git: Git
    lock_hash: str = Field("", description="sha256 of constraints.txt, empty if there is none.")
    packages: dict[str, str] = Field(default_factory=dict, description="Installed distributions -> versions.")
    python: str = Field("", description="Python version.")
    platform: str = Field("", description="Operating system.")
    hardware: Hardware = Field(default_factory=lambda: Hardware())


def collect_environment(root: Path, run_directory: Path, threads: int = 0, device: str = "") -> Environment:
    """What the repository at `root` and this machine are now; the workspace's difference is written to
    `run_directory`.

    Raises:
        DataError: `root` is no git repository or has no commit, or the disk refuses.
    """
    lock = root / _LOCK
    return Environment(
        git=describe_git(root, run_directory),
        lock_hash=file_hash(lock) if lock.is_file() else "",
        packages=installed_packages(),
        python=platform.python_version(),
        platform=platform.platform(),
        hardware=describe_hardware(threads, device),
    )


def describe_git(root: Path, run_directory: Path) -> Git:
    """The commit of `root`, with everything that differs from it saved as `<run_directory>/git.diff`."""
    commit = _git(root, "rev-parse", "--verify", "HEAD").decode().strip()
    branch = _git(root, "branch", "--show-current").decode().strip()
    new = [
        name.decode(errors="surrogateescape")
        for name in _git(root, "ls-files", "-oz", "--exclude-standard").split(b"\0")
        if name
    ]
    large = {
        name
        for name in new
        if (root / name).is_file() and (root / name).stat().st_size > _LARGEST_NEW_FILE_BYTES
    }
    left_out = {os.fsencode(name).decode(errors="replace"): file_hash(root / name) for name in sorted(large)}
    diff = _diff(root, [name for name in new if name not in large])
    git = Git(commit=commit, branch=branch, dirty=bool(diff or left_out), left_out=left_out)
    if not diff:
        return git.model_copy(update={"code_diff_hash": ""})
    path = run_directory / DIFF
    try:
        run_directory.mkdir(parents=True, exist_ok=True)
        path.write_bytes(diff)
    except OSError as error:
        raise cannot_write(path, error) from error
    # A run leaves a new data.dvc behind: the next one's data are others, its code is not.
    code = _diff(root, [name for name in new if name not in large], but=":(exclude,glob)**/*.dvc")
    own = hashlib.sha256(code).hexdigest() if code else ""
    return git.model_copy(
        update={"diff_hash": file_hash(path), "code_diff_hash": own, "diff_path": os.path.relpath(path, root)}
    )


def installed_packages() -> dict[str, str]:
    """Name -> version of every installed distribution, sorted by name."""
    found = {
        dist.metadata["Name"]: dist.version for dist in metadata.distributions() if dist.metadata["Name"]
    }
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def describe_hardware(threads: int = 0, device: str = "") -> Hardware:
    """Processor, cores that this process may use, memory and GPUs; nothing is imported that would take
    seconds.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0
    memory = psutil.virtual_memory().total
    return Hardware(
        cpu=_cpu(), cores=cores, memory_bytes=memory, threads=threads, device=device, gpus=_gpus()
    )


def _diff(root: Path, new: list[str], but: str = "") -> bytes:
    """Difference to HEAD with the `new` files, without what the pathspec `but` excludes, made with a copy of
    the index: the real one stays as it is.
    """
    index = Path(_git(root, "rev-parse", "--path-format=absolute", "--git-path", "index").decode().strip())
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "index"
        if index.exists():
            shutil.copy2(index, copy)
        environment = {"GIT_INDEX_FILE": str(copy)}
        if new:
            names = b"\0".join(os.fsencode(name) for name in new)
            arguments = ("add", "--intent-to-add", "--pathspec-from-file=-", "--pathspec-file-nul")
            _git(root, "--literal-pathspecs", *arguments, stdin=names, environment=environment)
        only = ["--", ".", but] if but else []
        return _git(
            root,
            "diff",
            "--binary",
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
            "HEAD",
            *only,
            environment=environment,
        )


def _git(root: Path, *arguments: str, stdin: bytes = b"", environment: dict[str, str] | None = None) -> bytes:
    variables = {**os.environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", **(environment or {})}
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], input=stdin, capture_output=True, env=variables, check=True
        )
    except FileNotFoundError:
        raise DataError(
            "There is no git on this machine.", "A run's lineage needs it.", "Install git."
        ) from None
    except subprocess.CalledProcessError as error:
        raise _explained(root, arguments, error.stderr.decode(errors="replace").strip()) from None
    return done.stdout


def _explained(root: Path, arguments: tuple[str, ...], message: str) -> DataError:
    last = message.splitlines()[-1] if message else "no message"
    if "not a git repository" in message:
        next_step = f"cd {root} && git init && git add . && git commit -m 'First commit'"
        return DataError(f"{root} is not a git repository.", "A run's lineage needs a commit.", next_step)
    if "rev-parse" in arguments and "HEAD" in arguments and "ownership" not in message:
        next_step = "git add . && git commit -m 'First commit'"
        return DataError(
            f"The git repository {root} has no commit yet.", "A run's lineage needs one.", next_step
        )
    return DataError(
        f"git {arguments[0]} failed in {root}: {last}",
        next_step="Make `git status` work there, then type the command again.",
    )


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _gpus() -> list[str]:
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (subprocess.SubprocessError, OSError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]
