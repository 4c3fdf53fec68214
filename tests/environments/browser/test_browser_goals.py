"""Instructions, their goals, and the progress of an episode, read from texts alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import make_episode, make_task, with_thoughts

from components.environments.browser.behaviours import NAMES, make_behaviour
from components.environments.browser.coherence import contradiction
from components.environments.browser.goals import read_goal, separate_quotes
from components.environments.browser.progress import episode_status, goal_obstacle, progress
from components.environments.browser.reasoning import reason, reflect, reveals, think
from components.environments.browser.states import OVER, read_state
from components.errors import EnvironmentFailure
from components.policy.early_experience import ExploredEpisode, reflections

LOGIN = 'Enter the username " kenda " and the password " x7y " into the text fields and press login.'
BLANK = "[16] textbox: Username\n[19] textbox: Password\n[20] button: Login"
NAMED = "[16] textbox: Username = kenda (focused)\n[19] textbox: Password\n[20] button: Login"
WHOLE = "[16] textbox: Username = kenda\n[19] textbox: Password = x7y (focused)\n[20] button: Login"
TASK = make_task(
    id="browser/miniwob/login-user/4",
    environment="browser",
    instruction=LOGIN,
    initial_state=BLANK,
    family="login-user",
)
USER, PASSWORD, SEND = ("fill [16] kenda", NAMED), ("fill [19] x7y", WHOLE), ("click [20]", OVER)
TABS = "[18] tab: Tab #1 (selected)\n[20] tab: Tab #2\n[26] item: ornare"
SENDS = "16 19 20 want 20: yes, button Login"
TYPE = "type your answer into the textbox."
SEARCH = replace(
    TASK, instruction='Switch between the tabs to find and click on the link "proin".', initial_state=TABS
)


@pytest.mark.parametrize(
    ("instruction", "state", "command"),
    [
        ("Click button TWO.", "[13] button: ONE\n[14] button: TWO", "click [14]"),
        ('Click on the "♥♥♥" button.', "[13] button: ♥\n[14] button: ♥♥♥", "click [14]"),
        ('Click on the link "proin".', "[13] item: Ornare.\n[14] item: Proin", "click [14]"),
        ('Click on the link "proin".', "[13] item: proin.\n[14] item: Proin", "click [14]"),
        (
            'Click the button in the dialog box labeled "x".',
            "[20] button: Close\n[21] button: OK",
            "click [20]",
        ),
        ('Click on a "textarea" widget.', "[1] textbox: = x\n[2] textarea: = y", "click [2]"),
        ('Click on the link " #proin ".', "[13] link: proin\n[14] link: #proin", "click [14]"),
        ('Click on the "#" button.', "[13] button: ONE\n[14] button: #", "click [14]"),
        ('Click on the "[13]" button.', "[13] button: ONE\n[14] button: [13]", "click [14]"),
        (
            "Select #1 and click Submit.",
            "[1] checkbox: ab\n[2] checkbox: #1\n[3] button: Submit",
            "click [2]",
        ),
        ("Focus into the 2nd input textbox.", "[12] textbox:\n[13] textbox:", "click [13]"),
        (
            "Select ab, Cd and click Submit.",
            "[1] checkbox: ab (checked)\n[2] checkbox: Cd\n[3] button: Submit",
            "click [2]",
        ),
        (
            "Select ab and click Submit.",
            "[1] checkbox: ab (checked)\n[2] checkbox: Cd (checked)\n[3] button: Submit",
            "click [2]",
        ),
        ("Select nothing and click Submit.", "[1] checkbox: ab\n[3] button: Submit", "click [3]"),
        (
            "Select Chad from the list and click Submit.",
            "[1] select: = Peru {Peru | Chad}\n[3] button: Submit",
            "select [1] Chad",
        ),
        (
            'Type "Ann" in all upper case letters in the text input and press Submit.',
            "[1] textbox:\n[3] button: Submit",
            "fill [1] ANN",
        ),
        (
            "Enter 09/27/2012 as the date and hit submit.",
            "[1] date:\n[3] button: Submit",
            "fill [1] 2012-09-27",
        ),
        ("Enter 12:05 PM as the time and press submit.", "[1] time:\n[3] button: Submit", "fill [1] 12:05"),
        (
            "Enter the value of Sex into the text field and press Submit.",
            "text: Sex / F\n[1] textbox:\n[3] button: Submit",
            "fill [1] F",
        ),
        (
            f"Solve the math problem and {TYPE} Press submit when done.",
            "[1] textbox: 2 - 9\n[3] button: Submit",
            "fill [1] -7",
        ),
        (
            f"Solve for x and {TYPE} Press Submit when done.",
            "text: 3 - x = 9\n[1] textbox: x\n[3] button: Submit",
            "fill [1] -6",
        ),
        (
            "Find and pick the card with the greatest number, then press submit.",
            "[1] item: 9\n[2] item: 12",
            "click [2]",
        ),
        (
            "Search for crime movies directed by Lee from year 1999.",
            "[1] textbox: Released Date\n[3] button: Go!",
            "fill [1] 1999",
        ),
    ],
)
def test_the_experts_first_action(instruction, state, command):
    task = replace(TASK, instruction=instruction, initial_state=state)
    assert make_behaviour("expert", task, 0)(make_episode(task), ["click [3]"])[1] == command


def test_progress_counts_fulfilled_subgoals():
    steps = [USER, PASSWORD, SEND]
    commands = [episode_status(make_episode(TASK, *steps[:count])).command for count in range(3)]
    assert commands == [action for action, _ in steps]
    assert [progress(make_episode(TASK, *steps[:count])) for count in range(3)] == [0, 1 / 4, 2 / 4]
    assert (
        progress(make_episode(TASK, *steps, won=True)) == 1.0 and progress(make_episode(TASK, *steps)) < 1.0
    )
    assert progress(make_episode(replace(TASK, instruction="be happy"), USER)) == 0.0


def test_a_message_over_the_form_is_cancelled_first():
    covered = (
        NAMED.replace(" (focused)", " (disabled)")
        + "\ntext: Exit to home page?\n[30] button: OK\n[31] button: Cancel"
    )
    assert episode_status(make_episode(TASK, ("click [16]", covered))).command == "click [31]"


def test_a_click_counts_only_after_what_must_come_before_it():
    hint = "text: The number is higher than 4.\n[21] textbox: = 4\n[22] button: Submit"
    start = "[21] textbox: Waiting for your guess...\n[22] button: Submit"
    words = "Guess the number between 0-9 and press Submit. Use the feedback below to find the right number."
    task = replace(TASK, instruction=words, initial_state=start)
    first = [("fill [21] 4", start.replace("...", "... = 4")), ("click [22]", hint)]
    assert episode_status(make_episode(task)).command == "fill [21] 4"
    assert episode_status(make_episode(task, *first)).command == "fill [21] 7"
    again = [*first, ("fill [21] 7", hint.replace("= 4", "= 7"))]
    assert episode_status(make_episode(task, *again)).command == "click [22]"


def test_a_hidden_element_is_searched_behind_unopened_ones():
    opened = (
        TABS.replace(" (selected)", "")
        .replace("#2", "#2 (selected)")
        .replace("[26] item: ornare", "[28] item: Proin")
    )
    assert episode_status(make_episode(SEARCH)).command == "click [20]"
    assert episode_status(make_episode(SEARCH, ("click [20]", opened))).command == "click [28]"


@pytest.mark.parametrize(
    ("instruction", "why"),
    [
        ("be happy", "follows no template"),
        ('Click on the link "proin".', "no such element"),
        ("Select Chad from the list and click Submit.", "no such element"),
        (LOGIN.replace("kenda", "keli"), ""),
    ],
)
def test_a_generated_task_is_judged_by_its_first_page(instruction, why):
    goal = read_goal(instruction, [read_state(BLANK)])
    assert ("follows no template" if goal is None else goal_obstacle(read_state(BLANK), goal)) == why


def test_quoted_words_are_separated_and_still_read():
    """A word beside a quotation mark has other tokens than the same word elsewhere."""
    plain = 'Enter the username "kenda" and the password "x7y" into the text fields and press login.'
    assert separate_quotes(plain) == separate_quotes(LOGIN) == LOGIN
    views = [read_state(BLANK)]
    assert read_goal(plain, views) == read_goal(LOGIN, views) is not None
    assert separate_quotes("Select ab, Cd and click Submit.") == "Select ab, Cd and click Submit."


def test_thoughts_compare_up_to_the_target():
    def thought(task, *steps):
        return think(episode_status(make_episode(task, *steps)))

    assert thought(TASK) == "16 Username want Username: yes. blank want kenda: no. fill 16 kenda"
    assert thought(TASK, USER, PASSWORD) == "20 Login want Login: yes. click 20"
    assert thought(SEARCH) == "ornare want proin: no. open 20"
    assert reflect(
        make_episode(TASK),
        [("click [9]", f"Failed: no such element.\n{BLANK}"), SEND, ("click [16]", BLANK)],
        "so",
    ) == ("click [9] would fail. click [20] would end it. click [16] would change nothing. so")


def test_a_field_that_may_be_filled_first_is_not_called_useless():
    first = (
        "fill [19] x7y",
        "[16] textbox: Username\n[19] textbox: Password = x7y (focused)\n[20] button: Login",
    )
    wrong = (
        "fill [16] x7y",
        "[16] textbox: Username = x7y (focused)\n[19] textbox: Password\n[20] button: Login",
    )
    entry = ExploredEpisode(with_thoughts(make_episode(TASK, USER), "fill 16 kenda"), ((first, wrong),))
    assert reflections([entry], reflect, progress) == [["fill [16] x7y would not help. fill 16 kenda"]]


@pytest.mark.parametrize(
    ("steps", "action", "state", "reward", "reasoning"),
    [
        ([], "click 16", f"Failed: not understood.\n{BLANK}", 0, "no such command. fails"),
        ([], "click [9]", f"Failed: no such element.\n{BLANK}", 0, "16 19 20 want 9: no. fails"),
        (
            [],
            "fill [20] x",
            f"Failed: not for this element.\n{BLANK}",
            0,
            f"{SENDS}, a button is no field. fails",
        ),
        ([], *USER, 0, "16 19 20 want 16: yes, textbox Username. works, now kenda"),
        (
            [USER],
            *SEND,
            0,
            '16 19 20 want 20: yes, button Login. works. username " kenda, kenda want kenda: yes, password '
            '" x7y, blank want x7y: no. lost',
        ),
        (
            [USER, PASSWORD],
            *SEND,
            1,
            '16 19 20 want 20: yes, button Login. works. username " kenda, kenda want kenda: yes, password '
            '" x7y, x7y want x7y: yes, '
            "press login, Login want Login: yes. done",
        ),
    ],
)
def test_reasoning_ends_in_the_pages_own_outcome(steps, action, state, reward, reasoning):
    assert reason(make_episode(TASK, *steps), action, state, reward) == reasoning


@pytest.mark.parametrize(
    ("steps", "lie", "why"),
    [
        ([], "A dragon.", "no state"),
        ([SEND], BLANK, "was over"),
        ([USER], f"Failed: disabled.\n{BLANK}", "changed the page"),
        ([], BLANK.replace("textbox: Password", "button: Password"), "19 was a textbox"),
        ([USER], BLANK, ""),
        ([], "[99] button: New", ""),
    ],
)
def test_only_impossible_states_are_contradictions(steps, lie, why):
    objection = contradiction(make_episode(TASK, *steps), lie)
    assert why in objection and bool(objection) == bool(why)


@pytest.mark.parametrize(
    ("steps", "state", "new"),
    [
        ([], NAMED, False),
        ([], OVER, False),
        ([], f"Failed: no such element.\n{BLANK}", False),
        ([], f"{BLANK}\ntext: Wrong password.", True),
        ([], f"Dialog: Sure?\n{BLANK}", True),
        ([("click [20]", f"Dialog: Sure?\n{BLANK}")], f"Dialog: Sure?\n{BLANK}", False),
        ([("click [20]", "[30] button: Other")], BLANK, False),
        ([("click [20]", "[30] button: Other")], "[30] button: Another", True),
        ([], "A dragon.", False),
    ],
)
def test_only_new_elements_are_revealed(steps, state, new):
    assert reveals(make_episode(TASK, *steps), read_state(state)) == new


def test_types_without_an_expert_are_played_by_the_other_behaviours():
    odd = replace(TASK, instruction="Draw a circle.", family="draw-circle")
    with pytest.raises(EnvironmentFailure, match=r"no expert for draw-circle.*data\.expert=0"):
        make_behaviour("expert", odd, 0)
    for name in NAMES[1:]:
        assert make_behaviour(name, odd, 0)(make_episode(odd), ["click [16]"])[1]
