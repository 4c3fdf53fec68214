"""Logged episodes as tasks and transitions, divided into training, fidelity and test tasks.

- A task is an instruction with what was seen first. All its episodes are in one split, which the hash of the
  task decides: a log that grows keeps its splits.
- Copies, and windows of a longer conversation, are left out (`copies`).
- The last step of an episode without a known outcome is left out. Nobody knows whether it was rewarded; that
  the steps before it did not end the episode is known. They are marked (`outcome_known`), so that the episode
  counts neither as a success nor as a failure.
- A success that ends with the agent's action has `END` as its last state: no world answered.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from components.errors import DataError
from components.records import TEST, TRAIN, Task, Transition, is_storable
from components.trajectories.imports.copies.episode_copies import without_copies
from components.trajectories.imports.json_lines import LONG_DOCUMENT, LONG_LINE
from components.trajectories.imports.logged_episode import LoggedEpisode, LoggedStep, Skipped, Unusable

END = "The episode is over."
"""Next state of an action that the log ends with."""
NOTHING = "(no output)"
"""Next state of an action that the world answered without a word."""
SPLITS = ("train", "fidelity", "test")
OTHER_TASKS = (
    "Add episodes of other tasks. A record names its task in a field `task`, `instruction` or `goal`; "
    "docs/guides/own-logs.md has the forms."
)
LONG_TEXT = "a text that is too long"
NO_UNICODE = "a text that is not valid Unicode"
ONE_STEP = "one step, of which nobody knows the outcome"
_SPANS_A_LINE = (
    "jq -c '.resourceSpans[].scopeSpans[].spans[] | {resourceSpans: [{scopeSpans: [{spans: [.]}]}]}' FILE "
    "> spans.jsonl."
)
ADVICE = {
    LONG_DOCUMENT: f"Write one span a line: {_SPANS_A_LINE}",
    LONG_LINE: f"Split it into shorter lines. Of an OpenTelemetry export: {_SPANS_A_LINE}",
    "a line that is not JSON": "If the file is one JSON document, write one record a line: "
    "jq -c '.[]' FILE > log.jsonl. If it is of another kind, name it with --as.",
    "no list of messages": "Name the list `messages` in each record, or the kind of log with --as otel, "
    "datasets or steps.",
    "an unknown role": "Roles are system, user, assistant and tool. If the file is one JSON list of records, "
    "write one a line: jq -c '.[]' FILE > log.jsonl.",
    "a step without the name of its episode": "Name the episode of each step in a field `episode_id`.",
    ONE_STEP: "Say how an outcome is told: --outcome field:PATH, last:PATTERN or judge.",
}
"""Kind of what was left out -> what to do, in the order in which it is looked for."""
Decide = Callable[[Sequence[LoggedEpisode]], list[LoggedEpisode]]
"""Episodes without a known outcome -> the same episodes, with the outcomes that somebody told."""


@dataclass
class Imported:
    """What a log became.

    Attributes:
        tasks: split -> tasks, in the order of the log.
        transitions: split -> transitions, episode by episode.
        skipped: what was left out.
        outcomes: number of episodes by outcome: `success`, `failure`, `unknown`.
        systems: system texts with the number of their episodes.
        worlds: environments that the log names, with the number of their episodes.
        without_thoughts: number of steps without a thought.
    """

    tasks: dict[str, list[Task]] = field(default_factory=lambda: {split: [] for split in SPLITS})
    transitions: dict[str, list[Transition]] = field(default_factory=lambda: {split: [] for split in SPLITS})
    skipped: list[Skipped] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    systems: Counter[str] = field(default_factory=Counter)
    worlds: Counter[str] = field(default_factory=Counter)
    without_thoughts: int = 0

    @property
    def reasons(self) -> Counter[str]:
        """How often something was left out, by the kind of reason."""
        return Counter(skipped.reason for skipped in self.skipped)


class TooFewTasks(DataError):
    """Raised if the usable episodes have too few tasks; `imported` has what was left out."""

    def __init__(self, tasks: int, episodes: int, imported: Imported) -> None:
        reasons = imported.reasons.most_common(3)
        left_out = "".join(f"; left out: {reason} ({count})" for reason, count in reasons)
        super().__init__(
            f"The log has {tasks} usable tasks in {episodes} episodes{left_out}.",
            "Expected at least 3 different ones: to train on, to measure fidelity on, and to test on.",
            next((advice for reason, advice in ADVICE.items() if reason in imported.reasons), OTHER_TASKS),
        )
        self.imported = imported


def build(
    episodes: Iterable[LoggedEpisode | Skipped],
    environment: str,
    *,
    held_out: float,
    longest_text: int,
    behaviour: str = "policy",
    decide: Decide | None = None,
) -> Imported:
    """Tasks and transitions of `episodes`.

    Args:
        environment: name of the world.
        held_out: share of the tasks for fidelity, and again for tests.
        longest_text: in characters; an episode with a longer one is left out.
        behaviour: who acted, where the log does not say it.
        decide: tells the outcomes of the usable episodes without a known one; no copy is among them.

    Raises:
        DataError: nothing is left, or there are too few tasks to hold one out.
    """
    imported = Imported()
    usable: list[LoggedEpisode] = []
    steps: dict[LoggedStep, LoggedStep] = {}
    for episode in episodes:
        if isinstance(episode, Skipped):
            imported.skipped.append(episode)
        else:  # each logged call repeats the steps before it: in memory they are there once
            shared = tuple(steps.setdefault(step, step) for step in episode.steps)
            usable.append(replace(episode, steps=shared))
    del steps
    kept, copies = without_copies(usable)
    imported.skipped += copies
    if decide is not None:
        kept = _with_outcomes(kept, decide, lambda one: _is_usable(one, environment, longest_text))
    built: list[tuple[Task, list[Transition]]] = []
    for number, episode in enumerate(kept):
        try:
            built.append(_records(episode, number, environment, longest_text, behaviour))
        except Unusable as problem:
            imported.skipped.append(Skipped(problem.reason, episode.place, problem.found))
            continue
        outcome = "unknown" if episode.success is None else "success" if episode.success else "failure"
        imported.outcomes[outcome] += 1
        imported.systems[episode.system] += 1
        imported.worlds.update([episode.world] if episode.world else [])
        imported.without_thoughts += sum(not step.thought for step in built[-1][1])
    _divide(built, held_out, imported)
    return imported


def _with_outcomes(
    episodes: Sequence[LoggedEpisode], decide: Decide, is_usable: Callable[[LoggedEpisode], bool]
) -> list[LoggedEpisode]:
    """The episodes, the usable ones without a known outcome as `decide` returns them."""
    decided = list(episodes)
    places = [
        n
        for n, episode in enumerate(episodes)
        if episode.success is None and not episode.is_cut and is_usable(episode)
    ]
    for place, episode in zip(places, decide([episodes[place] for place in places]), strict=True):
        decided[place] = episode
    return decided


def _is_usable(episode: LoggedEpisode, environment: str, longest_text: int) -> bool:
    """Whether the episode could be imported if its outcome were known."""
    try:
        _records(replace(episode, success=False), 0, environment, longest_text, "policy")
    except Unusable:
        return False
    return True


def _records(
    episode: LoggedEpisode, number: int, environment: str, longest_text: int, behaviour: str
) -> tuple[Task, list[Transition]]:
    """The task and the transitions of one episode; raises Unusable."""
    state = _checked(episode.first_observation, "observation", longest_text)
    instruction = _checked(episode.instruction, "instruction", longest_text)
    if not is_storable(episode.system):
        raise Unusable(NO_UNICODE, "system message")
    key = hashlib.sha256(f"{instruction}\0{state}".encode()).hexdigest()
    task = Task(f"{environment}/log/{key[:16]}", environment, TRAIN, instruction, state)
    has_outcome = episode.success is not None
    steps = episode.steps if has_outcome or episode.is_cut else episode.steps[:-1]
    if not steps:
        raise Unusable(ONE_STEP)
    transitions = []
    for place, step in enumerate(steps):
        is_last = place == len(steps) - 1 and has_outcome
        told = step.observation
        next_state = END if told is None else _checked(told or NOTHING, "observation", longest_text)
        transitions.append(
            Transition(
                task.id,
                f"{_storable(episode.id or episode.place)}#{number}",
                place,
                state,
                _checked(step.action, "action", longest_text),
                next_state,
                float(is_last and bool(episode.success)),
                is_last and (bool(episode.success) or told is None or episode.is_over),
                behaviour=episode.behaviour or behaviour,
                thought=step.thought if is_storable(step.thought) else "",
                reasoning=step.reasoning if is_storable(step.reasoning) else "",
                outcome_known=has_outcome,
            )
        )
        state = next_state
    return task, transitions


def _checked(text: str, what: str, longest: int) -> str:
    if not text.strip():
        raise Unusable(f"an empty {what}")
    if len(text) > longest:
        raise Unusable(LONG_TEXT, f"{what} of {len(text):,} characters")
    if not is_storable(text):
        raise Unusable(NO_UNICODE, what)
    return text


def _storable(text: str) -> str:
    """The text with what is no valid Unicode written out."""
    return text.encode(errors="backslashreplace").decode()


def _divide(built: Sequence[tuple[Task, list[Transition]]], held_out: float, imported: Imported) -> None:
    """Put each task with its episodes into a split."""
    tasks = {task.id: task for task, _ in built}
    if len(tasks) < len(SPLITS):
        raise TooFewTasks(len(tasks), len(built), imported)
    by_hash = sorted(tasks, key=_share)
    split_of = {task_id: _split(_share(task_id), held_out) for task_id in tasks}
    split_of[by_hash[0]] = "test"
    if "fidelity" not in split_of.values():
        split_of[by_hash[1]] = "fidelity"
    if "train" not in split_of.values():
        split_of[by_hash[-1]] = "train"
    for task_id, task in tasks.items():
        split = split_of[task_id]
        is_test = split == "test"
        imported.tasks[split].append(replace(task, split=TEST) if is_test else task)
    for task, transitions in built:
        imported.transitions[split_of[task.id]] += transitions


def _share(task_id: str) -> float:
    """A number between 0 and 1 that belongs to the task."""
    return int(hashlib.sha256(task_id.encode()).hexdigest()[:12], 16) / 16**12


def _split(share: float, held_out: float) -> str:
    return "test" if share < held_out else "fidelity" if share < 2 * held_out else "train"
