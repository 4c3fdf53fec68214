"""Build the real shop that a dream described, in which searches find what the dream showed.

A dream may rightly invent what no one has seen yet. So a dreamed episode is judged in a shop in which
everything that it revealed is true from the start. Each of its searches finds the results that it listed,
with the prices, options and features that it gave them. The replay of the dreamed actions there shows whether
the dream drew the right conclusions.

1. If the dream describes a result in two ways, the first one counts. What it said later is then a state that
   the shop does not confirm.
2. What decides a purchase and was never looked at (features that were not read) is granted to a success and
   denied to a failure.
3. Of official products a state shows less than the reward compares. There a success is granted what it does
   not show, the kind of the product included.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from components.environments.webshop.goals import read_requirements
from components.environments.webshop.knowledge import Item, Knowledge
from components.environments.webshop.shop.assortment import BY_NAME
from components.environments.webshop.shop.products import NO_LIMIT, Goal, Product
from components.environments.webshop.shop.session import RESULTS_PER_PAGE
from components.environments.webshop.states import ParsedState, read_state
from components.errors import EnvironmentFailure
from components.records import TRAIN, Task, Trajectory

DESCRIBED = "described"
_NOT_SHOWN = Product("", "untold", "", "", "", "", (), {}, (), (1.0,), 1.0)
"""Stands for a result that the dream did not show."""


@dataclass(frozen=True)
class DescribedShop:
    """A shop in which a search finds what a dream showed: query -> products in the order of their ranks."""

    goal: Goal
    results: Mapping[str, list[Product]]

    def search(self, query: str) -> list[Product]:
        """Return what the dream found; nothing for a search that it did not make."""
        return self.results.get(query, [])

    def to_spec(self) -> str:
        """Return the spec of a task in this shop."""
        results = {
            query: [None if product is _NOT_SHOWN else asdict(product) for product in products]
            for query, products in self.results.items()
        }
        return json.dumps({"catalogue": DESCRIBED, "goal": asdict(self.goal), "results": results})

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> DescribedShop:
        """Return the shop of a spec that `to_spec` wrote."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in spec["goal"].items()
        }
        return cls(
            Goal(**values),
            {
                query: [_product_from_spec(values) for values in products]
                for query, products in spec["results"].items()
            },
        )


def _product_from_spec(values: dict[str, Any] | None) -> Product:
    if values is None:
        return _NOT_SHOWN
    lists = {name: tuple(values[name]) for name in ("bullets", "attributes", "prices")}
    return Product(
        **{
            **values,
            **lists,
            "options": {name: tuple(options) for name, options in values["options"].items()},
        }
    )


def embody(dreamed: Trajectory, goals: Mapping[str, Goal]) -> Task:
    """Return the task in the shop that `dreamed` described.

    Args:
        dreamed: the dreamed episode.
        goals: the catalogue's goals, by key.

    Raises:
        EnvironmentFailure: the instruction is neither a goal's nor of a wording that can be read.
    """
    goal = goal_of_task(dreamed.task, goals)
    knowledge = _read_first_descriptions(dreamed)
    purchase = _find_purchase(dreamed)
    results: dict[str, list[Product]] = {}
    for query, pages in knowledge.page_counts.items():
        products = [_NOT_SHOWN] * _count_results(knowledge, query, pages)
        for (other, rank), item in knowledge.items.items():
            if other == query and rank <= len(products):
                is_won = dreamed.success and purchase == (query, rank)
                products[rank - 1] = _make_described_product(
                    item, goal, is_won, read_requirements(dreamed.task.instruction).is_exact
                )
        results[query] = products
    spec = DescribedShop(goal, results).to_spec()
    return replace(dreamed.task, id=f"{dreamed.task.id}/embodied", split=TRAIN, spec=spec, parent="")


def read_spec(task: Task) -> dict[str, Any]:
    """Return the spec of a WebShop task.

    Raises:
        EnvironmentFailure: the task has another spec.
    """
    try:
        spec = json.loads(task.spec)
    except ValueError:
        spec = None
    if not isinstance(spec, dict) or "catalogue" not in spec:
        raise EnvironmentFailure(
            f"The task {task.id} has the spec {task.spec[:80]!r}.", "Expected one of WebShop's."
        )
    return spec


