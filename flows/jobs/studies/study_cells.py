"""The cells of a study: made from finished runs, and kept on disk as one small JSON file each.

The files can be committed to git, so that a study continues on another machine.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path
from typing import Any

from components.errors import DataError
from components.evaluation.study.cells import Cell
from components.files import parse_json, read_text, write_json
from components.tracking.stage_store.stage_result import StageResult
from components.trajectories.store import read_tasks
from flows.jobs.studies.cell_origin import Origin, require_origin
from flows.jobs.studies.recorded_transitions import recorded_transitions
from flows.jobs.studies.study_methods import METHODS
from flows.run.pipeline_run import Run
from flows.run.stage_curves import json_series, series_of

FIDELITY_METRICS = (
    "fidelity/next_state_exact/determined",
    "fidelity/hallucination_rate/determined",
    "fidelity/token_f1",
    "fidelity/calibration/auroc",
    "fidelity/reward_precision",
    "fidelity/reward_recall",
    "fidelity/as_used/next_state_exact/determined",
    "fidelity/as_used/reward_precision",
    "fidelity/as_used/reward_recall",
    "fidelity/as_used/unanswered_rate",
)
"""Metrics of the experience model that a cell records."""
CHECK_METRICS = (
    "fidelity/policy_reward_precision/dreamed",
    "fidelity/policy_reward_recall/dreamed",
    "fidelity/rollout_agreement/dreamed",
    "fidelity/rollout_state_agreement/dreamed",
    "fidelity/kindness/dreamed",
)
"""Metrics of a comparison with reality that a cell of a graded dream records."""

RL_CURVES = ("unparsable_episodes", "zero_variance_groups", "lessons")
"""Curves of RL whose means a cell records.

They are episodes without an answer of the dream, groups without variance, and episodes (DPO: pairs) trained
on.
"""
JUDGE_CURVES = ("judged_share", "judge_auc")
"""Curves of Meta-Rewarding whose first and last values a cell records."""

METHOD_CURVES = ("implicit_accuracy", "implicit_loss", "preferred", "margin", "reward_model/auc")
"""Curves of which a cell records each value: iStar's model, DPO's pairs, HERO's learnt reward."""
CLONE_LOSSES = ("clone/loss", "clone/world/loss")
"""Curves of the clone with one value an optimiser update: on demonstrations, and before on their world."""
CLONE_UPDATES = "clone/updates"


def cell_file(directory: Path, method: str, seed: int) -> Path:
    """Return the file of a finished cell, named after its method and seed."""
    return directory / f"{method}-{seed}.json"


def write_cell(directory: Path, cell: Cell) -> Path:
    """Write a finished cell and return its file."""
    path = cell_file(directory, cell.method, cell.seed)
    write_json(path, asdict(cell))
    return path


def read_cell(directory: Path, method: str, seed: int, origin: Origin) -> Cell | None:
    """Return the cell if it is finished; None if not.

    Raises:
        DataError: its file cannot be read, or it was made with another config, other data or another
            definition of the method.
    """
    path = cell_file(directory, method, seed)
    if not path.is_file():
        return None
    next_step = f"Name another directory (--cells), or delete the file to run the cell again: rm {path}"
    try:
        cell = Cell(**parse_json(read_text(path)))
    except (OSError, ValueError, TypeError) as error:
        raise DataError(
            f"{path} is no cell of a study: {error}",
            "Expected a file that `dreamgym study` wrote.",
            next_step,
        ) from None
    if type(cell.seed) is not int or (cell.method, cell.seed) != (method, seed):
        problem = f"{path} is the cell of the method {cell.method} with the seed {json.dumps(cell.seed)}."
        raise DataError(
            problem, f"Expected the method {method} and the seed {seed}, as the file is named.", next_step
        )
    require_origin(path, cell.origin, origin, next_step)
    return cell


Results = Mapping[str, StageResult]
"""Stage -> its result."""


def cell_of_run(run: Run, name: str, origin: Origin, rounds: Sequence[Results] = ()) -> Cell:
    """Return the cell of a finished run.

    Args:
        name: of the method.
        rounds: results at the end of each round of dream and reality; empty: those of the run, of one round.
    """
    families = {task.id: task.family for task in read_tasks(run.data.tasks("test"))}
    games = json.loads(run.results["evaluate_policy"].outputs["games"].read_text())
    method = METHODS[name]
    trained = [
        results[stage]
        for results in rounds or [run.results]
        for stage in ("experience_model", *method.stages)
        if stage in results
    ]
    stages = [result for result in trained if result.name in method.stages]
    costs = run.manifest.costs
    curve = _learning_curve(trained)
    evaluation = _evaluation_interactions(rounds or [run.results], run.results)
    return Cell(
        name,
        run.config.seed,
        origin,
        games,
        families={game: families[game] for game in games},
        real_interactions=costs.real_interactions,
        dreamed_interactions=_dreamed_interactions(stages),
        check_interactions=costs.check_interactions - evaluation,
        evaluation_interactions=evaluation,
        recorded_transitions=recorded_transitions(run, [result.name for result in trained]),
        seconds=_seconds(trained),
        curve=curve,
        held_out=_held_out_curve(rounds or [run.results], method.stages, curve),
        curriculum=_curriculum_records(stages),
        watched=_dream_checks(stages),
        figures=_mean_figures(run, stages),
        rl_curves=_rl_curves(stages),
        run_id=run.manifest.run_id,
        commit=run.manifest.environment.git.commit,
        policy=run.results[method.last].output_hashes["policy"],
    )


