"""Problems that would stop a run later are reported first: locks, conflicts, directories, TMPDIR, HOME."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from components.config import load_config
from components.errors import DataError
from components.files import require_writable
from components.trajectories.dvc import repository_state as dvc_state
from components.trajectories.dvc.snapshots import data_hash
from flows.checks.doctor import SETUP_CHECKS, check_files
from flows.checks.machine import require_machine, require_temporary_files
from flows.home import replace_unusable_home

ROOT = Path(__file__).parents[3]
POINTER = "outs:\n- md5: {0}.dir\n  size: 1\n  nfiles: 1\n  hash: md5\n  path: data\n"


def git(root, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    return subprocess.run(["git", "-C", str(root), *identity, *arguments], capture_output=True, text=True)


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "clone"
    (root / ".dvc" / "tmp").mkdir(parents=True)
    git(tmp_path, "init", "-q", str(root))
    (root / "data.dvc").write_text(POINTER.format("1" * 32))
    git(root, "add", "data.dvc")
    git(root, "commit", "-q", "-m", "first")
    return root


def test_a_workspace_in_order_passes_and_nothing_is_left(repository):
    before = sorted(repository.rglob("*"))
    require_machine(repository)
    assert sorted(repository.rglob("*")) == before
    assert check_files(load_config(), repository).state == "ok"


@pytest.mark.parametrize("content", ["", "{", '{"write": {"a', "[]", '{"read": []}', "\0" * 40])
def test_an_unreadable_lock_file_of_dvc_is_reported_with_its_remedy(repository, content, monkeypatch):
    monkeypatch.setattr(dvc_state, "LOCK_WRITE_SECONDS", 0.1)
    lock = repository / ".dvc" / "tmp" / "rwlock"
    lock.write_text(content)
    with pytest.raises(DataError, match="rwlock .* is damaged.*rm -f .*rwlock"):
        require_machine(repository)
    subprocess.run(["sh", "-c", f"rm -f {lock}"], check=True)
    require_machine(repository)
    lock.write_text('{"write": {}, "read": {}}')
    require_machine(repository)


def test_a_lock_file_that_a_dvc_command_is_writing_is_accepted(repository):
    lock = repository / ".dvc" / "tmp" / "rwlock"
    lock.write_text("")
    timer = threading.Timer(0.3, lock.write_text, ['{"write": {}, "read": {}}'])
    timer.start()
    require_machine(repository)
    timer.join()


def test_an_old_index_lock_is_reported_and_a_fresh_one_is_accepted(repository):
    lock = repository / ".git" / "index.lock"
    lock.write_text("")
    require_machine(repository)
    os.utime(lock, (time.time() - 3600, time.time() - 3600))
    with pytest.raises(DataError, match="index is locked by .*index.lock, 60 minutes old.*rm -f"):
        require_machine(repository)


@pytest.mark.parametrize(("side", "kept"), [("--ours", "3"), ("--theirs", "2")])
def test_a_merge_conflict_in_data_dvc_is_named_and_the_advice_works(repository, side, kept):
    branch = git(repository, "branch", "--show-current").stdout.strip()
    for name, digit in (("other", "2"), (branch, "3")):
        git(repository, "checkout", "-q", *(["-b"] if name == "other" else []), name)
        (repository / "data.dvc").write_text(POINTER.format(digit * 32))
        git(repository, "commit", "-qam", name)
    assert git(repository, "merge", "other").returncode == 1
    with pytest.raises(DataError, match="data.dvc is in a merge conflict"):
        data_hash(repository)
    with pytest.raises(DataError, match="data.dvc is in a merge conflict") as raised:
        require_machine(repository)
    advised = raised.value.next_step.split("`")[1].replace("--ours", side)
    assert subprocess.run(["sh", "-c", advised], cwd=repository).returncode == 0
    assert data_hash(repository) == kept * 32 + ".dir"
    require_machine(repository)


def test_conflict_markers_that_were_committed_are_named_too(repository):
    (repository / "data.dvc").write_text(f"<<<<<<< a\n{POINTER}=======\n{POINTER}>>>>>>> b\n")
    git(repository, "commit", "-qam", "markers")
    with pytest.raises(DataError, match="names two versions of data.*git checkout COMMIT -- data.dvc"):
        require_machine(repository)


def test_a_tmpdir_that_is_no_directory_is_reported(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
    with pytest.raises(DataError, match="TMPDIR is .*gone, which is no directory.*export TMPDIR="):
        require_temporary_files()
    monkeypatch.setenv("TMPDIR", "/proc")  # a directory that never takes a file
    with pytest.raises(DataError, match=r"No temporary file can be written in /proc \(TMPDIR\)"):
        require_temporary_files()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    require_temporary_files()
    assert not list(tmp_path.iterdir())


def test_python_without_docstrings_is_refused_before_transformers_is_imported():
    code = "from flows.checks.machine import require_docstrings; require_docstrings()"
    commands = [[sys.executable, *flags, "-c", code] for flags in ((), ("-O",), ("-OO",))]
    ends = [subprocess.run(command, cwd=ROOT, capture_output=True, text=True) for command in commands]
    assert [end.returncode for end in ends] == [0, 0, 1]
    assert "PYTHONOPTIMIZE=2" in ends[2].stderr and "unset PYTHONOPTIMIZE" in ends[2].stderr


def test_a_directory_that_cannot_be_written_is_named():
    with pytest.raises(DataError, match="/proc cannot be written.*chmod u.w /proc"):
        require_writable(Path("/proc/runs"))


def test_a_home_that_cannot_be_written_is_replaced_and_its_settings_are_still_read(monkeypatch, tmp_path):
    for variable in ("HOME", "GIT_CONFIG_GLOBAL", "DVC_GLOBAL_CONFIG_DIR", "PREFECT_PROFILES_PATH"):
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert replace_unusable_home(tmp_path) == "" and os.environ["HOME"] == str(tmp_path)
    monkeypatch.setattr(
        "flows.home._can_write", lambda directory: False
    )  # root may write to any real directory
    (tmp_path / ".gitconfig").write_text("[user]\nname = me\n")
    said = replace_unusable_home(tmp_path / "clone")
    assert (
        f"HOME ({tmp_path}) cannot be written" in said
        and Path(os.environ["HOME"]) == tmp_path / "clone" / ".dreamgym" / "home"
    )
    assert (
        os.environ["GIT_CONFIG_GLOBAL"] == str(tmp_path / ".gitconfig")
        and "DVC_GLOBAL_CONFIG_DIR" not in os.environ
    )


def test_a_game_opens_with_a_missing_home(repository):
    """ALFWorld creates a directory below HOME when it is imported."""
    code = (
        "import sys; from pathlib import Path; from flows.settings import prepare; "
        "prepare(Path(sys.argv[1])); import alfworld.info"
    )
    environment = {name: value for name, value in os.environ.items() if name != "ALFWORLD_DATA"} | {
        "HOME": "/proc/none"
    }
    done = subprocess.run(
        [sys.executable, "-c", code, str(repository)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "HOME (/proc/none) cannot be written" in done.stderr


def test_doctor_checks_the_machine_before_the_data():
    names = list(SETUP_CHECKS)
    assert names.index("git") < names.index("files") < names.index("data")