def goal_of_task(task: Task, goals: Mapping[str, Goal]) -> Goal:
    """Return the goal of a task.

    It is the catalogue's where the instruction is the goal's own, else what the instruction says.

    Raises:
        EnvironmentFailure: it is neither.
    """
    spec = read_spec(task)
    if spec["catalogue"] == DESCRIBED:
        return DescribedShop.from_spec(spec).goal
    catalogue_goal = goals.get(spec.get("goal", ""))
    if catalogue_goal and catalogue_goal.instruction == task.instruction:
        return catalogue_goal
    requirements = read_requirements(task.instruction)
    if not requirements.is_exact:
        raise EnvironmentFailure(
            f"The dreamed task {task.instruction!r} follows no wording of the generated goals."
        )
    kind = BY_NAME[requirements.kind]
    return Goal(
        "",
        "",
        kind.department,
        kind.name,
        kind.name,
        _category(kind.name),
        task.instruction,
        requirements.attributes,
        requirements.options,
        float(requirements.limit or NO_LIMIT),
    )


def _category(name: str) -> str:
    return f"{BY_NAME[name].department} › {BY_NAME[name].shelf} › {name}"


class _FirstDescription(Knowledge):
    """Knowledge that keeps the first description of each result."""

    def _add_results(self, page: ParsedState) -> None:
        page_count = self.page_counts.get(page.query)
        super()._add_results(page)
        self.page_counts[page.query] = page_count or page.pages

    def _add_item_page(self, page: ParsedState) -> None:
        key = (self.query, page.rank)
        before = self.items.get(key)
        if before is None:
            return
        super()._add_item_page(page)
        after = self.items[key]
        groups = after.groups if before.groups is None else before.groups
        features = after.features if before.features is None else before.features
        self.items[key] = replace(
            after, groups=groups, features=features, description=before.description or after.description
        )


def _read_first_descriptions(dreamed: Trajectory) -> Knowledge:
    knowledge = _FirstDescription()
    for state in dreamed.states:
        knowledge.add_state(state)
    return knowledge


def _find_purchase(dreamed: Trajectory) -> tuple[str, int]:
    """Return the query and rank of what the episode bought; ("", 0) if nothing."""
    query = ""
    for state in dreamed.states:
        page = read_state(state)
        query = page.query if page.event == "results" else query
        if page.event == "bought":
            return query, page.rank
    return "", 0


def _count_results(knowledge: Knowledge, query: str, pages: int) -> int:
    """Return how many results a search has.

    As many as its last page shows, or whole pages where the last page was not seen.
    """
    last_page = knowledge.listed_ranks.get((query, pages))
    return (
        pages * RESULTS_PER_PAGE
        if last_page is None
        else (pages - 1) * RESULTS_PER_PAGE + min(RESULTS_PER_PAGE, len(last_page))
    )


def _make_described_product(item: Item, goal: Goal, is_won: bool, is_exact: bool) -> Product:
    """Return the product that a result must be.

    Args:
        item: what the dream said of the result.
        goal: the task's.
        is_won: it was bought with success.
        is_exact: the states show all that the reward compares.
    """
    is_same_kind = set(goal.query.split()) <= set(item.title.split()) or (is_won and not is_exact)
    prices = tuple(float(dollars) for dollars in item.price.split(" to "))
    features = item.features or ()
    granted = goal.attributes if is_won and (item.features is None or not is_exact) else ()
    return Product(
        asin="",
        name=f"{item.title}, {goal.name}" if is_won and not is_exact else item.title,
        category=goal.category if is_same_kind else "",
        query=goal.query if is_same_kind else "",
        product_category=goal.product_category if is_same_kind else "",
        description=item.description,
        bullets=features,
        options=dict(item.groups or ()),
        attributes=(*features, *granted),
        prices=prices,
        price=min(prices),
    )
