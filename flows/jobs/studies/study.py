"""The study: training methods times seeds, evaluated on the same held-out games, with the cost of each.

    dreamgym study --config configs/study.yaml --json docs/results/study.json --figures docs/images --table
    docs/all-tables.md

A cell is one method with one seed: a Prefect task with an MLflow run and a manifest of its own. Its stages
are kept, so what cells share (the clone, the experience model, the dreamed policy) is computed once. A
finished cell is a small file: an interrupted study continues on any machine that has the files. A cell that
crashes is listed in the table, and the others run on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE

from components.config import Config
from components.evaluation.metrics.intervals import Estimate
from components.evaluation.report.document_tables import insert_table
from components.evaluation.study.cells import Cell, require_distinct_policies
from components.evaluation.study.graded_dreams import measures_against_success
from components.evaluation.study.study_figures import draw_study
from components.evaluation.study.study_table import study_table
from components.files import write_json
from components.tracking.runs import checked_metrics
from components.trajectories.store import DataLayout, read_tasks
from flows.checks.reward_checks import require_progress
from flows.jobs.studies.cell_origin import Origin, origin_of
from flows.jobs.studies.method import BASE, Method
from flows.jobs.studies.method_config import method_config
from flows.jobs.studies.seeds_on_cluster import run_on_cluster
from flows.jobs.studies.study_cells import cell_file, cell_of_run, read_cell, write_cell
from flows.jobs.studies.study_methods import METHODS, bases_against
from flows.run.pipeline_run import Run
from flows.run.plan import PlannedStage
from flows.run.stage import Stage
from flows.run.training.rl_training import SNAPSHOTS
from flows.stages.check_dream import check_dream
from flows.stages.clone import clone_policy
from flows.stages.evaluate_held_out import evaluate_policy, evaluate_snapshots
from flows.stages.experience_model import fine_tune_experience_model
from flows.stages.logged_rl import train_on_logged_pairs
from flows.stages.refresh_experience_model import refresh_experience_model
from flows.stages.sim_to_real import refine_in_reality, train_in_reality
from flows.stages.synthetic_rl import train_in_dream
from flows.stages.validate import validate_data


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
    root = root.resolve()
    train_tasks = read_tasks(DataLayout.of(root, config.environment.name).tasks("train"))
    families = sorted({task.family for task in train_tasks})
    # Every cell's config is made before the first cell runs, so an impossible one is refused at once.
    configs = {
        seed: {name: method_config(config, name, seed, families) for name in methods} for seed in seeds
    }
    for own in configs.values():
        for name, cell_config in own.items():
            require_progress(cell_config, METHODS[name].sections)
    of_seed = partial(cells_of_seed, root=root, directory=directory, finished=finished)
    if config.cluster and not finished:
        by_seed = run_on_cluster(config.cluster, of_seed, configs)
    else:
        by_seed = {seed: of_seed(seed, own) for seed, own in configs.items()}
    cells = {name: [own[name] for own in by_seed.values() if name in own] for name in methods}
    require_distinct_policies(cells)
    return {name: method_cells for name, method_cells in cells.items() if method_cells}


def cells_of_seed(
    seed: int, configs: Mapping[str, Config], *, root: Path, directory: Path, finished: bool = False
) -> dict[str, Cell]:
    """Return method -> cell of one seed, one after another, since the cells of a seed share stages.

    Args:
        configs: method -> config of its cell.
        directory: see `study`.
        finished: see `study`.
    """
    log = get_run_logger()
    cells: dict[str, Cell] = {}
    for number, (name, config) in enumerate(configs.items(), start=1):
        origin = origin_of(config, root, reads_dream=bool(METHODS[name].dream))
        cell = read_cell(directory, name, seed, origin)
        state = ", already there" if cell else ", not made yet" if finished else ""
        log.info("seed %d, cell %d of %d: %s%s", seed, number, len(configs), name, state)
        if cell or not finished:
            cells[name] = cell or _new_cell(config, root, name, origin, directory)
    return cells


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
        # Offline learning from recorded episodes, if the method is one.
        if method.logged:
            train_on_logged_pairs(run)
        rounds = []
        for number in range(1, method.rounds + 1):
            run.round = number
            # RL in the dream, if the method uses one; it first learns from the real episodes before.
            if method.dream:
                (fine_tune_experience_model if number == 1 else refresh_experience_model)(run)
                train_in_dream(run, "clone" if number == 1 else method.last)
            # RL in the real environment: briefly after the dream, or alone with the whole budget.
            if method.real and method.dream:
                refine_in_reality(run)
            elif method.real:
                train_in_reality(run)
            # The test games with copies of the policy from during training, for the learning curves.
            for stage in method.stages if run.config.study.curve_every else []:
                if SNAPSHOTS in run.results[stage].outputs:
                    evaluate_snapshots(run, stage)
            rounds.append(dict(run.results))
        # How a dream of another quality compares with reality on its own policy's episodes.
        if method.is_graded:
            check_dream(run, "synthetic_rl", "dreamed")
        # Held-out real games.
        evaluate_policy(run, method.last)
        run.finish()
    except BaseException as error:
        run.fail(error)
        raise
    return cell_of_run(run, name, origin, rounds)


def steps_of(config: Config, name: str) -> dict[str, PlannedStage]:
    """Return the steps of a cell of the method `name` in order; `--dry-run` reads them."""
    method = METHODS[name]
    steps = {"validate": PlannedStage(validate_data.declare), "clone": PlannedStage(clone_policy.declare)}
    if method.logged:
        steps["logged_rl"] = PlannedStage(train_on_logged_pairs.declare)
    for number in range(1, method.rounds + 1):
        own = _steps_of_round(config, method, number)
        steps |= {f"{step} {number}" if number > 1 else step: planned for step, planned in own.items()}
    if method.is_graded:
        steps["check_dreamed"] = PlannedStage(lambda run: check_dream.declare(run, "synthetic_rl", "dreamed"))
    steps["evaluate_policy"] = PlannedStage(lambda run: evaluate_policy.declare(run, method.last))
    return steps


def _steps_of_round(config: Config, method: Method, number: int) -> dict[str, PlannedStage]:
    """Return the steps of one round of dream and reality; a method without a dream has one round."""

    def learn(run: Run) -> Stage:
        run.round = number
        return (fine_tune_experience_model if number == 1 else refresh_experience_model).declare(run)

    steps: dict[str, PlannedStage] = {}
    if method.dream:
        start = "clone" if number == 1 else method.last
        steps["experience_model"] = PlannedStage(learn)
        steps["synthetic_rl"] = PlannedStage(lambda run: train_in_dream.declare(run, start))
    if method.real:
        steps[method.last] = PlannedStage((refine_in_reality if method.dream else train_in_reality).declare)
    if config.study.curve_every:
        steps |= {f"snapshots_{stage}": _snapshots_step(stage) for stage in method.stages}
    return steps


def _snapshots_step(stage: str) -> PlannedStage:
    """Return the step that evaluates the policies kept during training by `stage`, if it kept any."""
    return PlannedStage(
        lambda run: evaluate_snapshots.declare(run, stage),
        condition=lambda run: SNAPSHOTS in run.results[stage].outputs,
    )


def write_study(
    cells: Mapping[str, Sequence[Cell]],
    metrics: Mapping[str, Mapping[str, Estimate]],
    json_file: Path | None,
    figures: Path | None,
    table: Path | None = None,
    mark: str = "study",
    against: str = BASE,
) -> list[Path]:
    """Write the files whose path is given, and return their paths.

    Args:
        figures: directory of the figures.
        table: Markdown document into which the table is inserted.
        mark: name of the marks around the table in that document.
        against: the method that most others are compared with.
    """
    written: list[Path] = []
    if json_file is not None:
        values = {
            name: checked_metrics({metric: estimate.to_json() for metric, estimate in own.items()})
            for name, own in metrics.items()
            if own
        }
        correlations = measures_against_success(cells)
        if correlations:
            values["graded dreams"] = checked_metrics(
                {name: estimate.to_json() for name, estimate in correlations.items()}
            )
        write_json(json_file, values)
        written.append(json_file)
    if table is not None:
        insert_table(table, study_table(metrics, cells, against, bases_against(against)), mark)
        written.append(table)
    return written + (draw_study(metrics, cells, against, figures) if figures else [])
