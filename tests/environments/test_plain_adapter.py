"""The defaults for any world of text, and behaviours from recorded solutions."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace

import pytest

from components.environments.text_world.phrases import phrase_fact, phrases
from components.environments.text_world.plain_adapter import PlainAdapter, build_task
from components.environments.text_world.replayed_behaviours import make_behaviour, read_demonstrations
from components.environments.text_world.seed_tasks import draw_seeds
from components.errors import DataError, EnvironmentFailure
from components.records import Trajectory, Transition

PLAIN = PlainAdapter()
TASK = build_task("own", "1", "train", "find the coin", "Boxes: box 1, box 2. Holding: nothing.", seed=1)


def episode(*steps, task=TASK):
    """Steps are (action, next state); the last is rewarded."""
    transitions, state = [], task.initial_state
    for number, (action, following) in enumerate(steps):
        last = number == len(steps) - 1
        transitions.append(Transition(task.id, "e", number, state, action, following, float(last), last))
        state = following
    return Trajectory(task, tuple(transitions))


@pytest.mark.parametrize(
    ("state", "parts"),
    [
        ("A door. A key, red; two coins!\nScore: 3", ["A door", "A key, red", "two coins", "Score: 3"]),
        ("Back to Search [SEP] $3.50 [SEP] Buy Now", ["Back to Search", "$3.50", "Buy Now"]),
        ("one phrase", ["one phrase"]),
        (" \n ", []),
        ("version 1.2 is out", ["version 1.2 is out"]),
        ("门开着。\n你看见了一把钥匙", ["门开着。", "你看见了一把钥匙"]),
    ],
)
def test_a_state_is_split_into_phrases(state, parts):
    assert phrases(state) == parts


def test_a_named_value_is_denied_only_by_another_value():
    assert (
        phrase_fact("Score: 3") == ("is", "Score", "3")
        and phrase_fact("price = 4") == ("is", "price", "4")
        and phrase_fact("a door") == ("says", "a door")
    )
    truth = {("is", "Score", "4"), ("is", "item", "a"), ("is", "item", "b"), ("says", "a door")}
    denied = [("is", "Score", "3"), ("is", "item", "c")]
    not_denied = [
        ("is", "Score", "4"),
        ("is", "item", "a"),
        ("is", "lives", "3"),
        ("says", "a window"),
        ("says", "a door"),
    ]
    assert all(PLAIN.contradicts(claim, truth) for claim in denied) and not any(
        PLAIN.contradicts(claim, truth) for claim in not_denied
    )


def test_a_state_with_new_words_is_revealing():
    history = episode(("open box 1", "Box 1: empty."))
    assert PLAIN.revealing(history, "open box 2", "Box 2: ring.")
    assert not PLAIN.revealing(history, "open box 2", "Box 2: empty.") and not PLAIN.revealing(
        history, "take ring", "Holding: ring."
    )


def test_the_reason_says_what_changed_and_whether_it_was_the_goal():
    adapter = PlainAdapter()
    adapter.refusals = ("Nothing happens",)
    assert adapter.reason(Trajectory(TASK), "look", TASK.initial_state, 0.0) == "nothing changes, not won"
    assert adapter.reason(Trajectory(TASK), "go", "Won.", 1.0) == "the state changes, won"
    assert (
        adapter.reason(Trajectory(TASK), "fly", "Nothing happens.", 0.0)
        == "refused, the state changes, not won"
    )
    assert adapter.refused("Nothing happens.") and not PLAIN.refused("Nothing happens.")


def test_the_other_defaults_need_no_knowledge_of_the_world():
    history = episode(("open box 1", "Box 1: coin."))
    assert PLAIN.contradiction(history, "anything") == PLAIN.premise(history) == "" and PLAIN.objection(
        TASK, "coin box 1"
    )
    assert PLAIN.progress(history) == 1.0 and not PLAIN.unseen(TASK)
    assert PLAIN.feasible(TASK) == "" and PLAIN.feasible(replace(TASK, instruction="be happy"))
    assert PLAIN.feasible(replace(TASK, spec="{")) and PLAIN.feasible(replace(TASK, spec="[]"))
    assert PLAIN.embody(history) == TASK
    with pytest.raises(EnvironmentFailure, match="was generated"):
        PLAIN.embody(episode(("look", "Won."), task=replace(TASK, parent="other")))
    reflection = PLAIN.reflect(history, [("open box 2", "empty")], "look around")
    assert reflection == "open box 2 would give: empty. look around"
    assert (
        PLAIN.well_formed("go 门")
        and PLAIN.well_formed("cd /tmp\nls")
        and not any(PLAIN.well_formed(action) for action in ("", "?", " \t"))
    )


ADMISSIBLE = ("add", "subtract", "wait")


def played_actions(name, seed=0, solution=("add",) * 20, steps=20, actions=()):
    act = make_behaviour(name, TASK, seed, {TASK.id: solution} if solution else {}, actions)
    return [act(Trajectory(TASK), ADMISSIBLE)[1] for _ in range(steps)]


def test_a_recorded_solution_is_replayed_or_altered():
    assert played_actions("expert", steps=25) == ["add"] * 25, "at the end its last action again"
    assert played_actions("expert", solution=("add", "wait"), steps=3) == ["add", "wait", "wait"]
    altered = played_actions("near_miss")
    assert altered.count("add") == 19 and played_actions("near_miss") == altered != played_actions(
        "near_miss", seed=1
    )
    others = [sum(action != "add" for action in played_actions("noisy", seed)) for seed in range(30)]
    assert 4 < sum(others) / 30 < 8, "three in ten"


def test_random_actions_are_listed_configured_or_nonsense():
    counts = Counter(played_actions("random", steps=2000))
    assert (
        all(500 < counts[action] < 700 for action in ADMISSIBLE)
        and 100 < 2000 - sum(counts[action] for action in ADMISSIBLE) < 300
    )
    act = make_behaviour("random", TASK, 0, {}, ["search shoes"])
    counts = Counter(act(Trajectory(TASK), ())[1] for _ in range(200))
    assert counts["search shoes"] > 150 and any(
        "shoes" in action or "search" in action for action in counts if action != "search shoes"
    )
    assert make_behaviour("random", TASK, 0, {}, [])(Trajectory(TASK), ())[1]


def test_solved_seeds_come_first_and_other_ids_are_ignored():
    solved = ["w/seed/4", "w/seed/8", "w/seed/7", "w/seed/x", "other/seed/2"]
    assert set(draw_seeds("train", 2, random.Random(0), solved, "w/seed/")) == {4, 8}
    assert draw_seeds("test", 1, random.Random(0), solved, "w/seed/") == [7]
    seeds = draw_seeds("train", 50, random.Random(0), solved, "w/seed/")
    assert len(set(seeds)) == 50 and {4, 8} < set(seeds) and not any(seed % 2 for seed in seeds)


def test_a_task_without_a_solution_is_named():
    with pytest.raises(
        EnvironmentFailure,
        match=r"noisy needs a solution of own/1.*what is recorded \(0\), or set data.noisy=0",
    ):
        played_actions("noisy", solution=None)


def test_demonstrations_are_json_lines(tmp_path):
    path = tmp_path / "solutions.jsonl"
    path.write_text(
        '{"task": "own/1", "actions": ["a", "b"]}\n\n{"task": "own/2", "actions": ["c"], "by": "me"}\n'
    )
    assert (
        read_demonstrations(str(path)) == {"own/1": ["a", "b"], "own/2": ["c"]}
        and read_demonstrations("") == {}
    )
    for line in (
        "{",
        "[]",
        json.dumps({"task": "own/1", "actions": []}),
        '{"task": 1, "actions": ["a"]}',
        '{"task": "x", "actions": [1]}',
    ):
        path.write_text('{"task": "own/1", "actions": ["a"]}\n' + line)
        with pytest.raises(DataError, match="Line 2 of .*Expected"):
            read_demonstrations(str(path))
    with pytest.raises(DataError, match="cannot be read"):
        read_demonstrations(str(tmp_path / "none"))
