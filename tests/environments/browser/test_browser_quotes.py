"""Reasoning is compared with the page and the instruction: errors are detected, correct words accepted."""

from __future__ import annotations

import pytest
from builders import make_task

from components.environments.browser.quotes import grounded
from components.environments.browser.reasoning import reason
from components.environments.browser.states import OVER
from components.records import Trajectory

GOAL = 'Enter the username " chas " and the password " x, 7 " into the text fields and press login.'
SENT = "[16] textbox: Username = chas\n[19] textbox: Password = q\n[20] button: Login"
BEGUN = "16 19 20 want 20: yes, button Login. works. "
LINK = 'Click on the link " consequat, erat ".'
LINKS = "[12] item: Cursus\n[14] item: consequat, erat"
BOXES = "[1] checkbox: ab (checked)\n[2] checkbox: Cd\n[3] button: Submit"
TABLE = "text: Country / Chad\n[1] textbox: = Chad\n[3] button: Submit"
SUM = "[1] textbox: 2 + 3 = 5\n[3] button: Submit"


def wrong(goal, state, action, reasoning):
    """Return what of the reasoning stands behind its first error."""
    task = make_task(environment="browser", instruction=goal, initial_state=state)
    return reasoning[grounded(task, [state], action, reasoning) :]


@pytest.mark.parametrize(
    ("goal", "state", "action", "after"),
    [
        (GOAL, SENT, "click [20]", OVER),
        (GOAL, SENT, "click [99]", f"Failed: no such element.\n{SENT}"),
        (GOAL, SENT, "fill [20] chas", f"Failed: not for this element.\n{SENT}"),
        (GOAL, SENT, "fill [19] x, 7", SENT.replace("= q", "= x, 7")),
        (GOAL, SENT, "scroll down", SENT),
        (GOAL, SENT, "nonsense", f"Failed: not understood.\n{SENT}"),
        (LINK, LINKS, "click [14]", OVER),
        (LINK, LINKS, "click [12]", OVER),
        ("Select ab, Cd and click Submit.", BOXES, "click [3]", OVER),
        ("Enter the value of Country into the text field and press Submit.", TABLE, "click [3]", OVER),
        (
            "Solve the math problem and type your answer into the textbox. Press submit when done.",
            SUM,
            "click [3]",
            OVER,
        ),
        ('Click on the " no " button.', "[1] button: no", "click [1]", OVER),
        ('Click on the " ♥♥ " button.', "[1] button: ♥\n[2] button: ♥♥", "click [1]", OVER),
        (
            "Select Chad from the list and click Submit.",
            "[1] select: = Peru {Peru | Chad}\n[3] button: Submit",
            "click [3]",
            OVER,
        ),
    ],
)
@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_the_teachers_reasoning_is_accepted(goal, state, action, after, reward):
    task = make_task(environment="browser", instruction=goal, initial_state=state)
    reasoning = reason(Trajectory(task), action, after, reward)
    assert wrong(goal, state, action, reasoning) == "", reasoning


@pytest.mark.parametrize(
    ("right", "rest"),
    [
        ("16 19 ", "want 20: no. fails"),
        ("16 19 20 want 20: yes, button Log", "on. works, same"),
        ("16 19 20 want 20: yes, button Login", "s. works, same"),
        ("16 19 20 want 20: yes, button Login", ", a link is no field. fail"),
        ("16 19 20 want 20: yes, button Login", ". works, now chas. not done"),
        (BEGUN[:-2], '. username " cas, chas want cas: no. lost'),
        (BEGUN[:-2], '. username " q, q want q: yes. done'),
        (BEGUN[:-2], ". q want q: yes. done"),
        (BEGUN[:-2], '. password " chas, chas want chas: yes. not done'),
        (BEGUN[:-2], '. username " chas, chass want chas: no. lost'),
        (BEGUN[:-2], '. username " chas, chas wantchas: no. lost'),
        (BEGUN[:-2], '. username " chas, chas want chas: no. lost'),
        (BEGUN[:-2], ". ab plain want checked: no. lost"),
        (BEGUN + 'username " chas, chas want chas: yes', ', password " x, 7, q want x, 7: yes. done'),
        (BEGUN + 'username " chas, chas want chas: yes', ", and all is well"),
    ],
)
def test_the_text_before_the_first_error_is_kept(right, rest):
    state = SENT.replace("chas", "q") if "q want q" in rest else SENT
    assert wrong(GOAL, state, "click [20]", right + rest) == rest


def test_an_absent_element_does_not_work():
    assert wrong(GOAL, SENT, "click [9]", "16 19 20 want 9: no. works, new") == ". works, new"
    state, goal = (
        "[1] select: = Peru {Peru | Chad}\n[3] button: Submit",
        "Select Chad from the list and click Submit.",
    )
    begun = "1 3 want 1: yes, select nameless, Peru Chad want"
    assert wrong(goal, state, "select [1] Chad", f"{begun} Chad: no. fails") == "no. fails"
    assert wrong(goal, state, "select [1] Oman", f"{begun} Oman: no. works, now Oman") == ". works, now Oman"
    assert wrong(goal, state, "select [1] Chad", f"{begun} Chad: yes. works, now Cha") == ". works, now Cha"
    assert wrong(goal, state, "select [1] Chad", f"{begun} Chad: yes. works, now Chad") == ""


def test_the_pages_outcome_is_not_judged():
    """A page may accept a form that lacks something; MiniWoB's boxes do. Actions without element quote
    nothing.
    """
    reasoning = (
        "1 2 3 want 3: yes, button Submit. works. ab checked want checked: yes, Cd plain want checked: "
        "no. done"
    )
    assert wrong("Select ab, Cd and click Submit.", BOXES, "click [3]", reasoning) == ""
    assert (
        wrong(GOAL, SENT, "scroll down", "whatever") == wrong(GOAL, "no state", "click [1]", "whatever") == ""
    )
