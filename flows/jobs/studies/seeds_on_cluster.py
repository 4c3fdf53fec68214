"""The seeds of a study or an ablation side by side on a Ray cluster, by Prefect's task runner for Ray.

The cells of one seed share stages, so they run one after another in one worker. All machines of the cluster
must see the repository's directory under the same path. A lost worker's seed runs again, on another worker:
finished cells are read from their files, finished stages from the store.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from components.cluster.installation import Installation, require_same, this_installation
from components.cluster.ray_workers import connect
from components.config import Config

Cell = TypeVar("Cell")
CellsOfSeed = Callable[[int, Mapping[str, Config]], dict[str, Cell]]


@task(cache_policy=NO_CACHE)
def seed_on_worker(
    cells_of_seed: CellsOfSeed[Cell], seed: int, configs: Mapping[str, Config], expected: Installation
) -> dict[str, Cell]:
    """Return name -> cell of one seed; its own environments and rollouts run on the worker's machine.

    Args:
        expected: the installation that the worker must have.

    Raises:
        ClusterError: the worker has other code or packages.
    """
    require_same(expected, this_installation(), platform.node())
    return cells_of_seed(
        seed, {name: config.model_copy(update={"cluster": ""}) for name, config in configs.items()}
    )


def run_on_cluster(
    address: str, cells_of_seed: CellsOfSeed[Cell], configs: Mapping[int, Mapping[str, Config]]
) -> dict[int, dict[str, Cell]]:
    """Return seed -> name -> cell.

    Args:
        address: of the cluster (`ray_workers.connect`).
        cells_of_seed: pickled, and called on a worker with a seed and its configs.
        configs: seed -> name of the cell -> its config.

    Raises:
        ClusterError: the cluster cannot be used, or a worker has other code or packages.
    """
    connect(address, 1)
    from prefect_ray import RayTaskRunner

    log = get_run_logger()
    # The runner uses the cluster that this process is connected to.
    with RayTaskRunner() as runner:
        futures: dict[int, Any] = {
            seed: runner.submit(
                seed_on_worker,
                {
                    "cells_of_seed": cells_of_seed,
                    "seed": seed,
                    "configs": own,
                    "expected": this_installation(),
                },
            )
            for seed, own in configs.items()
        }
        cells: dict[int, dict[str, Cell]] = {}
        for seed, future in futures.items():
            cells[seed] = future.result()
            log.info("seed %d: its %d cells are there", seed, len(cells[seed]))
        return cells
