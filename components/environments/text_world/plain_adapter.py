"""What can be said of any world of text, whatever it is about: the part of an adapter that asks for no
knowledge of the world.

An adapter of one's own inherits it and replaces what it knows better (docs/guides/add-a-world.md says what
each method is worth). What is missing then is missing on purpose: thoughts are a formula, reasoning tells
only what changed, a claim is contradicted only where it names another value for the same name ("score: 3"),
and there is neither premise nor progress nor a made-up task.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import TypeVar

from components.environments.protocol import Fact
from components.errors import EnvironmentFailure
from components.records import Task, Trajectory

SAYS, IS = "says", "is"
THOUGHT = "go on"
_ENDS = re.compile(r"\n+|\s*\[SEP\]\s*|(?<=[.!?;])\s+")
_NAMED = re.compile(r"([^:=]{1,60}?)\s*[:=]\s*(\S.*)")
_WORDS = re.compile(r"\w+")
Place = TypeVar("Place")


def phrases(state: str) -> list[str]:
    """The sentences, lines or parts that `state` is made of, without the punctuation at their ends."""
    parts = (part.strip().rstrip(".;!?").strip() for part in _ENDS.split(state))
    return [part for part in parts if part]


def named(phrase: str) -> Fact:
    """The phrase as a fact: `("is", name, value)` of "name: value" and "name = value", else `("says",
    phrase)`.
    """
    found = _NAMED.fullmatch(phrase)
    return (IS, found[1].strip(), found[2].strip()) if found else (SAYS, phrase)


def task_of(
    environment: str, name: str, split: str, instruction: str, initial_state: str, **spec: object
) -> Task:
    """A task of this world; `spec` is what the world needs to begin it again, plain values."""
    spec = {**spec, "instruction": instruction}
    return Task(
        f"{environment}/{name}",
        environment,
        split,
        instruction,
        initial_state,
        "",
        json.dumps(spec, sort_keys=True),
    )


def drawn(rng: random.Random, places: Sequence[Place], count: int, split: str) -> list[Place]:
    """`count` of `places`, each once.

    Raises:
        EnvironmentFailure: there are fewer.
    """
    if len(places) < count:
        cure = "Lower data.train_tasks, data.fidelity_tasks or evaluation.tasks."
        raise EnvironmentFailure(
            f"This world has {len(places)} tasks of {split}.", f"Expected at least {count}.", cure
        )
    return rng.sample(places, count)


class PlainAdapter:
    """The generic part of `components.environments.protocol.Adapter`; `tasks`, `open` and `behaviour` are the
    heir's.
    """

    refusals: Sequence[str] = ()
    """Words in a state that tell that the world did not carry the action out."""
    notice = (
        "Nobody knows what this world's text means: facts are its phrases, so fidelity and agreement "
        "say less than elsewhere."
    )

    def think(self, trajectory: Trajectory, action: str) -> str:
        """A formula: what to think here only a world's own adapter knows."""
        return THOUGHT

    def reflect(self, trajectory: Trajectory, action: str, alternatives: Sequence[tuple[str, str]]) -> str:
        """What the alternatives led to, then the thought."""
        tried = [f"{other} would give: {state}" for other, state in alternatives]
        return ". ".join([*tried, self.think(trajectory, action)])

    def reason(self, trajectory: Trajectory, action: str, next_state: str, reward: float) -> str:
        """Whether anything changed, and whether that was the goal."""
        refused = "refused, " if self.refused(next_state) else ""
        change = "nothing changes" if next_state == trajectory.states[-1] else "the state changes"
        return f"{refused}{change}, {'won' if reward > 0.5 else 'not won'}"

    def facts(self, trajectory: Trajectory) -> set[Fact]:
        """One for each phrase of the last state."""
        state = trajectory.states[-1]
        return {named(phrase) for phrase in phrases(state)} or {(SAYS, state)}

    def contradicts(self, claim: Fact, truth: set[Fact]) -> bool:
        """True if `truth` gives other values, and not this one, to what the claim names."""
        values = (
            {fact[2] for fact in truth if fact[0] == IS and fact[1] == claim[1]} if claim[0] == IS else set()
        )
        return bool(values) and claim[2] not in values

    def revealing(self, trajectory: Trajectory, action: str, next_state: str) -> bool:
        """True if the state has a word that neither the task, nor an earlier state, nor any action had."""
        told = [
            trajectory.task.instruction,
            *trajectory.states,
            *(step.action for step in trajectory.steps),
            action,
        ]
        return not _words(next_state) <= set().union(*map(_words, told))

    def well_formed(self, action: str) -> bool:
        """True for one line of text that is more than blanks and signs."""
        return "\n" not in action and bool(_WORDS.search(action))

    def refused(self, next_state: str) -> bool:
        """True if the state has one of the words that tell so."""
        return any(words in next_state for words in self.refusals)

    def contradiction(self, trajectory: Trajectory, next_state: str) -> str:
        """Nothing is ever objected to."""
        return ""

    def premise(self, trajectory: Trajectory) -> str:
        """None: `experience_model.premise` must be false in such a world."""
        return ""

    def objection(self, task: Task, premise: str) -> str:
        """Every premise is refused, since none was ever learnt; the dream begins without one."""
        return "this world knows no premise"

    def progress(self, trajectory: Trajectory) -> float:
        """The outcome."""
        return float(trajectory.success)

    def embody(self, dreamed: Trajectory) -> Task:
        """The task's own world: no other can be built.

        Raises:
            EnvironmentFailure: the task was made up and has none.
        """
        if dreamed.task.generated:
            raise EnvironmentFailure(
                f"The task {dreamed.task.id} was generated: it has no real world.",
                "This world cannot build one.",
            )
        return dreamed.task

    def unseen(self, task: Task) -> bool:
        """False: nobody can tell which worlds are strange, so `data.fidelity_worlds` must be 0."""
        return False

    def feasible(self, task: Task) -> str:
        """Refuses every instruction that is not the task's own: whether another one can be done here, nobody
        can tell.
        """
        try:
            own = json.loads(task.spec).get("instruction")
        except (ValueError, AttributeError):
            own = None
        return "" if own == task.instruction else "nobody can tell whether it can be done in this world"


def _words(text: str) -> set[str]:
    return {word.lower() for word in _WORDS.findall(text)}
