"""A near miss that has misread the goal brings it to its end, and what the page would say is known; a form of
the test's own.
"""

from __future__ import annotations

from dataclasses import replace

from components.environments.browser.actions import read_action
from components.environments.browser.behaviours import make_behaviour
from components.environments.browser.reasoning import judged
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
        told = replace(
            told,
            steps=(*told.steps, Transition(task.id, "e", step, told.states[-1], action, state, 0.0, False)),
        )
    return None


def test_forms_are_sent_with_one_field_wrong():
    ends = [sent(seed) for seed in range(200)]
    filled = [end for end in ends if end and all(end)]
    wrong = [end for end in filled if (end[0] != "olin") + (end[1] != "r2") == 1]
    assert len(wrong) > 40, (
        "a clone of such logs sends wrong words often, so the dream must have seen what that leads to"
    )
    assert ("olin", "r2") in filled and ("olin", "olin") in wrong and ("r2", "r2") in wrong
    assert [sent(seed) for seed in range(20)] == ends[:20]


def filled(*words, then=("click [20]", "Episode over.")):
    """The form filled with two words, and what was done then."""
    task = Task("login/0", "browser", "train", GOAL, FORM.format("", ""), "login-user", "{}")
    states = [FORM.format(f" = {words[0]}", ""), FORM.format(*(f" = {word}" for word in words)), then[1]]
    actions, told = [f"fill [16] {words[0]}", f"fill [19] {words[1]}", then[0]], Trajectory(task)
    for step, (action, state) in enumerate(zip(actions, states, strict=True)):
        last = Transition(task.id, "e", step, told.states[-1], action, state, 0.0, state == "Episode over.")
        told = replace(told, steps=(*told.steps, last))
    return told


def test_what_the_page_would_say_is_known_from_what_stands_in_it():
    assert judged(filled("olin", "r2")) == 1.0
    assert judged(filled("olin", "olin")) == judged(filled("olin", "R2")) == judged(filled("r2", "r2")) == 0.0
    waiting = FORM.format(" = olin", " = r2")
    assert judged(filled("olin", "r2", then=("click [19]", waiting))) is None, "nothing was sent"
    assert judged(filled("olin", "r2", then=("click [99]", f"Failed: no such element.\n{waiting}"))) is None
    sent = filled("olin", "r2", then=("click [20]", waiting))
    again = Transition("login/0", "e", 3, waiting, "click [20]", "Episode over.", 0.0, True)
    assert judged(replace(sent, steps=(*sent.steps, again))) is None, "the first click would have ended it"
