"""Step 12: collect the data of the run's report: metrics, curves, dreamed episodes and next commands."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from components.environments import make_adapter
from components.evaluation.promotion.gate import Decision
from components.evaluation.report.run_report import ReportData
from components.tracking.manifest import Manifest
from components.tracking.runs import list_runs
from flows.printing.formats import duration
from flows.run.games.validation_games import games_note
from flows.run.pipeline_run import Run
from flows.run.stage_curves import series_of

EXAMPLES = 6
"""Dreamed episodes in the report: first those that the real engine does not confirm, then the longest."""


def run_report(run: Run, decision: Decision, unverified: Sequence[str] = ()) -> ReportData:
    """Return the report's data of a finished run of `retrain`.

    Args:
        unverified: sentences on what a run without a live world does not know.
    """
    series: dict[str, list[float]] = {}
    for result in run.results.values():
        series |= series_of(result)
    gate_notes = [note for result in run.results.values() if (note := result.details.get("gate_note", ""))]
    return ReportData(
        run.manifest.run_id,
        run.metrics,
        [entry.model_dump(include={"name", "key", "seconds", "reused"}) for entry in run.manifest.stages],
        series,
        decision.to_json(),
        [make_adapter(run.config.environment).notice, *_games_notes(run), *gate_notes],
        unverified,
        run.results["experience_model"].details.get("reliability", []),
        run.results["synthetic_rl"].details.get("curriculum", []),
        _examples(run),
        report_head(run.manifest),
        next_commands(run.manifest, run.root, run.results["experience_model"].outputs["model"]),
        run.config.evaluation.confidence,
    )


def played_games(run: Run) -> dict[str, dict[str, bool]]:
    """Return policy -> task id -> success in validation games; empty without a live world."""
    if "evaluate" not in run.results:
        return {}
    outputs = run.results["evaluate"].outputs
    return {name: json.loads(path.read_text()) for name, path in outputs.items() if name != "tasks"}


def _games_notes(run: Run) -> list[str]:
    return [games_note(run)] if "evaluate" in run.results else []


def _examples(run: Run) -> list[dict[str, Any]] | None:
    """Return dreamed episodes with the real engine's verdict; None without a live world."""
    if "check_dreamed" not in run.results:
        return None
    replays = json.loads(run.results["check_dreamed"].outputs["replays"].read_text())
    return sorted(replays, key=lambda replay: (replay["confirmed"], -len(replay["steps"])))[:EXAMPLES]


def report_head(manifest: Manifest) -> list[tuple[str, str]]:
    """Return when, where and from what the run was made, as (name, text) pairs."""
    environment = manifest.config.get("environment", {})
    git = manifest.environment.git
    data = manifest.data
    hardware = manifest.environment.hardware
    games = f" ({environment['games']} games)" if environment.get("name") == "alfworld" else ""
    version = (
        data.dvc_in
        if data.dvc_out in ("", data.dvc_in)
        else f"{data.dvc_in} before, {data.dvc_out} after the run"
    )
    head = {
        "date": f"{datetime.fromisoformat(manifest.created):%d %B %Y, %H:%M %Z}".strip(),
        "environment": f"{environment.get('name', '')}{games}",
        "config": manifest.config_file or "the built-in defaults",
        "overrides": " ".join(manifest.overrides),
        "seed": ", ".join(f"{name} {seed}" for name, seed in manifest.seeds.items()),
        "commit": git.commit + (", with changes (git.diff)" if git.dirty else ""),
        "data (DVC)": version,
        "wall time": duration(manifest.seconds),
        "machine": ", ".join(
            filter(None, (hardware.cpu, f"{hardware.cores} cores", hardware.device, *hardware.gpus))
        ),
    }
    return [(name, text) for name, text in head.items() if text]


def next_commands(manifest: Manifest, root: Path, model: Path) -> list[str]:
    """Return commands to type next, each with a comment that says what it does.

    They work in any directory, without an activated environment.
    """
    run = manifest.run_id
    program = shlex.quote(str(_program()))
    workspace = shlex.quote(str(root))
    config = shlex.quote(str(root / "runs" / run / "config.json"))
    earlier = [name for name in list_runs(root / "runs") if name < run][-1:]
    seed = manifest.seeds.get("run", 0)
    in_workspace = f"--root {workspace}"
    commands = {
        f"{program} compare {name} {run} {in_workspace}": "what differs from the run before"
        for name in earlier
    }
    commands |= {
        f"{program} lineage {run} {in_workspace}": "from which data, models and commit its policy comes",
        f"{program} play --side-by-side --model {shlex.quote(str(model))} --config {config} {in_workspace}": (
            "play in this run's dream"
        ),
        f"{program} retrain --config {config} seed={seed + 1} {in_workspace}": "the same with another seed",
        f"{program} ui {in_workspace}": "runs and models in MLflow, flows in Prefect",
    }
    if manifest.data.dvc_out:
        commands[f"{program} data use {run} {in_workspace}"] = "data/ and data.dvc take this run's version"
    if manifest.flow in ("refine", "next-round"):
        other_seed = f"{program} retrain --config {config} seed={seed + 1} {in_workspace}"
        del commands[other_seed]  # it would begin a first round
        return [f"{command}   # {words}" for command, words in commands.items()]
    if commit := manifest.data.experiment_commit:
        commands[f"{program} reproduce {run} {in_workspace}"] = (
            "repeat it from its commit and compare every metric"
        )
        commands[f"git -C {workspace} show --stat {commit}"] = "the run's commit: code, data version, metrics"
    return [f"{command}   # {words}" for command, words in commands.items()]


def _program() -> Path:
    """Return the path of this Python's `dreamgym` command; the bare name if it is not installed."""
    program = Path(sys.executable).with_name("dreamgym")
    return program if program.is_file() else Path("dreamgym")
