"""What is thought and said of a step, in words that a small model can learn: everything compared stands side
by side.

The comparisons have the form of the backbone's exercise (`language/comparing.py`): `13 14 want 99: no`. The
agent's thoughts scan what could be meant up to the first that is, and name its id last, where the action
begins:

    13 ONE want TWO: no, 14 TWO want TWO: yes. click 14
    16 Username want Username: yes. blank want kenda: no. fill 16 kenda
    ornare sodales want proin: no. open 20

The programmatic teacher (R* of Eq. 5) says what the action needs up to the first need that does not hold,
what it changes, and, where a click may be judged by the page, what was got beside what is wanted, up to the
first that differs:

    13 14 want 99: no. fails
    16 19 20 want 20: yes, button Login. a button is no field. fails
    13 14 want 14: yes, item Chad. works, new
    16 19 20 want 16: yes, textbox Username. works, now kenda
    16 19 20 want 20: yes, button Login. works. username " kenda, kenda want kenda: yes, password " x7y, blank
    want x7y: no. lost 13 14 want 14: yes, button TWO. works. button TWO, TWO want TWO: yes. done

What is wanted is first said as it stands in the instruction, with the word before it: a model that says what
was got first says it again as what was wanted, and grants whatever a policy does. And all that is said is
said letter for letter: small models copy tokens, and the same name has others in other letters
(docs/experiments).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from components.environments.browser.actions import Command, obstacle, read_action
from components.environments.browser.engine.elements import EDITABLE, Element
from components.environments.browser.goals import Goal, Wish, find, named, told
from components.environments.browser.progress import Outlook, enabled, names, outlook
from components.environments.browser.states import FAILURES, View, read_state
from components.records import Trajectory

_PLACES = ("", "1st", "2nd", "3rd", *(f"{number}th" for number in range(4, 100)))


def think(trajectory: Trajectory, action: str) -> str:
    """What is seen beside what is wanted next, and the command that follows from it; `action` itself where no
    goal is known.
    """
    seen = outlook(trajectory)
    wish, command = seen.next_wish, seen.command
    if wish is None or not command:
        return _plain(action)
    element = find(seen.view, wish)
    if element is None:
        return (
            f"{names(_candidates(seen.view, wish))} want {told(wish.what)}: no. open "
            f"{_plain(command).split()[-1]}"
        )
    parts = [wish.why, _scan(seen.view, wish), _got(element, wish), _plain(command)]
    return ". ".join(part for part in parts if part)


def _plain(command: str) -> str:
    return command.replace("[", "").replace("]", "")


def _candidates(view: View, wish: Wish) -> list[Element]:
    return [e for e in view.elements if e.id and e.kind in wish.kinds and "disabled" not in e.flags]


def _scan(view: View, wish: Wish) -> str:
    """Each candidate beside the one wanted, up to it."""
    if wish.id:
        return ""
    looks, candidates, right = [], _candidates(view, wish), find(view, wish)
    wanted = _PLACES[wish.place] if wish.place else told(wish.name)
    for number, element in enumerate(candidates, 1):
        label = _PLACES[number] if wish.place else told(element.name) or "nameless"
        looks.append(f"{element.id} {label} want {wanted}: {_yes(element is right)}")
        if element is right:
            break
    return ", ".join(looks)


def _got(element: Element, wish: Wish) -> str:
    """What a field holds beside what it shall hold."""
    if wish.verb in ("click", "clear"):
        return ""
    if wish.verb in ("check", "uncheck"):
        return f"{checked(element)} want {'checked' if wish.verb == 'check' else 'plain'}: no"
    return f"{element.value or 'blank'} want {wish.value}: no"


def checked(element: Element) -> str:
    """The word for whether something is checked."""
    return "checked" if "checked" in element.flags else "plain"


def reflect(trajectory: Trajectory, alternatives: Sequence[tuple[str, str]], thought: str) -> str:
    """Why the thought is right and the alternatives are not, by what they really lead to, in the conditional:

    click [99] would fail. click [13] would end it. fill [16] x would not help. 14 two want two: yes. click 14
    """
    before = trajectory.states[-1]
    return " ".join(
        [*(f"{action} would {_verdict(before, state)}." for action, state in alternatives), thought]
    )


def _verdict(before: str, state: str) -> str:
    view = read_state(state)
    if view.failure:
        return "fail"
    return "end it" if view.over else "change nothing" if state == before else "not help"


def reason(trajectory: Trajectory, action: str, next_state: str, reward: float) -> str:
    """The reasoning for one transition; its conclusion is always the page's own outcome."""
    seen, after, command = outlook(trajectory), read_state(next_state), read_action(action)
    said = _needs(seen.view, action, command, after)
    if after.failure:
        return f"{said}. fails"
    verdict = "done" if reward > 0.5 else "lost" if after.over else "not done"
    check = _check(seen, command, after, trajectory.task.instruction) if command else ""
    effect = "works" if after.over else f"works, {_effect(trajectory, seen.view, command, after)}"
    return ". ".join(
        part for part in (said, effect, check, verdict if check or after.over or reward > 0.5 else "") if part
    )


