"""Rollouts that are played during the update before: whose they are, their weights, how they resume."""

from __future__ import annotations

import threading

import pytest
import torch
from loop_builders import TASKS, Rewarding, even_rows, figures, make_loop, same, weights
from pydantic import ValidationError

from components.config import DreamRLConfig, LoraConfig
from components.policy.rl.learner import Learner
from components.policy.rl.loop import STALENESS
from components.policy.rl.players.rollout_workers import LocalPlayer
from components.policy.rl.players.sampler_correction import IMPORTANCE
from components.policy.rl.task_source import EvenTasks

LORA = LoraConfig(rank=2, targets="all-linear")


class Recording(LocalPlayer):
    """Notes the weights that play, and in which thread."""

    def __init__(self, world):
        super().__init__(world)
        self.played = []

    def play(self, policy, tasks, **options):
        before = {name: weight.clone() for name, weight in policy.model.state_dict().items()}
        rollouts = super().play(policy, tasks, **options)
        assert same(before, policy.model.state_dict()), "no update changes the weights that play"
        self.played.append((threading.current_thread().name, before))
        return rollouts


def run_loop(tmp_path=None, *, stop=None, iterations=4, **settings):
    """A finished loop, its state, its player, and the weights before each update."""
    checkpoint = tmp_path / "loop.pt" if tmp_path else None
    loop = make_loop(
        Rewarding(even_rows, length=2),
        iterations=iterations,
        overlap=True,
        checkpoint=checkpoint,
        learning_rate=1e-2,
        **settings,
    )
    loop.player = loop._source._player = Recording(loop.player.world)
    before_updates = []
    learn = loop.learner.learn

    def recording(*arguments, **options):
        before_updates.append(weights(loop))
        return learn(*arguments, **options)

    loop.learner.learn = recording

    def on_iteration(number, values):
        if number == stop:
            raise KeyboardInterrupt

    state = loop.run(on_iteration=on_iteration)
    return loop, state, loop.player, before_updates


@pytest.mark.parametrize("settings", [{}, {"lora": LORA}, {"algorithm": "ppo"}], ids=str)
def test_rollouts_are_played_with_the_weights_before_the_update(settings):
    loop, state, player, before_updates = run_loop(**settings)
    threads = [name for name, _ in player.played]
    assert threads == ["MainThread"] + ["rollouts-ahead"] * 3
    for number in range(1, 4):
        played, trained = player.played[number][1], before_updates[number - 1]
        assert same(played, trained), "those before the update that ran beside"
        assert not same(played, before_updates[number])
    assert state.series[STALENESS] == [0.0, 1.0, 1.0, 1.0]
    assert state.interactions == 4 * 16 and loop.policy.tokens > 0


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


@pytest.mark.parametrize("settings", [{}, {"lora": LORA}, {"algorithm": "ppo"}], ids=str)
@pytest.mark.parametrize("stop", [1, 2, 3])
def test_an_interrupted_loop_plays_the_rollouts_again_with_the_same_weights(tmp_path, settings, stop):
    whole, expected, _, _ = run_loop(tmp_path / "a", **settings)
    with pytest.raises(KeyboardInterrupt):
        run_loop(tmp_path / "b", stop=stop, **settings)
    resumed, state, player, _ = run_loop(tmp_path / "b", **settings)
    assert [name for name, _ in player.played] == ["rollouts-ahead"] * (4 - stop)
    assert same(weights(whole), weights(resumed))
    assert str(figures(state)) == str(figures(expected))
    assert (state.interactions, state.iteration) == (expected.interactions, 4)


def test_an_error_of_the_rollouts_ends_the_loop_at_the_next_iteration():
    class Breaking(Rewarding):
        def reset(self, tasks):
            if threading.current_thread().name == "rollouts-ahead":
                raise OSError("the world is gone")
            return super().reset(tasks)

    loop = make_loop(Breaking(even_rows), iterations=3, overlap=True)
    with pytest.raises(OSError, match="the world is gone"):
        loop.run()
    assert loop.state.iteration == 1


def test_it_is_off_by_default_and_refused_where_nothing_corrects_it():
    assert not DreamRLConfig().overlap
    for kind in ("dpo", "rft"):
        with pytest.raises(ValidationError, match=f"overlap: {kind} does not correct"):
            DreamRLConfig(overlap=True, algorithm={"type": kind})


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
            return threading.current_thread().name != "rollouts-ahead" and super().ends(row)

    loop = make_loop(EndlessAhead(even_rows), iterations=3, overlap=True, max_steps=100_000)

    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    loop.learner.learn = interrupted
    with pytest.raises(KeyboardInterrupt):
        loop.run()
    assert not [thread for thread in threading.enumerate() if thread.name == "rollouts-ahead"]
