"""Rollouts that are played during the update before: whose they are, their weights, how they resume."""

from __future__ import annotations

import threading

import pytest
import torch
from loop_builders import TASKS, Rewarding, even_rows, figures, make_loop, same, weights
from pydantic import ValidationError

from components.config import DreamRLConfig, LoraConfig, load_config
from components.errors import ConfigError, TrainingError
from components.policy.rl.learner import Learner
from components.policy.rl.loop import STALENESS
from components.policy.rl.players.player import LocalDreamPlayer
from components.policy.rl.players.rollouts_ahead import remembered_iterations
from components.policy.rl.players.sampler_correction import IMPORTANCE
from components.policy.rl.task_source import EvenTasks
from components.policy.rl.training_checks import check_staleness

LORA = LoraConfig(rank=2, targets="all-linear")


class Recording(LocalDreamPlayer):
    """Notes the weights that play, in which thread, and what the world remembers."""

    def __init__(self, world):
        super().__init__(world)
        self.played = []

    def play_uncounted(self, policy, tasks, options):
        before = {name: weight.clone() for name, weight in policy.model.state_dict().items()}
        batch = super().play_uncounted(policy, tasks, options)
        assert same(before, policy.model.state_dict()), "no update changes the weights that play"
        thread = threading.current_thread().name.partition("_")[0]
        self.played.append((thread, before, tuple(self.world.remembered)))
        return batch


class Remembering(Rewarding):
    """A world that remembers numbers of iterations."""

    def __init__(self, *arguments, remembered=(), **options):
        super().__init__(*arguments, **options)
        self.remembered = list(remembered)

    def remember(self, numbers):
        self.remembered += numbers


def run_loop(tmp_path=None, *, stop=None, iterations=4, staleness=1, finished=0, **settings):
    """A finished loop, its state, its player, and the weights before each update.

    Args: finished: iterations that an interrupted loop has finished.
    """
    checkpoint = tmp_path / "loop.pt" if tmp_path else None
    remembered = range(remembered_iterations(finished, staleness))
    loop = make_loop(
        Remembering(even_rows, length=2, remembered=remembered),
        iterations=iterations,
        staleness=staleness,
        checkpoint=checkpoint,
        learning_rate=1e-2,
        **settings,
    )
    loop.player = player = loop._source._player = Recording(loop.player.world)
    before_updates = []
    learn = loop.learner.learn

    def recording(*arguments, **options):
        before_updates.append(weights(loop))
        return learn(*arguments, **options)

    loop.learner.learn = recording

    def on_rollouts(iteration, rollouts):
        player.remember([iteration])

    def on_iteration(number, values):
        if number == stop:
            raise KeyboardInterrupt

    state = loop.run(
        on_rollouts=on_rollouts,
        on_iteration=on_iteration,
        on_played_again=lambda number: player.remember([number]),
    )
    return loop, state, player, before_updates


@pytest.mark.parametrize("staleness", [1, 2, 3])
@pytest.mark.parametrize("settings", [{}, {"lora": LORA}, {"algorithm": "ppo"}], ids=str)
def test_rollouts_are_played_with_the_weights_before_the_updates(settings, staleness):
    loop, state, player, before_updates = run_loop(iterations=6, staleness=staleness, **settings)
    threads = [thread for thread, _, _ in player.played]
    assert threads == ["MainThread"] + ["rollouts-ahead"] * 5
    for number in range(1, 6):
        begun = max(0, number - staleness)
        _, played, remembered = player.played[number]
        assert same(played, before_updates[begun])
        assert not same(played, before_updates[begun + 1])
        assert remembered == tuple(range(begun + 1)), "what had been remembered when they were begun"
    assert state.series[STALENESS] == [float(min(number, staleness)) for number in range(6)]
    assert state.interactions == 6 * 16 and loop.policy.tokens > 0


