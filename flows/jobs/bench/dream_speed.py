"""Benchmarks that anyone can repeat: `dreamgym bench dream --json bench.json`.

No Prefect here: its server would take part of the very cores that are measured. All contestants do the same
recorded steps in the same run: our dream; the same model through transformers' `generate` with the full
prompt of every step, all episodes in one call and one step in a call; the real environment, stock and with
our caches. Each has one process. Loading a game and starting it counts as work of the real environment, as
reading the task does in a dream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.config import Config
from components.environments import make_adapter
from components.environments.protocol import Environment
from components.environments.step_cost import replay
from components.errors import ConfigError
from components.evaluation.metrics.intervals import Estimate, exact, proportion
from components.evaluation.metrics.speed import Work, speed_metrics
from components.experience.model import ExperienceModel
from components.experience.recorded_episodes import (
    KeptDreamer,
    PlainDreamer,
    Written,
    differing,
    once_greedily,
)
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.language.threads import threads as using
from components.records import Trajectory
from components.tracking.find_model import find_model, lessons
from components.trajectories.store import DataLayout, held_out, read_tasks, read_transitions, trajectories
from flows.printing.formats import level
from flows.printing.output import Column, Output, Table

BENCHMARKS = ("dream", "train", "profile", "overhead")
DREAM, PLAIN, STOCK, CACHED = "dream", "plain_generate", "stock_environment", "cached_environment"
SINGLE = "single_generate"
"""One call of `generate` for one step of one episode, as a loop over an environment makes them; a sample of
the steps.
"""
STOCK_EVERY = 4
"""Steps of the dream between two episodes of the stock environment, which takes a second or more for each."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Contest:
    """What is measured on: the model, its buffer, and the recorded episodes, dreamed side by side."""

    model: ExperienceModel
    buffer: ReplayBuffer
    episodes: list[Trajectory]

    @property
    def steps(self) -> int:
        """Steps of the longest episode."""
        return max(len(episode.steps) for episode in self.episodes)


def bench_dream(
    config: Config, root: Path, model: Path | None, *, episodes: int, rounds: int, threads: int, say: Say
) -> dict[str, Estimate]:
    """`ratio_vs_plain_generate`, `ratio_vs_stock_environment` and what they come from.

    Args: model: an experience model's directory; None: of the newest finished stage.

    Raises:
        DataError: there is no model, or there are fewer recorded episodes.
        ExperienceModelError: the dream writes other tokens than plain `generate`.
        EnvironmentFailure: the real environment answers otherwise than recorded.
    """
    directory = find_model(root, model, config.environment.name)
    say(f"Experience model: {directory}")
    contest = _prepare(config, DataLayout.of(root, config.environment.name), directory, episodes)
    adapter = make_adapter(config.environment)
    done: list[dict[str, Work]] = []
    identical: list[int] = []
    with (
        closing(adapter.open(workers=1, stock=True)) as stock,
        closing(adapter.open(workers=1)) as cached,
        using(threads),
    ):
        worlds = {STOCK: stock, CACHED: cached}
        for world in worlds.values():
            replay(world, contest.episodes[0])
        KeptDreamer(contest.model, contest.buffer, contest.episodes).step(0)
        PlainDreamer(contest.model, contest.buffer, contest.episodes).step(0)
        for number in range(rounds):
            work, same = _round(contest, worlds, number)
            done.append(work)
            identical.append(same)
            ratios = ", ".join(
                f"{_speedup(work, name):.1f} x {name}" for name in (PLAIN, SINGLE, STOCK, CACHED)
            )
            say(f"round {number + 1} of {rounds}: {ratios}")
    metrics = speed_metrics(done, DREAM, config.evaluation.confidence)
    metrics["tokens_identical_share"] = proportion(
        sum(identical), sum(work[DREAM].steps for work in done), config.evaluation.confidence
    )
    facts = {"episodes": episodes, "steps": done[0][DREAM].steps, "threads": threads, "rounds": rounds}
    return metrics | {name: exact(value) for name, value in facts.items()}