def _evaluation_interactions(rounds: Sequence[Results], last: Results) -> int:
    """Return the real steps of the stages that play games to evaluate policies, each stage's result once.

    Args:
        rounds: results at the end of each round.
        last: results at the end of the run.
    """
    games = {
        result.key: result.details.get("costs", {}).get("check_interactions", 0)
        for results in (*rounds, last)
        for stage, result in results.items()
        if stage == "evaluate_policy" or stage.startswith("snapshots_")
    }
    return int(sum(games.values()))


def _seconds(trained: Sequence[StageResult]) -> dict[str, float]:
    """Return stage -> wall time of all rounds."""
    seconds: dict[str, float] = {}
    for result in trained:
        seconds[result.name] = seconds.get(result.name, 0.0) + result.seconds
    return seconds


def _dreamed_interactions(stages: Sequence[StageResult]) -> int:
    totals = (_interactions(result) for result in stages if result.name == "synthetic_rl")
    return int(sum(interactions[-1] for interactions in totals if interactions))


def _held_out_curve(
    rounds: Sequence[Results], stages: Sequence[str], curve: Sequence[Sequence[float]]
) -> list[list[float]]:
    """Return `Cell.held_out`: a point for each policy on the way that played the held-out games.

    A stage that plays nothing, such as learning from logs, has no curve, and its policies no point.

    Args:
        stages: names of those of RL.
    """
    points = []
    earlier_iterations = 0
    for results in rounds:
        for stage in stages:
            snapshots = results.get(f"snapshots_{stage}")
            if not _success_rates(results[stage]):
                continue
            won = json.loads(snapshots.outputs["games"].read_text()) if snapshots else {}
            points += [
                [*curve[earlier_iterations + int(name) - 1][:3], sum(games.values()) / len(games)]
                for name, games in won.items()
            ]
            earlier_iterations += len(_interactions(results[stage]))
    return points


def _interactions(result: StageResult) -> list[float]:
    """Return the interactions spent up to each iteration."""
    return list(accumulate(series_of(result).get(f"{result.name}/interactions", [])))


def _success_rates(result: StageResult) -> list[float]:
    """Return the share of each iteration's episodes that succeeded; empty if the stage plays nothing."""
    return series_of(result).get(f"{result.name}/success_rate", [])


def _curriculum_records(stages: Sequence[StageResult]) -> list[dict[str, Any]]:
    return [entry for stage in stages for entry in stage.details.get("curriculum", [])]


def _dream_checks(stages: Sequence[StageResult]) -> list[list[float]]:
    """Return `Cell.watched`."""
    checks = []
    for series in map(series_of, stages):
        confirmed, rates = (
            series.get(f"synthetic_rl/{name}", []) for name in ("rollout_agreement", "watched_success_rate")
        )
        pairs = zip(confirmed, rates, strict=True)
        checks += [
            [number, rate, share]
            for number, (share, rate) in enumerate(pairs, start=1)
            if not math.isnan(share)
        ]
    return checks


def _mean_figures(run: Run, stages: Sequence[StageResult]) -> dict[str, float]:
    """Return `Cell.figures`; a value that is not a number is left out."""
    figures: dict[str, float] = {}
    clone = series_of(run.results["clone"])
    if updates := sum(len(clone.get(name, [])) for name in CLONE_LOSSES):
        figures[CLONE_UPDATES] = float(updates)
    for stage_name, names in (("experience_model", FIDELITY_METRICS), ("check_dreamed", CHECK_METRICS)):
        metrics = run.results[stage_name].metrics if stage_name in run.results else {}
        figures |= {
            name: float(value)
            for name in names
            if (value := metrics.get(name, {}).get("value")) is not None and metrics[name].get("n", 1)
        }
    for stage in stages:
        curves = {
            f"{stage.name}/{name}": series_of(stage).get(f"{stage.name}/{name}", []) for name in RL_CURVES
        }
        figures |= {name: sum(values) / len(values) for name, values in curves.items() if values}
        for name in JUDGE_CURVES:
            known = [
                value for value in series_of(stage).get(f"{stage.name}/{name}", []) if math.isfinite(value)
            ]
            if known:
                figures |= {f"{stage.name}/{name}/first": known[0], f"{stage.name}/{name}/last": known[-1]}
    return figures


def _rl_curves(stages: Sequence[StageResult]) -> dict[str, list[float | None]]:
    """Return `Cell.rl_curves`; the iterations of a stage of several rounds follow each other."""
    curves: dict[str, list[float]] = {}
    for stage in stages:
        series = series_of(stage)
        for name in METHOD_CURVES:
            if values := series.get(f"{stage.name}/{name}"):
                curves.setdefault(f"{stage.name}/{name}", []).extend(values)
    return json_series(curves)


def _learning_curve(trained: Sequence[StageResult]) -> list[list[float]]:
    """Return `Cell.curve`.

    Args:
        trained: the results of all rounds. The clock runs while the experience model is trained, too.
    """
    curve: list[list[float]] = []
    real = dreamed = clock = 0.0
    for result in trained:
        if result.name == "experience_model":
            clock += result.seconds
        series = series_of(result)
        rates = _success_rates(result)
        if not rates:
            continue
        interactions = _interactions(result)
        times = list(accumulate(series.get(f"{result.name}/seconds", [])))
        in_dream = result.name == "synthetic_rl"
        for rate, steps, seconds in zip(rates, interactions, times, strict=True):
            curve.append([real + steps * (not in_dream), dreamed + steps * in_dream, clock + seconds, rate])
        real, dreamed, clock = curve[-1][:3]
    return curve
