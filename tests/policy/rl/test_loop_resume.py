"""An interrupted RL loop resumes with the same numbers; snapshots of the policy are saved."""

from __future__ import annotations

import pickle
import re

import pytest
import torch
from loop_builders import LORA, TASKS, Rewarding, even_rows, figures, make_loop, same, weights

from components.config import CurriculumConfig, LoraConfig
from components.errors import TrainingError
from components.experience.tasks.curriculum import Curriculum
from components.policy.policy import Policy
from components.policy.policy_snapshots import Snapshots
from components.policy.rl.loop_checkpoints import read_iteration_count

RFT = {"algorithm": "rft", "max_successes": 3}


DPO_SELDOM = {"algorithm": "dpo", "sync_every": 3}


def length(episode):
    """Return a score of an episode, for HERO."""
    return len(episode.states[-1]) % 7 / 7


def make_curriculum():
    def vary(tasks, seed):
        return [f"put a mug in shelf {seed}-{number}" for number in range(len(tasks))]

    return Curriculum(TASKS, CurriculumConfig(seeds=2, candidates=1), vary, lambda task: "")


STOPPED = [
    {},
    {"beta": 0.1},
    {"reward": "hero", "scale_rewards": False},
    {"step_credit": "istar", "step_weight": 2.0},
    {"algorithm": "ppo"},
    DPO_SELDOM,
    RFT,
]


@pytest.mark.parametrize(
    ("settings", "stop"), [(settings, 2) for settings in STOPPED] + [({}, 1), ({}, 3), ({}, 4)], ids=str
)
def test_an_interrupted_loop_resumes_with_the_same_numbers(tmp_path, settings, stop):
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
    again, done = run("b")  # all iterations are finished
    assert same(weights(again), weights(resumed)) and done.iteration == 4 and again.player.interactions == 0


def test_an_interrupted_loop_with_adapters_resumes_with_the_same_numbers(tmp_path):
    through = make_loop(Rewarding(even_rows, length=2), iterations=2, lora=LORA)
    expected = figures(through.run())
    make_loop(Rewarding(even_rows, length=2), iterations=1, lora=LORA, checkpoint=tmp_path / "c.pt").run()
    fresh = make_loop(Rewarding(even_rows), lora=LORA).policy
    assert pickle.loads(pickle.dumps(fresh)).model.peft_config  # as it is sent to the rollout workers
    saved = torch.load(tmp_path / "c.pt", weights_only=True)["policy"]
    assert saved and all("lora_" in name for name in saved)
    resumed = make_loop(Rewarding(even_rows, length=2), iterations=2, lora=LORA, checkpoint=tmp_path / "c.pt")
    assert figures(resumed.run()) == expected
    assert same(weights(resumed), weights(through))


def test_the_budget_includes_interactions_before_the_interruption(tmp_path):
    make_loop(Rewarding(even_rows, length=3), iterations=1, checkpoint=tmp_path / "c").run()
    world = Rewarding(even_rows, length=3)
    assert (read_iteration_count(tmp_path / "c"), read_iteration_count(tmp_path / "none")) == (1, 0)
    state = make_loop(world, iterations=5, checkpoint=tmp_path / "c").run(budget=60)
    assert (state.iteration, state.interactions, world.interactions) == (2, 48, 24)


def test_tokens_are_counted_across_interruptions(tmp_path):
    def attempt(iterations, sampled):
        loop = make_loop(Rewarding(even_rows), iterations=iterations, checkpoint=tmp_path / "c")
        loop._count_tokens = lambda: sampled + loop.policy.tokens
        return loop.run(), loop.policy.tokens

    first, first_tokens = attempt(1, 0)
    second, second_tokens = attempt(3, 1000)
    assert first.tokens == first_tokens > 0 and second.tokens == first_tokens + second_tokens, (
        "tokens from before the loop are not counted"
    )


def defective_states(states):
    """Return problem -> optimiser states that do not fit the loop's AdamW."""
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


def test_the_state_of_another_optimiser_is_refused_and_changes_nothing():
    trained = make_loop(Rewarding(even_rows), iterations=1)
    trained.run()
    state = trained.state_dict()
    fresh = make_loop(Rewarding(even_rows), iterations=1)
    before = weights(fresh)
    for words, optimizers in defective_states(state["optimizers"]).items():
        with pytest.raises(
            TrainingError,
            match=f"does not fit the optimiser: it holds (an optimiser of )?{re.escape(words)}.*Delete",
        ):
            fresh.load_state_dict({**state, "optimizers": optimizers})
        assert same(before, weights(fresh))
    fresh.load_state_dict(state)
    assert same(weights(trained), weights(fresh))


@pytest.mark.parametrize("rank", [0, 2])
def test_snapshots_equal_the_policy_at_their_iteration(tmp_path, rank):
    """To save a snapshot does not change the training."""
    settings = {"iterations": 4, "lora": LoraConfig(rank=rank) if rank else LoraConfig()}
    plain = make_loop(Rewarding(even_rows), **settings)
    plain.run()
    loop = make_loop(Rewarding(even_rows), **settings)
    logits = {}
    loop.snapshots = Snapshots(tmp_path / "snapshots", 2)
    probe = torch.tensor([[1, 2, 3]])

    def record_logits(iteration, _):
        with torch.no_grad():
            logits[f"{iteration:04d}"] = loop.policy.model(probe).logits.clone()

    loop.run(on_iteration=record_logits)
    assert same(weights(plain), weights(loop))
    saved = sorted((tmp_path / "snapshots").iterdir())
    assert [directory.name for directory in saved] == ["0002", "0004"]
    for directory in saved:
        with torch.no_grad():
            torch.testing.assert_close(
                Policy.load(directory).model(probe).logits, logits[directory.name], atol=1e-5, rtol=1e-5
            )
    assert not torch.equal(logits["0002"], logits["0004"])