def _prepare(config: Config, data: DataLayout, directory: Path, count: int) -> Contest:
    """`count` episodes spread evenly over the fidelity set, and the buffer as the dream has it: full of
    training transitions.
    """
    model = ExperienceModel.load(directory, once_greedily(config.experience_model), seed=config.seed)
    known = trajectories(read_tasks(data.tasks("fidelity")), read_transitions(data.trajectories("fidelity")))
    if len(known) < count:
        cure = f"Give --episodes {len(known)}, or record more with `dreamgym collect`."
        raise ConfigError(f"--episodes is {count}.", f"The fidelity set has {len(known)}.", cure)
    buffer = ReplayBuffer(config.retrieval, hidden=held_out(data))
    buffer.add(lessons(config, data))
    return Contest(model, buffer, [known[number * len(known) // count] for number in range(count)])


def _round(contest: Contest, worlds: Mapping[str, Environment], number: int) -> tuple[dict[str, Work], int]:
    """All episodes once, step by step in turns; who goes first alternates. Also: how many answers were the
    same.
    """
    work = {name: Work() for name in (DREAM, PLAIN, SINGLE, *worlds)}
    with work[DREAM].timed():
        kept = KeptDreamer(contest.model, contest.buffer, contest.episodes)
    with work[PLAIN].timed():
        plain = PlainDreamer(contest.model, contest.buffer, contest.episodes)
    dreamers: list[tuple[str, Any]] = [(DREAM, kept), (PLAIN, plain)]
    identical = 0
    for step in range(contest.steps):
        written: dict[str, Written] = {}
        for name, dreamer in dreamers[:: 1 if (step + number) % 2 else -1]:
            with work[name].timed():
                written[name] = dreamer.step(step)
            _count(work[name], written[name])
        identical += len(written[DREAM]) - differing(
            contest.model, plain.prompts, written[DREAM], written[PLAIN]
        )
        with work[SINGLE].timed():
            alone = plain.one(step, number * contest.steps + step)
        _count(work[SINGLE], alone)
        if step % STOCK_EVERY == 0:
            turn = (number * contest.steps + step) // STOCK_EVERY
            _play(worlds, work, contest.episodes[turn * 7 % len(contest.episodes)])
    return work, identical


def _count(work: Work, written: Written) -> None:
    work.steps += len(written)
    work.tokens += sum(map(len, written.values()))


def _play(worlds: Mapping[str, Environment], work: Mapping[str, Work], episode: Trajectory) -> None:
    for name, world in worlds.items():
        played = replay(world, episode)
        work[name].steps += played.steps
        work[name].seconds += played.reset_seconds + played.step_seconds


def _speedup(work: Mapping[str, Work], other: str) -> float:
    ours, theirs = work[DREAM], work[other]
    return (ours.steps / ours.seconds) / (theirs.steps / theirs.seconds)


def print_dream(page: Output, metrics: Mapping[str, Estimate], confidence: float) -> None:
    """A line for each contestant, and what was measured on."""
    names = ("steps/s", level(confidence), "tokens/s", "ratio", "interval")
    columns = [Column("contestant"), *(Column(name, right=True) for name in names)]
    rows = []
    for name, label in LABELS.items():
        rate, tokens, ratio = (
            metrics[f"{name}/steps_per_second"],
            metrics.get(f"{name}/tokens_per_second"),
            metrics.get(f"ratio_vs_{name}"),
        )
        written, faster = f"{tokens.value:,.0f}" if tokens else "", f"{ratio.value:.2f}" if ratio else ""
        rows.append([label, f"{rate.value:.1f}", _span(rate), written, faster, _span(ratio)])
    page.table(
        "",
        Table(
            "The same recorded steps, dreamed and real; ratio: how many times faster the dream is",
            columns,
            rows,
        ),
    )
    threads, episodes, steps, rounds = (
        int(metrics[name].value) for name in ("threads", "episodes", "steps", "rounds")
    )
    same = metrics["tokens_identical_share"]
    page.text(
        f"Measured on {threads} thread(s) each, {episodes} rows (episodes side by side), {steps:,} steps a "
        f"round, n = {rounds} rounds "
        f"(medians). Answers identical to plain generate, token for token: {same.value:.2%} of {same.n:,}."
    )


LABELS = {
    DREAM: "dream (kept cache)",
    PLAIN: "plain generate, all episodes in a call",
    SINGLE: "plain generate, one step in a call",
    STOCK: "real environment, stock",
    CACHED: "real environment, our caches",
}


def _span(estimate: Estimate | None) -> str:
    return f"{estimate.low:.1f} to {estimate.high:.1f}" if estimate else ""


def check_name(name: str, known: Sequence[str] = BENCHMARKS) -> None:
    """Raise ConfigError if there is no such benchmark."""
    if name not in known:
        raise ConfigError(f"There is no benchmark {name!r}.", next_step=f"Name one of: {', '.join(known)}.")
