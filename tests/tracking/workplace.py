"""Build a clone with runs and results of stages, without any training."""

from __future__ import annotations

import os
import tempfile
import time
from functools import cache
from pathlib import Path

from components.tracking.manifest import Manifest, RegisteredModel
from components.tracking.process import this_process
from components.tracking.run_environment import Environment, collect_environment
from components.tracking.stage_store.loading import STAGES
from components.tracking.stage_store.stage_store import StageStore

METRIC = {"value": 0.5, "n": 10, "low": 0.4, "high": 0.6}
ROOT = Path(__file__).parents[2]


@cache
def environment() -> Environment:
    """The environment of this repository, collected only once because it takes a second."""
    with tempfile.TemporaryDirectory() as directory:
        return collect_environment(ROOT, Path(directory), threads=1)


def make_run(
    root: Path,
    number: int,
    *stages: str,
    status: str = "finished",
    champion: bool = False,
    commit: str = "",
    alive: bool = False,
) -> Manifest:
    """Make a run on day `number` with finished stages that have an output `policy`; return its manifest."""
    name = f"202601{number:02}-000000-000{number}"
    current = this_process()
    process = current if alive else current.model_copy(update={"started": current.started - 60})
    manifest = Manifest(run_id=name, environment=environment(), config={}, status=status, process=process)
    store = StageStore(root / STAGES)
    for stage in stages:
        key = store.key(stage, {"run": name}, {}, ["components.errors"])
        work = store.begin(stage, key)
        (work / "policy").mkdir()
        (work / "policy" / "weights").write_text(name * 100)
        series = {f"{stage}/loss": [1.0, None, 0.25]}
        details = {"series": series}
        outputs = {"policy": "policy"}
        result = store.commit(
            stage, key, metrics={f"{stage}/win": METRIC}, outputs=outputs, seconds=2.5, details=details
        )
        manifest.add_stage(result)
    if champion:
        manifest.models = [RegisteredModel(name="dreamgym-policy", version="1", alias="champion")]
    manifest.data.experiment_commit = commit
    directory = root / "runs" / name
    directory.mkdir(parents=True)
    manifest.save(directory)
    latest = root / "runs" / "latest"
    latest.unlink(missing_ok=True)
    latest.symlink_to(name)
    return manifest


def directory_of(root: Path, manifest: Manifest, stage: str) -> Path:
    """Directory of the stage's result."""
    (key,) = (entry.key for entry in manifest.stages if entry.name == stage)
    return root / STAGES / f"{stage}-{key[:12]}"


def age(root: Path, days: float) -> None:
    """Set the last change of everything below `root` to `days` ago."""
    moment = time.time() - days * 86400
    for place in [*root.rglob("*"), root]:
        os.utime(place, (moment, moment), follow_symlinks=False)
