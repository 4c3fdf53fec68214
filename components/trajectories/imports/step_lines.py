"""Recorded steps of Gymnasium environments and OpenEnv servers as episodes: `--as steps`.

A line of JSON Lines is one step, with the name of its episode, or one episode with its `steps`. A step has

- `action`: text, or a structure such as OpenEnv's actions, which becomes JSON text;
- `observation` (or `obs`, `state`): what the agent saw before it, text or a structure;
- `next_observation` (or `next_obs`, `next_state`): what came back; without it, the next step's observation;
- `reward`, `terminated`, `truncated`, `done`, `info`, `thought`: what there is of them.

The outcome is that of `--outcome`; by default a field such as `success` of the last step or its `info`, else
the sum of the rewards. Rewards that are text count as numbers; NaN makes the outcome unknown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from components.trajectories.imports.logged_episode import LoggedEpisode, LoggedStep, Skipped, Unusable
from components.trajectories.imports.message_lists import IDS, TASKS
from components.trajectories.imports.outcomes import OutcomeRule

BEFORE = ("observation", "obs", "state")
AFTER = ("next_observation", "next_obs", "next_state")
NO_NAME = "a step without the name of its episode"


def step_episodes(lines: Iterable[tuple[str, Any] | Skipped]) -> Iterator[tuple[str, Any] | Skipped]:
    """Return (place, episode) with the `steps` of each episode together, in the order of the log.

    Interleaved episodes are held until the log ends.
    """
    episodes: dict[str, tuple[str, list[Mapping[str, Any]]]] = {}
    for line in lines:
        if isinstance(line, Skipped):
            yield line
            continue
        place, record = line
        if isinstance(record, Mapping) and isinstance(record.get("steps"), list):
            yield place, record
            continue
        name = _first(record, IDS) if isinstance(record, Mapping) else None
        if name is None:
            yield Skipped(NO_NAME, place)
            continue
        episodes.setdefault(str(name), (place, []))[1].append(record)
    for name, (place, steps) in episodes.items():
        yield place, {"episode_id": name, "steps": steps}


def episode_of_steps(
    record: Mapping[str, Any],
    place: str,
    outcome: OutcomeRule,
    mask: Callable[[str], str] = lambda text: text,
) -> LoggedEpisode:
    """Return the episode of one record of `step_episodes`.

    Raises:
        Unusable: it has no step, a step without an action, or nothing was seen first.
    """
    steps = record["steps"]
    if not steps or not all(isinstance(step, Mapping) for step in steps):
        raise Unusable("an episode without steps", record)
    if all(isinstance(step.get("step"), int) for step in steps):
        steps = sorted(steps, key=lambda step: step["step"])
    first = _text(_first(record, BEFORE) if BEFORE[0] in record else _first(steps[0], BEFORE))
    if not first:
        raise Unusable("nothing that the agent saw before its first action")
    following = [*steps[1:], {}]
    logged = tuple(_logged_step(step, later, mask) for step, later in zip(steps, following, strict=True))
    if any(step.observation is None for step in logged[:-1]):
        raise Unusable("two actions without an observation between them")
    instruction = _text(_first(record, TASKS) or _first(steps[0], TASKS)) or first
    fields = _fields(record, steps)
    name = str(_first(record, IDS) or "")
    return LoggedEpisode(name, place, "", mask(instruction), mask(first), logged, outcome(fields, logged))


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
