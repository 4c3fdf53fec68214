"""The episodes of `dreamgym play` as JSON: what `--json` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from components.experience.side_by_side import Playthrough, Turn


def played_record(episodes: Sequence[Playthrough]) -> dict[str, Any]:
    """Return `task`, `steps` and `end` of the last episode, and the earlier ones as `earlier_episodes`."""
    records = [episode_record(episode) for episode in episodes]
    return {**records[-1], "earlier_episodes": records[:-1]} if records else {}


def episode_record(episode: Playthrough) -> dict[str, Any]:
    """Return one episode as JSON values.

    `end` is success, failure, no answer or step limit; null if the player left before the end.
    """
    task = episode.task
    states = [task.initial_state, *(turn.dreamed.state for turn in episode.turns)]
    steps = [_step_record(turn, state) for turn, state in zip(episode.turns, states, strict=False)]
    return {
        "task": {
            "id": task.id,
            "split": task.split,
            "instruction": task.instruction,
            "initial_state": task.initial_state,
        },
        "steps": steps,
        "end": None if episode.end is None else str(episode.end),
    }


def _step_record(turn: Turn, state: str) -> dict[str, Any]:
    """Return one step; `state` is the one before the action.

    `real` and `agrees` are null if the real environment was not played too.
    """
    dreamed, real = turn.dreamed, turn.real
    real_record = None
    if real is not None:
        real_record = {"next_state": real.state, "reward": real.reward, "done": real.done}
    return {
        "step": turn.number,
        "state": state,
        "action": turn.action,
        "next_state": dreamed.state,
        "reward": dreamed.reward,
        "done": dreamed.done,
        "reasoning": str(dreamed.info.get("reasoning", "")),
        "answered": not turn.unanswered,
        "real": real_record,
        "agrees": None if turn.comparison is None else turn.agrees,
    }
