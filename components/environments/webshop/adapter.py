"""WebShop in text mode as one environment of the pipeline: its tasks, its shop, and its capabilities."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from components.config.worlds.environment_config import EnvironmentConfig
from components.config.worlds.webshop_config import VARIABLE
from components.environments.capabilities import Adapter
from components.environments.protocol import Behaviour, Fact, RealEnvironment
from components.environments.validation_split import require_split
from components.environments.webshop import (
    behaviours,
    coherence,
    feasibility,
    premise,
    progress,
    quotes,
    reasoning,
    thoughts,
)
from components.environments.webshop.embody import DESCRIBED, DescribedShop, embody, read_spec
from components.environments.webshop.environment import WebshopEnvironment
from components.environments.webshop.shop.assortment import HELD_OUT_KINDS
from components.environments.webshop.shop.catalogue import GENERATED, Catalogue, load_catalogue
from components.environments.webshop.shop.official import official_folder
from components.environments.webshop.shop.products import Goal
from components.environments.webshop.shop.session import Session, parse_action
from components.environments.webshop.states import INITIAL_STATE, contradicts, read_state, state_facts
from components.errors import EnvironmentFailure
from components.records import TEST, TRAIN, VALIDATION, Task, Trajectory


class WebshopAdapter(Adapter):
    """The adapter of WebShop, with generated products or the official ones."""

    name = "webshop"
    splits = (TRAIN, VALIDATION, TEST)

    def __init__(self, config: EnvironmentConfig) -> None:
        """Read or generate the catalogue.

        Raises:
            EnvironmentFailure: the official files are asked for and cannot be read, or official goals are
                asked for with generated products.
        """
        self.config = config
        self.source = config.webshop.source
        if self.source == GENERATED and config.webshop.goals != "human":
            raise EnvironmentFailure(
                f"environment.webshop.goals={config.webshop.goals}, but the products are generated: "
                "their goals are made with them.",
                next_step="Leave it out, or name the folder of the official files: export WEBSHOP_DATA=...",
            )
        self.catalogue: Catalogue = load_catalogue(config)

    def describe_world(self) -> str:
        """Return what the shop is."""
        return (
            "A web shop in text: a search page, pages of results, and pages of items with a price and "
            "options. An episode ends with buying an item."
        )

    def describe_actions(self) -> str:
        """Return the form of each action."""
        return (
            "Actions: search[words] on the search page; click[X] elsewhere, where X is an item, an option, "
            "buy now, back to search, < prev or next >, as the page names it."
        )

    @property
    def notice(self) -> str:
        """Which scores are not those of the benchmark, and why."""
        if self.source == GENERATED:
            return "Products and goals are generated: scores are not WebShop benchmark scores."
        unpriced_count = self.catalogue.unpriced_count
        left_out = (
            f" Left out: {unpriced_count} products without a price in dollars." if unpriced_count else ""
        )
        return (
            "WebShop's own products and goals, but another search engine and noun tagger: scores are near "
            "the benchmark's, not equal. "
            "Fewer than its 500 test goals (evaluation.tasks) are no fair sample of them: categories come "
            "in turn, and new kinds first." + left_out
        )

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        """Return `count` different goals, families in turn.

        In the splits validation and test every other goal asks for a kind of product that no training goal
        asks for.

        Raises:
            EnvironmentFailure: an unknown split, or fewer goals than asked for.
        """
        require_split(split, self.splits)
        goals = self.catalogue.splits[split]
        if len(goals) < count:
            raise EnvironmentFailure(
                f"The {self.source} catalogue has {len(goals)} goals of the split {split}.",
                f"Expected at least {count}.",
                "Raise environment.webshop.products."
                if self.source == GENERATED
                else "Use the larger product files, or ask for fewer.",
            )
        goals_in_order = random.Random(f"{split}/{seed}").sample(goals, len(goals))
        trained_queries = self.catalogue.trained_queries
        trained_goals = _in_turn(
            (goal for goal in goals_in_order if goal.query in trained_queries), lambda goal: goal.category
        )
        unseen_goals = _in_turn(
            (goal for goal in goals_in_order if goal.query not in trained_queries), lambda goal: goal.category
        )
        mixed_goals = _in_turn([*trained_goals, *unseen_goals], lambda goal: goal.query in trained_queries)
        return [self._task(goal, split) for goal in mixed_goals[:count]]

    def _task(self, goal: Goal, split: str) -> Task:
        name = f"{self.name}/{goal.category}/{_dashed(goal.query)}/{goal.key.replace('/', '-')}"
        spec = json.dumps(self._shop | {"goal": goal.key}, sort_keys=True)
        return Task(name, self.name, split, goal.instruction, INITIAL_STATE, goal.category, spec)

    @property
    def _shop(self) -> dict[str, Any]:
        """The part of a task's spec that names the catalogue."""
        sizes = (
            {"products": self.config.webshop.products, "seed": self.config.seed}
            if self.source == GENERATED
            else {}
        )
        return {"catalogue": self.source, **sizes}

    def open(
        self, budget: int | None = None, *, workers: int | None = None, stock: bool = False
    ) -> RealEnvironment:
        """Open the shop in this process, whatever `workers` says: it is fast.

        `stock` changes nothing: the shop has no speed-ups to leave out.
        """
        return WebshopEnvironment(self._session, budget)

    def _session(self, task: Task) -> Session:
        spec = read_spec(task)
        if spec["catalogue"] == DESCRIBED:
            shop = DescribedShop.from_spec(spec)
            return Session(shop, shop.goal)
        catalogue_name = {name: value for name, value in spec.items() if name != "goal"}
        goal = self.catalogue.goals.get(str(spec.get("goal")))
        if catalogue_name != self._shop or goal is None or goal.instruction != task.instruction:
            raise EnvironmentFailure(
                f"The task {task.id} is goal {spec.get('goal')} of a catalogue with {catalogue_name}.",
                f"This config opens one with {self._shop}"
                + (", where that goal says the same." if catalogue_name == self._shop else "."),
                "Record the data again (dreamgym collect), or give the config that it was recorded with; "
                "with webshop.catalogue=auto "
                f"also ${VARIABLE} decides, which is {'' if official_folder() else 'not '}set here.",
            )
        return Session(self.catalogue, goal)

    def behaviour(self, name: str, task: Task, seed: int) -> Behaviour:
        """See `behaviours.make_behaviour`."""
        return behaviours.make_behaviour(name, task, seed)

    def reflect(self, trajectory: Trajectory, alternatives: Sequence[tuple[str, str]], thought: str) -> str:
        """See `thoughts.reflect`."""
        return thoughts.reflect(trajectory, alternatives, thought)

    def reason(self, trajectory: Trajectory, action: str, next_state: str, reward: float) -> str:
        """See `reasoning.reason`."""
        return reasoning.reason(trajectory, action, next_state, reward)

    def grounded(self, task: Task, states: Sequence[str], action: str, reasoning: str) -> int:
        """See `quotes.grounded`."""
        return quotes.grounded(task, states, action, reasoning)

    def judged(self, trajectory: Trajectory) -> float | None:
        """See `reasoning.judged`."""
        return reasoning.judged(trajectory)

    def facts(self, trajectory: Trajectory) -> set[Fact]:
        """Return what the last state asserts by itself."""
        return state_facts(trajectory.states[-1])

    def contradicts(self, claim: Fact, truth: set[Fact]) -> bool:
        """See `states.contradicts`."""
        return contradicts(claim, truth)

    def revealing(self, trajectory: Trajectory, action: str, next_state: str) -> bool:
        """See `reasoning.revealing`."""
        return reasoning.revealing(trajectory, next_state)

    def well_formed(self, action: str) -> bool:
        """Return True if `action` is `search[...]` or `click[...]`."""
        return bool(parse_action(action)[0])

    def refused(self, next_state: str) -> bool:
        """Return True if the shop says that nothing happens."""
        return read_state(next_state).event == "failed"

    def contradiction(self, trajectory: Trajectory, next_state: str) -> str:
        """See `coherence.contradiction`."""
        return coherence.contradiction(trajectory, next_state)

    def premise(self, trajectory: Trajectory) -> str:
        """See `premise.premise`."""
        return premise.premise(trajectory)

    def objection(self, task: Task, premise_text: str) -> str:
        """See `premise.objection`."""
        return premise.objection(task, premise_text)

    def progress(self, trajectory: Trajectory) -> float:
        """See `progress.progress`."""
        return progress.progress(trajectory)

    def embody(self, dreamed: Trajectory) -> Task:
        """See `embody.embody`."""
        return embody(dreamed, self.catalogue.goals)

    def unseen(self, task: Task) -> bool:
        """Return True if no training goal asks for this kind of product."""
        parts = task.id.split("/")
        return len(parts) > 2 and parts[2] not in self._trained

    @functools.cached_property
    def _trained(self) -> frozenset[str]:
        return frozenset(map(_dashed, self.catalogue.trained_queries))

    def feasible(self, task: Task) -> str:
        """See `feasibility.feasible`. A training task may not ask for a kind of product that is held out."""
        barred_kinds = (
            HELD_OUT_KINDS if self.source == GENERATED and task.split == TRAIN else frozenset[str]()
        )
        return feasibility.feasible(
            task.instruction,
            self.catalogue,
            allow_free_text=self.source != GENERATED,
            barred_kinds=barred_kinds,
        )


def _dashed(query: str) -> str:
    """Return a query as part of a task's id."""
    return query.replace("/", " ").replace(" ", "-")


def _in_turn(goals: Iterable[Goal], group: Callable[[Goal], Hashable]) -> list[Goal]:
    """Return the same goals, one of each group in turn, as long as they last."""
    groups: dict[Hashable, list[Goal]] = {}
    for goal in goals:
        groups.setdefault(group(goal), []).append(goal)
    order = sorted(groups, key=str)
    longest = max(map(len, groups.values()), default=0)
    return [groups[name][place] for place in range(longest) for name in order if place < len(groups[name])]
