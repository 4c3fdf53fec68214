"""Tables of the studies: success, families, cost of a real step, confirmed dreams, transfer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from result_files import SUCCESS, Metrics, interval, read_cells, read_metrics, table, with_count

from components.evaluation.study.cells import Cell
from components.evaluation.study.seed_table import seed_table
from components.evaluation.study.study_results import MARGIN, MIN_TESTED_SEEDS, reaches_margin, summarise
from components.evaluation.study.study_table import study_table
from components.evaluation.study.transfer_table import transfer_table
from flows.jobs.studies.method import BASE
from flows.jobs.studies.study_methods import CONTROLS, METHODS, bases_against


def study(
    name: str,
    against: str = BASE,
    methods: Sequence[str] = (),
    further: Sequence[str] = (),
    bases: Mapping[str, str] | None = None,
) -> str:
    """Return the table that `dreamgym study --finished --against AGAINST` makes of the same cells.

    Args:
        methods: that the study's config names, with those that have no cell; empty: those that have cells.
        further: folders with cells of further seeds, of other data or another backbone.
        bases: method -> the method that a page's rule, set before the run, compares it with; others have
            the command's.
    """
    cells = _cells(methods, name, *further)
    all_bases = bases_against(against) | dict(bases or {})
    planned = [method for method in METHODS if method in methods]
    return study_table(summarise(cells, against, all_bases, planned, CONTROLS), cells, against, all_bases)


def seeds(name: str, against: str, methods: Sequence[str] = ()) -> str:
    """Return the differences within each seed of a study. Args: methods: see `study`."""
    return seed_table(_cells(methods, name), against, bases_against(against))


def against_reality(name: str, methods: Sequence[str]) -> str:
    """Return how much of RL in reality's success each method keeps, over the seeds that both have.

    The ratio's interval has the uncertainty of both sides.
    """
    rows = []
    for method in methods:
        own, seeds = beside(name, method)
        has_test = seeds >= MIN_TESTED_SEEDS
        shown = "not shown"
        if max(own["ratio/success_rate"].high, own["ratio/bootstrap"].high) < MARGIN:
            shown = "no; surely less" if has_test else f"less in {seeds} seeds"
        elif reaches_margin(own):
            shown = "yes" if has_test else f"in {seeds} seeds, too few to test"
        difference, ratio = own["difference/success_rate"], own["ratio/success_rate"]
        rows.append([method, interval(difference, "+.3f"), interval(ratio), shown])
    return table(["method", f"minus {BASE}", f"ratio to {BASE}", f"at least {MARGIN} of it"], rows)


def beside(name: str, method: str, base_of: str = "", base: str = BASE) -> tuple[Metrics, int]:
    """Return the metrics of a method compared with another one, and the number of seeds of both.

    Args:
        base_of: study with the cells of the other one, of the same policy and games; empty: the same.
        base: the other method; RL in reality if none is given.
    """
    cells = {base: read_cells(base_of or name)[base], method: read_cells(name)[method]}
    seeds = {cell.seed for cell in cells[base]} & {cell.seed for cell in cells[method]}
    return summarise(cells, base)[method], len(seeds)


def _cells(methods: Sequence[str], *names: str) -> dict[str, list[Cell]]:
    return {method: own for method, own in read_cells(*names).items() if method in methods or not methods}


def families() -> str:
    """Return success by task family, one column per family."""
    metrics = read_metrics("study")
    keys = {key.removeprefix(f"{SUCCESS}/") for key in metrics["clone"] if key.startswith(f"{SUCCESS}/")}
    names = sorted(name for name in keys if not name.startswith("seed_"))
    rows = [
        [method, *(interval(own[f"{SUCCESS}/{name}"]) for name in names)] for method, own in metrics.items()
    ]
    return table(["method", *(f"`{name}`" for name in names)], rows)


def step_cost() -> str:
    """Return how many seconds slower a real step must be until the dream needs the same time, or a third."""
    rows = [
        [study_name, method, f"{interval(own['reached/step_seconds/even'])} s", third_of(own)]
        for study_name in ("study", "study-qwen")
        for method, own in read_metrics(study_name).items()
        if "reached/step_seconds/even" in own
    ]
    return table(["study", "method", "same time from", "a third of the time from"], rows)


def third_of(own: Metrics) -> str:
    """Return the seconds from which the dream takes a third of reality's time; empty if none reached it."""
    third = own.get("reached/step_seconds/third")
    return "" if third is None else f"{interval(third)} s"


def watch() -> str:
    """Return the share of dreamed successes that the real engine confirmed during RL in the dream."""
    rows = [
        [study_name, method, with_count(own["watched/rollout_agreement"])]
        for study_name in ("study", "study-qwen", "study-webshop")
        for method, own in read_metrics(study_name).items()
        if "watched/rollout_agreement" in own and not method.startswith("s2r-")
    ]
    return table(["study", "method", "confirmed in the real engine (n: seeds)"], rows)


def transfer() -> str:
    """Return how policies and experience models of each environment do in every other."""
    return transfer_table(read_metrics("transfer"))
