"""`dreamgym bench dream`: steps per second of the dream, plain `generate` and the real environment.

    dreamgym bench dream --json bench.json

All contestants do the same recorded steps, in turns, with one process each:

- our dream;
- the same model through transformers' `generate` with the full prompt of every step, all episodes in one
  call;
- the same with one step of one episode in a call;
- with `engine=vllm`: our dream on vLLM, and vLLM with the full prompt of every step;
- the real environment, stock and with our caches.

Loading and starting a game counts as work of the real environment, and reading the task as work of the dream.
Prefect is not used: its server would take part of the cores that are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from components.config import Config
from components.environments import make_adapter
from components.environments.protocol import Environment
from components.environments.step_cost import replay
from components.errors import ConfigError
from components.evaluation.metrics.intervals import Estimate, exact_value, proportion
from components.evaluation.metrics.speed import Work, speed_metrics
from components.experience.model import ExperienceModel
from components.experience.recorded_episodes import (
    AnswerTokens,
    Complete,
    Dreamer,
    EngineDreamer,
    WholePromptDreamer,
    count_differing_answers,
    with_single_greedy_try,
)
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.language.compute import compute_of
from components.language.engines.open_engine import open_engine
from components.language.threads import threads as using
from components.records import Trajectory
from components.tracking.find_model import find_model, offline_transitions
from components.trajectories.store import DataLayout, held_out, read_tasks, read_transitions, trajectories
from flows.printing.formats import level
from flows.printing.output import Output
from flows.printing.table import Column, Table

BENCHMARKS = ("dream", "train", "profile", "overhead", "gpu", "cluster", "data")
DREAM = "dream"
PLAIN = "plain_generate"
STOCK = "stock_environment"
CACHED = "cached_environment"
VLLM = "vllm"
RAW_VLLM = "raw_vllm"
SINGLE = "single_generate"
"""One call of `generate` for one step of one episode, as a simple loop does, on a sample of steps."""
STOCK_EVERY = 4
"""Dreamed steps between two episodes of the real environments; a stock episode takes a second or more."""

Report = Callable[[str], None]
"""Called with progress messages."""


@dataclass(frozen=True)
class Contest:
    """The model, its buffer, and the recorded episodes, which are dreamed as one batch.

    `vllm` is the same model on vLLM, if the config asks for that engine.
    """

    model: ExperienceModel
    buffer: ReplayBuffer
    episodes: list[Trajectory]
    vllm: ExperienceModel | None = None

    @property
    def steps(self) -> int:
        """Steps of the longest episode."""
        return max(len(episode.steps) for episode in self.episodes)


def bench_dream(
    config: Config,
    root: Path,
    model: Path | None,
    *,
    episodes: int,
    rounds: int,
    threads: int,
    report: Report,
) -> dict[str, Estimate]:
    """Return `ratio_vs_plain_generate`, `ratio_vs_stock_environment` and the speeds that they come from.

    Args:
        model: directory of an experience model; None: of the newest finished stage.

    Raises:
        DataError: there is no model, or there are fewer recorded episodes.
        ExperienceModelError: the dream writes other tokens than plain `generate`.
        EnvironmentFailure: the real environment gives other answers than recorded.
    """
    directory = find_model(root, model, config.environment.name)
    report(f"Experience model: {directory}")
    contest = _prepare(config, DataLayout.of(root, config.environment.name), directory, episodes)
    adapter = make_adapter(config.environment)
    rounds_work: list[dict[str, Work]] = []
    identical_answers: list[int] = []
    with (
        closing(adapter.open(workers=1, stock=True)) as stock,
        closing(adapter.open(workers=1)) as cached,
        using(threads),
    ):
        worlds = {STOCK: stock, CACHED: cached}
        for world in worlds.values():
            replay(world, contest.episodes[0])
        for start in _dreamers(contest).values():
            start().step(0)
        for number in range(rounds):
            work, identical = _run_round(contest, worlds, number)
            rounds_work.append(work)
            identical_answers.append(identical)
            ratios = ", ".join(f"{_speedup(work, name):.1f} x {name}" for name in work if name != DREAM)
            report(f"round {number + 1} of {rounds}: {ratios}")
    metrics = _speed_summary(rounds_work, identical_answers, config.evaluation.confidence)
    steps = rounds_work[0][DREAM].steps
    settings = {"episodes": episodes, "steps": steps, "threads": threads, "rounds": rounds}
    return metrics | {name: exact_value(value) for name, value in settings.items()}


def _speed_summary(
    rounds_work: Sequence[Mapping[str, Work]], identical_answers: Sequence[int], confidence: float
) -> dict[str, Estimate]:
    """Return the speeds, their ratios, and the share of answers identical to those of plain `generate`."""
    metrics = speed_metrics(rounds_work, DREAM, confidence)
    steps = sum(work[DREAM].steps for work in rounds_work)
    metrics["tokens_identical_share"] = proportion(sum(identical_answers), steps, confidence)
    return metrics


def _prepare(config: Config, data: DataLayout, directory: Path, count: int) -> Contest:
    """Load the model, `count` episodes spread evenly over the fidelity set, and the buffer."""
    compute = compute_of(config)
    model = ExperienceModel.load(
        directory,
        with_single_greedy_try(config.experience_model),
        seed=config.seed,
        compute=replace(compute, engine="kept-cache"),
    )
    episodes = trajectories(
        read_tasks(data.tasks("fidelity")), read_transitions(data.trajectories("fidelity"))
    )
    if len(episodes) < count:
        next_step = f"Give --episodes {len(episodes)}, or record more with `dreamgym collect`."
        raise ConfigError(f"--episodes is {count}.", f"The fidelity set has {len(episodes)}.", next_step)
    buffer = ReplayBuffer(config.retrieval, hidden=held_out(data))
    buffer.add(offline_transitions(config, data))
    chosen = [episodes[number * len(episodes) // count] for number in range(count)]
    return Contest(
        model, buffer, chosen, model.sharing_weights(compute) if compute.engine == "vllm" else None
    )


def _dreamers(contest: Contest) -> dict[str, Callable[[], Dreamer]]:
    """Return what starts the contestants that dream whole batches, in their first turn's order."""
    parts = (contest.buffer, contest.episodes)
    starts: dict[str, Callable[[], Dreamer]] = {
        DREAM: partial(EngineDreamer, contest.model, *parts),
        PLAIN: partial(WholePromptDreamer, contest.model, *parts),
    }
    if contest.vllm:
        starts[VLLM] = partial(EngineDreamer, contest.vllm, *parts)
        starts[RAW_VLLM] = partial(WholePromptDreamer, contest.vllm, *parts, complete=_raw_vllm(contest.vllm))
    return starts


