"""Environment of a run: code (git), packages, Python and hardware.

The difference between the workspace and the commit is saved as a patch for `git apply`, new files included.
The index and the branches stay unchanged. New files above 1 MB are not in the patch; their names and hashes
are listed instead.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict, Field

from components.errors import DataError
from components.files import cannot_write
from components.installed_packages import installed_packages
from components.tracking.stage_store.hashes import file_hash

DIFF = "git.diff"
_LOCK_FILE = "constraints.txt"
_MAX_NEW_FILE_BYTES = 1_000_000


class Closed(BaseModel):
    """Base of all parts of the manifest: unknown fields are refused, and assigned values are checked."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)


class Git(Closed):
    """The code: a commit and the uncommitted changes of the workspace."""

    commit: str = Field(description="Hash of HEAD.")
    branch: str = Field("", description="Branch that was checked out, empty if none was.")
    dirty: bool = Field(False, description="True if the workspace differed from the commit.")
    diff_hash: str = Field("", description="sha256 of the saved difference, empty if there was none.")
    code_diff_hash: str | None = Field(
        None, description="The same without *.dvc, which a run changes; null in an older manifest."
    )
    diff_path: str = Field("", description="Where the difference is saved, relative to the repository.")
    left_out: dict[str, str] = Field(
        default_factory=dict, description="New files that are too large for the difference -> their sha256."
    )


class Hardware(Closed):
    """The machine."""

    cpu: str = Field("", description="Model of the processor.")
    cores: int = Field(0, description="Cores that this process may use.")
    memory_bytes: int = Field(0, description="Main memory.")
    threads: int = Field(0, description="torch threads of the run.")
    training_processes: int | None = Field(
        None,
        description="Processes that trained together what the run made itself; another number changes the "
        "numbers by rounding. None: not recorded.",
    )
    device: str = Field("", description="Device on which the run's models train and decode: cpu or cuda.")
    gpus: list[str] = Field(
        default_factory=list, description="Name and memory of each NVIDIA GPU, from nvidia-smi."
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
    """The current environment: the repository at `root` and this machine.

    The workspace's difference to the commit is written to `run_directory`.

    Raises:
        DataError: `root` is not a git repository or has no commit, or the disk refuses.
    """
    lock = root / _LOCK_FILE
    return Environment(
        git=describe_git(root, run_directory),
        lock_hash=file_hash(lock) if lock.is_file() else "",
        packages=installed_packages(),
        python=platform.python_version(),
        platform=platform.platform(),
        hardware=describe_hardware(threads, device),
    )


def describe_git(root: Path, run_directory: Path) -> Git:
    """The commit of `root`. Every difference from it is saved as `<run_directory>/git.diff`."""
    commit = _git(root, "rev-parse", "--verify", "HEAD").decode().strip()
    branch = _git(root, "branch", "--show-current").decode().strip()
    new_files = [
        name.decode(errors="surrogateescape")
        for name in _git(root, "ls-files", "-oz", "--exclude-standard").split(b"\0")
        if name
    ]
    large = {
        name
        for name in new_files
        if (root / name).is_file() and (root / name).stat().st_size > _MAX_NEW_FILE_BYTES
    }
    left_out = {os.fsencode(name).decode(errors="replace"): file_hash(root / name) for name in sorted(large)}
    small_files = [name for name in new_files if name not in large]
    diff = _diff(root, small_files)
    git = Git(commit=commit, branch=branch, dirty=bool(diff or left_out), left_out=left_out)
    if not diff:
        return git.model_copy(update={"code_diff_hash": ""})
    path = run_directory / DIFF
    try:
        run_directory.mkdir(parents=True, exist_ok=True)
        path.write_bytes(diff)
    except OSError as error:
        raise cannot_write(path, error) from error
    # A run leaves a new data.dvc behind, which changes the data of the next run but not its code.
    code_diff = _diff(root, small_files, exclude=":(exclude,glob)**/*.dvc")
    return git.model_copy(
        update={
            "diff_hash": file_hash(path),
            "code_diff_hash": hashlib.sha256(code_diff).hexdigest() if code_diff else "",
            "diff_path": os.path.relpath(path, root),
        }
    )


def describe_hardware(threads: int = 0, device: str = "") -> Hardware:
    """Processor, cores that this process may use, memory and GPUs. It imports nothing slow, such as torch."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0
    memory = psutil.virtual_memory().total
    return Hardware(
        cpu=_cpu_model(),
        cores=cores,
        memory_bytes=memory,
        threads=threads,
        training_processes=int(os.environ.get("WORLD_SIZE", "1")),
        device=device,
        gpus=_gpu_names(),
    )


def _diff(root: Path, new_files: list[str], exclude: str = "") -> bytes:
    """Difference to HEAD with the `new_files`, made with a copy of the index.

    Args:
        exclude: pathspec of the files that are left out.
    """
    index = Path(_git(root, "rev-parse", "--path-format=absolute", "--git-path", "index").decode().strip())
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "index"
        if index.exists():
            shutil.copy2(index, copy)
        environment = {"GIT_INDEX_FILE": str(copy)}
        if new_files:
            names = b"\0".join(os.fsencode(name) for name in new_files)
            arguments = ("add", "--intent-to-add", "--pathspec-from-file=-", "--pathspec-file-nul")
            _git(root, "--literal-pathspecs", *arguments, stdin=names, environment=environment)
        options = ("--binary", "--no-ext-diff", "--no-textconv", "--no-color")
        pathspec = ["--", ".", exclude] if exclude else []
        return _git(root, "diff", *options, "HEAD", *pathspec, environment=environment)


def _git(root: Path, *arguments: str, stdin: bytes = b"", environment: dict[str, str] | None = None) -> bytes:
    variables = {**os.environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", **(environment or {})}
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], input=stdin, capture_output=True, env=variables, check=True
        )
    except FileNotFoundError:
        raise DataError(
            "git is not installed on this machine.", "A run's lineage needs it.", "Install git."
        ) from None
    except subprocess.CalledProcessError as error:
        raise _git_error(root, arguments, error.stderr.decode(errors="replace").strip()) from None
    return done.stdout


def _git_error(root: Path, arguments: tuple[str, ...], message: str) -> DataError:
    last_line = message.splitlines()[-1] if message else "no message"
    if "not a git repository" in message:
        next_step = f"cd {root} && git init && git add . && git commit -m 'First commit'"
        return DataError(f"{root} is not a git repository.", "A run's lineage needs a commit.", next_step)
    if "rev-parse" in arguments and "HEAD" in arguments and "ownership" not in message:
        next_step = "git add . && git commit -m 'First commit'"
        return DataError(
            f"The git repository {root} has no commit yet.", "A run's lineage needs one.", next_step
        )
    return DataError(
        f"git {arguments[0]} failed in {root}: {last_line}",
        next_step="Make `git status` work there, then type the command again.",
    )


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _gpu_names() -> list[str]:
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (subprocess.SubprocessError, OSError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]
