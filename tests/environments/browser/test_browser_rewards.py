"""A MiniWoB episode succeeds only where the page gives its whole raw reward."""

from __future__ import annotations

import json

import pytest
from real_browser import acted, opened, settings

from components.environments.browser.engine.gym_tasks import is_success, raw_reward
from components.environments.browser.environment import BrowserEnvironment
from components.environments.browser.states import read_state
from components.environments.browser.surveys.stock_browsergym import StockTab
from components.records import Task


def play(browsers, task_type, seed, choose):
    """Return the last step of an episode.

    `choose(elements, goal)` names its actions from the opening state.
    """
    observation = opened(browsers, {"task": f"miniwob.{task_type}", "seed": seed})
    for action in choose(read_state(observation.state).elements, observation.goal):
        observation = acted(browsers, action)
    assert observation.done
    return observation


def submit(elements):
    return f"click [{next(element.id for element in elements if element.name == 'Submit')}]"


def card(pick):
    def choose(elements, _goal):
        cards = [element for element in elements if element.kind == "item"]
        return [f"click [{pick(cards, key=lambda element: int(element.name)).id}]", submit(elements)]

    return choose


def all_boxes_but(number):
    """Check what the goal names, without the last `number` of them."""

    def choose(elements, goal):
        named_boxes = [element for element in elements if element.kind == "checkbox" and element.name in goal]
        assert len(named_boxes) > number
        return [
            *(f"click [{element.id}]" for element in named_boxes[: len(named_boxes) - number]),
            submit(elements),
        ]

    return choose


def numbers_with(wrong):
    """Mark the three numbers, the last `wrong` of them wrongly."""

    def choose(elements, _goal):
        numbers = [int(element.name) for element in elements if element.kind == "text"]
        buttons = [element.id for element in elements if element.name in ("Odd", "Even")]
        marks = [(number % 2 == 0) != (place >= len(numbers) - wrong) for place, number in enumerate(numbers)]
        return [
            *(f"click [{buttons[2 * place + even]}]" for place, even in enumerate(marks)),
            submit(elements),
        ]

    return choose


@pytest.mark.parametrize(
    ("task_type", "seed", "right", "wrong", "paid"),
    [
        ("find-greatest", 3, card(max), card(min), 0.1),
        ("click-checkboxes", 1, all_boxes_but(0), all_boxes_but(1), 4 / 6),
        ("odd-or-even", 3, numbers_with(0), numbers_with(1), 1 / 3),
    ],
)
def test_success_needs_the_whole_raw_reward(browsers, task_type, seed, right, wrong, paid):
    partly = play(browsers, task_type, seed, wrong)
    assert partly.reward == 0.0 and partly.raw_reward == pytest.approx(paid), (
        "the page pays a part for a wrong answer"
    )
    whole = play(browsers, task_type, seed, right)
    assert (whole.reward, whole.raw_reward) == (1.0, 1.0)


def test_a_wrong_answer_without_reward_is_below_zero(browsers):
    lost = play(browsers, "odd-or-even", 3, numbers_with(3))
    assert (lost.reward, lost.raw_reward) == (0.0, -1.0)


def test_a_step_reports_both_rewards():
    spec = {"task": "miniwob.find-greatest", "seed": 3}
    environment = BrowserEnvironment(settings())
    try:
        observation = environment.browsers.load({0: spec})[0]
        pick, send = card(min)(read_state(observation.state).elements, observation.goal)
        environment.reset(
            [
                Task(
                    "t",
                    "browser",
                    "test",
                    observation.goal,
                    observation.state,
                    "find-greatest",
                    json.dumps(spec),
                )
            ]
        )
        alternative = environment.probe([[send]])[0][0]
        assert (alternative.reward, alternative.info["raw_reward"]) == (0.0, -1.0), "no card was picked"
        steps = [environment.step([action])[0] for action in (pick, send)]
        assert [(step.reward, step.done, step.info["raw_reward"]) for step in steps] == [
            (0.0, False, 0.0),
            (0.0, True, 0.1),
        ]
    finally:
        environment.close()


def test_the_discount_for_elapsed_time_changes_no_outcome():
    """The page's other reward falls with time; its raw reward, which decides, does not."""
    info = {"REWARD_GLOBAL": 0.31, "RAW_REWARD_GLOBAL": 1.0}
    assert raw_reward(1.0, info) == 1.0 and is_success(raw_reward(1.0, info))
    assert not is_success(raw_reward(1.0, {"REWARD_GLOBAL": 0.31, "RAW_REWARD_GLOBAL": 0.99}))
    assert is_success(sum([0.1] * 10)) and not is_success(1 - 1e-6), (
        "a sum of fractions may miss 1 by rounding alone"
    )
    assert raw_reward(0.5, {}) == 0.5 and not is_success(0.5), "an evaluator of the web that pays a part"


def test_browsergyms_own_environment_is_judged_by_the_same_rule():
    """The tab of the speed comparison, without its two browsers, on an answer of BrowserGym's environment."""

    class PaidInPart:
        def step(self, _action):
            return {}, 1.0, True, False, {"task_info": {"RAW_REWARD_GLOBAL": 0.1}}

    tab = StockTab(None, settings())
    tab._env, tab.goal = PaidInPart(), ""
    observation = tab.step("scroll down")
    assert (observation.reward, observation.raw_reward, observation.done) == (0.0, 0.1, True)
