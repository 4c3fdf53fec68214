"""`dreamgym scale`: what an iteration of RL would take on more devices, simulated from a run's own times.

dreamgym scale
dreamgym scale 20260131-142530-9f3a --devices 1,8,64 --trainers 1 --sync-seconds 2 --straggling 0.5
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from components.errors import DataError
from components.evaluation.scaling.loop_simulator import SCHEDULES, Cluster, Schedule, Simulated, simulate
from components.evaluation.scaling.loop_times import LoopTimes, MeasuredIteration, fit_times
from components.tracking.manifest import Manifest
from components.tracking.runs import find_run
from components.tracking.stage_store.stage_store import StageStore
from components.trajectories.replay_log import read_shard
from flows.printing.output import Output
from flows.printing.table import Column, Table

STAGE = "synthetic_rl"


def measured_iterations(root: Path, run: str) -> tuple[list[MeasuredIteration], int]:
    """Return the iterations of a run's RL in the dream, and its number of rollout workers.

    The stage's log has no episodes that the dream did not answer; they are counted with equal lengths.

    Raises:
        DataError: the run has no such stage, its files are gone, or it measured no turn.
    """
    directory = find_run(root / "runs", run)
    manifest = Manifest.load(directory)
    result = None
    for entry in manifest.stages:
        if entry.name == STAGE:
            result = StageStore(root / ".dreamgym" / "stages").find(STAGE, entry.key)
    if result is None:
        raise DataError(
            f"The run {manifest.run_id} has no finished stage {STAGE} in .dreamgym/stages.",
            "Its iterations' times are read from there.",
            "Name another run, or type `dreamgym retrain`.",
        )
    if manifest.config["rl"]["dream"].get("staleness", 0):
        raise DataError(
            f"The run {manifest.run_id} played rollouts during updates (rl.dream.staleness).",
            "The times of rollouts and updates are told apart only where they take turns.",
            "Name a run with rl.dream.staleness: 0.",
        )
    series = result.details["series"]
    config = manifest.config["rl"]["dream"]
    episodes = config["tasks"] * config["num_generations"]
    names = ("interactions", "turn_seconds", "row_seconds", "steps_per_second", "seconds")
    missing = [name for name in names if f"{STAGE}/{name}" not in series]
    if missing or not series[f"{STAGE}/interactions"]:
        raise DataError(
            f"The run {manifest.run_id} has no {missing[0] if missing else 'iteration'} of RL in the dream.",
            "The times of a turn come from there; runs of earlier versions lack them.",
            "Name another run, or type `dreamgym retrain` with a new seed.",
        )
    rows = zip(*(series[f"{STAGE}/{name}"] for name in names), strict=True)
    iterations = [
        MeasuredIteration(
            _with_missing(lengths, episodes, int(interactions)), turn, row, interactions / speed, seconds
        )
        for lengths, (interactions, turn, row, speed, seconds) in zip(
            _logged_lengths(result.outputs["replay"]), rows, strict=False
        )
    ]
    return iterations, int(config["processes"])


def _logged_lengths(log: Path) -> Iterator[list[int]]:
    """Yield the lengths of each iteration's episodes, in the order of the log."""
    for number in range(len(list(log.glob("*.parquet")))):
        yield list(Counter(step.episode_id for step in read_shard(log, number)).values())


def _with_missing(lengths: Sequence[int], episodes: int, steps: int) -> list[int]:
    """Return `lengths` with the episodes that the log lacks, which have the steps that it lacks."""
    missing = episodes - len(lengths)
    if missing <= 0:
        return list(lengths)
    each, more = divmod(max(steps - sum(lengths), missing), missing)
    return [*lengths, *[each + (place < more) for place in range(missing)]]


def scale(
    root: Path, run: str, devices: Sequence[int], cluster: Cluster
) -> tuple[LoopTimes, dict[tuple[int, Schedule], Simulated]]:
    """Return the fitted times, and (rollout workers, schedule) -> the simulated mean iteration.

    Args:
        devices: numbers of rollout workers.
        cluster: everything else.
    """
    iterations, workers = measured_iterations(root, run)
    times = fit_times(iterations, workers)
    lengths = [one.lengths for one in iterations]
    return times, {
        (count, schedule): simulate(times, lengths, replace(cluster, workers=count), schedule)
        for count in devices
        for schedule in SCHEDULES
    }


def as_json(times: LoopTimes, found: dict[tuple[int, Schedule], Simulated]) -> dict[str, Any]:
    """Return the fitted times and all simulated iterations as JSON values."""
    fitted = {name: round(value, 6) for name, value in vars(times).items()}
    rows = [
        {"workers": count, "schedule": schedule, **vars(one), "bottleneck": one.bottleneck}
        for (count, schedule), one in found.items()
    ]
    return {"fitted": fitted, "simulated": rows}


def print_scale(page: Output, times: LoopTimes, found: dict[tuple[int, Schedule], Simulated]) -> None:
    """Print the fitted times and a line for each number of workers and schedule."""
    names = ("seconds", "rollouts", "update", "idle")
    columns = [
        Column("workers", right=True),
        Column("schedule"),
        *(Column(name, right=True) for name in names),
        Column("bottleneck"),
    ]
    rows = [
        [
            str(count),
            schedule,
            f"{one.seconds:.1f}",
            f"{one.rollouts:.1f}",
            f"{one.update:.1f}",
            f"{one.idle:.0%}",
            one.bottleneck,
        ]
        for (count, schedule), one in found.items()
    ]
    page.table(
        "", Table("Simulated iteration of RL in the dream; idle: of the rollout workers", columns, rows)
    )
    page.text(
        f"Fitted to a run with {times.workers} worker(s): {1000 * times.turn:.1f} ms a turn, "
        f"{1000 * times.row:.1f} ms more for each episode in it, {times.update:.1f} s an update. Rollouts "
        f"of these times differ by {times.error:.0%} from the measured ones. All of this is arithmetic on "
        "the times of one machine."
    )
