"""Five episodes of one browser task type that differ only in their names: choose from a list, and submit."""

from dataclasses import replace

from components.config import load_config
from components.environments import make_adapter
from components.records import Task, Trajectory, Transition

ADAPTER = make_adapter(load_config(None, ["environment.name=browser"]).environment)
PAGE = "[13] select: = {0} {{{0} | {1} | {2}}}\n[19] button: Submit"
PEOPLE = [
    ("Pia", "Cory", "Ana"),
    ("Bo", "Ida", "Rey"),
    ("Lu", "Max", "Zoe"),
    ("Kim", "Tom", "Eve"),
    ("Al", "Ben", "Gus"),
]


def episode(number: int, people: tuple[str, str, str]) -> Trajectory:
    first, chosen, other = people
    states = [
        PAGE.format(*people),
        f"[13] select: = {chosen} {{{first} | {chosen} | {other}}}\n[19] button: Submit",
        "Episode over.",
    ]
    task = Task(
        f"list/{number}",
        "browser",
        "train",
        f"Select {chosen} from the list and click Submit.",
        states[0],
        "choose-list",
        "{}",
    )
    trajectory = Trajectory(task)
    for step, (action, reward) in enumerate([(f"select [13] {chosen}", 0.0), ("click [19]", 1.0)]):
        reason = ADAPTER.reason(trajectory, action, states[step + 1], reward)
        last = Transition(
            task.id,
            f"{task.id}/expert-0",
            step,
            states[step],
            action,
            states[step + 1],
            reward,
            bool(reward),
            reason,
        )
        trajectory = replace(trajectory, steps=(*trajectory.steps, last))
    return trajectory


EPISODES = [episode(number, people) for number, people in enumerate(PEOPLE)]
