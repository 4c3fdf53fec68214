"""Survey which MiniWoB pages pay a part of 1: play every task type badly and count the raw rewards.

    python -m components.environments.browser.surveys.reward_survey --json docs/results/miniwob-pay.json

Two players act on every type. One takes admissible actions at random. The other takes none to four of them
and then sends the form. A third, the near-miss policy of the offline data, acts where the instruction can be
read. Types that are in the JSON file already are not played again, so an interrupted survey continues.
`--table docs/reference/browser.md` writes the table of that document from the file.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.config import load_config
from components.environments.browser.adapter import BrowserAdapter
from components.environments.browser.behaviours import make_behaviour
from components.environments.browser.engine.gym_tasks import is_success, miniwob_tasks
from components.environments.browser.environment import BrowserEnvironment
from components.environments.browser.states import read_state
from components.environments.browser.surveys.behaviour_survey import FIRST_SEED
from components.environments.browser.task_lists import miniwob_page
from components.errors import EnvironmentFailure
from components.files import write_json, write_text
from components.records import TEST, Task, Trajectory, Transition

SENDERS = ("submit", "done", "ok", "okay", "search", "login", "send", "buy", "agree")
"""First words of the names of elements that send a form."""
MAX_ACTIONS_BEFORE_SENDING = 4
BEGIN = "<!-- miniwob-pay:begin -->"
END = "<!-- miniwob-pay:end -->"
"""Marks around the table in a document."""

Player = Callable[[Trajectory, Sequence[str]], str]


@dataclass
class PlayResult:
    """The episodes of one type: the number that ended with each raw reward, were cut off, or broke.

    `broken` counts infrastructure failures. `examples` has the actions of one episode for each partial
    reward.
    """

    raw: Counter[float] = field(default_factory=Counter)
    cut_off: int = 0
    broken: int = 0
    examples: dict[float, list[str]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the counts by raw reward, and the actions of one episode for each reward between 0 and 1."""
        paid = {f"{reward:g}": actions for reward, actions in sorted(self.examples.items())}
        raw = {f"{reward:g}": count for reward, count in sorted(self.raw.items())}
        return {"raw": raw, "cut_off": self.cut_off, "broken": self.broken, "partly_paid": paid}


def random_player(rng: random.Random) -> Player:
    """Return a player that takes admissible actions at random."""
    return lambda _trajectory, admissible: rng.choice(admissible) if admissible else "scroll down"


def sending_player(rng: random.Random) -> Player:
    """Return a player that takes up to four random actions and then sends the form.

    The random actions send nothing. The form is sent by a click, if the page has an element for it.
    """
    actions_before = rng.randint(0, MAX_ACTIONS_BEFORE_SENDING)

    def act(trajectory: Trajectory, admissible: Sequence[str]) -> str:
        senders = [
            f"click [{element.id}]"
            for element in read_state(trajectory.states[-1]).elements
            if element.id and is_sender(element.name)
        ]
        if senders and len(trajectory.steps) >= actions_before:
            return senders[0]
        others = [action for action in admissible if action not in senders]
        return rng.choice(others) if others else "scroll down"

    return act


def is_sender(name: str) -> bool:
    """Return whether an element of this name sends a form."""
    words = name.lower().split()
    return bool(words) and words[0] in SENDERS


def near_miss_player(task: Task, seed: int) -> Player:
    """Return the near-miss policy of the offline data as a player."""
    behave = make_behaviour("near_miss", task, seed)
    return lambda trajectory, admissible: behave(trajectory, admissible)[1]


def players_of(task: Task, seed: int) -> list[Player]:
    """Return the players that can play `task`, each with a random generator of its own."""
    players = [
        random_player(random.Random(f"random/{task.id}")),
        sending_player(random.Random(f"sending/{task.id}")),
    ]
    try:
        make_behaviour("expert", task, seed)
    except EnvironmentFailure:
        return players
    return [*players, near_miss_player(task, seed)]


def survey_type(
    adapter: BrowserAdapter, world: BrowserEnvironment, task_type: str, seeds: int, limit: int
) -> dict[str, Any]:
    """Play `seeds` pages of a type with each player and return the counts.

    A type whose pages do not open has an `error`.
    """
    try:
        pages = adapter.open_tasks(
            world.browsers, [miniwob_page(task_type, FIRST_SEED + number) for number in range(seeds)], TEST
        )
    except EnvironmentFailure as failure:
        return {"error": str(failure)}
    pairs = [(page, player) for number, page in enumerate(pages) for player in players_of(page, number)]
    result = play(world, [page for page, _ in pairs], [player for _, player in pairs], limit)
    return {"episodes": len(pairs), **result.to_json()}


