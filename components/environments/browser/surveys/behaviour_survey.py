"""Survey what a behaviour policy achieves on MiniWoB's task types, and what a reset and a step cost.

    python -m components.environments.browser.surveys.behaviour_survey --seeds 20 --json survey.json
    python -m components.environments.browser.surveys.behaviour_survey --behaviour random --types all

The result is the table of docs/reference/browser.md. Each type is played on seeds that no data set uses.
Its row reports:

- the episodes won, played, and broken by infrastructure,
- the steps of a won episode,
- the number of different first pages,
- whether a repeated episode showed the same states.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.config import load_config
from components.environments.browser.adapter import BrowserAdapter
from components.environments.browser.engine.gym_tasks import miniwob_tasks
from components.environments.browser.environment import BrowserEnvironment
from components.environments.browser.task_lists import EXPERT_TYPES, OTHER_EXPERT_TYPES, miniwob_page
from components.errors import EnvironmentFailure
from components.records import TEST, Task, Trajectory, Transition

FIRST_SEED = 10_000_001
"""First seed of the survey, above all seeds that tasks are drawn with."""


@dataclass
class Survey:
    """Played episodes, the rows that infrastructure broke, and the seconds and number of all steps."""

    episodes: list[Trajectory]
    broken_rows: set[int] = field(default_factory=set)
    seconds: float = 0.0
    steps: int = 0


def survey_type(
    adapter: BrowserAdapter, world: BrowserEnvironment, family: str, behaviour: str, seeds: int, limit: int
) -> dict[str, Any]:
    """Play `seeds` episodes of one type, the first of them twice, and return the type's row of the table."""
    start = time.perf_counter()
    try:
        tasks = adapter.open_tasks(
            world.browsers, [miniwob_page(family, FIRST_SEED + number) for number in range(seeds)], TEST
        )
    except EnvironmentFailure as failure:
        return {"type": family, "error": str(failure)}
    reset_seconds = time.perf_counter() - start
    tasks.append(tasks[0])
    survey = _play(adapter, world, tasks, behaviour, limit)
    episodes = survey.episodes
    unbroken = [episode for row, episode in enumerate(episodes[:-1]) if row not in survey.broken_rows]
    won = [episode for episode in unbroken if episode.success]
    return {
        "type": family,
        "won": len(won),
        "played": len(unbroken),
        "broken": len(survey.broken_rows),
        "steps": round(sum(len(episode.steps) for episode in won) / len(won), 1) if won else None,
        "different": len({(task.instruction, task.initial_state) for task in tasks[:-1]}),
        "repeatable": episodes[0].states == episodes[-1].states,
        "reset_seconds": round(reset_seconds / seeds, 3),
        "step_seconds": round(survey.seconds / survey.steps, 3) if survey.steps else None,
        "lost": [_describe_episode(episode) for episode in unbroken if not episode.success][:3],
    }


def _describe_episode(episode: Trajectory) -> str:
    last_page = episode.states[-2] if len(episode.states) > 1 else ""
    return f"{episode.task.instruction} | {last_page} | {[step.action for step in episode.steps]}"


def _play(
    adapter: BrowserAdapter, world: BrowserEnvironment, tasks: Sequence[Task], behaviour: str, limit: int
) -> Survey:
    """Play each task for at most `limit` steps."""
    world.reset(tasks)
    actors = [adapter.behaviour(behaviour, task, 0) for task in tasks]
    survey = Survey([Trajectory(task) for task in tasks])
    episodes = survey.episodes
    running = set(range(len(tasks)))
    admissible: list[Sequence[str]] = list(world.admissible)
    for number in range(limit):
        actions = [
            actors[row](episodes[row], admissible[row])[1] if row in running else None
            for row in range(len(tasks))
        ]
        start = time.perf_counter()
        answers = world.step(actions)
        survey.seconds += time.perf_counter() - start
        survey.steps += len(running)
        for row, answer in enumerate(answers):
            if answer is None:
                continue
            step = Transition(
                tasks[row].id,
                "",
                number,
                episodes[row].states[-1],
                actions[row] or "",
                answer.state,
                answer.reward,
                answer.done,
            )
            episodes[row] = episodes[row].with_step(step)
            admissible[row] = answer.info.get("admissible", ())
            survey.broken_rows |= {row} if "failed" in answer.info else set()
            running -= {row} if answer.done else set()
        if not running:
            break
    return survey


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--types", default="", help="names with commas, or all; without it those that have an expert"
    )
    parser.add_argument("--behaviour", default="expert")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--limit", type=int, default=20, help="steps of an episode")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    names = (
        list(miniwob_tasks())
        if arguments.types == "all"
        else arguments.types.split(",")
        if arguments.types
        else [*EXPERT_TYPES, *OTHER_EXPERT_TYPES]
    )
    adapter = BrowserAdapter(
        load_config(
            None, ["environment.name=browser", f"environment.workers={arguments.workers}"]
        ).environment
    )
    rows = []
    with closing(adapter.open()) as world:
        for name in names:
            rows.append(
                survey_type(adapter, world, name, arguments.behaviour, arguments.seeds, arguments.limit)
            )
            print(json.dumps({key: value for key, value in rows[-1].items() if key != "lost"}), flush=True)
            for episode in rows[-1].get("lost", []):
                print("   lost:", episode, flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
