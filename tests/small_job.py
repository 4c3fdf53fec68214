"""The complete main job with tiny settings, in a clone of this repository, as a child process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

from prefect_server import shared_server
from warm import run_command

from components.trajectories.dvc.dvc_cache import cache_directory, object_path, read_listing
from components.trajectories.replay_log import read_log

ROOT = Path(__file__).parents[1]
SMALL = [
    *(
        "experience_model.epochs=0.1",
        "experience_model.transitions=3000",
        "fidelity.tasks=2",
        "fidelity.policy_tasks=4",
    ),
    *("cloning.demonstrations=6", "evaluation.tasks=6"),
    *(
        "rl.dream.iterations=1",
        "rl.dream.tasks=2",
        "rl.dream.num_generations=8",
        "rl.dream.processes=1",
    ),
    *("rl.real.iterations=1", "rl.real.tasks=2", "rl.real.num_generations=2", "rl.real.budget=90"),
    *("fidelity.min_next_state_exact=0", "fidelity.min_reward_precision=0", "fidelity.max_unparsable_rate=1"),
    *("fidelity.min_rollout_agreement=0", "fidelity.max_kindness=1", "fidelity.open_loop_tasks=3"),
]
ANYHOW = ["promotion.threshold=0", "tracking.dvc_experiment=false", "rl.dream.processes=2"]
"""Overrides so that the outcome does not depend on what so small a job achieves; two rollout processes, as by
default.
"""
CLOCKS = ("second", "wall", "bytes")
"""Parts of names of metrics that depend on the machine, not on the run."""
OF_THE_RUN = ("_docs", "replay")
"""Endings of outputs that contain the run's id or the time; `log_of` compares the log."""


def make_clone(place: Path) -> Path:
    """Create a clone with a git identity and without data."""
    subprocess.run(["git", "clone", "-q", str(ROOT), str(place)], check=True)
    for key, value in (("user.name", "Test"), ("user.email", "test@example.org")):
        subprocess.run(["git", "config", key, value], cwd=place, check=True)
    return place


def environment_of(clone: Path) -> dict[str, str]:
    """Return environment variables: the clone's code and Prefect database, and lines that do not wrap."""
    return {
        **os.environ,
        "PYTHONPATH": str(clone),
        "COLUMNS": "200",
        "PREFECT_HOME": str(clone / ".dreamgym" / "prefect"),
    }


def command_of(*arguments: str) -> list[str]:
    """Return the `dreamgym` command of the code on the path; of several overrides of a key only the last."""
    return [sys.executable, "-c", "from flows.cli import main; main()", *last_of_each(arguments)]


def last_of_each(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with only the last override of each key: the command refuses two that differ."""
    keys = [
        argument.partition("=")[0] if "=" in argument and not argument.startswith("-") else ""
        for argument in arguments
    ]
    return [
        argument
        for place, argument in enumerate(arguments)
        if not keys[place] or keys[place] not in keys[place + 1 :]
    ]


def run(
    clone: Path,
    *overrides: str,
    verb: Sequence[str] = ("retrain",),
    small: bool = True,
    own_server: bool = False,
) -> tuple[int, str, float]:
    """Run `dreamgym retrain` (or another command) in the clone; return exit code, output and seconds.

    Args:
        small: use the tiny settings.
        own_server: let Prefect start a server of its own, as for a user.
    """
    environment = environment_of(clone) | ({} if own_server else {"PREFECT_API_URL": shared_server()})
    began = time.monotonic()
    with tempfile.NamedTemporaryFile() as output:
        arguments = [*verb, *last_of_each([*(SMALL if small else ()), *overrides])]
        code = run_command(arguments, clone, environment, Path(output.name), timeout=560)
        text = output.read().decode()
    return code, text, time.monotonic() - began


def numbers(clone: Path) -> dict[str, Any]:
    """Return the exact metrics of the latest run and the hashes of its outputs.

    Metrics of the clock, and outputs that contain the run's id, are left out.
    """
    latest = clone / "runs" / "latest"
    metrics = json.loads((latest / "metrics.json").read_text())
    manifest = json.loads((latest / "manifest.json").read_text())
    values = {name: entry for name, entry in metrics.items() if not any(word in name for word in CLOCKS)}
    for stage in manifest["stages"]:
        (record,) = (clone / ".dreamgym" / "stages").glob(f"{stage['name']}-{stage['key'][:12]}/stage.json")
        hashes = json.loads(record.read_text())["output_hashes"]
        values |= {
            f"{stage['name']}/{output}": value
            for output, value in hashes.items()
            if not output.endswith(OF_THE_RUN)
        }
    return values


def log_of(clone: Path) -> list[tuple[Any, ...]]:
    """Return the transitions of the replay log in the latest run's version of the data, without run ids."""
    parts = json.loads((clone / "runs" / "latest" / "manifest.json").read_text())["data"]["parts_out"]
    cache = cache_directory(clone)
    with tempfile.TemporaryDirectory() as log:
        for name, md5 in read_listing(cache, parts["data/alfworld/replay"]).items():
            (Path(log) / name).symlink_to(object_path(cache, md5))
        return [astuple(replace(step, run_id="")) for step in read_log(Path(log))]
