"""Behaviour policies for offline data: a scripted expert, a noisy expert, near misses, and random actions.

They act on what the states show (`progress.py`). The near-miss policy makes the mistakes of a hasty agent on
purpose:

- It sends a form that is not filled.
- It takes the neighbour of what is wanted.
- It writes another word, or into another field.
- It fills a button, or clicks an id that no state has shown.

In half of its episodes it misreads the goal in one place and plays to the end like that. So the data shows
what a page pays for a wrong answer. Many pages end the episode at the first such click, so these episodes are
short.

Task types without an expert are played by the random policies alone. Then `noisy` takes actions that the page
allows, and the other two also actions that it does not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from components.environments.browser.actions import quoted_words, read_action
from components.environments.browser.engine.elements import EDITABLE
from components.environments.browser.goals import read_goal
from components.environments.browser.progress import EpisodeStatus, episode_status
from components.environments.browser.reasoning import think
from components.environments.browser.states import read_state
from components.environments.browser.subgoals import Goal, Subgoal, find_element
from components.environments.protocol import NO_ACTION, Behaviour
from components.errors import EnvironmentFailure
from components.records import Task, Trajectory

NAMES = ("expert", "noisy", "near_miss", "random")
MISREADING_SHARE = 0.5
"""Share of near-miss episodes that misread the goal."""
_MALFORMED_ACTIONS = (
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
    """Return a new behaviour policy for one episode of `task`.

    The policy maps (trajectory, admissible actions) to (thought, action). A step of a solution has the
    thought that leads to it, also where the goal is misread; a mistake or a random action has none.

    Raises:
        EnvironmentFailure: the name is unknown, or there is no expert for the task's instruction.
    """
    if name not in NAMES:
        raise EnvironmentFailure(
            f"There is no behaviour policy {name!r}.", f"Expected one of {', '.join(NAMES)}."
        )
    has_goal = read_goal(task.instruction, [read_state(task.initial_state)]) is not None
    if name == "expert" and not has_goal:
        raise EnvironmentFailure(
            f"There is no expert for {task.family or task.id}: {task.instruction!r} is of no form that it "
            "can read.",
            "docs/reference/browser.md lists the task types that have one.",
            "Set data.expert=0, or name other types in environment.browser.types.",
        )
    player = _Player(random.Random(f"{name}/{task.id}/{seed}"), has_goal, quoted_words(task.instruction))
    choose: Callable[[EpisodeStatus, list[str]], str] = {
        "expert": player.expert,
        "noisy": player.noisy,
        "near_miss": player.near_miss,
        "random": player.random,
    }[name]

    def behave(trajectory: Trajectory, admissible: Sequence[str]) -> tuple[str, str]:
        player.solved = None
        action = choose(episode_status(trajectory), list(admissible))
        return think(player.solved) if player.solved else "", action

    return behave


@dataclass
class _Player:
    """All behaviour policies of one episode. `has_goal` is False if the instruction is of no known form."""

    rng: random.Random
    has_goal: bool
    words: Sequence[str]
    misread_subgoal: tuple[int, Subgoal] | None = field(default=None, init=False)
    """The place of the subgoal that a near miss misreads, and what it is read as."""
    misreads_goal: bool | None = field(default=None, init=False)
    """Whether this near-miss episode misreads its goal; None before its first step."""
    solved: EpisodeStatus | None = field(default=None, init=False)
    """What the last step of a solution was derived from, since this was last set to None."""

    def expert(self, status: EpisodeStatus, admissible: list[str]) -> str:
        """Return the next step of a solution; where none is known, any admissible action."""
        if status.command:
            self.solved = status
        return status.command or self._any(admissible)

    def noisy(self, status: EpisodeStatus, admissible: list[str]) -> str:
        """Return the expert's action, or in one step of four another one.

        Half of these are admissible, half are most likely refused.
        """
        if not self.has_goal:
            return self._any(admissible)
        if self.rng.random() >= 0.25:
            return self.expert(status, admissible)
        return self._impossible(status) if self.rng.random() < 0.5 else self._any(admissible)

    def random(self, status: EpisodeStatus, admissible: list[str]) -> str:
        """Return a random action: 30 % are impossible, 10 % malformed, the others admissible."""
        luck = self.rng.random()
        if luck < 0.3:
            return self._impossible(status)
        return self._malformed(status) if luck < 0.4 else self._any(admissible)

    def near_miss(self, status: EpisodeStatus, admissible: list[str]) -> str:
        """Return an action that is impossible, malformed or nearly right in two steps of three.

        In an episode that misreads its goal, the possible actions are right for the misread goal.
        """
        if self.misreads_goal is None:
            self.misreads_goal = self.rng.random() < MISREADING_SHARE
        luck = self.rng.random()
        if luck < 0.25 or not self.has_goal:
            return self._impossible(status) if luck < 0.4 else self._any(admissible)
        if luck < 0.30:
            return self._malformed(status)
        if self.misreads_goal and status.goal:
            return self.expert(replace(status, goal=self._misread_goal(status, status.goal)), admissible)
        return self._nearly_right(status, admissible) if luck < 0.65 else self.expert(status, admissible)

    def _misread_goal(self, status: EpisodeStatus, goal: Goal) -> Goal:
        """Return the goal with one subgoal misread, the same one in all steps.

        The goal stays as it is if the page has nothing that could be mistaken.
        """
        if self.misread_subgoal is None:
            others = [
                (place, other)
                for place, subgoal in enumerate(goal.subgoals)
                for other in self._confusable_subgoals(status, subgoal)
            ]
            places = sorted({place for place, _ in others})
            if not places:
                return goal
            place = self.rng.choice(places)
            self.misread_subgoal = place, self.rng.choice([other for at, other in others if at == place])
        place, other = self.misread_subgoal
        return replace(goal, subgoals=(*goal.subgoals[:place], other, *goal.subgoals[place + 1 :]))

    def _confusable_subgoals(self, status: EpisodeStatus, subgoal: Subgoal) -> list[Subgoal]:
        """Return what `subgoal` may be mistaken for.

        Another word to fill in, another option, or another element of its kind.
        """
        if subgoal.verb == "fill":
            return [replace(subgoal, value=self._other_word(subgoal.value)) for _ in range(2)]
        target = find_element(status.view, subgoal)
        candidates = [
            element for element in status.view.elements if element.id and element.kind in subgoal.kinds
        ]
        if subgoal.verb == "select":
            return [
                replace(subgoal, value=option)
                for element in candidates
                for option in element.options
                if option != subgoal.value
            ]
        return [replace(subgoal, id=element.id) for element in candidates if element is not target]

    def _any(self, admissible: list[str]) -> str:
        return self.rng.choice(admissible) if admissible else NO_ACTION

    def _nearly_right(self, status: EpisodeStatus, admissible: list[str]) -> str:
        """Return the action of an agent that reads carelessly.

        The last step too early, a neighbour, another word, or another field.
        """
        subgoal = status.next_subgoal
        command = read_action(status.command)
        last = status.goal.subgoals[-1] if status.goal else None
        options = [action for action in admissible if action != status.command]
        if subgoal and subgoal is not last and self.rng.random() < 0.5:
            last_targets = [
                e for e in status.view.elements if last and e.kind in last.kinds and e.name == last.name
            ]
            if last_targets:
                return f"click [{last_targets[0].id}]"
        if command and command.verb == "fill" and self.rng.random() < 0.6:
            return f"fill [{command.id}] {self._other_word(command.text)}"
        if command and command.text:
            same_text = [action for action in options if action.endswith(f" {command.text}")]
            options = same_text or options
        return self._any(options)

    def _other_word(self, word: str) -> str:
        others = [
            other
            for other in (*self.words, word.upper(), word.lower(), word[:-1], word + word[-1:])
            if other not in ("", word)
        ]
        return self.rng.choice(others) if others else "x"

    def _impossible(self, status: EpisodeStatus) -> str:
        """Return a well-formed action that most likely cannot be carried out.

        There is no such element or option, or the action does not fit the element.
        """
        ids = [int(name) for name in status.view.ids if name.isdigit()] or [12]
        unknown_id = self.rng.choice(
            [max(ids) + self.rng.randint(1, 9), min(ids) - 1, self.rng.randint(1, 99)]
        )
        words = [*self.words, "hello"]
        options = [
            f"click [{unknown_id}]",
            f"click [{unknown_id}]",
            f"fill [{unknown_id}] {self.rng.choice(words)}",
            f"press [{unknown_id}] Enter",
        ]
        for element in (element for element in status.view.elements if element.id):
            if element.kind not in EDITABLE:
                options.append(f"fill [{element.id}] {self.rng.choice(words)}")
            if element.kind == "select":
                options += [f"select [{element.id}] {self.rng.choice(words)}", f"click [{element.id}]"]
            else:
                options.append(f"select [{element.id}] {self.rng.choice(words)}")
        return self.rng.choice(options)

    def _malformed(self, status: EpisodeStatus) -> str:
        """Return words that are no command at all, reserved markers among them."""
        word = self.rng.choice([*self.words, "hello"])
        return self.rng.choice(_MALFORMED_ACTIONS).format(
            id=self.rng.choice(status.view.ids or ["1"]), word=word
        )
