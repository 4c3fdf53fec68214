"""The study: training methods times seeds, evaluated on the same held-out games, with the cost of each.

    dreamgym study --config configs/study.yaml --json docs/results/study.json --figures docs/images --table
    docs/results.md

A cell is one method with one seed: a Prefect task with an MLflow run and a manifest of its own. Its stages
are kept, so what cells share (the clone, the experience model, the dreamed policy) is computed once. A
finished cell is a small file: an interrupted study continues on any machine that has the files. A cell that
crashes is listed in the table, and the others run on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE

from components.config import Config
from components.evaluation.metrics.intervals import Estimate
from components.evaluation.report.document_tables import insert_table
from components.evaluation.study.cells import Cell, require_distinct_policies
from components.evaluation.study.study_figures import draw_study
from components.evaluation.study.study_table import study_table
from components.files import write_json
from components.tracking.runs import checked_metrics
from components.tracking.stage_store.stage_result import StageResult
from components.trajectories.store import DataLayout, read_tasks
from flows.jobs.cell_origin import Origin, origin_of
from flows.jobs.study_cells import cell_file, read_cell, write_cell
from flows.jobs.study_methods import BASE, BASES, METHODS, configured
from flows.run.pipeline_run import Run
from flows.run.plan import Step
from flows.run.rl_training import SNAPSHOTS
from flows.run.stage_curves import series_of
from flows.stages.clone import clone_policy
from flows.stages.evaluate_held_out import evaluate_policy, evaluate_snapshots
from flows.stages.experience_model import fine_tune_experience_model
from flows.stages.sim_to_real import refine_in_reality, train_in_reality
from flows.stages.synthetic_rl import train_in_dream
from flows.stages.validate import validate_data

FIDELITY_METRICS = (
    "fidelity/next_state_exact/determined",
    "fidelity/hallucination_rate/determined",
    "fidelity/reward_precision",
    "fidelity/reward_recall",
)
"""Metrics of the experience model that a cell records."""
RL_CURVES = ("unparsable_episodes", "zero_variance_groups", "lessons")
"""Curves of RL whose means a cell records.

