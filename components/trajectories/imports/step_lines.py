"""Recorded steps of Gymnasium environments and OpenEnv servers as episodes: `--as steps`.

A line of JSON Lines is one step, with the name of its episode, or one episode with its `steps`. A step has

- `action`: text, or a structure such as OpenEnv's actions, which becomes JSON text;
- `observation` (or `obs`, `state`): what the agent saw before it, text or a structure;
- `next_observation` (or `next_obs`, `next_state`): what came back; without it, the next step's observation;
- `step` (or `t`, `step_id`): its number in the episode, from 0 or 1 without a gap, which orders the steps;
  without it, `timestamp` does if all steps have one, else the order of the log, and a lost step cannot be
  noticed;
- `terminated`, `truncated`, `done`: whether the episode is over after it; no step may follow;
- `reward`, `info`, `thought`: what there is of them.

The outcome is that of `--outcome`. By default it is a field such as `success` of the last step or of its
`info`; where there is none, the sum of the rewards. Rewards that are text count as numbers or truth values;
NaN and texts such as `N/A` make the outcome unknown. Episodes of the same name in different logs
(`rotated_files.py`) are different ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from components.trajectories.imports.copies.line_copies import Line, has_field, has_line_ids, without_copies
from components.trajectories.imports.line_times import in_order_of_times
from components.trajectories.imports.logged_episode import LoggedEpisode, LoggedStep, Skipped, Unusable
from components.trajectories.imports.message_lists import IDS, TASKS
from components.trajectories.imports.outcomes import OutcomeRule
from components.trajectories.imports.rotated_files import log_of

NAMES = ("episode_id", "episode", "rollout_id", "trajectory_id", "session_id", "conversation_id", "trace_id")
"""Fields with the name of a step's episode; `id` is often that of the step."""
BEFORE = ("observation", "obs", "state")
AFTER = ("next_observation", "next_obs", "next_state")
NUMBERS = ("step", "t", "step_id", "timestep")
ENDS = ("terminated", "truncated", "done")
NO_NAME = "a step without the name of its episode"
NO_BEGINNING = "an episode without its first step"
GAP = "an episode with a step missing"
NUMBER_TWICE = "a step's number that occurs twice in an episode"
NOT_FINITE = "a reward that is not finite"
NO_REWARDS = frozenset({"", "n/a", "na", "null", "none"})
"""Texts that stand for a reward that nobody knows."""
REWARD_DECIMALS = 6
"""A sum of rewards that falls short of a number with so many decimals by rounding alone counts as it."""


def step_episodes(lines: Iterable[tuple[str, Any] | Skipped]) -> Iterator[tuple[str, Any] | Skipped]:
    """Return (place, episode) with the `steps` of each episode together, in the order of the log.

    Interleaved episodes are held until the log ends. Copies of steps are skipped, and so are episodes that
    begin with step 1 in a log that counts from 0.
    """
    episodes: dict[tuple[str, str], list[Line]] = {}
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
        episodes.setdefault((log_of(place), str(name)), []).append((place, record))
    logs_from_zero = {log for (log, _), steps in episodes.items() if 0 in _numbers(steps)}
    for (log, name), steps in episodes.items():
        numbers = _numbers(steps)
        has_id = None not in numbers or has_line_ids(steps)
        has_time = has_field("timestamp", steps)
        ordered = _by_time(steps) if None in numbers and has_time else steps
        kept, copies = without_copies(
            ordered, has_id=has_id, has_time=has_time, cannot_repeat=_leads_elsewhere
        )
        yield from copies
        if log in logs_from_zero and not {0, None} & {*numbers}:
            yield Skipped(NO_BEGINNING, kept[0][0], "step 0 is missing; other episodes of this log have it")
        else:
            yield kept[0][0], {"episode_id": name, "steps": [record for _, record in kept]}


def _leads_elsewhere(step: Mapping[str, Any]) -> bool:
    """Return whether another observation came back than the step began with: so it cannot follow itself."""
    before, after = _text(_first(step, BEFORE)), _text(_first(step, AFTER))
    return bool(before and after and before != after)


def _by_time(steps: Sequence[Line]) -> Sequence[Line]:
    """Return the steps in the order of their times, or as they are if the times cannot be compared."""
    try:
        return in_order_of_times(steps, "timestamp")
    except Unusable:
        return steps


