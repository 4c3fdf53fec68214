"""Behaviour policies for offline data: a scripted expert, one that errs, near misses, and random.

They act on what the states show (`progress.py`). The near-miss policy does on purpose what an eager agent
does by mistake: it sends a form that is not filled, takes the neighbour of what is wanted, writes another
word or into another field, fills a button, clicks an id that it has not seen. Every second of its episodes
has misread the goal in one place and is brought to its end like that, so that what was got stands beside what
was wanted when the page judges. Many a page ends the episode at the first such click, so these episodes are
short. Task types without an expert are played by the random policies alone: then `noisy` takes actions that
the page allows, the other two also ones that it does not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from components.environments.browser.actions import quoted, read_action
from components.environments.browser.engine.elements import EDITABLE
from components.environments.browser.goals import Goal, Wish, find, read_goal
from components.environments.browser.progress import Outlook, outlook
from components.environments.browser.reasoning import think
from components.environments.browser.states import read_state
from components.environments.protocol import NO_ACTION, Behaviour
from components.errors import EnvironmentFailure
from components.records import Task, Trajectory

NAMES = ("expert", "noisy", "near_miss", "random")
MISREADS = 0.5
"""How many near-miss episodes misread the goal."""
_MALFORMED = (
    *(
        "click",
        "click {id}",
        "click [{id}",
        "press the button",
        "fill [{id}]",
        "select",
        "type {word} into [{id}]",
        "submit",
        "<success>",
    ),
    *(
        "click [{id}] please",
        "fill {word}",
        "done",
        "[{id}]",
        "click {word}",
        "scroll",
        "press [{id}]",
        "select [{id}]",
        "drag [{id}]",
    ),
    *(NO_ACTION, NO_ACTION, NO_ACTION),
)


def make_behaviour(name: str, task: Task, seed: int) -> Behaviour:
    """A fresh behaviour policy for one episode of `task`: (trajectory, admissible actions) -> (thought,
    action).

    Raises:
        EnvironmentFailure: the name is unknown, or there is no expert for the task's instruction.
    """
    if name not in NAMES:
        raise EnvironmentFailure(
            f"There is no behaviour policy {name!r}.", f"Expected one of {', '.join(NAMES)}."
        )
    known = read_goal(task.instruction, [read_state(task.initial_state)]) is not None
    if name == "expert" and not known:
        raise EnvironmentFailure(
            f"There is no expert for {task.family or task.id}: {task.instruction!r} is of no form that it "
            "can read.",
            "docs/reference/browser.md lists the task types that have one.",
            "Set data.expert=0, or name other types in environment.browser.types.",
        )
    player = _Player(random.Random(f"{name}/{task.id}/{seed}"), known, quoted(task.instruction))
    choose: Callable[[Outlook, list[str]], str] = getattr(player, name)

    def behave(trajectory: Trajectory, admissible: Sequence[str]) -> tuple[str, str]:
        action = choose(outlook(trajectory), list(admissible))
        return think(trajectory, action), action

    return behave


@dataclass
class _Player:
    rng: random.Random
    known: bool
    words: Sequence[str]
    misread: tuple[int, Wish] | None = field(default=None, init=False)
    """Which wish a near miss has misread, and as what."""
    misreads: bool | None = field(default=None, init=False)

    def expert(self, seen: Outlook, admissible: list[str]) -> str:
        """The next step of a solution; where it knows none, whatever the page allows."""
        return seen.command or self._any(admissible)

    def noisy(self, seen: Outlook, admissible: list[str]) -> str:
        """The expert, but one step in four is any other: half of these are admissible, half most likely
        refused.
        """
        if not self.known:
            return self._any(admissible)
        if self.rng.random() >= 0.25:
            return self.expert(seen, admissible)
        return self._impossible(seen) if self.rng.random() < 0.5 else self._any(admissible)

    def random(self, seen: Outlook, admissible: list[str]) -> str:
        """One action in three is impossible, one in ten malformed."""
        luck = self.rng.random()
        if luck < 0.3:
            return self._impossible(seen)
        return self._malformed(seen) if luck < 0.4 else self._any(admissible)

    def near_miss(self, seen: Outlook, admissible: list[str]) -> str:
        """Two steps in three are nearly right, or cannot be done; or all are right for a goal that was
        misread.
        """
        if self.misreads is None:
            self.misreads = self.rng.random() < MISREADS
        luck = self.rng.random()
        if luck < 0.25 or not self.known:
            return self._impossible(seen) if luck < 0.4 else self._any(admissible)
        if luck < 0.30:
            return self._malformed(seen)
        if self.misreads and seen.goal:
            return self.expert(replace(seen, goal=self._misread(seen, seen.goal)), admissible)
        return self._nearly(seen, admissible) if luck < 0.65 else self.expert(seen, admissible)

    def _misread(self, seen: Outlook, goal: Goal) -> Goal:
        """The goal as this episode reads it: one wish is another one, the same in all steps, if the page has
        what could be mistaken.
        """
        if self.misread is None:
            others = [
                (place, other) for place, wish in enumerate(goal.wishes) for other in self._others(seen, wish)
            ]
            places = sorted({place for place, _ in others})
            if not places:
                return goal
            place = self.rng.choice(places)
            self.misread = place, self.rng.choice([other for at, other in others if at == place])
        place, other = self.misread
        return replace(goal, wishes=(*goal.wishes[:place], other, *goal.wishes[place + 1 :]))

    def _others(self, seen: Outlook, wish: Wish) -> list[Wish]:
        """What `wish` may be mistaken for: another word to fill in, another option, another element of its
        kind.
        """
        if wish.verb == "fill":
            return [replace(wish, value=self._other_word(wish.value)) for _ in range(2)]
        right = find(seen.view, wish)
        shown = [element for element in seen.view.elements if element.id and element.kind in wish.kinds]
        if wish.verb == "select":
            return [
                replace(wish, value=option)
                for element in shown
                for option in element.options
                if option != wish.value
            ]
        return [replace(wish, id=element.id) for element in shown if element is not right]

    def _any(self, admissible: list[str]) -> str:
        return self.rng.choice(admissible) if admissible else NO_ACTION

    def _nearly(self, seen: Outlook, admissible: list[str]) -> str:
        """What an agent does that reads carelessly: the last step too early, a neighbour, another word,
        another field.
        """
        wish, right = seen.next_wish, read_action(seen.command)
        last = seen.goal.wishes[-1] if seen.goal else None
        options = [action for action in admissible if action != seen.command]
        if wish and wish is not last and self.rng.random() < 0.5:
            called = [e for e in seen.view.elements if last and e.kind in last.kinds and e.name == last.name]
            if called:
                return f"click [{called[0].id}]"
        if right and right.verb == "fill" and self.rng.random() < 0.6:
            return f"fill [{right.id}] {self._other_word(right.text)}"
        if right and right.text:
            same = [action for action in options if action.endswith(f" {right.text}")]
            options = same or options
        return self._any(options)

    def _other_word(self, word: str) -> str:
        others = [
            other
            for other in (*self.words, word.upper(), word.lower(), word[:-1], word + word[-1:])
            if other not in ("", word)
        ]
        return self.rng.choice(others) if others else "x"

    def _impossible(self, seen: Outlook) -> str:
        """A well-formed action that most likely cannot be carried out: no such element, not for this element,
        no such option.
        """
        ids = [int(name) for name in seen.view.ids if name.isdigit()] or [12]
        stranger = self.rng.choice([max(ids) + self.rng.randint(1, 9), min(ids) - 1, self.rng.randint(1, 99)])
        words = [*self.words, "hello"]
        options = [
            f"click [{stranger}]",
            f"click [{stranger}]",
            f"fill [{stranger}] {self.rng.choice(words)}",
            f"press [{stranger}] Enter",
        ]
        for element in (element for element in seen.view.elements if element.id):
            if element.kind not in EDITABLE:
                options.append(f"fill [{element.id}] {self.rng.choice(words)}")
            if element.kind == "select":
                options += [f"select [{element.id}] {self.rng.choice(words)}", f"click [{element.id}]"]
            else:
                options.append(f"select [{element.id}] {self.rng.choice(words)}")
        return self.rng.choice(options)

    def _malformed(self, seen: Outlook) -> str:
        """Words that are no command at all, reserved markers among them."""
        word = self.rng.choice([*self.words, "hello"])
        return self.rng.choice(_MALFORMED).format(id=self.rng.choice(seen.view.ids or ["1"]), word=word)
