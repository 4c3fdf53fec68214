"""`check-environment` finds a draw that ignores the seed, also where only the right action shows it."""

from __future__ import annotations

import random

import pytest
from test_contract_findings import findings

from components.environments.contract import first_action_promise

PROMISE = "The same first action gives the same answer after every start"
RUNS = 10
UNSEEDED = random.Random()


class Boxes:
    """One of the boxes holds a coin, which ends the episode. The room shows nothing of it."""

    count = 24
    most_steps = 5

    def secret(self, seed):
        return random.Random(seed).randrange(self.count)

    def reset(self, *, seed=None, options=None):
        names = ["red", "blue", "green", "white", "black", "grey", "pink", "brown"]
        room = " ".join(random.Random(seed).sample(names, 3))
        self.coin, self.left = self.secret(seed), self.most_steps
        self.info = {"instruction": "find", "admissible": [f"open box {n}" for n in range(self.count)]}
        return f"A {room} room with boxes.", self.info

    def step(self, action):
        if action not in self.info["admissible"]:
            return "Nothing happens.", 0.0, False, False, self.info
        self.left -= 1
        won = action == f"open box {self.coin}"
        return "A coin!" if won else "Empty.", float(won), won or not self.left, False, self.info


class Unseeded(Boxes):
    def secret(self, seed):
        return UNSEEDED.randrange(self.count)


class FewUnseeded(Unseeded):
    count = 8


class OneTryUnseeded(Unseeded):
    most_steps = 1


class Empty(Boxes):
    """Without a coin."""

    def secret(self, seed):
        return -1


@pytest.mark.parametrize("world", [Unseeded, FewUnseeded, OneTryUnseeded])
def test_a_draw_without_the_seed_is_found_in_every_run(monkeypatch, world):
    monkeypatch.setattr("components.environments.contract.episode_promises.PACE_SECONDS", 0.01)
    for _ in range(RUNS):
        found, kept = findings(monkeypatch, world)
        assert found[PROMISE].state == "wrong" and not kept
        assert "with 'A coin!' (reward 1, the end)" in found[PROMISE].found
        assert "draw all chances from its seed" in found[PROMISE].next_step


def test_a_seeded_draw_is_no_finding(monkeypatch):
    found, kept = findings(monkeypatch, Boxes)
    assert found[PROMISE].state == "ok" and kept
    assert found[PROMISE].found.startswith("96 first actions of 4 tasks in 120 starts")


def test_a_world_in_which_nobody_won_is_a_doubt(monkeypatch):
    found, kept = findings(monkeypatch, Empty)
    assert found[PROMISE].state == "doubt" and kept
    assert found[PROMISE].found.startswith("No win was seen: no played episode won, and none of 96")


def test_long_lists_and_slow_worlds_are_tried_in_part(monkeypatch):
    monkeypatch.setattr(Empty, "count", 1000)
    found, _ = findings(monkeypatch, Empty)
    assert "none of 256 first actions of 4 tasks in 128 starts" in found[PROMISE].found
    monkeypatch.setattr(first_action_promise, "MOST_SECONDS", 0.0)
    found, _ = findings(monkeypatch, Empty)
    assert "none of 0 first actions of 4 tasks in 0 starts" in found[PROMISE].found