def play(
    world: BrowserEnvironment, tasks: Sequence[Task], players: Sequence[Player], limit: int
) -> PlayResult:
    """Play each task with its player, side by side, for at most `limit` steps."""
    world.reset(tasks)
    episodes = [Trajectory(task) for task in tasks]
    running = set(range(len(tasks)))
    result = PlayResult()
    admissible: list[Sequence[str]] = list(world.admissible)
    for number in range(limit):
        actions = [
            players[row](episodes[row], admissible[row]) if row in running else None
            for row in range(len(tasks))
        ]
        for row, answer in enumerate(world.step(actions)):
            if answer is None:
                continue
            state = episodes[row].states[-1]
            action = actions[row] or ""
            step = Transition(
                tasks[row].id, "", number, state, action, answer.state, answer.reward, answer.done
            )
            episodes[row] = episodes[row].with_step(step)
            admissible[row] = answer.info.get("admissible", ())
            if answer.done:
                running.discard(row)
                _count_reward(result, episodes[row], answer.info)
        if not running:
            break
    result.cut_off = len(running)
    return result


def _count_reward(result: PlayResult, episode: Trajectory, info: Mapping[str, Any]) -> None:
    if "failed" in info:
        result.broken += 1
        return
    reward = round(float(info["raw_reward"]), 4)
    result.raw[reward] += 1
    if reward > 0 and not is_success(reward):
        result.examples.setdefault(
            reward, [episode.task.instruction, *(step.action for step in episode.steps)]
        )


def sorted_by_pay(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the task types grouped by what the play has shown of their rewards."""
    kinds: dict[str, list[str]] = {
        "partly": [],
        "whole": [],
        "unpaid": [],
        "never judged": [],
        "does not open": [],
    }
    for name, row in sorted(rows.items()):
        rewards = [float(reward) for reward in row.get("raw", {})]
        if "error" in row:
            kinds["does not open"].append(name)
        elif any(reward > 0 and not is_success(reward) for reward in rewards):
            kinds["partly"].append(name)
        elif any(is_success(reward) for reward in rewards):
            kinds["whole"].append(name)
        else:
            kinds["unpaid" if rewards else "never judged"].append(name)
    return kinds


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the results as Markdown.

    First the types that pay a part, with their raw rewards; then the other types by name.
    """
    kinds = sorted_by_pay(rows)
    count = sum(row.get("episodes", 0) for row in rows.values())
    lines = [
        f"{len(rows)} of {len(miniwob_tasks())} types played, {count:,} episodes.",
        "",
        "| type that pays a part | raw rewards seen (episodes) | ended | cut off |",
        "|---|---|---|---|",
    ]
    for name in kinds["partly"]:
        row = rows[name]
        rewards = ", ".join(
            f"{reward} ({number})"
            for reward, number in sorted(row["raw"].items(), key=lambda entry: float(entry[0]))
        )
        lines.append(f"| `{name}` | {rewards} | {sum(row['raw'].values())} | {row['cut_off']} |")
    words = {
        "whole": "Paid 1 or nothing above 0",
        "unpaid": "Judged, but never above 0, so the play does not show what these pages pay",
        "never judged": "Never judged: no episode came to its end",
        "does not open": "Does not open",
    }
    for kind, meaning in words.items():
        if kinds[kind]:
            lines += [
                "",
                f"{meaning} ({len(kinds[kind])}): {', '.join(f'`{name}`' for name in kinds[kind])}.",
            ]
    return "\n".join(lines)


def write_table(document: Path, rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the table between its marks in `document`."""
    before, _, rest = document.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    write_text(document, f"{before}{BEGIN}\n{table(rows)}\n{END}{after}")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--types", default="", help="names with commas; without it all that BrowserGym registers"
    )
    parser.add_argument("--seeds", type=int, default=6, help="pages of each type")
    parser.add_argument("--limit", type=int, default=6, help="steps of an episode")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--table", type=Path, help="a document with the marks of the table")
    arguments = parser.parse_args()
    rows: dict[str, Any] = json.loads(arguments.json.read_text()) if arguments.json.is_file() else {}
    names = arguments.types.split(",") if arguments.types else sorted(miniwob_tasks())
    adapter = BrowserAdapter(
        load_config(
            None, ["environment.name=browser", f"environment.workers={arguments.workers}"]
        ).environment
    )
    with closing(adapter.open()) as world:
        for name in (name for name in names if name not in rows):
            rows[name] = survey_type(adapter, world, name, arguments.seeds, arguments.limit)
            write_json(arguments.json, rows)
            print(
                name,
                json.dumps({key: value for key, value in rows[name].items() if key != "partly_paid"}),
                flush=True,
            )
    if arguments.table:
        write_table(arguments.table, rows)


if __name__ == "__main__":
    main()
