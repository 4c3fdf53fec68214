"""The episodes of `dreamgym play` as JSON: what `--json` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from components.experience.side_by_side import Playthrough, Turn


def played_record(episodes: Sequence[Playthrough]) -> dict[str, Any]:
    """`task`, `steps` and `end` of the last episode that was begun, and those before it under
    `earlier_episodes`.
    """
    records = [episode_record(episode) for episode in episodes]
    return {**records[-1], "earlier_episodes": records[:-1]} if records else {}


def episode_record(episode: Playthrough) -> dict[str, Any]:
    """One episode. `end` says why it is over: success, failure, no answer, step limit; null if it was left
    before.
    """
    task = episode.task
    states = [task.initial_state, *(turn.dreamed.state for turn in episode.turns)]
    steps = [_step(turn, state) for turn, state in zip(episode.turns, states, strict=False)]
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


def _step(turn: Turn, state: str) -> dict[str, Any]:
    """`state` is the one before the action. `real` and `agrees` are null where the real world was not played
    beside the dream.
    """
    dreamed, real = turn.dreamed, turn.real
    return {
        "step": turn.number,
        "state": state,
        "action": turn.action,
        "next_state": dreamed.state,
        "reward": dreamed.reward,
        "done": dreamed.done,
        "reasoning": str(dreamed.info.get("reasoning", "")),
        "answered": not turn.unanswered,
        "real": None
        if real is None
        else {"next_state": real.state, "reward": real.reward, "done": real.done},
        "agrees": None if turn.comparison is None else turn.agrees,
    }