They are episodes without an answer of the dream, groups without variance, and episodes (DPO: pairs) trained
on.
"""


@flow(name="study", validate_parameters=False)
def study(
    config: Config,
    root: Path,
    methods: Sequence[str],
    seeds: Sequence[int],
    directory: Path,
    *,
    finished: bool = False,
) -> dict[str, list[Cell]]:
    """Return the cells of each method, in the order of the seeds.

    Args:
        directory: of the cells' files; finished cells are read from it.
        finished: only read finished cells, run no other.
    """
    log = get_run_logger()
    root = root.resolve()
    train_tasks = read_tasks(DataLayout.of(root, config.environment.name).tasks("train"))
    families = sorted({task.family for task in train_tasks})
    configs = {(name, seed): configured(config, name, seed, families) for seed in seeds for name in methods}
    cells: dict[str, list[Cell]] = {name: [] for name in methods}
    for number, ((name, seed), cell_config) in enumerate(configs.items(), start=1):
        origin = origin_of(cell_config, root)
        cell = read_cell(directory, name, seed, origin)
        state = ", already there" if cell else ", not made yet" if finished else ""
        log.info("cell %d of %d: %s, seed %d%s", number, len(configs), name, seed, state)
        if cell or not finished:
            cells[name].append(cell or _new_cell(cell_config, root, name, origin, directory))
    require_distinct_policies(cells)
    return {name: method_cells for name, method_cells in cells.items() if method_cells}


def _new_cell(config: Config, root: Path, name: str, origin: Origin, directory: Path) -> Cell:
    """Run a cell and write its file; a crash is returned but not written, so the next call runs it again."""
    try:
        cell = run_cell.with_options(name=f"{name}-{config.seed}")(config, root, name, origin, directory)
    except Exception as error:
        get_run_logger().error("%s, seed %d crashed: %s", name, config.seed, error)
        return Cell(name, config.seed, origin, crash=f"{type(error).__name__}: {error}")
    write_cell(directory, cell)
    return cell


@task(cache_policy=NO_CACHE)
def run_cell(config: Config, root: Path, name: str, origin: Origin, directory: Path) -> Cell:
    """Run one method with one seed, from the offline data to the held-out games.

    The manifest records the file in `directory` that the cell will be written to.
    """
    method = METHODS[name]
    run = Run(config, root)
    run.start(f"study {name}")
    try:
        run.note_cell(cell_file(directory, name, config.seed))
        # Check the offline data; clone the policy that all methods start from.
        validate_data(run)
        clone_policy(run)
        # RL in the dream, if the method uses one.
        if method.dream:
            fine_tune_experience_model(run)
            train_in_dream(run)
        # RL in the real environment: briefly after the dream, or alone with the whole budget.
        if method.real and method.dream:
            refine_in_reality(run)
        elif method.real:
            train_in_reality(run)
        # Held-out real games.
        evaluate_policy(run, method.last)
        # The same games with copies of the policy from during training, for the learning curves.
        for stage in method.stages if run.config.study.curve_every else []:
            if SNAPSHOTS in run.results[stage].outputs:
                evaluate_snapshots(run, stage)
        run.finish()
    except BaseException as error:
        run.fail(error)
        raise
    return _cell_of(run, name, origin)


def steps_of(config: Config, name: str) -> dict[str, Step]:
    """Return the steps of a cell of the method `name` in order; `--dry-run` reads them."""
    method = METHODS[name]
    steps = {"validate": Step(validate_data.declare), "clone": Step(clone_policy.declare)}
    if method.dream:
        steps["experience_model"] = Step(fine_tune_experience_model.declare)
        steps["synthetic_rl"] = Step(train_in_dream.declare)
    if method.real:
        steps[method.last] = Step((refine_in_reality if method.dream else train_in_reality).declare)
    steps["evaluate_policy"] = Step(lambda run: evaluate_policy.declare(run, method.last))
    if config.study.curve_every:
        steps |= {f"snapshots_{stage}": _snapshots_step(stage) for stage in method.stages}
    return steps


def _snapshots_step(stage: str) -> Step:
    """Return the step that evaluates the policies kept during training by `stage`, if it kept any."""
    return Step(
        lambda run: evaluate_snapshots.declare(run, stage),
        condition=lambda run: SNAPSHOTS in run.results[stage].outputs,
    )


def _cell_of(run: Run, name: str, origin: Origin) -> Cell:
    tasks = {task.id: task.family for task in read_tasks(run.data.tasks("test"))}
    games = json.loads(run.results["evaluate_policy"].outputs["games"].read_text())
    seconds = {
        stage: result.seconds
        for stage, result in run.results.items()
        if stage in ("experience_model", *METHODS[name].stages)
    }
    stages = [run.results[stage] for stage in METHODS[name].stages]
    costs = run.manifest.costs
    dreamed_steps = sum(
        _interactions(result)[-1]
        for result in stages
        if result.name == "synthetic_rl" and _interactions(result)
    )
    curve = _learning_curve(stages, seconds.get("experience_model", 0.0))
    return Cell(
        name,
        run.config.seed,
        origin,
        games,
        {game: tasks[game] for game in games},
        costs.real_interactions,
        int(dreamed_steps),
        costs.check_interactions,
        seconds,
        curve,
        _held_out_curve(run, stages, curve),
        _curriculum_records(stages),
        _dream_checks(stages),
        _mean_figures(run, stages),
        run.manifest.run_id,
        run.manifest.environment.git.commit,
        run.results[METHODS[name].last].output_hashes["policy"],
    )


def _held_out_curve(
    run: Run, stages: Sequence[StageResult], curve: Sequence[Sequence[float]]
) -> list[list[float]]:
    """Return `Cell.held_out`."""
    points = []
    earlier_iterations = 0
    for stage in stages:
        snapshots = run.results.get(f"snapshots_{stage.name}")
        won = json.loads(snapshots.outputs["games"].read_text()) if snapshots else {}
        points += [
            [*curve[earlier_iterations + int(name) - 1][:3], sum(games.values()) / len(games)]
            for name, games in won.items()
        ]
        earlier_iterations += len(_interactions(stage))
    return points


def _interactions(result: StageResult) -> list[float]:
    """Return the interactions spent up to each iteration."""
    return list(accumulate(series_of(result).get(f"{result.name}/interactions", [])))


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
    """Return `Cell.figures`."""
    model_metrics = run.results["experience_model"].metrics if "experience_model" in run.results else {}
    figures = {
        name: float(value)
        for name in FIDELITY_METRICS
        if (value := model_metrics.get(name, {}).get("value")) is not None
    }
    for stage in stages:
        curves = {
            f"{stage.name}/{name}": series_of(stage).get(f"{stage.name}/{name}", []) for name in RL_CURVES
        }
        figures |= {name: sum(values) / len(values) for name, values in curves.items() if values}
    return figures


def _learning_curve(stages: Sequence[StageResult], began: float) -> list[list[float]]:
    """Return `Cell.curve`.

    Args:
        began: seconds of the experience model's fine-tuning, which the clock includes; 0 without one.
    """
    curve: list[list[float]] = []
    real = dreamed = 0.0
    clock = began
    for result in stages:
        series = series_of(result)
        rates = series.get(f"{result.name}/success_rate", [])
        interactions = _interactions(result)
        times = list(accumulate(series.get(f"{result.name}/seconds", [])))
        for rate, steps, seconds in zip(rates, interactions, times, strict=True):
            in_dream = result.name == "synthetic_rl"
            curve.append([real + steps * (not in_dream), dreamed + steps * in_dream, clock + seconds, rate])
        if curve:
            real, dreamed, clock = curve[-1][:3]
    return curve


def write_study(
    cells: Mapping[str, Sequence[Cell]],
    metrics: Mapping[str, Mapping[str, Estimate]],
    json_file: Path | None,
    figures: Path | None,
    table: Path | None = None,
    mark: str = "study",
) -> list[Path]:
    """Write the files whose path is given, and return their paths.

    Args:
        figures: directory of the figures.
        table: Markdown document into which the table is inserted.
        mark: name of the marks around the table in that document.
    """
    written: list[Path] = []
    if json_file is not None:
        values = {
            name: checked_metrics({metric: estimate.to_json() for metric, estimate in own.items()})
            for name, own in metrics.items()
            if own
        }
        write_json(json_file, values)
        written.append(json_file)
    if table is not None:
        insert_table(table, study_table(metrics, cells, BASE, BASES), mark)
        written.append(table)
    return written + (draw_study(metrics, cells, BASE, figures) if figures else [])
