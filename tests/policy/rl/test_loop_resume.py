"""An interrupted RL loop resumes with the same numbers; copies of the policy are saved on the way."""

from __future__ import annotations

import pickle
import re

import pytest
import torch
from loop_builders import LORA, TASKS, Rewarding, even_rows, figures, make_loop, same, weights

from components.config import CurriculumConfig, LoraConfig
from components.errors import TrainingError
from components.experience.curriculum import Curriculum
from components.policy.policy import Policy
from components.policy.policy_snapshots import Snapshots
from components.policy.rl.loop import (
    read_iteration_count,
)

RFT = {"algorithm": "rft", "max_successes": 3}


DPO_SELDOM = {"algorithm": "dpo", "sync_every": 3}


def length(episode):
    """A score of an episode, for HERO."""
    return len(episode.states[-1]) % 7 / 7


def make_curriculum():
    def vary(tasks, seed):
        return [f"put a mug in shelf {seed}-{number}" for number in range(len(tasks))]

    return Curriculum(TASKS, CurriculumConfig(seeds=2, candidates=1), vary, lambda task: "")


STOPPED = [{}, {"beta": 0.1}, {"reward": "hero"}, {"algorithm": "ppo"}, DPO_SELDOM, RFT]


@pytest.mark.parametrize(
    ("settings", "stop"), [(settings, 2) for settings in STOPPED] + [({}, 1), ({}, 3), ({}, 4)], ids=str
)
def test_a_loop_that_was_stopped_goes_on_with_the_same_numbers(tmp_path, settings, stop):
    def run(name, stop=None):
        def stopping(number, values):
            if number == stop:
                raise KeyboardInterrupt

        loop = make_loop(
            Rewarding(even_rows),
            tasks=make_curriculum(),
            progress=length,
            iterations=4,
            checkpoint=tmp_path / name,
            **({} if settings.get("algorithm") == "rft" else {"num_iterations": 2}),
            **settings,
        )
        return loop, loop.run(on_iteration=stopping)

    whole, uninterrupted = run("a")
    with pytest.raises(KeyboardInterrupt):
        run("b", stop=stop)
    resumed, state = run("b")
    assert same(weights(whole), weights(resumed))
    assert str(figures(state)) == str(figures(uninterrupted)) and len(state.series["loss"]) == 4
    assert (state.iteration, state.interactions) == (4, uninterrupted.interactions) == (4, 32)
    assert resumed.tasks.state_dict() == whole.tasks.state_dict() and resumed.tasks.generated
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]
    again, done = run("b")  # nothing remains to be done
    assert same(weights(again), weights(resumed)) and done.iteration == 4 and again.player.interactions == 0


def test_a_loop_with_adapters_that_was_stopped_goes_on_with_the_same_numbers(tmp_path):
    through = make_loop(Rewarding(even_rows, length=2), iterations=2, lora=LORA)
    wanted = figures(through.run())
    make_loop(Rewarding(even_rows, length=2), iterations=1, lora=LORA, checkpoint=tmp_path / "c.pt").run()
    fresh = make_loop(Rewarding(even_rows), lora=LORA).policy
    assert pickle.loads(pickle.dumps(fresh)).model.peft_config  # as it is sent to the processes that dream
    saved = torch.load(tmp_path / "c.pt", weights_only=True)["policy"]
    assert saved and all("lora_" in name for name in saved)
    resumed = make_loop(Rewarding(even_rows, length=2), iterations=2, lora=LORA, checkpoint=tmp_path / "c.pt")
    assert figures(resumed.run()) == wanted
    assert same(weights(resumed), weights(through))


def test_the_budget_counts_what_was_spent_before_the_stop(tmp_path):
    make_loop(Rewarding(even_rows, length=3), iterations=1, checkpoint=tmp_path / "c").run()
    world = Rewarding(even_rows, length=3)
    assert (read_iteration_count(tmp_path / "c"), read_iteration_count(tmp_path / "none")) == (1, 0)
    state = make_loop(world, iterations=5, checkpoint=tmp_path / "c").run(budget=60)
    assert (state.iteration, state.interactions, world.interactions) == (2, 48, 24)


def test_tokens_are_counted_over_all_attempts(tmp_path):
    def attempt(iterations, sampled):
        loop = make_loop(Rewarding(even_rows), iterations=iterations, checkpoint=tmp_path / "c")
        loop._count_tokens = lambda: sampled + loop.policy.tokens
        return loop.run(), loop.policy.tokens

    first, alone = attempt(1, 0)
    second, own = attempt(3, 1000)
    assert first.tokens == alone > 0 and second.tokens == alone + own, (
        "what was sampled before the loop began is not the loop's"
    )


def misfits(states):
    """Optimiser states that are not those of the loop's AdamW, by what is wrong with them."""
    (state,) = states
    wrong = {number: dict(moments) for number, moments in state["state"].items()}
    wrong[0]["exp_avg"] = wrong[0]["exp_avg"].flatten()[:3]
    few = [{**state["param_groups"][0], "params": state["param_groups"][0]["params"][:-1]}]
    muon = [{"lr": 0.1, "momentum": 0.9, "params": state["param_groups"][0]["params"]}]
    return {
        "exp_avg of (3,) for weight 0": [{**state, "state": wrong}],
        "AdamW over": [{**state, "param_groups": few}],
        "Muon over": [{**state, "param_groups": muon}],
        "states of 2 optimisers": [state, state],
    }


def test_a_state_of_another_optimiser_is_refused_before_anything_changes():
    made = make_loop(Rewarding(even_rows), iterations=1)
    made.run()
    state, fresh = made.state_dict(), make_loop(Rewarding(even_rows), iterations=1)
    before = weights(fresh)
    for words, optimizers in misfits(state["optimizers"]).items():
        with pytest.raises(
            TrainingError,
            match=f"does not fit the optimiser: it holds (an optimiser of )?{re.escape(words)}.*Delete",
        ):
            fresh.load_state_dict({**state, "optimizers": optimizers})
        assert same(before, weights(fresh))
    fresh.load_state_dict(state)
    assert same(weights(made), weights(fresh))


@pytest.mark.parametrize("rank", [0, 2])
def test_policies_on_the_way_are_kept_as_they_were(tmp_path, rank):
    """Adapters merged into a copy: training goes on as if nobody had looked."""
    settings = {"iterations": 4, "lora": LoraConfig(rank=rank) if rank else LoraConfig()}
    plain = make_loop(Rewarding(even_rows), **settings)
    plain.run()
    loop, seen = make_loop(Rewarding(even_rows), **settings), {}
    loop.snapshots = Snapshots(tmp_path / "snapshots", 2)
    probe = torch.tensor([[1, 2, 3]])

    def look(iteration, _):
        with torch.no_grad():
            seen[f"{iteration:04d}"] = loop.policy.model(probe).logits.clone()

    loop.run(on_iteration=look)
    assert same(weights(plain), weights(loop))
    kept = sorted((tmp_path / "snapshots").iterdir())
    assert [directory.name for directory in kept] == ["0002", "0004"]
    for directory in kept:
        with torch.no_grad():
            torch.testing.assert_close(
                Policy.load(directory).model(probe).logits, seen[directory.name], atol=1e-5, rtol=1e-5
            )
    assert not torch.equal(seen["0002"], seen["0004"])
