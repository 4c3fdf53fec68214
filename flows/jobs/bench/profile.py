"""`dreamgym bench profile`: shares of an RL update's and of dreamed rollouts' time, by kind of operation.

The policy plays a batch of groups in the real environment, and our loop takes two optimiser steps on it (as
in `bench train`). Then the same policy plays the same tasks in the dream. PyTorch's profiler measures both.
An operation counts with its own time, without that of the operations it calls. The rest of the wall time is
what the profiler does not see: Python, tokenising, the rules of the dream. Profiling costs time, so only
shares are printed, no speeds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile

from components.config import Config
from components.environments.protocol import Step
from components.evaluation.metrics.intervals import Estimate, exact_value
from components.experience.dream import Dream
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.language.threads import threads as using
from components.policy.policy import Policy
from components.policy.rollout import play
from components.records import Task
from components.tracking.find_model import offline_transitions
from components.trajectories.store import DataLayout, held_out
from flows.jobs.bench.recorded_batch import Batch, play_batch
from flows.jobs.bench.train import one_step
from flows.printing.output import Output
from flows.printing.table import Column, Table
from flows.run.run_dream import dream_over

KINDS: Mapping[str, Sequence[str]] = {
    "attention, backward": ("attention_for_cpu_backward", "attention_backward"),
    "attention": ("attention", "aten::bmm", "aten::baddbmm", "softmax"),
    "matrix products": ("aten::mm", "aten::addmm", "aten::linear", "aten::matmul"),
    "copying and picking": (
        "copy_",
        "index",
        "cat",
        "gather",
        "scatter",
        "clone",
        "contiguous",
        "narrow",
        "slice",
        "fill_",
        "embedding",
    ),
    "optimiser": ("adam", "muon", "_foreach", "clip_grad"),
}
"""Kind -> parts of the names of its operations; the first kind that matches counts."""
OTHER = "other operations"
OUTSIDE = "outside torch"
Report = Callable[[str], None]
"""Called with progress messages."""


class _TimedDream:
    """A dream that measures the wall time spent in it."""

    def __init__(self, dream: Dream) -> None:
        self._dream = dream
        self.seconds = 0.0
        self.interactions = 0

    def reset(self, tasks: Sequence[Task]) -> list[str]:
        """Reset the dream."""
        with self._timed():
            return self._dream.reset(tasks)

    def step(self, actions: Sequence[str | None]) -> list[Step | None]:
        """Take one step in the dream."""
        with self._timed():
            answers = self._dream.step(actions)
        self.interactions = self._dream.interactions
        return answers

    def close(self) -> None:
        """Close the dream."""
        self._dream.close()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - began


def bench_profile(
    config: Config, root: Path, model: Path, policy: Path, *, tasks: int, threads: int, report: Report
) -> dict[str, Estimate]:
    """Return `update/<kind>` and `rollout/<kind>`: shares of the wall time by kind of operation.

    `rollout/dream` is the share of the dream, that is of all but the policy.

    Args:
        model: directory of an experience model.
        policy: directory of a policy.
        tasks: number of tasks, each played by one group.
    """
    with using(threads):
        batch = play_batch(config, DataLayout.of(root, config.environment.name), policy, tasks)
        report(f"update: {len(batch.rollouts)} episodes, {batch.tokens:,} tokens")
        metrics = _kind_shares("update", *_profile(lambda: one_step(batch, config.rl.dream)))
        dream = _open_dream(config, root, model)
        player = Policy.load(policy, max_new_tokens=config.rl.dream.max_new_tokens)
        report(f"rollouts: {len(batch.rollouts)} episodes in the dream")
        events, seconds = _profile(lambda: _play(player, dream, batch, config))
        dream.close()
    metrics |= _kind_shares("rollout", events, seconds) | {
        "rollout/dream": exact_value(dream.seconds / seconds)
    }
    settings = {
        "episodes": len(batch.rollouts),
        "tokens": batch.tokens,
        "dreamed_steps": dream.interactions,
        "threads": threads,
    }
    return metrics | {name: exact_value(value) for name, value in settings.items()}


def _open_dream(config: Config, root: Path, model: Path) -> _TimedDream:
    data = DataLayout.of(root, config.environment.name)
    buffer = ReplayBuffer(config.retrieval, offline_transitions(config, data), hidden=held_out(data))
    return _TimedDream(dream_over(config, model, buffer, root))


def _play(policy: Policy, dream: _TimedDream, batch: Batch, config: Config) -> None:
    tasks = [rollout.trajectory.task for rollout in batch.rollouts]
    play(
        policy,
        dream,
        tasks,
        max_steps=config.environment.max_steps,
        temperature=config.rl.dream.temperature,
        seed=config.seed,
    )


def _profile(work: Callable[[], object]) -> tuple[Any, float]:
    """Run `work`; return its operations and its wall time in seconds."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        began = time.perf_counter()
        work()
        seconds = time.perf_counter() - began
    return profiler.key_averages(), seconds


def _kind_shares(name: str, events: Any, seconds: float) -> dict[str, Estimate]:
    """Return `name/<kind>` -> share of the time, the largest first."""
    spent = dict.fromkeys((*KINDS, OTHER), 0.0)
    for event in events:
        spent[kind_of(event.key)] += event.self_cpu_time_total / 1e6
    spent[OUTSIDE] = max(0.0, seconds - sum(spent.values()))
    ordered = sorted(spent.items(), key=lambda entry: -entry[1])
    total = sum(spent.values())
    return {f"{name}/{kind}": exact_value(value / total) for kind, value in ordered if value}


def kind_of(operation: str) -> str:
    """Return the kind (of KINDS, else OTHER) of an operation of torch."""
    lower = operation.lower()
    return next((kind for kind, parts in KINDS.items() if any(part in lower for part in parts)), OTHER)


def print_profile(page: Output, metrics: Mapping[str, Estimate]) -> None:
    """Print the shares of the update and of the rollouts, the largest first."""
    sides = [
        [
            (key.removeprefix(f"{side}/"), f"{entry.value:.1%}")
            for key, entry in metrics.items()
            if key.startswith(f"{side}/")
        ]
        for side in ("update", "rollout")
    ]
    dream_share = dict(sides[1]).get("dream", "")
    rows = [[entry for entry in side if entry[0] != "dream"] for side in sides]
    lines = range(max(map(len, rows)))
    cells = [
        [cell for side in rows for cell in (side[number] if number < len(side) else ("", ""))]
        for number in lines
    ]
    columns = [
        Column("update"),
        Column("share", right=True),
        Column("rollout in the dream"),
        Column("share", right=True),
    ]
    page.table("", Table("Shares of the wall time", columns, cells))
    episodes, tokens, steps, threads = (
        int(metrics[name].value) for name in ("episodes", "tokens", "dreamed_steps", "threads")
    )
    page.text(
        f"{episodes} episodes: an update of {tokens:,} tokens; {steps:,} dreamed steps, {dream_share} of "
        f"their time the dream's, the rest the policy's. {threads} thread(s)."
    )