def _raw_vllm(model: ExperienceModel) -> Complete:
    """Return vLLM without sessions: one call with all prompts."""

    def complete(prompts: Sequence[list[int]]) -> list[list[int]]:
        engine = open_engine(model.model, model.vocabulary, model.compute, 0)
        written = engine.open(len(prompts)).generate(
            dict(enumerate(prompts)),
            stop=model.text.stop,
            max_new_tokens=model.config.max_new_tokens,
            temperature=0.0,
        )
        return [written[row].tokens for row in range(len(prompts))]

    return complete


def _run_round(
    contest: Contest, worlds: Mapping[str, Environment], number: int
) -> tuple[dict[str, Work], int]:
    """Play all episodes once, step by step in turns; the order of the contestants alternates.

    Returns:
        the work of each contestant, and the number of answers that were identical.
    """
    starts = _dreamers(contest)
    work = {name: Work() for name in (*starts, SINGLE, *worlds)}
    dreamers: dict[str, Dreamer] = {}
    for name, start in starts.items():
        with work[name].timed():
            dreamers[name] = start()
    plain = dreamers[PLAIN]
    assert isinstance(plain, WholePromptDreamer)
    identical = 0
    for step in range(contest.steps):
        written: dict[str, AnswerTokens] = {}
        for name, dreamer in list(dreamers.items())[:: 1 if (step + number) % 2 else -1]:
            with work[name].timed():
                written[name] = dreamer.step(step)
            _count_answers(work[name], written[name])
        for name in dreamers.keys() - {DREAM, PLAIN}:
            count_differing_answers(contest.model, plain.prompts, written[name], written[PLAIN])
        identical += len(written[DREAM]) - count_differing_answers(
            contest.model, plain.prompts, written[DREAM], written[PLAIN]
        )
        with work[SINGLE].timed():
            single = plain.one(step, number * contest.steps + step)
        _count_answers(work[SINGLE], single)
        if step % STOCK_EVERY == 0:
            turn = (number * contest.steps + step) // STOCK_EVERY
            _play_real(worlds, work, contest.episodes[turn * 7 % len(contest.episodes)])
    return work, identical


