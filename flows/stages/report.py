"""What a finished run hands to its report: its head, its numbers and curves, dreamed episodes, and the
commands to look further.
"""

from __future__ import annotations

import json
import shlex
import sys
from datetime import datetime
from pathlib import Path

from components.environments import make_adapter
from components.evaluation.promotion.gate import Decision
from components.evaluation.report.run_report import ReportData
from components.tracking.manifest import Manifest
from components.tracking.runs import list_runs
from flows.printing.formats import duration
from flows.run.pipeline_run import Run, series_of
from flows.run.validation_games import games_note

EXAMPLES = 6
"""Dreamed episodes in the report: first those that the real engine denies, then the longest."""


def run_report(run: Run, decision: Decision) -> ReportData:
    """The report's data of a run of `retrain` that has been concluded."""
    series: dict[str, list[float]] = {}
    for result in run.results.values():
        series |= series_of(result)
    replays = json.loads(run.results["check_dreamed"].outputs["replays"].read_text())
    examples = sorted(replays, key=lambda replay: (replay["confirmed"], -len(replay["steps"])))[:EXAMPLES]
    gate_notes = [note for result in run.results.values() if (note := result.details.get("gate_note", ""))]
    return ReportData(
        run.manifest.run_id,
        run.metrics,
        [entry.model_dump(include={"name", "key", "seconds", "reused"}) for entry in run.manifest.stages],
        series,
        decision.to_json(),
        [make_adapter(run.config.environment).notice, games_note(run), *gate_notes],
        run.results["synthetic_rl"].details.get("curriculum", []),
        examples,
        report_head(run.manifest),
        next_commands(run.manifest, run.root, run.results["experience_model"].outputs["model"]),
        run.config.evaluation.confidence,
    )


def report_head(manifest: Manifest) -> list[tuple[str, str]]:
    """When, where and of what a run was made, as pairs of a name and its text."""
    environment, git, data = manifest.config.get("environment", {}), manifest.environment.git, manifest.data
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
    """Commands that look further and work in any directory, without an activated environment; a comment says
    what each does.
    """
    program, run = shlex.quote(str(_program())), manifest.run_id
    place, config = shlex.quote(str(root)), shlex.quote(str(root / "runs" / run / "config.json"))
    earlier = [name for name in list_runs(root / "runs") if name < run][-1:]
    seed = manifest.seeds.get("run", 0)
    commands = {
        **{
            f"{program} compare {name} {run} --root {place}": "what differs from the run before"
            for name in earlier
        },
        f"{program} lineage {run} --root {place}": "from which data, models and commit its policy comes",
        f"{program} play --side-by-side --model {shlex.quote(str(model))} --config {config} --root "
        f"{place}": "step into this run's dream",
        f"{program} retrain --config {config} seed={seed + 1} --root {place}": "the same with another seed",
        f"{program} ui --root {place}": "runs and models in MLflow, flows in Prefect",
    }
    if manifest.data.dvc_out:
        commands[f"{program} data use {run} --root {place}"] = "data/ and data.dvc take this run's version"
    if commit := manifest.data.experiment_commit:
        commands[f"{program} reproduce {run} --root {place}"] = (
            "make it again from its commit and compare every metric"
        )
        commands[f"git -C {place} show --stat {commit}"] = "the run's commit: code, data version, metrics"
    return [f"{command}   # {words}" for command, words in commands.items()]


def _program() -> Path:
    """The `dreamgym` command of this Python; the bare name if it was not installed as one."""
    program = Path(sys.executable).with_name("dreamgym")
    return program if program.is_file() else Path("dreamgym")