def _needs(view: View, action: str, command: Command | None, after: View) -> str:
    """What the action needs, one need after the other up to the first that does not hold."""
    reason = obstacle(action, view, web=True) if command else "malformed"
    if command is None:
        return "no such command"
    if not command.id:
        return "not here" if after.failure == FAILURES["place"] else command.verb
    element = view.element(command.id)
    found = f"{' '.join(view.ids) or 'nothing'} want {command.id}: {'yes' if element else 'no'}"
    if element is None:
        return found
    parts = [found, f"{element.kind} {told(element.name) or 'nameless'}"]
    if reason == "kind":
        parts.append(_misfit(command, element))
    elif reason == "disabled":
        parts.append("disabled")
    elif command.verb == "select":
        parts.append(
            f"{' '.join(element.options)} want {command.text}: {'no' if reason == 'option' else 'yes'}"
        )
    elif after.failure:
        parts.append("no effect")
    return ", ".join(parts)


def _misfit(command: Command, element: Element) -> str:
    if command.verb in ("fill", "clear"):
        return f"a {element.kind} is no field"
    return "a select wants select" if element.kind == "select" else f"a {element.kind} is no list"


def _effect(trajectory: Trajectory, before: View, command: Command | None, after: View) -> str:
    """What is different now: the value, whether it is checked, or that the page shows something new."""
    element = after.element(command.id) if command else None
    was = before.element(command.id) if command else None
    if (
        element
        and was
        and command
        and command.verb in ("fill", "clear", "select", "press")
        and element.value != was.value
    ):
        return f"now {element.value or 'blank'}"
    if element and was and checked(element) != checked(was):
        return f"now {checked(element)}"
    return "new" if reveals(trajectory, after) else "same" if _lines(after) == _lines(before) else "known"


def _lines(view: View) -> set[tuple[str, str, str]]:
    return {(element.kind, element.name, element.id) for element in view.elements}


def reveals(trajectory: Trajectory, after: View) -> bool:
    """True if `after` names an element, or tells a dialog, that no state of the episode has named before."""
    new = _lines(after) | {("dialog", words, "") for words in after.dialogs}
    for before in map(read_state, reversed(trajectory.states)):
        if not new:
            break
        new -= _lines(before) | {("dialog", words, "") for words in before.dialogs}
    return bool(new)


def _check(seen: Outlook, command: Command, after: View, instruction: str) -> str:
    """What was got beside what is wanted, for clicks that the page may judge; else ""."""
    element = seen.view.element(command.id)
    if (
        seen.goal is None
        or element is None
        or command.verb not in ("click", "dblclick", "press")
        or (element.kind in EDITABLE and not after.over)
    ):
        return ""
    looks = [_look(seen, seen.goal, place, element, instruction) for place in range(len(seen.goal.wishes))]
    looks = [look for look in looks if look]
    differing = next((place for place, look in enumerate(looks) if look.endswith("no")), len(looks))
    return ", ".join(looks[: differing + 1])


def _look(seen: Outlook, goal: Goal, place: int, clicked: Element, instruction: str) -> str:
    """One wish, and beside it what there is: what a field holds, what was clicked now; "" of a click that was
    done before.
    """
    wish, met = goal.wishes[place], seen.met[place]
    element = find(enabled(seen.view) if wish.lasting else seen.view, wish)
    if wish.lasting:
        if wish.verb in ("check", "uncheck"):
            label = wish.id or str(wish.place or told(wish.name))
            return (
                f"{label} {checked(element) if element else 'absent'} want "
                f"{'checked' if wish.verb == 'check' else 'plain'}: {_yes(met)}"
            )
        asked = f"{wish.why}, " if wish.why else _asked(instruction, wish.value)
        return (
            f"{asked}{(element.value if element else '') or 'blank'} want {wish.value or 'blank'}: "
            f"{_yes(met)}"
        )
    if met:
        return ""
    if wish.id or wish.place:
        return (
            f"{clicked.id} want {element.id if element else 'another'}: "
            f"{_yes(element is not None and element.id == clicked.id)}"
        )
    label, wanted = told(clicked.name) or "nameless", told(wish.name)
    return f"{_asked(instruction, wanted)}{label} want {wanted}: {_yes(named(label) == named(wanted))}"


def _asked(instruction: str, wanted: str) -> str:
    """What is wanted as it stands in the instruction, with the word before it; "" if it does not stand
    there.
    """
    found = re.search(rf"\w+\W+{re.escape(wanted)}(?!\w)", instruction, re.IGNORECASE) if wanted else None
    return f"{found[0]}, " if found else ""


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def judged(trajectory: Trajectory) -> float | None:
    """What the page says to the last step, if its looks at what is wanted tell; None if they do not, or an
    earlier click had ended it.
    """
    outcomes = [
        _outcome(trajectory.up_to(step.step), step.action, step.next_state) for step in trajectory.steps
    ]
    return None if 1.0 in outcomes[:-1] or not read_state(trajectory.states[-1]).over else outcomes[-1]


def _outcome(history: Trajectory, action: str, next_state: str) -> float | None:
    seen, after, command = outlook(history), read_state(next_state), read_action(action)
    check = _check(seen, command, after, history.task.instruction) if command and not after.failure else ""
    return None if not check else float(not check.endswith(": no"))
