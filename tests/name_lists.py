"""Five episodes of one browser task type that differ in their names alone: choose one of a list, and send
it.
"""

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
    first, wanted, other = people
    states = [
        PAGE.format(*people),
        f"[13] select: = {wanted} {{{first} | {wanted} | {other}}}\n[19] button: Submit",
        "Episode over.",
    ]
    task = Task(
        f"list/{number}",
        "browser",
        "train",
        f"Select {wanted} from the list and click Submit.",
        states[0],
        "choose-list",
        "{}",
    )
    told = Trajectory(task)
    for step, (action, reward) in enumerate([(f"select [13] {wanted}", 0.0), ("click [19]", 1.0)]):
        reason = ADAPTER.reason(told, action, states[step + 1], reward)
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
        told = replace(told, steps=(*told.steps, last))
    return told


EPISODES = [episode(number, people) for number, people in enumerate(PEOPLE)]
