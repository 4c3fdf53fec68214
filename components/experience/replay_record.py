"""A replayed dream as the report shows it: at each step both states and both rewards, and where dream and
reality part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from components.environments.protocol import Adapter, Fact
from components.experience.real_replay import Replay
from components.experience.side_by_side import Comparison, compare_states
from components.records import Trajectory


def replay_record(adapter: Adapter, found: Replay) -> dict[str, Any]:
    """The replay as JSON values: `task`, `start`, `steps`, `parts_at`, `confirmed`, `note`.

    Each step has `action`, `state`, `reward` of the dream, and where the real engine played it `real`,
    `real_reward`, `same_facts` and the differing `facts`. `parts_at` is the number, from 0, of the first step
    whose facts or reward differ, None if there is none. That step also has `why`, the dream's reasoning, and
    `real_why`, the reasoning that the real transition gives.
    """
    dreamed = found.dreamed
    compared = compare_states(adapter, dreamed, found.real_states)
    steps: list[dict[str, Any]] = [
        {"action": step.action, "state": step.next_state, "reward": step.reward} for step in dreamed.steps
    ]
    for step, state, reward, comparison in zip(
        steps, found.real_states, found.real_rewards, compared, strict=False
    ):
        step |= {
            "real": state,
            "real_reward": reward,
            "same_facts": comparison.same_facts,
            "facts": _differing(comparison),
        }
    parts_at = _first_difference(steps)
    if parts_at is not None and "real" in steps[parts_at]:
        steps[parts_at] |= {
            "why": dreamed.steps[parts_at].reasoning,
            "real_why": _real_reasoning(adapter, found, parts_at),
        }
    note = found.reason or f"{found.agreeing} of {found.compared} states are the real engine's to the letter"
    task = {"task": dreamed.task.instruction, "start": dreamed.task.initial_state}
    return {**task, "steps": steps, "parts_at": parts_at, "confirmed": found.confirmed, "note": note}


def _differing(comparison: Comparison) -> dict[str, list[str]]:
    facts = {
        "denied": comparison.contradicted,
        "dream_alone": comparison.unsaid,
        "real_alone": comparison.missing,
    }
    return {kind: sorted(map(_in_words, some)) for kind, some in facts.items() if some}


def _in_words(fact: Fact) -> str:
    """`in mug 1, shelf 2`."""
    return f"{fact[0]} {', '.join(part for part in fact[1:] if part)}".rstrip()


def _first_difference(steps: Sequence[dict[str, Any]]) -> int | None:
    """The first step whose facts or rewards differ, or that the real engine did not play because its episode
    was over.
    """
    if not any("real" in step for step in steps):
        return None
    for number, step in enumerate(steps):
        if (
            "real" not in step
            or not step["same_facts"]
            or (step["reward"] > 0.5) != (step["real_reward"] > 0.5)
        ):
            return number
    return None


def _real_reasoning(adapter: Adapter, found: Replay, number: int) -> str:
    """What the programmatic teacher says of the real transition."""
    pairs = zip(found.dreamed.steps[:number], found.real_states, strict=False)
    before = Trajectory(found.dreamed.task, tuple(replace(step, next_state=state) for step, state in pairs))
    action = found.dreamed.steps[number].action
    return adapter.reason(before, action, found.real_states[number], found.real_rewards[number])