def _numbers(steps: Sequence[Line]) -> list[int | None]:
    return [_number(record) for _, record in steps]


def episode_of_steps(
    record: Mapping[str, Any],
    place: str,
    outcome: OutcomeRule,
    mask: Callable[[str], str] = lambda text: text,
) -> LoggedEpisode:
    """Return the episode of one record of `step_episodes`.

    Raises:
        Unusable: it has no step, a step without an action, a missing step, steps that do not follow each
            other or a reward without a meaning, or nothing was seen first.
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
    is_over = _is_ended_by_world(steps[-1])
    return LoggedEpisode(name, place, "", mask(instruction), mask(first), logged, success, is_over)


def _is_ended_by_world(step: Mapping[str, Any]) -> bool:
    """Return whether the world ended the episode with this step; a step limit is no end of the world's."""
    if step.get("terminated") is not None:
        return _is_true(step, ("terminated",))
    info = step.get("info")
    is_limit = isinstance(info, Mapping) and _is_true(info, ("TimeLimit.truncated",))  # Gym before 0.26
    return _is_true(step, ("done",)) and not _is_true(step, ("truncated",)) and not is_limit


def _in_order(steps: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the steps in the order of their numbers.

    Raises:
        Unusable: a number occurs twice or is missing, a step follows the end, or begins where the one before
            did not end.
    """
    numbers = [number for step in steps if (number := _number(step)) is not None]
    if len(numbers) == len(steps):
        _require_whole(numbers)
        steps = sorted(steps, key=lambda step: _number(step) or 0)
    for step, later in pairwise(steps):
        if _is_true(step, ENDS):
            raise Unusable("a step after the end of its episode", later)
        after, before = _text(_first(step, AFTER)), _text(_first(later, BEFORE))
        if after and before and after != before:
            raise Unusable("a step that begins with another observation than came back", before)
    return list(steps)


def _require_whole(numbers: Sequence[int]) -> None:
    """Raise Unusable if a number occurs twice, or if they do not run from 0 or 1 without a gap."""
    if len(set(numbers)) < len(numbers):
        raise Unusable(NUMBER_TWICE, numbers)
    if min(numbers) not in (0, 1):
        raise Unusable(NO_BEGINNING, f"it begins with step {min(numbers)}; expected 0 or 1")
    for number, later in pairwise(sorted(numbers)):
        if later > number + 1:
            raise Unusable(GAP, f"step {number} is followed by step {later}")


def _number(step: Mapping[str, Any]) -> int | None:
    """Return the number of a step, which may be text; None if it has no whole number."""
    value = next((step[name] for name in NUMBERS if step.get(name) is not None), None)
    try:
        number = None if value is None or isinstance(value, bool) else int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if isinstance(value, float) and number != value else number


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
        fields["reward"] = reward_sum(rewards)
    if _spells_infinity(fields.get("reward")):
        raise Unusable(NOT_FINITE, fields["reward"])
    return fields


def reward_sum(rewards: Sequence[Any]) -> float:
    """Return the sum of an episode's rewards, NaN if one is unknown.

    Raises:
        Unusable: one is no finite number.
    """
    numbers = [_reward(reward) for reward in rewards]
    try:
        total = math.fsum(numbers)
    except OverflowError:
        raise Unusable(NOT_FINITE, rewards) from None
    return max(total, round(total, REWARD_DECIMALS))


def _reward(value: Any) -> float:
    """Return the number that a reward spells, NaN if it is unknown; raises Unusable."""
    if isinstance(value, str):
        word = value.strip().lower()
        value = {"true": 1.0, "false": 0.0}.get(word, math.nan if word in NO_REWARDS else word)
    if _spells_infinity(value):
        raise Unusable(NOT_FINITE, value)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise Unusable("a reward that is no number", value) from None


def _spells_infinity(value: Any) -> bool:
    """Return whether a value is an infinite number, or one too large for a float, perhaps as text."""
    try:
        return math.isinf(float(value))
    except OverflowError:
        return True
    except (TypeError, ValueError):
        return False


def _first(record: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """Return the first field of these names that has a value; None if there is none."""
    return next((record[name] for name in names if record.get(name) not in (None, "")), None)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value.strip() if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
