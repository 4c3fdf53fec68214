"""Untrusted files that would run code or name an outside path are refused (docs/guides/security.md)."""

from __future__ import annotations

import json
import os
import pickle
import subprocess

import pytest
import torch
from builders import VOCABULARY, make_model

from components.config import load_config
from components.errors import ConfigError, DataError, TrainingError
from components.files import MOST_BYTES
from components.language.backbone import load_backbone, save_model
from components.language.training.examples import Example, Segment
from components.language.training.fine_tuning import supervised_finetune
from components.policy.rl.loop_checkpoints import read_iteration_count
from components.tracking.manifest import MANIFEST, DataLineage, Manifest
from components.tracking.run_environment import Environment, Git
from components.tracking.runs import read_games, read_metrics
from components.trajectories.dvc.snapshots import data_hash
from flows.jobs.reproduce import reproduce
from flows.jobs.studies.study_cells import read_cell
from flows.past_runs.resume import cell_of


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.fixture
def trap(tmp_path):
    """The file that must not be created, and the bytes that would create it when unpickled."""
    place = tmp_path / "sprung"
    code = pickle.dumps(Trap(place))
    pickle.loads(code)  # noqa: S301
    assert place.is_dir(), "the trap works"
    place.rmdir()
    return place, code


def test_pickled_weights_of_a_backbone_are_refused(trap, tmp_path):
    place, code = trap
    save_model(make_model(), VOCABULARY, tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    (tmp_path / "model" / "pytorch_model.bin").write_bytes(code)
    with pytest.raises(DataError, match="no weights.*safetensors"):
        load_backbone(tmp_path / "model")
    assert not place.exists()


@pytest.mark.parametrize(
    "name", ["manifest.json", "metrics.json", "games.json", "clone-0.json", "config.yaml", "data.dvc"]
)
def test_an_oversized_record_is_refused_before_it_is_read(tmp_path, name):
    """The file is of zeros that take no room on the disk."""
    with (tmp_path / name).open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    read = {
        "manifest.json": Manifest.load,
        "metrics.json": read_metrics,
        "games.json": read_games,
        "clone-0.json": lambda place: read_cell(place, "clone", 0, {}),
        "config.yaml": lambda place: load_config(place / name),
        "data.dvc": data_hash,
    }
    with pytest.raises((DataError, ConfigError), match="more than 268,435,456 bytes"):
        read[name](tmp_path)


@pytest.mark.parametrize("cell", ["../clone-0.json", "/tmp/clone-0.json", "cells/../../clone-0.json"])
def test_a_cell_of_a_study_is_only_written_inside_the_clone(tmp_path, cell):
    manifest = Manifest.model_construct(run_id="r1", flow="study", cell=cell)
    with pytest.raises(
        DataError, match="belongs to a cell in .*Expected a place in .*command of the study again"
    ):
        cell_of(manifest, tmp_path / "root")
    assert cell_of(manifest.model_copy(update={"cell": "cells/clone-0.json"}), tmp_path / "root") == (
        tmp_path / "root" / "cells",
        "clone",
    )


@pytest.mark.parametrize("saved_by_torch", [False, True])
def test_a_checkpoint_that_would_run_code_is_refused(trap, tmp_path, saved_by_torch):
    place, code = trap
    checkpoint = tmp_path / "checkpoint.pt"
    if saved_by_torch:
        torch.save({"key": Trap(place)}, checkpoint)
    else:
        checkpoint.write_bytes(code)
    examples = [Example([Segment([1, 2, 3], [False, True, True])])]
    with pytest.raises(TrainingError, match="cannot be read"):
        supervised_finetune(
            make_model(),
            examples,
            epochs=1,
            learning_rate=1e-3,
            batch_tokens=64,
            seed=0,
            checkpoint=checkpoint,
        )
    with pytest.raises(TrainingError, match="cannot be read"):
        read_iteration_count(checkpoint)
    assert not place.exists()


@pytest.fixture
def foreign_run(tmp_path):
    """A clone with a finished run of another clone, next to a directory that must not change."""
    clone, victim = tmp_path / "clone", tmp_path / "victim"
    victim.mkdir()
    (victim / "thesis.txt").write_text("years of work")
    subprocess.run(["git", "init", "-q", str(clone)], check=True)
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    subprocess.run(
        ["git", "-C", str(clone), *identity, "commit", "-q", "--allow-empty", "-m", "first"], check=True
    )
    head = subprocess.run(
        ["git", "-C", str(clone), "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    data = DataLineage(dvc_in="0" * 32 + ".dir", experiment_commit=head)
    run = Manifest(
        run_id="r1", status="finished", environment=Environment(git=Git(commit=head)), config={}, data=data
    )
    run.save(clone / "runs" / "r1")
    return clone, victim, clone / "runs" / "r1" / MANIFEST


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("run_id",), "../../../victim"),
        (("run_id",), "{victim}"),
        (("run_id",), ".."),
        (("data", "experiment_commit"), "--help"),
        (("data", "experiment_commit"), "HEAD"),
    ],
)
def test_a_manifest_that_names_a_path_or_an_option_removes_nothing(foreign_run, place, value):
    clone, victim, path = foreign_run
    values = json.loads(path.read_text())
    section = values if len(place) == 1 else values[place[0]]
    section[place[-1]] = value.format(victim=victim)
    path.write_text(json.dumps(values))
    with pytest.raises(DataError, match=f"{path} is damaged: {'.'.join(place)}: .*pattern"):
        reproduce(clone, "r1", lambda _: None, lambda _: None)
    assert (victim / "thesis.txt").read_text() == "years of work"


def test_a_run_is_reproduced_at_its_directory_not_where_its_manifest_says(foreign_run):
    """Its data is missing, so it ends there; the worktree exists."""
    clone, _, path = foreign_run
    path.parent.rename(clone / "runs" / "r2")
    with pytest.raises(DataError):
        reproduce(clone, "r2", lambda _: None, lambda _: None)
    assert [entry.name for entry in (clone / ".dreamgym" / "reproduced").iterdir()] == ["r2"]
