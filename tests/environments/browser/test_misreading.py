"""A near miss that has misread the goal in one place brings it to its end, on a form that the test keeps itself: no browser."""

from __future__ import annotations

from dataclasses import replace

from components.environments.browser.actions import read_action
from components.environments.browser.behaviours import make_behaviour
from components.records import Task, Trajectory, Transition

FORM = "[16] textbox: Username{0}\n[19] textbox: Password{1}\n[20] button: Login"
GOAL = 'Enter the username "olin" and the password "r2" into the text fields and press login.'


def sent(seed):
    """What stood in both fields when the form was sent; None if it was not within ten steps."""
    task = Task(f"login/{seed}", "browser", "train", GOAL, FORM.format("", ""), "login-user", "{}")
    act, told, fields = make_behaviour("near_miss", task, seed), Trajectory(task), {"16": "", "19": ""}
    for step in range(10):
        _, action = act(told, [f"fill [{name}] olin" for name in fields] + ["click [20]"])
        command = read_action(action)
        if command and command.verb == "click" and command.id == "20":
            return fields["16"], fields["19"]
        if command and command.verb == "fill" and command.id in fields:
            fields[command.id] = command.text
        state = FORM.format(*(f" = {value}" if value else "" for value in fields.values()))
        told = replace(told, steps=(*told.steps, Transition(task.id, "e", step, told.states[-1], action, state, 0.0, False)))
    return None


def test_forms_are_sent_with_one_field_wrong():
    ends = [sent(seed) for seed in range(200)]
    filled = [end for end in ends if end and all(end)]
    wrong = [end for end in filled if (end[0] != "olin") + (end[1] != "r2") == 1]
    assert len(wrong) > 40, "a clone of such logs sends wrong words often, so the dream must have seen what that leads to"
    assert ("olin", "r2") in filled and ("olin", "olin") in wrong and ("r2", "r2") in wrong
    assert [sent(seed) for seed in range(20)] == ends[:20]
