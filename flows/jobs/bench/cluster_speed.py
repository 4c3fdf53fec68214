"""`dreamgym bench cluster`: steps per second of the real environment on a Ray cluster and on this machine.

    dreamgym bench cluster --json bench-cluster.json environment.workers=2

All contestants play the same recorded actions in the same rows, in turns: one and `environment.workers`
processes of this machine, and as many workers of the cluster. Loading and starting the episodes counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from components.config import Config
from components.environments import make_adapter
from components.environments.protocol import Environment
from components.environments.ray_environment import spread_over_cluster
from components.errors import ConfigError, EnvironmentFailure
from components.evaluation.metrics.intervals import Estimate, exact_value
from components.evaluation.metrics.speed import Work, speed_metrics
from components.records import Trajectory
from components.trajectories.store import DataLayout, read_tasks, read_transitions, trajectories
from flows.printing.formats import level
from flows.printing.output import Output
from flows.printing.table import Column, Table

HERE = "here"
CLUSTER = "cluster"


def bench_cluster(
    config: Config, root: Path, *, episodes: int, rounds: int, report: Callable[[str], None]
) -> dict[str, Estimate]:
    """Return the speeds of all contestants, and `ratio_vs_<contestant>` of the cluster with all workers.

    Args:
        episodes: recorded episodes that are played at once.

    Raises:
        ConfigError: `environment.workers` is 1, or there are fewer recorded episodes.
        ClusterError: the cluster cannot be used.
        EnvironmentFailure: a contestant answers otherwise than recorded.
    """
    count = config.environment.workers
    if count < 2:
        raise ConfigError("environment.workers is 1.", "Expected two or more, to compare them with one.")
    data = DataLayout.of(root, config.environment.name)
    recorded = trajectories(
        read_tasks(data.tasks("fidelity")), read_transitions(data.trajectories("fidelity"))
    )
    if len(recorded) < episodes:
        next_step = f"Give --episodes {len(recorded)}, or record more with `dreamgym collect`."
        raise ConfigError(f"--episodes is {episodes}.", f"The fidelity set has {len(recorded)}.", next_step)
    chosen = [recorded[number * len(recorded) // episodes] for number in range(episodes)]
    settings, address = config.environment, config.cluster or "local"
    rounds_work: list[Mapping[str, Work]] = []
    with ExitStack() as opened:
        worlds: dict[str, Environment] = {}
        for workers in (1, count):
            worlds[f"{HERE}_{workers}"] = opened.enter_context(
                closing(make_adapter(settings).open(workers=workers))
            )
            adapter = spread_over_cluster(make_adapter(settings), settings, address)
            worlds[f"{CLUSTER}_{workers}"] = opened.enter_context(closing(adapter.open(workers=workers)))
        for world in worlds.values():
            play_recorded(world, chosen)  # starts the engines, and fills their caches
        for number in range(rounds):
            work = {name: Work() for name in worlds}
            for name, world in list(worlds.items())[:: -1 if number % 2 else 1]:
                with work[name].timed():
                    work[name].steps += play_recorded(world, chosen)
            rounds_work.append(work)
            report(f"round {number + 1} of {rounds}")
    metrics = speed_metrics(rounds_work, f"{CLUSTER}_{count}", config.evaluation.confidence)
    sizes = {"workers": count, "episodes": episodes, "rounds": rounds}
    return metrics | {name: exact_value(value) for name, value in sizes.items()}


def play_recorded(world: Environment, episodes: Sequence[Trajectory]) -> int:
    """Play the recorded actions of all episodes at once, and return the number of steps.

    Raises:
        EnvironmentFailure: the environment breaks, or answers otherwise than it was recorded.
    """
    states = [world.reset([episode.task for episode in episodes])]
    longest = max(len(episode.steps) for episode in episodes)
    for turn in range(longest):
        actions = [episode.steps[turn].action if turn < len(episode.steps) else None for episode in episodes]
        states.append([answer.state if answer else "" for answer in world.step(actions)])
    for row, episode in enumerate(episodes):
        found = [turn[row] for turn in states[: len(episode.steps) + 1]]
        if found != list(episode.states):
            raise EnvironmentFailure(
                f"An episode of {episode.task.id} went otherwise than it was recorded.",
                "Expected the same: the same actions are to be compared.",
                "Record the data anew with this version: dreamgym collect.",
            )
    return sum(len(episode.steps) for episode in episodes)


def print_cluster(page: Output, metrics: Mapping[str, Estimate], confidence: float) -> None:
    """Print a line for each contestant."""
    columns = [
        Column("contestant"),
        *(Column(n, right=True) for n in ("steps/s", level(confidence), "ratio")),
    ]
    rows = []
    for key, rate in metrics.items():
        name, _, what = key.partition("/")
        if what == "steps_per_second":
            place, _, workers = name.partition("_")
            label = f"{'Ray cluster' if place == CLUSTER else 'this machine'}, {workers} worker(s)"
            ratio = metrics.get(f"ratio_vs_{name}")
            rows.append(
                [
                    label,
                    f"{rate.value:.1f}",
                    f"{rate.low:.1f} to {rate.high:.1f}",
                    f"{ratio.value:.2f}" if ratio else "",
                ]
            )
    title = "The same recorded actions; ratio: how many times faster the cluster with all workers is"
    page.table("", Table(title, columns, rows))
