"""The manifest of a real git repository: round trip, damage, and a saved difference that git can apply."""

import hashlib
import subprocess

import pytest

from components.errors import DataError
from components.tracking.manifest import Costs, Manifest
from components.tracking.run_environment import collect_environment, describe_git, describe_hardware
from components.tracking.stage_store.stage_result import StageResult


def git(root, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    return subprocess.run(
        ["git", "-C", str(root), *identity, *arguments], check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-b", "main")
    (root / ".gitignore").write_text("runs/\n")
    (root / "code.py").write_text("x = 1\n")
    (root / "constraints.txt").write_text("torch==2.13.0\n")
    git(root, "add", ".")
    git(root, "commit", "-m", "first")
    return root


def make_manifest(root, **options):
    environment = collect_environment(root, root / "runs" / "r1", threads=2)
    return Manifest(run_id="r1", environment=environment, config={"seed": 0}, seeds={"python": 0}, **options)


def test_a_clean_repository_has_no_difference(repository):
    environment = make_manifest(repository).environment
    assert environment.git.commit == git(repository, "rev-parse", "HEAD").strip()
    assert (environment.git.branch, environment.git.dirty, environment.git.diff_path) == ("main", False, "")
    assert environment.lock_hash == hashlib.sha256(b"torch==2.13.0\n").hexdigest()
    assert environment.packages["pydantic"]
    assert environment.python.startswith("3.")
    assert not (repository / "runs" / "r1" / "git.diff").exists()


def test_the_difference_has_changed_staged_and_new_files_and_can_be_applied(repository, tmp_path):
    (repository / "code.py").write_text("x = 2\n")
    (repository / "staged.py").write_text("s = 1\n")
    git(repository, "add", "staged.py")
    (repository / "new äö [1].bin").write_bytes(bytes(range(256)))
    (repository / "runs").mkdir()
    (repository / "runs" / "ignored").write_text("not part of it")
    before = git(repository, "status", "--porcelain")
    state = describe_git(repository, repository / "runs" / "r1")
    assert state.dirty
    assert state.diff_path == "runs/r1/git.diff"
    assert git(repository, "status", "--porcelain") == before

    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(repository), str(clone)], check=True)
    git(clone, "apply", str(repository / state.diff_path))
    for name in ("code.py", "staged.py", "new äö [1].bin"):
        assert (clone / name).read_bytes() == (repository / name).read_bytes()
    assert not (clone / "runs").exists()


def test_a_large_new_file_is_listed_and_not_copied(repository):
    (repository / "weights.bin").write_bytes(b"w" * 1_500_000)
    state = describe_git(repository, repository / "runs" / "r1")
    assert state.left_out == {"weights.bin": hashlib.sha256(b"w" * 1_500_000).hexdigest()}
    assert (state.dirty, state.diff_path) == (True, "")


def test_without_git_or_without_a_commit_the_error_says_what_to_type(tmp_path):
    with pytest.raises(DataError, match="not a git repository.*git init"):
        describe_git(tmp_path, tmp_path / "run")
    git(tmp_path, "init")
    with pytest.raises(DataError, match="no commit yet.*git commit"):
        describe_git(tmp_path, tmp_path / "run")


def test_a_manifest_survives_the_round_trip(repository):
    run = repository / "runs" / "r1"
    manifest = make_manifest(repository, costs=Costs(real_interactions=400, tokens_trained=10))
    manifest.add_stage(StageResult("train", "a" * 64, run, {}, {}, {}, 12.5), mlflow_run_id="m1")
    manifest.add_stage(StageResult("train", "b" * 64, run, {}, {}, {}, 12.5, reused=True))
    manifest.decision = {"promoted": True}
    manifest.save(run)
    assert Manifest.load(run) == manifest
    assert [(stage.key[0], stage.reused) for stage in manifest.stages] == [("b", True)]
    assert [path.name for path in run.iterdir()] == ["manifest.json"]


def test_an_unknown_field_is_refused(repository):
    with pytest.raises(ValueError, match="colour"):
        make_manifest(repository, colour="blue")


@pytest.mark.parametrize("text", ["", '{"run_id": "r1"', '{"run_id": "r1"}', "[]"])
def test_a_damaged_manifest_is_a_data_error(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(DataError, match="is damaged.*MLflow"):
        Manifest.load(tmp_path)


def test_a_missing_manifest_is_a_data_error(tmp_path):
    with pytest.raises(DataError, match="no manifest"):
        Manifest.load(tmp_path)


def test_hardware_is_described():
    hardware = describe_hardware(threads=3)
    assert hardware.cpu
    assert hardware.cores >= 1
    assert hardware.memory_bytes > 1e8
    assert hardware.threads == 3
