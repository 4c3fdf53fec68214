"""`gc` removes what is not needed: a test for each reason to keep an entry."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from workplace import age, directory_of, make_run

from components.tracking.disk_usage import Champions, remove, runs_in_progress, survey
from components.tracking.stage_store.loading import STAGES

NONE = Champions()
HOLD_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


def reasons_kept(root, champions=NONE, older_than_days=7, keep=1):
    """Path below the root -> reason why it is kept."""
    found = survey(root, champions, older_than_days=older_than_days, keep=keep)
    return {item.path.relative_to(root).as_posix(): item.reason_kept for item in found}


def stage_of(root, manifest, stage):
    return directory_of(root, manifest, stage).relative_to(root).as_posix()


@pytest.fixture
def old_runs(tmp_path):
    """(root, manifests) of four runs that are a month old."""
    manifests = [make_run(tmp_path, number, "clone", "evaluate") for number in range(1, 5)]
    age(tmp_path, 30)
    return tmp_path, manifests


def test_old_runs_and_their_stages_are_not_needed_and_the_newest_are(old_runs):
    root, (first, second, third, fourth) = old_runs
    found = reasons_kept(root, keep=2)
    for manifest in (first, second):
        assert found[f"runs/{manifest.run_id}"] == "" == found[stage_of(root, manifest, "clone")]
    for manifest in (third, fourth):
        assert (
            "newest" in found[f"runs/{manifest.run_id}"]
            and manifest.run_id in found[stage_of(root, manifest, "clone")]
        )
    assert "newest" in reasons_kept(root, keep=0)[f"runs/{fourth.run_id}"], "`latest` points there"
    assert set(reasons_kept(root, older_than_days=31, keep=0).values()) == {
        "changed less than 31 days ago",
        "one of the newest runs",
    }


def test_only_unneeded_entries_are_removed(old_runs):
    root, manifests = old_runs
    items = survey(root, NONE, older_than_days=7, keep=1)
    unneeded = [item for item in items if not item.reason_kept]
    before = {item.path for item in items}
    removed, freed = remove(root, items)
    assert removed == unneeded and freed == sum(item.bytes for item in unneeded) > 0
    assert {path for path in before if path.exists()} == {item.path for item in items if item.reason_kept}
    assert not list((root / ".dreamgym").glob("removed-*"))
    assert not [item for item in survey(root, NONE, older_than_days=7, keep=1) if not item.reason_kept]


def test_the_stages_and_the_run_of_a_champion_are_kept(tmp_path):
    promoted = make_run(tmp_path, 1, "clone", "sim_to_real", champion=True)
    make_run(tmp_path, 2, "clone")
    age(tmp_path, 30)
    found = reasons_kept(tmp_path, keep=0)
    assert found[f"runs/{promoted.run_id}"] == "made a champion"
    assert promoted.run_id in found[stage_of(tmp_path, promoted, "sim_to_real")]
    assert promoted.run_id in found[stage_of(tmp_path, promoted, "clone")]


def test_files_of_a_version_for_rollback_are_kept(old_runs):
    """The registry names the run and the stage's key; the manifest says nothing."""
    root, (first, second, *_) = old_runs
    (key,) = (stage.key for stage in second.stages if stage.name == "evaluate")
    found = reasons_kept(root, Champions(frozenset({first.run_id}), frozenset({key}), ""), keep=0)
    assert found[f"runs/{first.run_id}"] == "made a champion" and found[stage_of(root, first, "clone")]
    assert found[stage_of(root, second, "evaluate")] and not found[stage_of(root, second, "clone")]


def test_the_runs_that_a_kept_run_went_on_from_are_kept_with_their_stages(old_runs):
    root, (first, second, third, fourth) = old_runs
    for later, earlier in ((fourth, third), (third, first)):
        later.continues = earlier.run_id
        later.save(root / "runs" / later.run_id)
    age(root, 30)
    found = reasons_kept(root, keep=1)
    for manifest in (first, third):
        for name in (f"runs/{manifest.run_id}", stage_of(root, manifest, "clone")):
            assert found[name] == f"run {fourth.run_id} goes on from it"
    assert found[f"runs/{second.run_id}"] == "" == found[stage_of(root, second, "clone")]


def test_the_record_of_a_committed_run_is_kept_and_its_stages_are_not(tmp_path):
    committed = make_run(tmp_path, 1, "clone", commit="a" * 40)
    make_run(tmp_path, 2, "clone")
    age(tmp_path, 30)
    found = reasons_kept(tmp_path, keep=0)
    assert (
        "commit aaaaaaaaaaaa" in found[f"runs/{committed.run_id}"]
        and found[stage_of(tmp_path, committed, "clone")] == ""
    )


