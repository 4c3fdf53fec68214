"""Print how far the held-out games of the kitchen with known foods are new.

    python docs/scripts/known_foods_overlap.py     # some 20 minutes the first time

Reads the tasks in examples/worlds/recorded/textworld_known_foods, and compiles their games, 2 s each.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2])]

from result_files import read_cells  # noqa: E402

from components.trajectories.store import read_tasks  # noqa: E402
from examples.worlds.textworld_cooking import Cooking, compiled  # noqa: E402

TASKS = Path(__file__).parents[2] / "examples/worlds/recorded/textworld_known_foods/tasks"

CELLS = ("worlds-textworld-known", "worlds-textworld-known-2")


@dataclass(frozen=True)
class Game:
    """A game: the facts that it begins with and its recipe, the recipe's food, and the best actions."""

    seed: int
    facts: frozenset[str]
    food: str
    actions: tuple[str, ...]


def games(split: str) -> list[Game]:
    """Return the recorded games of a split."""
    found = []
    for task in read_tasks(TASKS / f"{split}.parquet"):
        seed = int(task.id.rpartition("-")[2])
        game = json.loads(compiled("train", seed).with_suffix(".json").read_text(encoding="utf-8"))
        names = {entity: values["name"] for entity, values in game["infos"]}
        facts = {
            " ".join([fact["name"], *(names.get(one["name"]) or one["name"] for one in fact["arguments"])])
            for fact in game["world"]
        }
        about = game["metadata"]
        (food, *_) = about["ingredients"][0]
        found.append(Game(seed, frozenset(facts | {about["recipe"]}), food, tuple(about["walkthrough"])))
    return found


def is_won_by_one(game: Game, ways: Iterable[tuple[str, ...]]) -> bool:
    """Return whether one of the ways, lists of actions, wins the game."""
    world = Cooking()
    for way in ways:
        world.start(split="train", seed=game.seed)
        if any(world.act(action).reward for action in way):
            world.close()
            return True
    world.close()
    return False


def main() -> None:
    """Print what equals the training games, and the success of each cell on the other games."""
    training, held_out = games("train"), games("test")
    known_facts = {game.facts for game in training}
    foods = {game.food for game in training}
    ways = {food: sorted({game.actions for game in training if game.food == food}) for food in foods}
    equal = sorted(game.seed for game in held_out if game.facts in known_facts)
    won = sum(is_won_by_one(game, ways.get(game.food, ())) for game in held_out)
    print(f"{len(held_out)} held-out games, {len(training)} training games of {len(foods)} foods")
    print(f"equal to a training game in every fact and the recipe: {len(equal)} {equal}")
    print(f"won by the best actions of a training game with that food: {won}")
    for method, cells in read_cells(*CELLS).items():
        for cell in cells:
            new = [wins for game, wins in cell.games.items() if int(game.rpartition("-")[2]) not in equal]
            print(f"{method}, seed {cell.seed}: {sum(new) / len(new):.3f} of the {len(new)} others")


if __name__ == "__main__":
    main()
