"""`dreamgym bench profile`: where the time of an RL update and of a dreamed rollout goes, by PyTorch's
profiler.

The policy plays a batch of groups in the real environment and our loop takes two optimiser steps on it (as in
`bench train`); then the same policy plays the same tasks in the dream. An operation counts with the time
spent in itself, not in what it calls. What the profiler does not see (Python, tokenising, the dream's own
rules) is the rest of the wall time. Watching costs time: shares are printed, no speeds.
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
from components.evaluation.metrics.intervals import Estimate, exact
from components.experience.dream import Dream
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.language.threads import threads as using
from components.policy.policy import Policy
from components.policy.rollout import play
from components.records import Task
from components.tracking.find_model import lessons
from components.trajectories.store import DataLayout, held_out
from flows.jobs.bench.train import Batch, one_step, played_batch
from flows.printing.output import Column, Output, Table
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
"""Kind -> parts of the names of its operations, the first that fits."""
OTHER, OUTSIDE = "other operations", "outside torch"
Say = Callable[[str], None]


class _Watched:
    """The dream, with the wall time spent in it."""

    def __init__(self, dream: Dream) -> None:
        self._dream, self.seconds, self.interactions = dream, 0.0, 0

    def reset(self, tasks: Sequence[Task]) -> list[str]:
        """The dream's."""
        with self._timed():
            return self._dream.reset(tasks)

    def step(self, actions: Sequence[str | None]) -> list[Step | None]:
        """The dream's."""
        with self._timed():
            answers = self._dream.step(actions)
        self.interactions = self._dream.interactions
        return answers

    def close(self) -> None:
        """The dream's."""
        self._dream.close()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - began


def bench_profile(
    config: Config, root: Path, model: Path, policy: Path, *, tasks: int, threads: int, say: Say
) -> dict[str, Estimate]:
    """`update/...` and `rollout/...`: shares of the wall time by kind of operation; `rollout/dream`: that of
    all but the policy.

    Args: model, policy: directories of an experience model and of a policy; tasks: so many are played by a
    group each.
    """
    with using(threads):
        batch = played_batch(config, DataLayout.of(root, config.environment.name), policy, tasks)
        say(f"update: {len(batch.rollouts)} episodes, {batch.tokens:,} tokens")
        metrics = _shares("update", *_profiled(lambda: one_step(batch, config.rl.dream)))
        dream, player = (
            _dream_of(config, root, model),
            Policy.load(policy, max_new_tokens=config.rl.dream.max_new_tokens),
        )
        say(f"rollouts: {len(batch.rollouts)} episodes in the dream")
        events, seconds = _profiled(lambda: _play(player, dream, batch, config))
        dream.close()
    metrics |= _shares("rollout", events, seconds) | {"rollout/dream": exact(dream.seconds / seconds)}
    facts = {
        "episodes": len(batch.rollouts),
        "tokens": batch.tokens,
        "dreamed_steps": dream.interactions,
        "threads": threads,
    }
    return metrics | {name: exact(value) for name, value in facts.items()}


def _dream_of(config: Config, root: Path, model: Path) -> _Watched:
    data = DataLayout.of(root, config.environment.name)
    buffer = ReplayBuffer(config.retrieval, lessons(config, data), hidden=held_out(data))
    return _Watched(dream_over(config, model, buffer))


def _play(policy: Policy, dream: _Watched, batch: Batch, config: Config) -> None:
    tasks, settings = [rollout.trajectory.task for rollout in batch.rollouts], config.rl.dream
    play(
        policy,
        dream,
        tasks,
        max_steps=config.environment.max_steps,
        temperature=settings.temperature,
        seed=config.seed,
    )


def _profiled(work: Callable[[], object]) -> tuple[Any, float]:
    """The operations of `work`, and its wall time in seconds."""
    with profile(activities=[ProfilerActivity.CPU]) as found:
        began = time.perf_counter()
        work()
        seconds = time.perf_counter() - began
    return found.key_averages(), seconds


def _shares(name: str, events: Any, seconds: float) -> dict[str, Estimate]:
    spent = dict.fromkeys((*KINDS, OTHER), 0.0)
    for event in events:
        spent[kind_of(event.key)] += event.self_cpu_time_total / 1e6
    spent[OUTSIDE] = max(0.0, seconds - sum(spent.values()))
    ordered, whole = sorted(spent.items(), key=lambda entry: -entry[1]), sum(spent.values())
    return {f"{name}/{kind}": exact(value / whole) for kind, value in ordered if value}


def kind_of(operation: str) -> str:
    """Which of KINDS an operation of torch belongs to."""
    lower = operation.lower()
    return next((kind for kind, parts in KINDS.items() if any(part in lower for part in parts)), OTHER)


def print_profile(page: Output, metrics: Mapping[str, Estimate]) -> None:
    """What the update and the rollout spend most on, the largest first."""
    sides = [
        [
            (key.removeprefix(f"{side}/"), f"{entry.value:.1%}")
            for key, entry in metrics.items()
            if key.startswith(f"{side}/")
        ]
        for side in ("update", "rollout")
    ]
    whole = dict(sides[1]).get("dream", "")
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
    told = (
        f"{episodes} episodes: an update of {tokens:,} tokens; {steps:,} dreamed steps, {whole} of their "
        "time the dream's, the rest the"
    )
    page.text(f"{told} policy's. {threads} thread(s).")
