"""The RL loop: sample tasks, play groups of rollouts, update the policy. It is the same in a dream and in
reality.

An algorithm (`algorithm.py`) turns rollouts into training samples and these into a loss. The learner
(`learner.py`) takes the optimiser steps. After each iteration the state is saved atomically: policy,
optimiser, algorithm, task source and figures. Random streams are numbered by iteration, so an interrupted
loop continues with the same numbers. With `rl.dream.staleness` the rollouts of further iterations are played
during the update (`rollouts_ahead.py`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from components.config.lora_config import LoraConfig
from components.config.rl_config import DreamRLConfig, RLConfig
from components.errors import TrainingError
from components.language.adapters import add_lora
from components.language.freed_memory import release_freed_memory
from components.language.training.checkpoints import model_checkpoint_limit, save_checkpoint
from components.language.training.examples import Example
from components.language.training.training_speed import SpeedWatch
from components.policy.policy import Policy
from components.policy.policy_snapshots import Snapshots
from components.policy.rl.algorithms.algorithm import Algorithm
from components.policy.rl.algorithms.choose import learner_class
from components.policy.rl.loop_checkpoints import learner_state, read_loop_checkpoint
from components.policy.rl.loop_state import LoopState
from components.policy.rl.observations import observation_examples
from components.policy.rl.players.player import Player
from components.policy.rl.players.rollouts_ahead import Played, RolloutSource, begun_during
from components.policy.rl.players.sampler_correction import RATIO_FIGURES, correct_for_sampler
from components.policy.rl.step_gradient import DEMONSTRATION_LOSS, OBSERVATION_LOSS
from components.policy.rl.task_source import TaskSource, group_by_task, returns_by_task
from components.policy.rl.training_checks import check_collapse, check_learning_signal, check_staleness
from components.policy.rl.training_sample import TrainingSample
from components.policy.rollout import Rollout, Stamp
from components.policy.rollout_figures import rollout_figures, rollout_times
from components.records import Task

UPDATE_FIGURES = ("loss", "logprob_gap", "policy_entropy", "gradient_norm")
"""Figures of an update; NaN in an iteration without one, so that each curve has a value per iteration."""
STALENESS = "staleness"
"""Figure with `staleness`: updates between the policy that played and the one that is trained."""


class Loop:
    """One RL stage. Build it, then `run`.

    Args:
        player: plays rollouts in the world.
        max_steps: step limit of an episode.
        lora: adapters that are trained instead of all weights.
        stamp: origin that is written into the transitions.
        checkpoint: path of the saved state; None: nothing is saved.
        training_context: context of each update; training may use more threads than decoding.
        demonstrations: for `demonstration_weight`; required if it is above 0.
        snapshots: which copies of the policy are saved, and where; None: none.
        tokens: returns the number of tokens that all models have generated since this process started.

    Raises:
        TrainingError: `demonstration_weight` is set without demonstrations.
    """

    def __init__(
        self,
        policy: Policy,
        player: Player,
        tasks: TaskSource,
        algorithm: Algorithm,
        config: RLConfig,
        *,
        max_steps: int,
        seed: int,
        lora: LoraConfig = LoraConfig(),
        stamp: Stamp = Stamp(),
        checkpoint: Path | None = None,
        training_context: Callable[[], AbstractContextManager[Any]] = nullcontext,
        demonstrations: Sequence[Example] = (),
        snapshots: Snapshots | None = None,
        tokens: Callable[[], int] = lambda: 0,
    ) -> None:
        if config.demonstration_weight and not demonstrations:
            raise TrainingError(
                f"demonstration_weight is {config.demonstration_weight:g}, but there is no demonstration.",
                next_step="Set demonstration_weight=0.",
            )
        self.policy = policy
        self.player = player
        self.tasks = tasks
        self.algorithm = algorithm
        self.config = config
        self.max_steps = max_steps
        self.seed = seed
        self.stamp = stamp
        self.checkpoint = checkpoint
        self.training_context = training_context
        self.snapshots = snapshots
        self._count_tokens = tokens
        policy.max_new_tokens = config.max_new_tokens
        policy.model = add_lora(policy.model, lora, seed=seed, frozen=policy.compute.frozen)
        self.learner = learner_class(config).on_all_ranks(policy, algorithm, config, demonstrations)
        algorithm.start(policy, config)
        self.state = LoopState()
        dream = config if isinstance(config, DreamRLConfig) else DreamRLConfig()
        check_staleness(dream.staleness, policy.engine_name)
        self._ends_early, self._staleness = dream.end_early, dream.staleness
        self._trains_on_unanswered = dream.unanswered == "failure"
        self._source = RolloutSource(player, tasks, config, max_steps=max_steps, seed=seed, stamp=stamp)
        self._resumed: dict[str, Any] = {}
        self._budget: int | None = None

    def run(
        self,
        *,
        budget: int | None = None,
        on_rollouts: Callable[[int, list[Rollout]], dict[str, float] | None] | None = None,
        on_iteration: Callable[[int, dict[str, float]], None] | None = None,
        on_played_again: Callable[[int], None] | None = None,
    ) -> LoopState:
        """Run the remaining iterations and return the state.

        An iteration starts only if `budget` suffices for its longest possible episodes.

        Args:
            budget: maximum number of interactions in the world; None: no limit.
            on_rollouts: called with each iteration's number (from 0) and rollouts; may return figures.
            on_iteration: called with the number of finished iterations and the figures of the last one.
            on_played_again: called in a resumed loop with each iteration whose rollouts the worlds remember
                from here on (`remembered_iterations` of them they remember before).

        Raises:
            TrainingError: a loss or gradient is not finite, sampler and trainer disagree, there was no
                learning signal for many iterations, or the policy collapsed.
            EnvironmentFailure: infrastructure ended all episodes of an iteration.
        """
        self._budget = budget
        self._resume()
        try:
            self._begin_again(on_played_again)
            return self._run(on_rollouts, on_iteration)
        finally:
            self._source.close()
            self.learner.end()

    def _run(
        self,
        on_rollouts: Callable[[int, list[Rollout]], dict[str, float] | None] | None,
        on_iteration: Callable[[int, dict[str, float]], None] | None,
    ) -> LoopState:
        earlier_tokens = self.state.tokens - self._count_tokens()
        rows = self.config.tasks * self.config.num_generations
        while self.state.iteration < self.config.iterations:
            if self._budget is not None and self.state.interactions + rows * self.max_steps > self._budget:
                break
            figures = self._iterate(on_rollouts)
            for name, value in figures.items():
                self.state.series.setdefault(name, []).append(value)
            self.state.iteration += 1
            self.state.tokens = earlier_tokens + self._count_tokens()
            if self._ends_early:  # before the state is saved: a resumed loop must see the collapse again
                check_collapse(self.state.series["success_rate"], rows)
            if self.snapshots:
                self.snapshots.save_if_due(self.policy, self.state.iteration)
            if self.checkpoint is not None:
                save_checkpoint(self.checkpoint, self.state_dict())
            release_freed_memory()
            if on_iteration:
                on_iteration(self.state.iteration, figures)
        return self.state

    def _iterate(
        self, on_rollouts: Callable[[int, list[Rollout]], dict[str, float] | None] | None
    ) -> dict[str, float]:
        """Play the rollouts of one iteration, update the policy, and return the figures."""
        started = time.monotonic()
        number = self._source.number(self.state.iteration)
        played = self._source.take(
            self.state.iteration, lambda: self.algorithm.acting_policy(self.policy, self.state.iteration)
        )
        rollouts = played.rollouts
        if played.policy is not self.policy:
            self.policy.tokens += played.tokens
        rate = self.learner.learning_rate(self.state.progress(self.config.iterations, self._budget))
        self.state.interactions += played.interactions
        further_figures = (on_rollouts(self.state.iteration, rollouts) if on_rollouts else None) or {}
        groups = self._training_groups(rollouts)
        figures = rollout_figures(rollouts, self._compared_groups(groups), interactions=played.interactions)
        figures |= further_figures | rollout_times(rollouts, figures["interactions"], played.seconds)
        figures |= self.tasks.report(returns_by_task(groups), number)
        samples = self.algorithm.training_samples(groups, self.policy)
        figures |= self.algorithm.report() | {"lessons": float(len(samples))}
        self._count_signal(any(sample.has_signal for sample in samples))
        if self._staleness:
            figures[STALENESS] = float(played.staleness)
            self._play_ahead()
        figures |= self._update(samples, groups, number, rate, played)
        return figures | {"seconds": time.monotonic() - started}

    def _play_ahead(self) -> None:
        """Begin the rollouts of further iterations with the present weights, as many as are allowed."""
        now = self.state.iteration
        for iteration in self._source.missing(now, self._staleness):
            self._source.begin(iteration, now, self.policy, self.learner.trained_weights())

    def _training_groups(self, rollouts: list[Rollout]) -> list[list[Rollout]]:
        """Return the rollouts of each task that are trained on (`_counts`); a group may be empty."""
        all_groups = group_by_task(rollouts, self.config.num_generations)
        return [[rollout for rollout in group if self._counts(rollout)] for group in all_groups]

    def _counts(self, rollout: Rollout) -> bool:
        """Left out are rollouts that the world broke, or without an answer unless they are failures."""
        return not rollout.broken and (self._trains_on_unanswered or not rollout.unparsable)

    def _compared_groups(self, groups: list[list[Rollout]]) -> list[list[Rollout]]:
        """Return the groups themselves, or the whole batch as one group if each task is played once."""
        if self.config.num_generations > 1:
            return groups
        return [[rollout for group in groups for rollout in group]]

    def _count_signal(self, has_signal: bool) -> None:
        self.state.iterations_without_signal = 0 if has_signal else self.state.iterations_without_signal + 1
        if self._ends_early:
            check_learning_signal(self.state.iterations_without_signal)

    def _update(
        self,
        samples: list[TrainingSample],
        groups: list[list[Rollout]],
        seed: int,
        rate: float,
        played: Played,
    ) -> dict[str, float]:
        """Take the learner's steps on the samples of `played` and return their figures."""
        observed = observation_examples(self.policy.text, groups) if self.config.observation_weight else []
        if not (samples or observed):
            auxiliary = [DEMONSTRATION_LOSS] if self.config.demonstration_weight else []
            auxiliary += [OBSERVATION_LOSS] if self.config.observation_weight else []
            ratios = RATIO_FIGURES if self._corrects_sampler else ()
            speed = SpeedWatch(self.learner.trained.module, 0.0).figures(0, 1.0)
            return dict.fromkeys(
                (*UPDATE_FIGURES, *speed, *self.algorithm.figures, *auxiliary, *ratios), math.nan
            )
        on_policy = played.policy is self.policy and self.learner.is_on_policy
        ratio_figures = dict.fromkeys(RATIO_FIGURES if self._corrects_sampler else (), math.nan)
        tokens = sum(sample.total_length for sample in samples)
        written = sum(sample.token_count for sample in samples)
        watch = SpeedWatch(self.learner.trained.module, written / max(1, tokens))
        self.learner.after_step = watch.look
        started = time.monotonic()
        with self.training_context():
            if self._corrects_sampler and samples:
                samples, ratio_figures = correct_for_sampler(
                    self.policy,
                    samples,
                    temperature=self.config.temperature,
                    batch_tokens=self.config.batch_tokens,
                    is_stale=played.policy is not self.policy,
                )
            prepared = self.algorithm.prepare_update(samples)
            try:
                figures = self.learner.learn(prepared, seed, rate, on_policy=on_policy, observed=observed)
            except TrainingError as error:
                problem = f"Iteration {self.state.iteration}: {error.found}"
                raise TrainingError(problem, error.expected, error.next_step) from error
        if not samples:  # only observations were learnt from: the rest are sums over nothing
            figures |= dict.fromkeys((*UPDATE_FIGURES[:-1], *self.algorithm.figures), math.nan)
        return (
            figures | ratio_figures | watch.figures(self.learner.passes * tokens, time.monotonic() - started)
        )

    @property
    def _corrects_sampler(self) -> bool:
        """Whether the sampler's numbers differ from the trainer's, and the loss depends on it."""
        is_older = self.algorithm.has_partner or self._staleness > 0
        return self.algorithm.uses_old_logprobs and (is_older or not self.policy.samples_exactly)

    def _resume(self) -> None:
        if self.checkpoint is not None and self.checkpoint.is_file():
            limit = model_checkpoint_limit(self.policy.model, self._staleness)
            self.load_state_dict(read_loop_checkpoint(self.checkpoint, limit))

    def state_dict(self) -> dict[str, Any]:
        """Return the state that the remaining iterations depend on."""
        return self.learner.state_dict() | {
            "tasks": self.tasks.state_dict(),
            "ahead": self._source.state_dict(),
            "state": self.state.__dict__,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`. Rollouts that were being played begin again with `run`."""
        self._resumed = state
        self.learner.restore(learner_state(state))
        self.tasks.load_state_dict(state["tasks"])
        self.state = LoopState(**state["state"])

    def _begin_again(self, on_played_again: Callable[[int], None] | None) -> None:
        """Begin the rollouts that a resumed loop was playing, with the weights that they had."""
        state, self._resumed = self._resumed, {}
        remembered = begun_during(self.state.iteration, self._staleness)
        for ahead in state.get("ahead", ()):
            while remembered < begun_during(ahead["iteration"], self._staleness):
                remembered += 1
                if on_played_again:
                    on_played_again(remembered)
            self.learner.restore(learner_state(state) | {"policy": ahead["weights"]})
            tasks = [Task(**values) for values in ahead["tasks"]]
            weights = self.learner.trained_weights()
            self._source.begin(ahead["iteration"], ahead["updates"], self.policy, weights, tasks)
        if state.get("ahead"):
            self.learner.restore(learner_state(state))
