"""`dreamgym bench train`: our update beside that of TRL's GRPOTrainer, on the same model and the very same
episodes.

A policy plays a batch of groups once in the real environment. Then both trainers take optimiser steps on
these episodes, in turns: ours through the loop, TRL's through its own `train()` with a `rollout_func` that
hands it the episodes, the environment's words masked. Nothing is generated while time runs; the first step of
each turn is left out, since TRL sets itself up in it. Groups without variance are left out for both: ours
would skip them, TRL's computes them, and nothing is learnt from them. Tokens are those of the episodes, read
and written, without padding.
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.config import Config, RLConfig
from components.config.algorithm_config import GRPOConfig
from components.environments import make_adapter
from components.errors import ConfigError, DataError
from components.evaluation.metrics.intervals import Estimate, exact
from components.evaluation.metrics.speed import Work, speed_metrics
from components.language.threads import threads as using
from components.policy.policy import Policy
from components.policy.rl.algorithms import make_algorithm
from components.policy.rl.loop import EvenTasks, Loop
from components.policy.rollout import Rollout, evenly, grouped, play
from components.records import Task
from components.trajectories.store import DataLayout, read_tasks
from flows.printing.formats import level
from flows.printing.output import Column, Output, Table

OURS, TRL = "ours", "trl"
WARM_UP = 1
Say = Callable[[str], None]


@dataclass(frozen=True)
class Batch:
    """A policy and the episodes that it played: groups of `group` rollouts of a task, one behind the
    other.
    """

    policy: Policy
    rollouts: list[Rollout]
    group: int

    @property
    def tokens(self) -> int:
        """Tokens of all episodes."""
        return sum(len(rollout.example) for rollout in self.rollouts)


def bench_train(
    config: Config, root: Path, policy: Path, *, tasks: int, rounds: int, steps: int, threads: int, say: Say
) -> dict[str, Estimate]:
    """`ratio_vs_trl`: our optimiser steps a second over TRL's on the same batch; and what it comes from.

    Raises:
        ConfigError: TRL is not installed.
        DataError: no group of the batch has both a success and a failure.
    """
    _require_trl()
    with using(threads):
        batch = played_batch(config, DataLayout.of(root, config.environment.name), policy, tasks)
        say(
            f"{len(batch.rollouts)} episodes, {batch.tokens:,} tokens, "
            f"{sum(r.written for r in batch.rollouts):,} of them the policy's"
        )
        done = []
        for number in range(rounds):
            work = {}
            for name, contestant in list({OURS: _ours, TRL: _theirs}.items())[:: 1 if number % 2 else -1]:
                seconds = contestant(batch, config.rl.dream, steps)
                work[name] = Work(steps, steps * batch.tokens, seconds)
            done.append(work)
            say(f"round {number + 1} of {rounds}: {work[TRL].seconds / work[OURS].seconds:.2f} x trl")
    facts = {
        "episodes": len(batch.rollouts),
        "tokens": batch.tokens,
        "steps": steps,
        "rounds": rounds,
        "threads": threads,
    }
    return speed_metrics(done, OURS, config.evaluation.confidence) | {
        name: exact(value) for name, value in facts.items()
    }


def _require_trl() -> None:
    try:
        import trl  # noqa: F401
    except ImportError:
        raise ConfigError(
            "TRL is not installed.",
            "It is the other contestant.",
            "pip install -c constraints.txt -e '.[dev]'",
        ) from None


def played_batch(config: Config, data: DataLayout, directory: Path, tasks: int) -> Batch:
    """The groups of `tasks` training tasks, played in the real environment, that teach something. Raises
    DataError if none does.
    """
    policy, settings = (
        Policy.load(directory, max_new_tokens=config.rl.dream.max_new_tokens),
        config.rl.dream,
    )
    chosen = grouped(evenly(read_tasks(data.tasks("train")), tasks, config.seed), settings.num_generations)
    world = make_adapter(config.environment).open()
    try:
        played = play(
            policy,
            world,
            chosen,
            max_steps=config.environment.max_steps,
            temperature=settings.temperature,
            seed=config.seed,
        )
    finally:
        world.close()
    groups = [
        played[start : start + settings.num_generations]
        for start in range(0, len(played), settings.num_generations)
    ]
    mixed = [group for group in groups if len({rollout.reward for rollout in group}) > 1]
    if not mixed:
        found = f"No group of {len(groups)} has both a success and a failure."
        raise DataError(
            found,
            "Expected some: nothing is learnt otherwise.",
            "Raise --tasks, or name a policy that sometimes wins.",
        )
    return Batch(policy, [rollout for group in mixed for rollout in group], settings.num_generations)


class _Recorded:
    """A player that hands out the same rollouts each time."""

    interactions = 0

    def __init__(self, rollouts: list[Rollout]) -> None:
        self._rollouts = rollouts

    def play(self, policy: Policy, tasks: Sequence[Task], **_: Any) -> list[Rollout]:
        """The recorded rollouts, with the log-probabilities of the policy as it was."""
        self.interactions += sum(len(rollout.trajectory.steps) for rollout in self._rollouts)
        return self._rollouts


def _ours(batch: Batch, settings: RLConfig, steps: int) -> float:
    """Seconds of `steps` iterations, one optimiser step each over all episodes."""
    config = RLConfig(
        iterations=steps + WARM_UP,
        tasks=len(batch.rollouts) // batch.group,
        num_generations=batch.group,
        learning_rate=1e-6,
        demonstration_weight=0.0,
        batch_tokens=settings.batch_tokens,
        algorithm=GRPOConfig(
            optimizer_steps=1, idle_penalty=0.0, step_weight=0.0, negative_advantage_weight=1.0
        ),
    )
    policy = Policy(copy.deepcopy(batch.policy.model), batch.policy.vocabulary)
    task = batch.rollouts[0].trajectory.task
    loop = Loop(
        policy,
        _Recorded(batch.rollouts),
        EvenTasks([task]),
        make_algorithm(config, policy),
        config,
        max_steps=1,
        seed=0,
    )
    ends: list[float] = []
    loop.run(on_iteration=lambda *_: ends.append(time.perf_counter()))
    return ends[-1] - ends[WARM_UP - 1]


def one_step(batch: Batch, settings: RLConfig) -> None:
    """An optimiser step of ours over all episodes, behind the one that warms up."""
    _ours(batch, settings, 1)


def _theirs(batch: Batch, settings: RLConfig, steps: int) -> float:
    """Seconds of `steps` optimiser steps of TRL's trainer over the same episodes."""
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig as TRLConfig
    from trl import GRPOTrainer

    ends: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(time.perf_counter())

    count = len(batch.rollouts)
    longest = max(len(rollout.example) for rollout in batch.rollouts)
    rows = next(
        size
        for size in range(max(1, min(count, settings.batch_tokens // longest)), 0, -1)
        if count % size == 0
    )
    with tempfile.TemporaryDirectory() as folder:
        args = TRLConfig(
            folder,
            max_steps=steps + WARM_UP,
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=count // rows,
            num_generations=batch.group,
            beta=0.0,
            loss_type="grpo",
            learning_rate=1e-6,
            bf16=False,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            gradient_checkpointing=False,
        )
        tokenizer = copy.deepcopy(batch.policy.vocabulary.tokenizer)
        tokenizer.pad_token, tokenizer.eos_token = "<pad>", "<end>"
        trainer = GRPOTrainer(
            copy.deepcopy(batch.policy.model),
            _recorded_reward,
            args,
            Dataset.from_list([{"prompt": "play"}] * count),
            processing_class=tokenizer,
            rollout_func=lambda prompts, _: _recorded(batch, len(prompts)),
            callbacks=[Clock()],
        )
        trainer.train()
    return ends[-1] - ends[WARM_UP - 1]


def _recorded_reward(completions: Sequence[Any], outcome: Sequence[float], **_: Any) -> list[float | None]:
    return list(outcome)


def _recorded(batch: Batch, count: int) -> dict[str, Any]:
    """The episodes as TRL's rollout function gives them: the opening as the prompt, all else as the
    completion, with a mask.
    """
    found: dict[str, Any] = {
        "prompt_ids": [],
        "completion_ids": [],
        "logprobs": [],
        "env_mask": [],
        "outcome": [],
    }
    for rollout in batch.rollouts[:count]:
        first, *rest = rollout.example.segments
        flags = [int(flag) for segment in rest for flag in segment.loss]
        logprobs = iter(rollout.logprobs)
        found["prompt_ids"].append(list(first.tokens))
        found["completion_ids"].append([token for segment in rest for token in segment.tokens])
        found["logprobs"].append([next(logprobs) if flag else 0.0 for flag in flags])
        found["env_mask"].append(flags)
        found["outcome"].append(rollout.reward)
    return found


def print_train(page: Output, metrics: Mapping[str, Estimate], confidence: float) -> None:
    """A line for each contestant, and what was measured on."""
    columns = [
        Column("contestant"),
        *(Column(name, right=True) for name in ("tokens/s", level(confidence), "ratio", "interval")),
    ]
    rows = []
    for name, label in ((OURS, "ours"), (TRL, "TRL's GRPOTrainer")):
        rate, ratio = metrics[f"{name}/tokens_per_second"], metrics.get(f"ratio_vs_{name}")
        faster = (f"{ratio.value:.2f}", f"{ratio.low:.2f} to {ratio.high:.2f}") if ratio else ("", "")
        rows.append([label, f"{rate.value:,.0f}", f"{rate.low:,.0f} to {rate.high:,.0f}", *faster])
    page.table(
        "", Table("Optimiser steps on the same episodes; ratio: how many times faster ours is", columns, rows)
    )
    episodes, tokens, steps, rounds, threads = (
        int(metrics[name].value) for name in ("episodes", "tokens", "steps", "rounds", "threads")
    )
    told = (
        f"{episodes} episodes of {tokens:,} tokens in all, {steps} steps a round, n = {rounds} rounds "
        f"(medians), {threads} thread(s)."
    )
    page.text(told)
