"""The survey of the rewards of MiniWoB's pages: the players, the counts, and the table."""

from __future__ import annotations

import random

from builders import make_task
from real_browser import opened, settings

from components.environments.browser.environment import BrowserEnvironment
from components.environments.browser.states import read_state
from components.environments.browser.surveys.reward_survey import (
    is_sender,
    play,
    sending_player,
    sorted_by_pay,
    table,
    write_table,
)
from components.records import Task, Trajectory

ROWS = {
    "find-greatest": {"episodes": 4, "raw": {"-1": 1, "0.1": 2, "1": 1}, "cut_off": 0, "broken": 0},
    "click-test": {"episodes": 4, "raw": {"1": 3}, "cut_off": 1, "broken": 0},
    "tic-tac-toe": {"episodes": 4, "raw": {"-0.5": 1}, "cut_off": 3, "broken": 0},
    "draw-line": {"episodes": 4, "raw": {}, "cut_off": 4, "broken": 0},
    "terminal": {"error": "does not open"},
}


def test_types_are_sorted_by_observed_rewards():
    assert sorted_by_pay(ROWS) == {
        "partly": ["find-greatest"],
        "whole": ["click-test"],
        "unpaid": ["tic-tac-toe"],
        "never judged": ["draw-line"],
        "does not open": ["terminal"],
    }


def test_the_table_replaces_the_old_one_and_names_unjudged_types(tmp_path):
    document = tmp_path / "page.md"
    document.write_text("before\n<!-- miniwob-pay:begin -->\nold\n<!-- miniwob-pay:end -->\nafter\n")
    write_table(document, ROWS)
    text = document.read_text()
    assert text.startswith(
        "before\n<!-- miniwob-pay:begin -->\n5 of 125 types played, 16 episodes."
    ) and text.endswith("<!-- miniwob-pay:end -->\nafter\n")
    assert "| `find-greatest` | -1 (1), 0.1 (2), 1 (1) | 4 | 0 |" in text and "old" not in text
    assert "Never judged: no episode came to its end (1): `draw-line`." in text
    write_table(document, ROWS)
    assert document.read_text() == text and table(ROWS) in text


def test_the_sending_player_acts_a_few_times_and_then_sends():
    assert (
        is_sender("Submit") and is_sender("Search for it") and not is_sender("Subway") and not is_sender("")
    )
    state = "[3] item: 4\n[5] item: 9\n[8] button: Submit"
    allowed = ["click [3]", "click [5]", "click [8]"]
    first = {
        sending_player(random.Random(seed))(Trajectory(make_task(initial_state=state)), allowed)
        for seed in range(40)
    }
    assert first == set(allowed), "none to four actions before"


def test_play_finds_a_page_that_pays_a_part(browsers):
    """The smallest card is picked and submitted. The partial reward is counted with its actions."""
    spec = '{"task": "miniwob.find-greatest", "seed": 3}'
    observation = opened(browsers, {"task": "miniwob.find-greatest", "seed": 3})
    cards = [element for element in read_state(observation.state).elements if element.kind == "item"]
    right, wrong = (pick(cards, key=lambda element: int(element.name)).id for pick in (max, min))
    tasks = [
        Task(f"t{row}", "browser", "test", observation.goal, observation.state, "find-greatest", spec)
        for row in range(3)
    ]

    def plays(*actions):
        return lambda trajectory, _admissible: actions[min(len(trajectory.steps), len(actions) - 1)]

    submit = next(
        f"click [{element.id}]"
        for element in read_state(observation.state).elements
        if is_sender(element.name)
    )
    world = BrowserEnvironment(settings())
    try:
        result = play(
            world,
            tasks,
            [plays(f"click [{wrong}]", submit), plays(f"click [{right}]", submit), plays("scroll down")],
            3,
        )
    finally:
        world.close()
    assert result.to_json() == {
        "raw": {"0.1": 1, "1": 1},
        "cut_off": 1,
        "broken": 0,
        "partly_paid": {"0.1": [observation.goal, f"click [{wrong}]", submit]},
    }
