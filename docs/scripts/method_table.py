"""The table of docs/results/methods.md: each method beside what it is compared with, seed by seed."""

from __future__ import annotations

from collections.abc import Sequence

from result_files import ROOT, read_cells, table

from components.config import load_config
from components.evaluation.study.seed_table import difference
from flows.jobs.studies.method import DREAM
from flows.jobs.studies.study_methods import METHODS

REAL = "gigpo-real"
"""RL in reality, of which `echo-real` is a variant."""
REPLIES_CUT = "74 % of the demonstrated replies were longer than the 48 tokens that a policy might write"
ISTAR = "its reward model learnt at ten times today's rate; negative advantages of steps were not halved"
DPO = "at RL's rate, ten times today's; players and reference were updated every {} steps"
WITHDRAWN = {
    "clone-self-reflection": REPLIES_CUT,
    "dream-istar": ISTAR,
    "dream-dpo-1": DPO.format(2),
    "dream-dpo-5": DPO.format(10),
    "dream-dpo-offline": "at RL's rate, ten times today's",
    "dream-rft": "a third more rollouts than the other rows",
}
"""Method -> why its cells in docs/results/study-withdrawn are no rows."""


def studied(config: str) -> list[str]:
    """Return the methods that the study `configs/CONFIG.yaml` names; the first is the base of most."""
    return list(load_config(ROOT / "configs" / f"{config}.yaml").study.methods)


def methods(config: str, cells_of: str, reality_of: str) -> str:
    """Return a row for each method of a study: success, real steps, and the difference within each seed.

    A method is compared with its own base. Where that is no row, or trains elsewhere, methods that train in a
    dream are compared with GiGPO in the same dream, the others with the first method.

    Args:
        config: name of the study's config.
        cells_of: folder of its cells under docs/results.
        reality_of: folder with the cells of GiGPO in reality, of the same policy and games.
    """
    names = studied(config)
    found = {REAL: read_cells(reality_of)[REAL]} | read_cells(cells_of)
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


def withdrawn(folder: str, cells_of: str) -> str:
    """Return a row for each cell that was withdrawn: success, difference from its base, and the reason.

    Args:
        folder: of the cells under docs/results.
        cells_of: folder with the cells of their bases.
    """
    bases = {name: {cell.seed: cell for cell in own} for name, own in read_cells(cells_of).items()}
    rows = []
    for name, own in read_cells(folder).items():
        base = _base(name, list(bases))
        for cell in own:
            beside = difference(cell, bases[base].get(cell.seed))
            rows.append([name, str(cell.seed), f"{cell.success:.3f}", base, beside, WITHDRAWN[name]])
    return table(["method", "seed", "success", "compared with", "difference", "why it is no row"], rows)


def half_way(config: str, cells_of: str) -> str:
    """Return the success of methods that train in a dream, after half of the iterations and at the end."""
    cells = read_cells(cells_of)
    rows = []
    for name in (one for one in METHODS if one in studied(config) and METHODS[one].dream):
        curves = {cell.seed: [point[-1] for point in cell.held_out] for cell in cells.get(name, ())}
        told = [
            f"{curve[0]:.3f}, {curve[-1]:.3f} (seed {seed})"
            for seed, curve in curves.items()
            if len(curve) > 1
        ]
        if told:
            rows.append([name, "; ".join(told)])
    return table(["method", "success after half of the iterations, at the end"], rows)


def observed_states(cells_of: str, reality_of: str) -> str:
    """Return the success of ECHO and of GiGPO in reality on the way, with the real steps, in seed 0."""
    curves = []
    for folder, name in ((cells_of, "echo-real"), (reality_of, REAL)):
        (cell,) = (cell for cell in read_cells(folder)[name] if cell.seed == 0)
        curves.append([f"{point[-1]:.3f} after {point[0]:,.0f} steps" for point in cell.held_out])
    return table(["`echo-real`", "`gigpo-real`"], [list(row) for row in zip(*curves, strict=False)])
