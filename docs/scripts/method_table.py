"""The table of docs/results/methods.md: each method beside what it is compared with, seed by seed."""

from __future__ import annotations

from result_files import ROOT, read_cells, table

from components.config import load_config
from components.evaluation.study.seed_table import difference
from flows.jobs.studies.method import DREAM
from flows.jobs.studies.study_methods import METHODS


def studied(config: str) -> list[str]:
    """Return the methods that the study `configs/CONFIG.yaml` names; the first is the base of most."""
    return list(load_config(ROOT / "configs" / f"{config}.yaml").study.methods)


def methods(config: str, cells_of: str) -> str:
    """Return a row for each method of a study: success, real steps, and the difference within each seed.

    A method is compared with its own base. Where that is no row, methods that train in a dream are compared
    with GRPO in the same dream, the others with the first method.

    Args:
        config: name of the study's config.
        cells_of: folder of its cells under docs/results.
    """
    names = studied(config)
    cells = {
        name: {cell.seed: cell for cell in own if not cell.crash}
        for name, own in read_cells(cells_of).items()
    }
    order = [name for name in METHODS if name in names]
    seeds = sorted({seed for name in order for seed in cells.get(name, {})})
    head = ["method", *(f"success, seed {seed}" for seed in seeds), "online real steps", "compared with"]
    rows = []
    for name in order:
        own = cells.get(name, {})
        base = METHODS[name].base
        if base not in names:
            base = DREAM if METHODS[name].dream and name != DREAM else names[0] if name != names[0] else ""
        success = [f"{own[seed].success:.3f}" if seed in own else "" for seed in seeds]
        steps = sorted({cell.real_interactions for cell in own.values()})
        differences = [difference(own.get(seed), cells.get(base, {}).get(seed)) for seed in seeds]
        rows.append(
            [
                name,
                *success,
                " to ".join(f"{count:,}" for count in [*steps[:1], *steps[1:][-1:]]),
                base,
                *differences,
            ]
        )
    return table([*head, *(f"difference, seed {seed}" for seed in seeds)], rows)
