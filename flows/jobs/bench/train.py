"""`dreamgym bench train`: training of ours against TRL's GRPOTrainer and SFTTrainer, on the same episodes.

A policy plays a batch of groups once in the real environment. Then both trainers take optimiser steps on
these episodes, in turns. Ours runs through the loop; TRL's through its own `train()`, with a `rollout_func`
that returns the episodes, the environment's tokens masked. Nothing is generated during the measurement. The
first step of each turn is not measured, because TRL initialises in it. Groups without variance are left out
for both: they teach nothing, and ours would skip them, while TRL computes them. Tokens are all tokens of the
episodes, without padding. Fine-tuning on these episodes (`sft.py`) is measured in the same rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from components.config import Config, RLConfig
from components.errors import ConfigError
from components.evaluation.metrics.intervals import Estimate, exact_value
from components.evaluation.metrics.speed import Work, speed_metrics
from components.language.threads import threads as using
from components.trajectories.store import DataLayout
from flows.jobs.bench.our_updates import seconds_of_ours
from flows.jobs.bench.recorded_batch import Batch, play_batch
from flows.jobs.bench.sft import seconds_of_our_finetuning, seconds_of_trls_finetuning
from flows.jobs.bench.trl_trainer import seconds_of_trl
from flows.printing.formats import level
from flows.printing.output import Output
from flows.printing.table import Column, Table

OURS = "ours"
TRL = "trl"
OUR_SFT = "sft_ours"
TRL_SFT = "sft_trl"
LABELS = {
    OURS: "RL update, ours",
    TRL: "RL update, TRL's GRPOTrainer",
    OUR_SFT: "fine-tuning, ours",
    TRL_SFT: "fine-tuning, TRL's SFTTrainer",
}
Report = Callable[[str], None]
"""Called with progress messages."""


def bench_train(
    config: Config,
    root: Path,
    policy: Path,
    *,
    tasks: int,
    rounds: int,
    steps: int,
    threads: int,
    report: Report,
) -> dict[str, Estimate]:
    """Return the speeds, and ratios of ours to TRL's: `ratio_vs_trl` of RL updates, `ratio_vs_sft_trl` of
    fine-tuning.

    Raises:
        ConfigError: TRL is not installed.
        DataError: no group of the batch has both a success and a failure.
    """
    _require_trl()
    with using(threads):
        batch = play_batch(config, DataLayout.of(root, config.environment.name), policy, tasks)
        report(
            f"{len(batch.rollouts)} episodes, {batch.tokens:,} tokens, "
            f"{sum(r.token_count for r in batch.rollouts):,} of them the policy's"
        )
        contestants: list[tuple[str, Callable[[Batch, RLConfig, int], float]]] = [
            (OURS, seconds_of_ours),
            (TRL, seconds_of_trl),
            (OUR_SFT, seconds_of_our_finetuning),
            (TRL_SFT, seconds_of_trls_finetuning),
        ]
        rounds_work = []
        for number in range(rounds):
            work = {}
            for name, measure in contestants[:: 1 if number % 2 else -1]:
                seconds = measure(batch, config.rl.dream, steps)
                work[name] = Work(steps, steps * batch.tokens, seconds)
            rounds_work.append(work)
            report(
                f"round {number + 1} of {rounds}: {work[TRL].seconds / work[OURS].seconds:.2f} x "
                f"GRPOTrainer, {work[TRL_SFT].seconds / work[OUR_SFT].seconds:.2f} x SFTTrainer"
            )
    settings = {
        "episodes": len(batch.rollouts),
        "tokens": batch.tokens,
        "steps": steps,
        "rounds": rounds,
        "threads": threads,
    }
    confidence = config.evaluation.confidence
    updates = [{name: work[name] for name in (OURS, TRL)} for work in rounds_work]
    finetuning = [{name: work[name] for name in (OUR_SFT, TRL_SFT)} for work in rounds_work]
    return (
        speed_metrics(updates, OURS, confidence)
        | speed_metrics(finetuning, OUR_SFT, confidence)
        | {name: exact_value(value) for name, value in settings.items()}
    )


def _require_trl() -> None:
    try:
        import trl  # noqa: F401
    except ImportError:
        raise ConfigError(
            "TRL is not installed.",
            "It is the other contestant.",
            "pip install -c constraints.txt -e '.[dev]'",
        ) from None


def one_step(batch: Batch, settings: RLConfig) -> None:
    """Take two optimiser steps of ours over all episodes: the first is the warm-up."""
    seconds_of_ours(batch, settings, 1)


def print_train(page: Output, metrics: Mapping[str, Estimate], confidence: float) -> None:
    """Print a line for each contestant, and the settings of the measurement."""
    columns = [
        Column("contestant"),
        *(Column(name, right=True) for name in ("tokens/s", level(confidence), "ratio", "interval")),
    ]
    rows = []
    for name, label in LABELS.items():
        rate = metrics[f"{name}/tokens_per_second"]
        ratio = metrics.get(f"ratio_vs_{name}")
        ratio_cells = (f"{ratio.value:.2f}", f"{ratio.low:.2f} to {ratio.high:.2f}") if ratio else ("", "")
        rows.append([label, f"{rate.value:,.0f}", f"{rate.low:,.0f} to {rate.high:,.0f}", *ratio_cells])
    page.table(
        "", Table("Training on the same episodes; ratio: how many times faster ours is", columns, rows)
    )
    episodes, tokens, steps, rounds, threads = (
        int(metrics[name].value) for name in ("episodes", "tokens", "steps", "rounds", "threads")
    )
    page.text(
        f"{episodes} episodes of {tokens:,} tokens in all, {steps} steps or passes a round, n = {rounds} "
        f"rounds (medians), {threads} thread(s)."
    )
