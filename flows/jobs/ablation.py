"""Ablations: what each part of the experience model is worth, over several seeds, as a table and a figure.

    dreamgym ablate fidelity --seeds 0,1,2 --json docs/results/fidelity.json

A cell is one variant with one seed: an MLflow run with its manifest, made of stages that are kept, so that an
ablation that was interrupted goes on where it was. With `--cells` a finished cell is two small files, and the
ablation goes on on any machine that has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger

from components.config import Config
from components.errors import ConfigError
from components.evaluation.metrics.intervals import Estimate
from components.evaluation.metrics.judgements import read_judgements
from components.evaluation.metrics.open_loop import read_rehearsals
from components.evaluation.study.ablation_figure import FORMATS, draw_ablation, draw_data_curve
from components.evaluation.study.ablation_results import FULL, differences, pooled, variants, varied
from components.trajectories.store import DataLayout, read_transitions
from flows.jobs.ablation_cells import Cell, read_cell, write_cell
from flows.jobs.cell_origin import Origin, origin_of
from flows.jobs.fidelity import examine, examine_dream
from flows.run.pipeline_run import Run
from flows.stages.experience_model import fine_tune_experience_model
from flows.stages.validate import validate_data

BORROWED = ("clone", "synthetic_rl", "policy_episodes")
"""Stages that every variant of a seed takes from the full model: the policies, and what they did in reality.
"""
IDLE = ("rl.real", "rl.baseline", "evaluation", "study")
"""Sections of the config that an examination of an experience model never reads."""


@flow(name="ablate-fidelity", validate_parameters=False)
def ablate_fidelity(
    config: Config,
    root: Path,
    seeds: Sequence[int],
    wanted: Mapping[str, Mapping[str, Mapping[str, Any]]],
    directory: Path | None = None,
) -> dict[str, dict[str, Estimate]]:
    """Metrics of each variant (name -> changes of the config) over all seeds, and its paired differences from
    the full model.

    Cells that are in `directory` are read back, the others made and written there; without one every cell is
    read from its run's stages.
    """
    cells: dict[str, list[Cell]] = {name: [] for name in wanted}
    for seed in seeds:
        full: list[Run] = []
        for name, changes in wanted.items():
            own = varied(config, changes, seed)
            origin = origin_of(own, root, IDLE)
            found = read_cell(directory, f"{name}-{seed}", origin) if directory else None
            get_run_logger().info("%s, seed %d%s", name, seed, ", already there" if found else "")
            if found is None:
                full = full or [examine(varied(config, {}, seed), root)]
                found = _cell(full[0] if name == FULL else _variant(own, root, full[0], name), origin)
                if directory:
                    write_cell(directory, f"{name}-{seed}", found)
            cells[name].append(found)
    return summarise(cells)


def chosen_variants(names: str, sizes: str) -> dict[str, Any]:
    """The variants named, separated by commas (none: all), and one of each size; the full model is always
    among them.

    Raises:
        ConfigError: a name that there is not, or a size that is no number.
    """
    known, asked = variants(()), [name.strip() for name in names.split(",") if name.strip()]
    numbers = [size.strip() for size in sizes.split(",") if size.strip()]
    wrong = [name for name in asked if name not in known] + [size for size in numbers if not size.isdigit()]
    if wrong:
        raise ConfigError(
            f"There is no variant {wrong[0]!r}.",
            f"Expected some of {', '.join(known)}, and sizes as whole numbers.",
        )
    chosen = {name: known[name] for name in known if name == FULL or not asked or name in asked}
    return chosen | {
        name: changes
        for name, changes in variants([int(size) for size in numbers]).items()
        if name not in known
    }


def full_size(config: Config, root: Path) -> int:
    """Offline transitions that the full model may learn from."""
    recorded = len(read_transitions(DataLayout.of(root, config.environment.name).trajectories("train")))
    return min(recorded, config.experience_model.transitions or recorded)


def check_figures(*paths: Path | None) -> None:
    """Raises ConfigError for a figure in a format that there is not: better now than after hours."""
    wrong = [path for path in paths if path is not None and path.suffix not in FORMATS]
    if wrong:
        raise ConfigError(
            f"{wrong[0]} is no figure's name.",
            f"Expected one that ends in {', '.join(FORMATS)}.",
            "Name the file so.",
        )


def write_ablation(
    found: Mapping[str, Mapping[str, Estimate]], *, figure: Path | None, curve: Path | None, total: int
) -> list[Path]:
    """The files asked for; their paths. Args: total: offline transitions that the full model learns from."""
    if figure is not None:
        draw_ablation(found, figure)
    if curve is not None:
        draw_data_curve(found, curve, total)
    return [path for path in (figure, curve) if path is not None]


def _variant(config: Config, root: Path, full: Run, name: str) -> Run:
    """Another experience model before the same questions."""
    run = Run(config, root.resolve())
    run.start(f"fidelity {name}")
    try:
        validate_data(run)
        fine_tune_experience_model(run)
        for stage in BORROWED:
            run.adopt(full.results[stage])
        examine_dream(run)
        run.finish()
    except BaseException as error:
        run.fail(error)
        raise
    return run


def _cell(run: Run, origin: Origin) -> Cell:
    outputs, manifest = run.results["fidelity"].outputs, run.manifest
    judgements, rehearsals = read_judgements(outputs["judgements"]), read_rehearsals(outputs["rehearsals"])
    return Cell(origin, manifest.run_id, manifest.environment.git.commit, judgements, rehearsals)


def summarise(cells: dict[str, list[Cell]]) -> dict[str, dict[str, Estimate]]:
    """Pooled metrics of each variant; those other than the full model with their differences from it."""
    judged = {name: [j for cell in found for j in cell.judgements] for name, found in cells.items()}
    dreamed = {name: [r for cell in found for r in cell.rehearsals] for name, found in cells.items()}
    metrics = {name: pooled(judged[name], dreamed[name]) for name in cells}
    for name in cells:
        if FULL in cells and name != FULL:
            pairs = zip(cells[FULL], cells[name], strict=True)
            metrics[name] |= differences(
                {full.origin["config"]["seed"]: (full.judgements, other.judgements) for full, other in pairs}
            )
    return metrics
