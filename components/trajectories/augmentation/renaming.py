"""Episodes told again with other names throughout: where real ones are few, a small model learns names by
heart and forgets to copy.

A name is a word that few tasks of its family share; what all share is the form of the page and stays, as do
numbers, labels (before a colon) and marks (in brackets). Each name becomes another everywhere in the episode:
another name, random letters of the same shape, or some of another script. Only what the adapter's teacher
explains in the very same way, but for the names, is told: there no outcome hung on a word.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from components.environments.protocol import Adapter
from components.records import Task, Trajectory, Transition

MARK = "~"
"""Stands at the end of the id of a task that is told again, before the number of the copy."""
_TOLD = re.compile(r"(~h?\d+)+$")
COMMON = 0.2
"""Share of a family's tasks from which on a word belongs to the form."""
FOREIGN = 0.3
"""Share of the names of random letters that are of another script than Latin, or of signs."""
SCRIPTS = (
    (0x0391, 0x03A9),
    (0x03B1, 0x03C9),
    (0x0410, 0x044F),
    (0x05D0, 0x05EA),
    (0x0627, 0x063A),
    (0x0905, 0x0939),
    (0x3041, 0x3096),
    (0x30A1, 0x30FA),
    (0x4E00, 0x9FA5),
    (0xAC00, 0xD7A3),
    (0x00C0, 0x017F),
    (0x2190, 0x21FF),
    (0x2600, 0x266F),
)
"""First and last code point of each: Greek, Cyrillic, Hebrew, Arabic, Devanagari, Japanese, Chinese, Korean,
Latin with marks, signs.
"""
_WORD = re.compile(r"[^\W\d_][^\W_]*|\d+[^\W\d_][^\W_]*")
_FORM = re.compile(r"([^\W_]+):|[(\[]([^)\]]*)[)\]]")


@dataclass(frozen=True)
class Names:
    """Of a corpus: the words of each family that stay, the names of each task, and all names, to draw from;
    words are folded.
    """

    stay: Mapping[str, frozenset[str]]
    own: Mapping[str, Sequence[str]]
    pool: Sequence[str]

    @classmethod
    def of(cls, episodes: Sequence[Trajectory]) -> Names:
        """The names of these episodes."""
        seen: dict[str, dict[str, set[str]]] = {}
        form: set[str] = set()
        for episode in episodes:
            texts = _texts(episode)
            words = {word.casefold() for text in texts for word in _WORD.findall(text)}
            form |= {
                word.casefold()
                for text in texts
                for pair in _FORM.findall(text)
                for part in pair
                for word in _WORD.findall(part)
            }
            seen.setdefault(episode.task.family, {}).setdefault(episode.task.id, set()).update(words)
        stay = {family: frozenset(_common(list(tasks.values())) | form) for family, tasks in seen.items()}
        own = {
            task: sorted(words - stay[family])
            for family, tasks in seen.items()
            for task, words in tasks.items()
        }
        return cls(stay, own, sorted({word for words in own.values() for word in words}))


def _common(tasks: Sequence[set[str]]) -> set[str]:
    counts: dict[str, int] = {}
    for words in tasks:
        for word in words:
            counts[word] = counts.get(word, 0) + 1
    return {word for word, count in counts.items() if count >= max(2, COMMON * len(tasks))}


def retold(episodes: Sequence[Trajectory], adapter: Adapter, copies: int, seed: int) -> list[Trajectory]:
    """Up to `copies` of each episode in other names; those of one task have the same names in one copy, and
    an id of their own.
    """
    if not copies:
        return []
    names, found = Names.of(episodes), []
    for number in range(1, copies + 1):
        for episode in episodes:
            rng = random.Random(f"{seed}/{number}/{episode.task.id}")
            exchange = exchanger(episode.task, names, rng)
            told = _told(episode, exchange, adapter, f"{MARK}{number}")
            found += [told] if told else []
    return found


def told_of(task_id: str) -> str:
    """The id of the task that one of this id tells again, in other names or in hindsight; its own if it is no
    copy.
    """
    return _TOLD.sub("", task_id)


def exchanger(task: Task, names: Names, rng: random.Random) -> Callable[[str], str]:
    """What puts other names into a text of one of the task's episodes."""
    taken, into = {*names.own[task.id], *names.stay[task.family]}, dict[str, str]()
    for word in names.own[task.id]:
        into[word] = _other(word, names.pool, taken, rng)
        taken.add(into[word].casefold())
    return lambda text: _WORD.sub(lambda match: _as(match[0], into.get(match[0].casefold())), text)


def _other(word: str, pool: Sequence[str], taken: set[str], rng: random.Random) -> str:
    while True:
        drawn = rng.choice(pool) if rng.random() < 0.5 else _letters(word, rng)
        if drawn.casefold() not in taken:
            return drawn


def _letters(word: str, rng: random.Random) -> str:
    """Random letters and digits, as many, or up to three more where there are few; or one to four letters of
    another script.
    """
    if rng.random() < FOREIGN:
        first, last = rng.choice(SCRIPTS)
        few = [chr(rng.randint(first, last)) for _ in range(rng.randint(1, 4))]
        return "".join(rng.choices(few, k=rng.randint(1, 4)))
    count = max(len(word), 2) + rng.randint(0, 3 if len(word) < 5 else 0)
    return rng.choice(string.ascii_lowercase) + "".join(
        rng.choices(string.ascii_letters + string.digits, k=count - 1)
    )


def _as(word: str, other: str | None) -> str:
    """`other` in the case of `word`."""
    if other is None:
        return word
    if word.islower():
        return other.lower()
    if word.isupper() and len(word) > 1:
        return other.upper()
    return other.capitalize() if word.istitle() else other


def _told(
    episode: Trajectory, exchange: Callable[[str], str], adapter: Adapter, mark: str
) -> Trajectory | None:
    instruction, first = exchange(episode.task.instruction), exchange(episode.task.initial_state)
    task = replace(episode.task, id=episode.task.id + mark, instruction=instruction, initial_state=first)
    told = Trajectory(task)
    for step in episode.steps:
        other = _step(step, told, exchange, mark)
        reason = adapter.reason(told, other.action, other.next_state, other.reward)
        if reason.casefold() != exchange(step.reasoning).casefold():
            return None
        told = replace(told, steps=(*told.steps, replace(other, reasoning=reason)))
    return told


def _step(step: Transition, before: Trajectory, exchange: Callable[[str], str], mark: str) -> Transition:
    return replace(
        step,
        task_id=before.task.id,
        episode_id=step.episode_id + mark,
        state=before.states[-1],
        action=exchange(step.action),
        next_state=exchange(step.next_state),
    )


def _texts(episode: Trajectory) -> list[str]:
    return [episode.task.instruction, *episode.states, *(step.action for step in episode.steps)]
