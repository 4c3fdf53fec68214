"""A near miss that misreads its goal plays to the end, and the page's verdict follows from the form."""

from __future__ import annotations

from dataclasses import replace

from components.environments.browser.actions import read_action
from components.environments.browser.behaviours import make_behaviour
from components.environments.browser.reasoning import judged
from components.records import Task, Trajectory, Transition

FORM = "[16] textbox: Username{0}\n[19] textbox: Password{1}\n[20] button: Login"
GOAL = 'Enter the username "olin" and the password "r2" into the text fields and press login.'


def sent(seed):
    """Return what both fields held when the form was sent; None if it was not sent within ten steps."""
    task = Task(f"login/{seed}", "browser", "train", GOAL, FORM.format("", ""), "login-user", "{}")
    act, display_name, fields = (
        make_behaviour("near_miss", task, seed),
        Trajectory(task),
        {"16": "", "19": ""},
    )
    for step in range(10):
        _, action = act(display_name, [f"fill [{name}] olin" for name in fields] + ["click [20]"])
        command = read_action(action)
        if command and command.verb == "click" and command.id == "20":
            return fields["16"], fields["19"]
        if command and command.verb == "fill" and command.id in fields:
            fields[command.id] = command.text
        state = FORM.format(*(f" = {value}" if value else "" for value in fields.values()))
        display_name = replace(
            display_name,
            steps=(
                *display_name.steps,
                Transition(task.id, "e", step, display_name.states[-1], action, state, 0.0, False),
            ),
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


def test_a_step_of_a_misread_goal_has_the_thought_that_leads_to_it():
    """Not the thought of the right goal beside a wrong word."""
    task = Task("login/0", "browser", "train", GOAL, FORM.format("", ""), "login-user", "{}")
    replies = [
        make_behaviour("near_miss", task, seed)(Trajectory(task), ["click [20]"]) for seed in range(200)
    ]
    with_thought = [(thought, action) for thought, action in replies if thought]
    wrong = [thought for thought, action in with_thought if action == "fill [16] r2"]
    assert len(wrong) > 3 and all(thought.endswith("blank want r2: no. fill 16 r2") for thought in wrong)
    assert all(thought.endswith(action.replace("[", "").replace("]", "")) for thought, action in with_thought)
    random = [make_behaviour("random", task, seed)(Trajectory(task), ["click [20]"])[0] for seed in range(50)]
    assert set(random) == {""}


def filled(*words, then=("click [20]", "Episode over.")):
    """Return the episode that fills the form with two words and then takes one more action."""
    task = Task("login/0", "browser", "train", GOAL, FORM.format("", ""), "login-user", "{}")
    states = [FORM.format(f" = {words[0]}", ""), FORM.format(*(f" = {word}" for word in words)), then[1]]
    actions, episode = [f"fill [16] {words[0]}", f"fill [19] {words[1]}", then[0]], Trajectory(task)
    for step, (action, state) in enumerate(zip(actions, states, strict=True)):
        last = Transition(
            task.id, "e", step, episode.states[-1], action, state, 0.0, state == "Episode over."
        )
        episode = replace(episode, steps=(*episode.steps, last))
    return episode


def test_the_pages_verdict_follows_from_the_form():
    assert judged(filled("olin", "r2")) == 1.0
    assert judged(filled("olin", "olin")) == judged(filled("olin", "R2")) == judged(filled("r2", "r2")) == 0.0
    waiting = FORM.format(" = olin", " = r2")
    assert judged(filled("olin", "r2", then=("click [19]", waiting))) is None, "nothing was sent"
    assert judged(filled("olin", "r2", then=("click [99]", f"Failed: no such element.\n{waiting}"))) is None
    sent = filled("olin", "r2", then=("click [20]", waiting))
    again = Transition("login/0", "e", 3, waiting, "click [20]", "Episode over.", 0.0, True)
    assert judged(replace(sent, steps=(*sent.steps, again))) is None, "the first click would have ended it"
