"""What a behaviour policy achieves on MiniWoB's task types, and what a reset and a step cost: the table of
docs/reference/browser.md.

    python -m components.environments.browser.surveys.behaviour_survey --seeds 20 --json survey.json
    python -m components.environments.browser.surveys.behaviour_survey --behaviour random --types all --seeds
    3

Each type is played on seeds that no data set uses. Reported of each: episodes won and played, those that
infrastructure broke, steps of a won episode, different first pages, and whether an episode played a second
time showed the same states.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from components.config import load_config
from components.environments.browser.adapter import BrowserAdapter
from components.environments.browser.engine.gym_tasks import miniwob_tasks
from components.environments.browser.environment import BrowserEnvironment
from components.environments.browser.task_lists import SOLVED, SOLVED_TOO, page_of
from components.errors import EnvironmentFailure
from components.records import TEST, Task, Trajectory, Transition

FIRST_SEED = 10_000_001
"""Above all seeds that tasks are drawn with."""


def survey_type(
    adapter: BrowserAdapter, world: BrowserEnvironment, family: str, behaviour: str, seeds: int, limit: int
) -> dict[str, Any]:
    """Play `seeds` episodes of one type, the first of them twice."""
    began = time.perf_counter()
    try:
        tasks = adapter.opened(
            world.browsers, [page_of(family, FIRST_SEED + number) for number in range(seeds)], TEST
        )
    except EnvironmentFailure as failure:
        return {"type": family, "error": str(failure)}
    reset_seconds = time.perf_counter() - began
    tasks.append(tasks[0])
    played, failed, seconds, steps = _play(adapter, world, tasks, behaviour, limit)
    whole = [episode for row, episode in enumerate(played[:-1]) if row not in failed]
    won = [episode for episode in whole if episode.success]
    return {
        "type": family,
        "won": len(won),
        "played": len(whole),
        "broken": len(failed),
        "steps": round(sum(len(episode.steps) for episode in won) / len(won), 1) if won else None,
        "different": len({(task.instruction, task.initial_state) for task in tasks[:-1]}),
        "repeatable": played[0].states == played[-1].states,
        "reset_seconds": round(reset_seconds / seeds, 3),
        "step_seconds": round(seconds / steps, 3) if steps else None,
        "lost": [
            f"{e.task.instruction} | {e.states[-2] if len(e.states) > 1 else ''} | "
            f"{[s.action for s in e.steps]}"
            for e in whole
            if not e.success
        ][:3],
    }


def _play(
    adapter: BrowserAdapter, world: BrowserEnvironment, tasks: Sequence[Task], behaviour: str, limit: int
) -> tuple[list[Trajectory], set[int], float, int]:
    """Episodes, the rows that infrastructure broke, and the seconds and number of all steps."""
    world.reset(tasks)
    actors = [adapter.behaviour(behaviour, task, 0) for task in tasks]
    played, alive, failed, seconds, steps = (
        [Trajectory(task) for task in tasks],
        set(range(len(tasks))),
        set[int](),
        0.0,
        0,
    )
    admissible: list[Sequence[str]] = list(world.admissible)
    for number in range(limit):
        actions = [
            actors[row](played[row], admissible[row])[1] if row in alive else None
            for row in range(len(tasks))
        ]
        began = time.perf_counter()
        answers = world.step(actions)
        seconds, steps = seconds + time.perf_counter() - began, steps + len(alive)
        for row, answer in enumerate(answers):
            if answer is None:
                continue
            step = Transition(
                tasks[row].id,
                "",
                number,
                played[row].states[-1],
                actions[row] or "",
                answer.state,
                answer.reward,
                answer.done,
            )
            played[row] = Trajectory(tasks[row], (*played[row].steps, step))
            admissible[row] = answer.info.get("admissible", ())
            failed |= {row} if "failed" in answer.info else set()
            alive -= {row} if answer.done else set()
        if not alive:
            break
    return played, failed, seconds, steps


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--types", default="", help="names with commas, or all; without it those that have an expert"
    )
    parser.add_argument("--behaviour", default="expert")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--limit", type=int, default=20, help="steps of an episode")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    names = (
        list(miniwob_tasks())
        if asked.types == "all"
        else asked.types.split(",")
        if asked.types
        else [*SOLVED, *SOLVED_TOO]
    )
    adapter = BrowserAdapter(
        load_config(None, ["environment.name=browser", f"environment.workers={asked.workers}"]).environment
    )
    rows = []
    with closing(adapter.open()) as world:
        for name in names:
            rows.append(survey_type(adapter, world, name, asked.behaviour, asked.seeds, asked.limit))
            print(json.dumps({key: value for key, value in rows[-1].items() if key != "lost"}), flush=True)
            for episode in rows[-1].get("lost", []):
                print("   lost:", episode, flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