def test_nothing_is_removed_during_a_run_even_if_it_starts_after_the_survey(old_runs):
    root, _ = old_runs
    items = survey(root, NONE, older_than_days=0, keep=0)
    running = make_run(root, 9, status="running", alive=True)
    assert runs_in_progress(root) == [running.run_id]
    assert remove(root, items) == ([], 0) and all(item.path.exists() for item in items)
    assert all(reasons_kept(root, older_than_days=0, keep=0).values())


@pytest.mark.parametrize(("days", "in_progress"), [(6, True), (8, False)])
def test_a_run_of_another_machine_is_in_progress_for_a_week_after_its_last_change(
    tmp_path, days, in_progress
):
    run = make_run(tmp_path, 1, status="running", alive=True)
    run.process = run.process.model_copy(update={"host": f"not-{run.process.host}"})
    run.save(tmp_path / "runs" / run.run_id)
    age(tmp_path, days)
    assert runs_in_progress(tmp_path) == ([run.run_id] if in_progress else [])


def test_a_killed_run_is_not_in_progress_but_its_unfinished_stage_is_kept_for_resume(tmp_path):
    make_run(tmp_path, 1, "clone")
    (tmp_path / STAGES / "evaluate-0123456789ab.partial").mkdir()
    age(tmp_path, 30)
    assert reasons_kept(tmp_path)[f"{STAGES.as_posix()}/evaluate-0123456789ab.partial"] == "", (
        "the newest run is finished"
    )
    make_run(tmp_path, 2, "clone", status="running")
    age(tmp_path, 30)
    assert runs_in_progress(tmp_path) == []
    assert "dreamgym resume" in reasons_kept(tmp_path)[f"{STAGES.as_posix()}/evaluate-0123456789ab.partial"]


def test_an_unfinished_stage_of_a_running_process_is_kept(tmp_path):
    make_run(tmp_path, 1, "clone")
    store = tmp_path / STAGES
    (store / "evaluate-0123456789ab.partial").mkdir()
    age(tmp_path, 30)
    command = [sys.executable, "-c", HOLD_LOCK, str(store / ".locks" / "evaluate-0123456789ab")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        reason_kept = reasons_kept(tmp_path)[f"{STAGES.as_posix()}/evaluate-0123456789ab.partial"]
        other.stdin.close()
        assert reason_kept == "another process works in it"


def test_embeddings_index_old_downloads_and_worktrees_are_not_needed_but_the_champions_download_is(
    tmp_path,
):
    make_run(tmp_path, 1, "clone")
    own = tmp_path / ".dreamgym"
    champions = ("champion/0123-1/weights", "champion/0123-2/weights")
    for name in ("embeddings/a.sqlite", "index/chroma", *champions, "reproduced/r/data", "dvc-remote/x"):
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).write_bytes(b"x" * 1000)
    (tmp_path / STAGES / "clone-0123456789ab.damaged-1").mkdir()
    assert reasons_kept(tmp_path)[f"{STAGES.as_posix()}/clone-0123456789ab.damaged-1"] == "", (
        "whatever its age"
    )
    age(tmp_path, 30)
    found = reasons_kept(tmp_path, Champions(download="0123-2"))
    unneeded = {
        path
        for path, reason_kept in found.items()
        if not reason_kept and not path.startswith(STAGES.as_posix())
    }
    assert unneeded == {
        f".dreamgym/{name}" for name in ("embeddings", "index", "champion/0123-1", "reproduced/r")
    }
    assert found[".dreamgym/champion/0123-2"] == "the champion" and "commits" in found[".dreamgym/dvc-remote"]
    sizes = {item.path.name: item.bytes for item in survey(tmp_path, NONE, older_than_days=7, keep=1)}
    assert sizes["embeddings"] == sizes["dvc-remote"] == 1000


def test_a_removed_worktree_is_forgotten_by_git(tmp_path):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@localhost"]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    place = tmp_path / ".dreamgym" / "reproduced" / "r"
    subprocess.run([*git, "worktree", "add", "-q", "--detach", str(place), "HEAD"], check=True)
    age(place, 30)
    remove(tmp_path, survey(tmp_path, NONE, older_than_days=7, keep=1))
    listed = subprocess.run([*git, "worktree", "list"], capture_output=True, text=True, check=True).stdout
    assert not place.exists() and str(place) not in listed and Path(tmp_path, ".git").is_dir()
