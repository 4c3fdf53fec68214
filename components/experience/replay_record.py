"""A replayed dream as the report shows it: both states and both rewards of each step, and where dream and
real engine first differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from components.environments.capabilities import Adapter
from components.environments.protocol import Fact
from components.experience.real_replay import Replay
from components.experience.state_comparison import Comparison, compare_states
from components.records import Trajectory


def replay_record(adapter: Adapter, result: Replay) -> dict[str, Any]:
    """The replay as JSON values: `task`, `start`, `steps`, `parts_at`, `confirmed`, `note`.

    Each step has `action`, `state` and `reward` of the dream. Where the real engine played it, it has `real`,
    `real_reward`, `same_facts` and the differing `facts`. `parts_at` is the number, from 0, of the first step
    whose facts or reward differ; None if there is none. That step also has `why`, the dream's reasoning, and
    `real_why`, the reasoning of the real transition.
    """
    dreamed = result.dreamed
    steps = _recorded_steps(adapter, result)
    parts_at = _first_difference(steps)
    if parts_at is not None and "real" in steps[parts_at]:
        steps[parts_at] |= {
            "why": dreamed.steps[parts_at].reasoning,
            "real_why": _real_reasoning(adapter, result, parts_at),
        }
    counts = f"{result.agreeing_states} of {result.compared}"
    return {
        "task": dreamed.task.instruction,
        "start": dreamed.task.initial_state,
        "steps": steps,
        "parts_at": parts_at,
        "confirmed": result.confirmed,
        "note": result.reason or f"{counts} states are the real engine's to the letter",
    }


def _recorded_steps(adapter: Adapter, result: Replay) -> list[dict[str, Any]]:
    """The dreamed steps, with the real ones as far as the engine played them."""
    dreamed = result.dreamed
    comparisons = compare_states(adapter, dreamed, result.real_states)
    steps: list[dict[str, Any]] = [
        {"action": step.action, "state": step.next_state, "reward": step.reward} for step in dreamed.steps
    ]
    for step, state, reward, comparison in zip(
        steps, result.real_states, result.real_rewards, comparisons, strict=False
    ):
        step |= {
            "real": state,
            "real_reward": reward,
            "same_facts": comparison.same_facts,
            "facts": _differing_facts(comparison),
        }
    return steps


def _differing_facts(comparison: Comparison) -> dict[str, list[str]]:
    """Kind of difference -> its facts in words; only kinds that occur."""
    facts = {
        "denied": comparison.contradicted,
        "dream_alone": comparison.unsaid,
        "real_alone": comparison.missing,
    }
    return {kind: sorted(map(_fact_text, kind_facts)) for kind, kind_facts in facts.items() if kind_facts}


def _fact_text(fact: Fact) -> str:
    """`in mug 1, shelf 2`."""
    return f"{fact[0]} {', '.join(part for part in fact[1:] if part)}".rstrip()


def _first_difference(steps: Sequence[dict[str, Any]]) -> int | None:
    """Number of the first step whose facts or rewards differ, or that the real engine did not play because
    its episode was over.
    """
    if not any("real" in step for step in steps):
        return None
    for number, step in enumerate(steps):
        if "real" not in step or not step["same_facts"]:
            return number
        if (step["reward"] > 0.5) != (step["real_reward"] > 0.5):
            return number
    return None


def _real_reasoning(adapter: Adapter, result: Replay, number: int) -> str:
    """The programmatic teacher's reasoning about the real transition of step `number`."""
    pairs = zip(result.dreamed.steps[:number], result.real_states, strict=False)
    steps = tuple(replace(step, next_state=state) for step, state in pairs)
    history = Trajectory(result.dreamed.task, steps)
    action = result.dreamed.steps[number].action
    return adapter.reason(history, action, result.real_states[number], result.real_rewards[number])
