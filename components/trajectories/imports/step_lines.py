"""Recorded steps of Gymnasium environments and OpenEnv servers as episodes: `--as steps`.

A line of JSON Lines is one step, with the name of its episode, or one episode with its `steps`. A step has

- `action`: text, or a structure such as OpenEnv's actions, which becomes JSON text;
- `observation` (or `obs`, `state`): what the agent saw before it, text or a structure;
- `next_observation` (or `next_obs`, `next_state`): what came back; without it, the next step's observation;
- `step` (or `t`, `step_id`): its number, which orders the steps; without it, the order of the log does;
- `terminated`, `truncated`, `done`: whether the episode is over after it; no step may follow;
- `reward`, `info`, `thought`: what there is of them.

The outcome is that of `--outcome`. By default it is a field such as `success` of the last step or of its
`info`; where there is none, the sum of the rewards. Rewards that are text count as numbers; NaN makes the
outcome unknown. Two runs that give their episodes the same names have to be in different files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from components.trajectories.imports.logged_episode import LoggedEpisode, LoggedStep, Skipped, Unusable
from components.trajectories.imports.message_lists import IDS, TASKS
from components.trajectories.imports.outcomes import OutcomeRule

NAMES = ("episode_id", "episode", "rollout_id", "trajectory_id", "session_id", "conversation_id", "trace_id")
"""Fields with the name of a step's episode; `id` is often that of the step."""
BEFORE = ("observation", "obs", "state")
AFTER = ("next_observation", "next_obs", "next_state")
NUMBERS = ("step", "t", "step_id", "timestep")
ENDS = ("terminated", "truncated", "done")
NO_NAME = "a step without the name of its episode"
Line = tuple[str, Mapping[str, Any]]


def step_episodes(lines: Iterable[tuple[str, Any] | Skipped]) -> Iterator[tuple[str, Any] | Skipped]:
    """Return (place, episode) with the `steps` of each episode together, in the order of the log.

    Interleaved episodes are held until the log ends.
    """
    episodes: dict[str, list[Line]] = {}
    for line in lines:
        if isinstance(line, Skipped):
            yield line
            continue
        place, record = line
        if isinstance(record, Mapping) and isinstance(record.get("steps"), list):
            yield place, record
            continue
        name = _first(record, NAMES) if isinstance(record, Mapping) else None
        if name is None:
            yield Skipped(NO_NAME, place)
            continue
        episodes.setdefault(str(name), []).append((place, record))
    for name, steps in episodes.items():
        for part in _one_run_each(steps):
            yield part[0][0], {"episode_id": name, "steps": [record for _, record in part]}


def _one_run_each(steps: Sequence[Line]) -> list[list[Line]]:
    """Return the steps of one name, divided by file where a step's number occurs twice."""
    numbers = [_number(record) for _, record in steps]
    if None in numbers or len(set(numbers)) == len(numbers):
        return [list(steps)]
    files: dict[str, list[Line]] = {}
    for place, record in steps:
        files.setdefault(place.rpartition(":")[0], []).append((place, record))
    return list(files.values())


def episode_of_steps(
    record: Mapping[str, Any],
    place: str,
    outcome: OutcomeRule,
    mask: Callable[[str], str] = lambda text: text,
) -> LoggedEpisode:
    """Return the episode of one record of `step_episodes`.

    Raises:
        Unusable: it has no step, a step without an action or steps that do not follow each other, or nothing
            was seen first.
    """
    steps = record["steps"]
    if not steps or not all(isinstance(step, Mapping) for step in steps):
        raise Unusable("an episode without steps", record)
    steps = _in_order(steps)
    first = _text(_first(record, BEFORE)) or _text(_first(steps[0], BEFORE))
    if not first:
        raise Unusable("nothing that the agent saw before its first action")
    following = [*steps[1:], {}]
    logged = tuple(_logged_step(step, later, mask) for step, later in zip(steps, following, strict=True))
    if any(step.observation is None for step in logged[:-1]):
        raise Unusable("two actions without an observation between them")
    instruction = _text(_first(record, TASKS) or _first(steps[0], TASKS)) or first
    fields = _fields(record, steps)
    name = str(_first(record, (*NAMES, *IDS)) or "")
    success = outcome(fields, logged)
    is_over = _is_true(steps[-1], ENDS if "terminated" not in steps[-1] else ("terminated",))
    return LoggedEpisode(name, place, "", mask(instruction), mask(first), logged, success, is_over)


def _in_order(steps: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the steps in the order of their numbers.

    Raises:
        Unusable: a number occurs twice, a step follows the end, or begins where the one before did not end.
    """
    numbers = [_number(step) for step in steps]
    if None not in numbers:
        if len(set(numbers)) < len(numbers):
            raise Unusable("a step's number that occurs twice in an episode", numbers)
        steps = sorted(steps, key=lambda step: _number(step) or 0)
    for step, later in pairwise(steps):
        if _is_true(step, ENDS):
            raise Unusable("a step after the end of its episode", later)
        after, before = _text(_first(step, AFTER)), _text(_first(later, BEFORE))
        if after and before and after != before:
            raise Unusable("a step that begins with another observation than came back", before)
    return list(steps)


def _number(step: Mapping[str, Any]) -> int | None:
    """Return the number of a step, which may be text; None if it has none."""
    value = next((step[name] for name in NUMBERS if step.get(name) is not None), None)
    try:
        return None if value is None or isinstance(value, bool) else int(value)
    except (TypeError, ValueError):
        return None


def _is_true(step: Mapping[str, Any], names: Sequence[str]) -> bool:
    return any(step.get(name) in (True, 1, "true", "True") for name in names)


def _logged_step(step: Mapping[str, Any], later: Mapping[str, Any], mask: Callable[[str], str]) -> LoggedStep:
    action = _text(step.get("action"))
    if not action:
        raise Unusable("a step without an action", step)
    after = _text(_first(step, AFTER)) or _text(_first(later, BEFORE))
    thought = _text(step.get("thought"))
    return LoggedStep(mask(thought), mask(action), mask(after) if after else None)


def _fields(record: Mapping[str, Any], steps: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields that an outcome is read from: of the episode, of the last step, of its `info`."""
    last = steps[-1]
    info = last.get("info")
    fields = {name: value for name, value in last.items() if name != "reward"}
    fields |= info if isinstance(info, Mapping) else {}
    fields |= {name: value for name, value in record.items() if name != "steps"}
    rewards = [step["reward"] for step in steps if step.get("reward") is not None]
    if rewards and "reward" not in record:
        try:
            fields["reward"] = sum(map(float, rewards))
        except (TypeError, ValueError):
            raise Unusable("a reward that is no number", rewards) from None
    return fields


def _first(record: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """Return the first field of these names that has a value; None if there is none."""
    return next((record[name] for name in names if record.get(name) not in (None, "")), None)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value.strip() if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