def _count_answers(work: Work, written: AnswerTokens) -> None:
    work.steps += len(written)
    work.tokens += sum(map(len, written.values()))


def _play_real(worlds: Mapping[str, Environment], work: Mapping[str, Work], episode: Trajectory) -> None:
    for name, world in worlds.items():
        replayed = replay(world, episode)
        work[name].steps += replayed.steps
        work[name].seconds += replayed.reset_seconds + replayed.step_seconds


def _speedup(work: Mapping[str, Work], other: str) -> float:
    ours = work[DREAM]
    theirs = work[other]
    return (ours.steps / ours.seconds) / (theirs.steps / theirs.seconds)


def print_dream(page: Output, metrics: Mapping[str, Estimate], confidence: float) -> None:
    """Print a line for each contestant, and the settings of the measurement."""
    names = ("steps/s", level(confidence), "tokens/s", "ratio", "interval")
    columns = [Column("contestant"), *(Column(name, right=True) for name in names)]
    rows = []
    for name, label in LABELS.items():
        if f"{name}/steps_per_second" not in metrics:
            continue
        rate = metrics[f"{name}/steps_per_second"]
        tokens = metrics.get(f"{name}/tokens_per_second")
        ratio = metrics.get(f"ratio_vs_{name}")
        tokens_text = f"{tokens.value:,.0f}" if tokens else ""
        ratio_text = f"{ratio.value:.2f}" if ratio else ""
        cells = [f"{rate.value:.1f}", _interval_text(rate), tokens_text, ratio_text, _interval_text(ratio)]
        rows.append([label, *cells])
    title = "The same recorded steps, dreamed and real; ratio: how many times faster the dream is"
    page.table("", Table(title, columns, rows))
    threads, episodes, steps, rounds = (
        int(metrics[name].value) for name in ("threads", "episodes", "steps", "rounds")
    )
    identical = metrics["tokens_identical_share"]
    page.text(
        f"Measured with {threads} thread(s) each, {episodes} episodes in a batch, {steps:,} steps a round, "
        f"n = {rounds} rounds (medians). Answers identical to plain generate, token for token: "
        f"{identical.value:.2%} of {identical.n:,}."
    )


LABELS = {
    DREAM: "dream (kept cache)",
    VLLM: "dream (vLLM)",
    RAW_VLLM: "vLLM, all episodes in a call",
    PLAIN: "plain generate, all episodes in a call",
    SINGLE: "plain generate, one step in a call",
    STOCK: "real environment, stock",
    CACHED: "real environment, our caches",
}


def _interval_text(estimate: Estimate | None) -> str:
    return f"{estimate.low:.1f} to {estimate.high:.1f}" if estimate else ""


def check_name(name: str, existing: Sequence[str] = BENCHMARKS) -> None:
    """Raise ConfigError if there is no such benchmark."""
    if name not in existing:
        raise ConfigError(
            f"There is no benchmark {name!r}.", next_step=f"Name one of: {', '.join(existing)}."
        )
