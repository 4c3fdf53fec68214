"""The agent's thoughts and the teacher's reasoning about a step, in words that a small model can learn.

Everything that is compared stands side by side. The comparisons have the form of the backbone's exercise
(`components/language/exercises`). The agent's thoughts compare the candidates with what is wanted, up to the
first that matches. They name its id last, where the action begins:

    13 ONE want TWO: no, 14 TWO want TWO: yes. click 14
    16 Username want Username: yes. blank want kenda: no. fill 16 kenda
    ornare sodales want proin: no. open 20

The programmatic teacher (R* of Eq. 5) says what the action needs, up to the first need that does not hold,
and what the action changes. Where the page may judge a click, it compares what is there with what is wanted,
up to the first difference:

    13 14 want 99: no. fails
    16 19 20 want 20: yes, button Login. a button is no field. fails
    13 14 want 14: yes, item Chad. works, new
    16 19 20 want 16: yes, textbox Username. works, now kenda
    16 19 20 want 20: yes, button Login. works. username " kenda, kenda want kenda: yes, password " x7y, blank
        want x7y: no. lost
    13 14 want 14: yes, button TWO. works. button TWO, TWO want TWO: yes. done

What is wanted is quoted first as it stands in the instruction, with the word before it. A model that says
what is there first repeats it as what is wanted, and approves whatever a policy does. Everything is quoted
letter for letter: small models copy tokens, and the same name has other tokens in other letters
(docs/experiments).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from components.environments.browser.actions import Command, find_obstacle, read_action
from components.environments.browser.engine.elements import EDITABLE, Element
from components.environments.browser.progress import (
    EpisodeStatus,
    episode_status,
    join_names,
    without_disabled_flags,
)
from components.environments.browser.states import FAILURES, View, read_state
from components.environments.browser.subgoals import (
    Goal,
    Subgoal,
    display_name,
    find_candidates,
    find_element,
    normalise_name,
)
from components.records import Trajectory

_ORDINALS = ("", "1st", "2nd", "3rd", *(f"{number}th" for number in range(4, 100)))


def think(status: EpisodeStatus) -> str:
    """Return the thought that compares what is seen with what is wanted next, and the command that follows.

    Empty where no goal is known.
    """
    subgoal = status.next_subgoal
    command = status.command
    if subgoal is None or not command:
        return _without_brackets(command)
    element = find_element(status.view, subgoal)
    if element is None:
        candidates = join_names(find_candidates(status.view, subgoal))
        hidden_behind = _without_brackets(command).split()[-1]
        return f"{candidates} want {display_name(subgoal.label)}: no. open {hidden_behind}"
    parts = [
        subgoal.source,
        _compare_candidates(status.view, subgoal),
        _compare_value(element, subgoal),
        _without_brackets(command),
    ]
    return ". ".join(part for part in parts if part)


def _without_brackets(command: str) -> str:
    return command.replace("[", "").replace("]", "")


def _compare_candidates(view: View, subgoal: Subgoal) -> str:
    """Compare each candidate with what is wanted, up to the one that matches."""
    if subgoal.id:
        return ""
    comparisons = []
    candidates = find_candidates(view, subgoal)
    target = find_element(view, subgoal)
    required = _ORDINALS[subgoal.place] if subgoal.place else display_name(subgoal.name)
    for number, element in enumerate(candidates, 1):
        label = _ORDINALS[number] if subgoal.place else display_name(element.name) or "nameless"
        comparisons.append(f"{element.id} {label} want {required}: {_yes_or_no(element is target)}")
        if element is target:
            break
    return ", ".join(comparisons)


def _compare_value(element: Element, subgoal: Subgoal) -> str:
    """Compare what a field holds with what it shall hold."""
    if subgoal.verb in ("click", "clear"):
        return ""
    if subgoal.verb in ("check", "uncheck"):
        return f"{checked_word(element)} want {'checked' if subgoal.verb == 'check' else 'plain'}: no"
    return f"{element.value or 'blank'} want {subgoal.value}: no"


def checked_word(element: Element) -> str:
    """Return the word for whether an element is checked."""
    return "checked" if "checked" in element.flags else "plain"


def reflect(trajectory: Trajectory, alternatives: Sequence[tuple[str, str]], thought: str) -> str:
    """Return why the thought is right and the alternatives are not, by what they really lead to.

    In the conditional (Early Experience's c):

        click [99] would fail. click [13] would end it. fill [16] x would not help. 14 two want two: yes.
            click 14

    Args:
        trajectory: the episode so far.
        alternatives: pairs of an action and the state that it leads to.
        thought: the thought of the expert's action.
    """
    before = trajectory.states[-1]
    return " ".join(
        [*(f"{action} would {_consequence(before, state)}." for action, state in alternatives), thought]
    )


def _consequence(before: str, state: str) -> str:
    view = read_state(state)
    if view.failure:
        return "fail"
    return "end it" if view.over else "change nothing" if state == before else "not help"


def reason(trajectory: Trajectory, action: str, next_state: str, reward: float) -> str:
    """Return the reasoning for one transition. Its conclusion is always the page's own outcome."""
    status = episode_status(trajectory)
    after = read_state(next_state)
    command = read_action(action)
    needs = _describe_needs(status.view, action, command, after)
    if after.failure:
        return f"{needs}. fails"
    outcome = "done" if reward > 0.5 else "lost" if after.over else "not done"
    check = _check_subgoals(status, command, after, trajectory.task.instruction) if command else ""
    effect = "works" if after.over else f"works, {_describe_effect(trajectory, status.view, command, after)}"
    return ". ".join(
        part
        for part in (needs, effect, check, outcome if check or after.over or reward > 0.5 else "")
        if part
    )


def _describe_needs(view: View, action: str, command: Command | None, after: View) -> str:
    """Describe what the action needs, one need after another, up to the first that does not hold."""
    reason = find_obstacle(action, view, web=True) if command else "malformed"
    if command is None:
        return "no such command"
    if not command.id:
        return "not here" if after.failure == FAILURES["place"] else command.verb
    element = view.element(command.id)
    id_check = f"{' '.join(view.ids) or 'nothing'} want {command.id}: {'yes' if element else 'no'}"
    if element is None:
        return id_check
    parts = [id_check, f"{element.kind} {display_name(element.name) or 'nameless'}"]
    if reason == "kind":
        parts.append(_describe_wrong_kind(command, element))
    elif reason == "disabled":
        parts.append("disabled")
    elif command.verb == "select":
        parts.append(
            f"{' '.join(element.options)} want {command.text}: {'no' if reason == 'option' else 'yes'}"
        )
    elif after.failure:
        parts.append("no effect")
    return ", ".join(parts)


def _describe_wrong_kind(command: Command, element: Element) -> str:
    if command.verb in ("fill", "clear"):
        return f"a {element.kind} is no field"
    return "a select wants select" if element.kind == "select" else f"a {element.kind} is no list"


def _describe_effect(trajectory: Trajectory, before: View, command: Command | None, after: View) -> str:
    """Describe what changed: the value, whether it is checked, or whether the page shows something new."""
    element = after.element(command.id) if command else None
    old = before.element(command.id) if command else None
    if (
        element
        and old
        and command
        and command.verb in ("fill", "clear", "select", "press")
        and element.value != old.value
    ):
        return f"now {element.value or 'blank'}"
    if element and old and checked_word(element) != checked_word(old):
        return f"now {checked_word(element)}"
    return (
        "new"
        if reveals(trajectory, after)
        else "same"
        if _element_keys(after) == _element_keys(before)
        else "known"
    )


def _element_keys(view: View) -> set[tuple[str, str, str]]:
    return {(element.kind, element.name, element.id) for element in view.elements}


def reveals(trajectory: Trajectory, after: View) -> bool:
    """Return whether `after` names an element or a dialog that no state of the episode has named before."""
    new = _element_keys(after) | {("dialog", words, "") for words in after.dialogs}
    for before in map(read_state, reversed(trajectory.states)):
        if not new:
            break
        new -= _element_keys(before) | {("dialog", words, "") for words in before.dialogs}
    return bool(new)


def _check_subgoals(status: EpisodeStatus, command: Command, after: View, instruction: str) -> str:
    """Compare what is there with what is wanted, for actions that the page may judge; "" for others."""
    element = status.view.element(command.id)
    if (
        status.goal is None
        or element is None
        or command.verb not in ("click", "dblclick", "press")
        or (element.kind in EDITABLE and not after.over)
    ):
        return ""
    comparisons = [
        _compare_subgoal(status, status.goal, place, element, instruction)
        for place in range(len(status.goal.subgoals))
    ]
    comparisons = [comparison for comparison in comparisons if comparison]
    first_difference = next(
        (place for place, comparison in enumerate(comparisons) if comparison.endswith("no")),
        len(comparisons),
    )
    return ", ".join(comparisons[: first_difference + 1])


def _compare_subgoal(
    status: EpisodeStatus, goal: Goal, place: int, clicked: Element, instruction: str
) -> str:
    """Compare one subgoal with what is there: what its field holds, or what is clicked now.

    Returns "" for a click that was done before.
    """
    subgoal = goal.subgoals[place]
    is_done = status.fulfilled[place]
    element = find_element(
        without_disabled_flags(status.view) if subgoal.is_lasting else status.view, subgoal
    )
    if subgoal.is_lasting:
        return _compare_lasting(subgoal, element, is_done, instruction)
    if is_done:
        return ""
    if subgoal.id or subgoal.place:
        return (
            f"{clicked.id} want {element.id if element else 'another'}: "
            f"{_yes_or_no(element is not None and element.id == clicked.id)}"
        )
    label = display_name(clicked.name) or "nameless"
    required = display_name(subgoal.name)
    answer = _yes_or_no(normalise_name(label) == normalise_name(required))
    return f"{_quote_instruction(instruction, required)}{label} want {required}: {answer}"


def _compare_lasting(subgoal: Subgoal, element: Element | None, is_done: bool, instruction: str) -> str:
    if subgoal.verb in ("check", "uncheck"):
        label = subgoal.id or str(subgoal.place or display_name(subgoal.name))
        return (
            f"{label} {checked_word(element) if element else 'absent'} want "
            f"{'checked' if subgoal.verb == 'check' else 'plain'}: {_yes_or_no(is_done)}"
        )
    quote = f"{subgoal.source}, " if subgoal.source else _quote_instruction(instruction, subgoal.value)
    return (
        f"{quote}{(element.value if element else '') or 'blank'} want {subgoal.value or 'blank'}: "
        f"{_yes_or_no(is_done)}"
    )


def _quote_instruction(instruction: str, required: str) -> str:
    """Return what is wanted as the instruction has it, with the word before it; "" if it is not in there."""
    match = re.search(rf"\w+\W+{re.escape(required)}(?!\w)", instruction, re.IGNORECASE) if required else None
    return f"{match[0]}, " if match else ""


def _yes_or_no(answer: bool) -> str:
    return "yes" if answer else "no"


def judged(trajectory: Trajectory) -> float | None:
    """Return the page's verdict on the last step, if the comparisons with what is wanted determine it.

    None if they do not, or if an earlier click had ended the episode.
    """
    outcomes = [
        _outcome(trajectory.up_to(step.step), step.action, step.next_state) for step in trajectory.steps
    ]
    return None if 1.0 in outcomes[:-1] or not read_state(trajectory.states[-1]).over else outcomes[-1]


def _outcome(history: Trajectory, action: str, next_state: str) -> float | None:
    status = episode_status(history)
    after = read_state(next_state)
    command = read_action(action)
    check = (
        _check_subgoals(status, command, after, history.task.instruction)
        if command and not after.failure
        else ""
    )
    return None if not check else float(not check.endswith(": no"))
