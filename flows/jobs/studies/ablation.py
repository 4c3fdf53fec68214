"""Ablations: the fidelity of experience models that each lack one part, over several seeds.

    dreamgym ablate fidelity --seeds 0,1,2 --json docs/results/fidelity.json

A cell is one variant with one seed: an MLflow run with its manifest. Its stages are kept, so an interrupted
ablation continues. With `--cells` a finished cell is two small files, and the ablation continues on any
machine that has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger

from components.config import Config
from components.errors import ConfigError
from components.evaluation.metrics.intervals import Estimate
from components.evaluation.metrics.judgements import read_judgements
from components.evaluation.metrics.open_loop import read_open_loop_episodes
from components.evaluation.study.ablation_figure import FORMATS, draw_ablation, draw_data_curve
from components.evaluation.study.ablation_results import (
    FULL,
    apply_variant,
    differences_from_full_model,
    pooled_metrics,
    variants,
)
from components.trajectories.store import DataLayout, iter_transitions
from flows.jobs.fidelity import examine, examine_dream
from flows.jobs.studies.ablation_cells import Cell, read_cell, write_cell
from flows.jobs.studies.cell_origin import Origin, origin_of
from flows.jobs.studies.seeds_on_cluster import run_on_cluster
from flows.run.pipeline_run import Run
from flows.stages.experience_model import fine_tune_experience_model
from flows.stages.validate import validate_data

SHARED_STAGES = ("clone", "synthetic_rl", "policy_episodes")
"""Stages that every variant takes from the full model of its seed: the policies and their real episodes."""
UNUSED_SECTIONS = ("rl.real", "rl.baseline", "evaluation", "study")
"""Sections of the config that the examination of an experience model never reads."""


@flow(name="ablate-fidelity", validate_parameters=False)
def ablate_fidelity(
    config: Config,
    root: Path,
    seeds: Sequence[int],
    chosen: Mapping[str, Mapping[str, Mapping[str, Any]]],
    directory: Path | None = None,
) -> dict[str, dict[str, Estimate]]:
    """Return the metrics of each variant over all seeds, with its paired differences from the full model.

    Args:
        chosen: variant -> changes of the config.
        directory: of the cells; existing ones are read, new ones are written. None: no cells are kept, every
            cell is computed from its run's stages.
    """
    configs = {
        seed: {name: apply_variant(config, changes, seed) for name, changes in chosen.items()}
        for seed in seeds
    }
    of_seed = partial(cells_of_seed, root=root.resolve(), directory=directory)
    if config.cluster:
        by_seed = run_on_cluster(config.cluster, of_seed, configs)
    else:
        by_seed = {seed: of_seed(seed, own) for seed, own in configs.items()}
    return summarise({name: [cells[name] for cells in by_seed.values()] for name in chosen})


def cells_of_seed(
    seed: int, configs: Mapping[str, Config], *, root: Path, directory: Path | None
) -> dict[str, Cell]:
    """Return variant -> cell of one seed, one after another, since they share the full model's policies.

    Args:
        configs: variant -> config of its cell; the full model's is among them.
        directory: see `ablate_fidelity`.
    """
    cells: dict[str, Cell] = {}
    full: list[Run] = []
    for name, config in configs.items():
        origin = origin_of(config, root, UNUSED_SECTIONS)
        cell = read_cell(directory, f"{name}-{seed}", origin) if directory else None
        get_run_logger().info("%s, seed %d%s", name, seed, ", already there" if cell else "")
        if cell is None:
            full = full or [examine(configs[FULL], root)]
            run = full[0] if name == FULL else _run_variant(config, root, full[0], name)
            cell = _cell_of(run, origin)
            if directory:
                write_cell(directory, f"{name}-{seed}", cell)
        cells[name] = cell
    return cells


def chosen_variants(names: str, sizes: str) -> dict[str, Any]:
    """Return the variants named, and one for each data size; the full model is always among them.

    Args:
        names: separated by commas; empty: all.
        sizes: numbers of offline transitions, separated by commas.

    Raises:
        ConfigError: there is no such variant, or a size is no number.
    """
    all_variants = variants(())
    selected = [name.strip() for name in names.split(",") if name.strip()]
    numbers = [size.strip() for size in sizes.split(",") if size.strip()]
    unknown = [name for name in selected if name not in all_variants]
    unknown += [size for size in numbers if not size.isdigit()]
    if unknown:
        raise ConfigError(
            f"There is no variant {unknown[0]!r}.",
            f"Expected some of {', '.join(all_variants)}, and sizes as whole numbers.",
        )
    chosen = {
        name: changes
        for name, changes in all_variants.items()
        if name == FULL or not selected or name in selected
    }
    return chosen | {
        name: changes
        for name, changes in variants([int(size) for size in numbers]).items()
        if name not in all_variants
    }


def full_size(config: Config, root: Path) -> int:
    """Return the number of offline transitions that the full model is trained on."""
    train = DataLayout.of(root, config.environment.name).trajectories("train")
    recorded = sum(1 for _ in iter_transitions(train))
    return min(recorded, config.experience_model.transitions or recorded)


def require_figure_formats(*paths: Path | None) -> None:
    """Raise ConfigError for a figure whose file name has an unsupported ending, before hours of work."""
    for path in paths:
        if path is not None and path.suffix not in FORMATS:
            raise ConfigError(
                f"The figure {path} ends in {path.suffix!r}.",
                f"Expected a file name that ends in {', '.join(FORMATS)}.",
                "Change the name.",
            )


def write_ablation(
    metrics: Mapping[str, Mapping[str, Estimate]], *, figure: Path | None, curve: Path | None, total: int
) -> list[Path]:
    """Draw the figures whose path is given, and return these paths.

    Args:
        total: offline transitions that the full model is trained on.
    """
    if figure is not None:
        draw_ablation(metrics, figure)
    if curve is not None:
        draw_data_curve(metrics, curve, total)
    return [path for path in (figure, curve) if path is not None]


def _run_variant(config: Config, root: Path, full: Run, name: str) -> Run:
    """Examine the experience model of a variant with the policies of the full model."""
    run = Run(config, root.resolve())
    run.start(f"fidelity {name}")
    try:
        validate_data(run)
        fine_tune_experience_model(run)
        for stage in SHARED_STAGES:
            run.adopt(full.results[stage])
        examine_dream(run)
        run.finish()
    except BaseException as error:
        run.fail(error)
        raise
    return run


def _cell_of(run: Run, origin: Origin) -> Cell:
    outputs = run.results["fidelity"].outputs
    manifest = run.manifest
    judgements = read_judgements(outputs["judgements"])
    rehearsals = read_open_loop_episodes(outputs["rehearsals"])
    return Cell(origin, manifest.run_id, manifest.environment.git.commit, judgements, rehearsals)


def summarise(cells: dict[str, list[Cell]]) -> dict[str, dict[str, Estimate]]:
    """Return the pooled metrics of each variant, with its differences from the full model."""
    metrics = {}
    for name, variant_cells in cells.items():
        judgements = [judgement for cell in variant_cells for judgement in cell.judgements]
        rehearsals = [rehearsal for cell in variant_cells for rehearsal in cell.rehearsals]
        metrics[name] = pooled_metrics(judgements, rehearsals)
    for name in cells:
        if FULL in cells and name != FULL:
            pairs = zip(cells[FULL], cells[name], strict=True)
            metrics[name] |= differences_from_full_model(
                {full.origin["config"]["seed"]: (full.judgements, other.judgements) for full, other in pairs}
            )
    return metrics