def test_stale_rollouts_are_weighted_by_the_ratio_of_both_policies(monkeypatch):
    batches = []
    update = Learner.update

    def watch(self, samples, *arguments):
        batches.append(samples)
        return update(self, samples, *arguments)

    monkeypatch.setattr(Learner, "update", watch)
    _, state, _, _ = run_loop()
    first, second = (
        torch.tensor([weight for sample in samples for weight in sample.targets[IMPORTANCE]])
        for samples in batches[:2]
    )
    assert torch.allclose(first, torch.ones_like(first), atol=1e-3), "the first rollouts are not stale"
    assert (second - 1).abs().max() > 0.01 and second.max() <= 2.0
    assert state.series["sampler_ratio_p99"][1] > 1.001


@pytest.mark.parametrize(
    ("settings", "staleness"),
    [({}, 1), ({"lora": LORA}, 1), ({"algorithm": "ppo"}, 1), ({}, 2), ({}, 3), ({"lora": LORA}, 3)],
    ids=str,
)
@pytest.mark.parametrize("stop", [1, 2, 4])
def test_an_interrupted_loop_plays_the_rollouts_again_with_the_same_weights(
    tmp_path, settings, staleness, stop
):
    options = {"iterations": 6, "staleness": staleness} | settings
    whole, expected, player, _ = run_loop(tmp_path / "a", **options)
    with pytest.raises(KeyboardInterrupt):
        run_loop(tmp_path / "b", stop=stop, **options)
    resumed, state, resumed_player, _ = run_loop(tmp_path / "b", finished=stop, **options)
    assert [thread for thread, _, _ in resumed_player.played] == ["rollouts-ahead"] * (6 - stop)
    for again, before in zip(resumed_player.played, player.played[stop:], strict=True):
        assert same(again[1], before[1]) and again[2] == before[2]
    assert same(weights(whole), weights(resumed))
    assert str(figures(state)) == str(figures(expected))
    assert (state.interactions, state.iteration, state.tokens) == (expected.interactions, 6, expected.tokens)


def test_an_error_of_the_rollouts_ends_the_loop_at_the_next_iteration():
    class Breaking(Rewarding):
        def reset(self, tasks):
            if threading.current_thread().name.startswith("rollouts-ahead"):
                raise OSError("the world is gone")
            return super().reset(tasks)

    loop = make_loop(Breaking(even_rows), iterations=3, staleness=1)
    with pytest.raises(OSError, match="the world is gone"):
        loop.run()
    assert loop.state.iteration == 1


def test_it_is_off_by_default_and_refused_where_nothing_corrects_it():
    assert not DreamRLConfig().staleness
    for kind in ("dpo", "rft"):
        with pytest.raises(ValidationError, match=f"staleness: {kind} does not correct"):
            DreamRLConfig(staleness=1, algorithm={"type": kind})


@pytest.mark.parametrize("engine", ["vllm", "vllm-server"])
def test_several_iterations_in_the_making_are_refused_where_an_engine_has_one_version(engine):
    with pytest.raises(TrainingError, match=rf"staleness is 2, .*{engine}, which holds one"):
        check_staleness(2, engine)
    for staleness in (0, 1):
        check_staleness(staleness, engine)
    check_staleness(3, "kept-cache")
    with pytest.raises(ConfigError, match="vLLM holds one version"):
        load_config(None, ["engine=vllm", "rl.dream.staleness=2"])


def test_tasks_are_drawn_once_an_iteration(tmp_path):
    class Counting(EvenTasks):
        def __init__(self):
            super().__init__(TASKS)
            self.numbers = []

        def sample(self, count, seed):
            self.numbers.append(seed)
            return super().sample(count, seed)

    tasks = Counting()
    run_loop(tmp_path, tasks=tasks, iterations=3)
    assert tasks.numbers == [0, 1, 2]


def test_rollouts_that_nobody_takes_end_with_the_loop():
    """After Ctrl-C or an error no thread may play on: the interpreter would end in the middle of torch."""

    class EndlessAhead(Rewarding):
        def ends(self, row):
            return not threading.current_thread().name.startswith("rollouts-ahead") and super().ends(row)

    loop = make_loop(EndlessAhead(even_rows), iterations=3, staleness=1, max_steps=100_000)

    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    loop.learner.learn = interrupted
    with pytest.raises(KeyboardInterrupt):
        loop.run()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rollouts-ahead")]
