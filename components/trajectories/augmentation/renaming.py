"""Copies of episodes with other names throughout.

If real names are few, a small model memorises them instead of copying them. A name is a word that few tasks
of its family share. Words that many tasks share belong to the form of the page and stay. Numbers, labels
(before a colon) and marks (in brackets) stay, too. Each name becomes the same other word everywhere in the
episode: another name, random letters of the same shape, or letters of another script.

A copy is kept only if the adapter's teacher explains it in the same way, apart from the names. Then no
outcome depends on a word.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from components.environments.capabilities import Adapter
from components.records import Task, Trajectory, Transition

COPY_MARK = "~"
"""Appended to the task id of a copy, before the number of the copy."""
_COPY_SUFFIX = re.compile(r"(~h?\d+)+$")
COMMON_WORD_SHARE = 0.2
"""A word that at least this share of a family's tasks has belongs to the form."""
OTHER_SCRIPT_SHARE = 0.3
"""Share of random names that are in another script than Latin, or in signs."""
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
"""(first, last) code points: Greek, Cyrillic, Hebrew, Arabic, Devanagari, Japanese, Chinese, Korean, Latin
with diacritics, signs.
"""
_WORD = re.compile(r"[^\W\d_][^\W_]*|\d+[^\W\d_][^\W_]*")
_LABEL_OR_MARK = re.compile(r"([^\W_]+):|[(\[]([^)\]]*)[)\]]")


@dataclass(frozen=True)
class Names:
    """The names of a corpus; all words are case-folded.

    `form_words`: family -> words that stay. `of_task`: task id -> its names. `pool`: all names, to draw from.
    """

    form_words: Mapping[str, frozenset[str]]
    of_task: Mapping[str, Sequence[str]]
    pool: Sequence[str]

    @classmethod
    def of(cls, episodes: Sequence[Trajectory]) -> Names:
        """The names of these episodes."""
        words_of: dict[str, dict[str, set[str]]] = {}
        labels_and_marks: set[str] = set()
        for episode in episodes:
            texts = _texts(episode)
            words = {word.casefold() for text in texts for word in _WORD.findall(text)}
            labels_and_marks |= {
                word.casefold()
                for text in texts
                for pair in _LABEL_OR_MARK.findall(text)
                for part in pair
                for word in _WORD.findall(part)
            }
            words_of.setdefault(episode.task.family, {}).setdefault(episode.task.id, set()).update(words)
        form_words = {
            family: frozenset(_common_words(list(tasks.values())) | labels_and_marks)
            for family, tasks in words_of.items()
        }
        of_task = {
            task_id: sorted(words - form_words[family])
            for family, tasks in words_of.items()
            for task_id, words in tasks.items()
        }
        return cls(form_words, of_task, sorted({word for words in of_task.values() for word in words}))


def _common_words(tasks: Sequence[set[str]]) -> set[str]:
    counts: dict[str, int] = {}
    for words in tasks:
        for word in words:
            counts[word] = counts.get(word, 0) + 1
    return {word for word, count in counts.items() if count >= max(2, COMMON_WORD_SHARE * len(tasks))}


def rename_episodes(
    episodes: Sequence[Trajectory], adapter: Adapter, copies: int, seed: int
) -> list[Trajectory]:
    """Up to `copies` of each episode with other names, each with an id of its own.

    All episodes of a task get the same names in one copy.
    """
    if not copies:
        return []
    names = Names.of(episodes)
    renamed: list[Trajectory] = []
    for number in range(1, copies + 1):
        for episode in episodes:
            rng = random.Random(f"{seed}/{number}/{episode.task.id}")
            rename = _renamer(episode.task, names, rng)
            copy = _rename_episode(episode, rename, adapter, f"{COPY_MARK}{number}")
            renamed += [copy] if copy else []
    return renamed


def original_task_id(task_id: str) -> str:
    """The id of the task from which a renamed or relabelled copy was made; any other id unchanged."""
    return _COPY_SUFFIX.sub("", task_id)


def _renamer(task: Task, names: Names, rng: random.Random) -> Callable[[str], str]:
    """A function that puts other names into a text of one of the task's episodes."""
    used_words = {*names.of_task[task.id], *names.form_words[task.family]}
    new_names: dict[str, str] = {}
    for word in names.of_task[task.id]:
        new_names[word] = _draw_name(word, names.pool, used_words, rng)
        used_words.add(new_names[word].casefold())
    return lambda text: _WORD.sub(
        lambda match: _in_case_of(match[0], new_names.get(match[0].casefold())), text
    )


def _draw_name(word: str, pool: Sequence[str], used_words: set[str], rng: random.Random) -> str:
    while True:
        name = rng.choice(pool) if rng.random() < 0.5 else _random_name(word, rng)
        if name.casefold() not in used_words:
            return name


def _random_name(word: str, rng: random.Random) -> str:
    """Random letters and digits, as many as in `word` or a few more, or up to four letters of another script.

    Words of fewer than five letters get up to three more.
    """
    if rng.random() < OTHER_SCRIPT_SHARE:
        first, last = rng.choice(SCRIPTS)
        letters = [chr(rng.randint(first, last)) for _ in range(rng.randint(1, 4))]
        return "".join(rng.choices(letters, k=rng.randint(1, 4)))
    count = max(len(word), 2) + rng.randint(0, 3 if len(word) < 5 else 0)
    return rng.choice(string.ascii_lowercase) + "".join(
        rng.choices(string.ascii_letters + string.digits, k=count - 1)
    )


def _in_case_of(word: str, new_name: str | None) -> str:
    """`new_name` in the case of `word`; `word` itself if there is no new name."""
    if new_name is None:
        return word
    if word.islower():
        return new_name.lower()
    if word.isupper() and len(word) > 1:
        return new_name.upper()
    return new_name.capitalize() if word.istitle() else new_name


def _rename_episode(
    episode: Trajectory, rename: Callable[[str], str], adapter: Adapter, mark: str
) -> Trajectory | None:
    """The episode with other names; None if the teacher explains a step in another way."""
    task = replace(
        episode.task,
        id=episode.task.id + mark,
        instruction=rename(episode.task.instruction),
        initial_state=rename(episode.task.initial_state),
    )
    copy = Trajectory(task)
    for step in episode.steps:
        renamed_step = _rename_step(step, copy, rename, mark)
        reasoning = adapter.reason(copy, renamed_step.action, renamed_step.next_state, renamed_step.reward)
        if reasoning.casefold() != rename(step.reasoning).casefold():
            return None
        copy = replace(copy, steps=(*copy.steps, replace(renamed_step, reasoning=reasoning)))
    return copy


def _rename_step(
    step: Transition, history: Trajectory, rename: Callable[[str], str], mark: str
) -> Transition:
    return replace(
        step,
        task_id=history.task.id,
        episode_id=step.episode_id + mark,
        state=history.states[-1],
        action=rename(step.action),
        next_state=rename(step.next_state),
    )


def _texts(episode: Trajectory) -> list[str]:
    return [episode.task.instruction, *episode.states, *(step.action for step in episode.steps)]
