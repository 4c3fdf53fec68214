"""The table of docs/results/methods.md: each method beside what it is compared with, seed by seed."""

from __future__ import annotations

from collections.abc import Sequence

from result_files import ROOT, read_cells, table

from components.config import load_config
from components.evaluation.study.seed_table import difference
from flows.jobs.studies.method import DREAM
from flows.jobs.studies.study_methods import METHODS


def studied(config: str) -> list[str]:
    """Return the methods that the study `configs/CONFIG.yaml` names; the first is the base of most."""
    return list(load_config(ROOT / "configs" / f"{config}.yaml").study.methods)


def methods(config: str, cells_of: str, reality_of: str) -> str:
    """Return a row for each method of a study: success, real steps, and the difference within each seed.

    A method is compared with its own base. Where that is no row, or trains elsewhere, methods that train in a
    dream are compared with GRPO in the same dream, the others with the first method.

    Args:
        config: name of the study's config.
        cells_of: folder of its cells under docs/results.
        reality_of: folder with the cells of GRPO in reality, of the same policy and games.
    """
    names = studied(config)
    found = {"grpo-real": read_cells(reality_of)["grpo-real"]} | read_cells(cells_of)
    cells = {name: {cell.seed: cell for cell in own if not cell.crash} for name, own in found.items()}
    order = [name for name in METHODS if name in names]
    seeds = sorted({seed for name in order for seed in cells.get(name, {})})
    head = ["method", *(f"success, seed {seed}" for seed in seeds), "online real steps", "compared with"]
    rows = []
    for name in order:
        own = cells.get(name, {})
        base = _base(name, names)
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


def _base(name: str, names: Sequence[str]) -> str:
    """Return the method that a row is compared with, "" for the first. Args: names: of all rows."""
    method = METHODS[name]
    if name == names[0]:
        return ""
    base = METHODS[method.base]
    is_alike = (bool(method.dream), bool(method.real)) == (bool(base.dream), bool(base.real))
    if method.base in names and name != method.base and is_alike:
        return method.base
    return DREAM if method.dream and name != DREAM else names[0]
