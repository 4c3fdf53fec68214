"""From a dream to the real shop that it described: searches that find what the dream showed.

A dream may rightly invent what no one has seen yet. So a dreamed episode is judged in a shop in which
everything that it revealed is true from the start: each of its searches finds the results that it listed,
with the prices, options and features that it gave them. Replaying the dreamed actions there tells whether the
dream drew the right conclusions. Of a result that the dream describes in two ways the first one counts; what
it said later is then a state that the shop does not confirm. What decides a purchase and was never looked at
(features that were not read) is granted to a success and denied to a failure. Of official products a state
shows less than the reward compares; there a success is granted what it does not show, the kind of the product
included.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from components.environments.webshop.goals import read_wants
from components.environments.webshop.knowledge import Item, Knowledge
from components.environments.webshop.shop.assortment import BY_NAME
from components.environments.webshop.shop.products import NO_LIMIT, Goal, Product
from components.environments.webshop.shop.session import PAGE
from components.environments.webshop.states import read_state
from components.errors import EnvironmentFailure
from components.records import TRAIN, Task, Trajectory

DESCRIBED = "described"
_UNTOLD = Product("", "untold", "", "", "", "", (), {}, (), (1.0,), 1.0)
"""A result that the dream did not show."""


@dataclass(frozen=True)
class DescribedShop:
    """A shop in which a search finds what a dream showed: query -> products in the order of their ranks."""

    goal: Goal
    results: Mapping[str, list[Product]]

    def search(self, query: str) -> list[Product]:
        """What the dream found, nothing for a search that it did not make."""
        return self.results.get(query, [])

    def to_spec(self) -> str:
        """The spec of a task in this shop."""
        results = {
            query: [None if product is _UNTOLD else asdict(product) for product in found]
            for query, found in self.results.items()
        }
        return json.dumps({"catalogue": DESCRIBED, "goal": asdict(self.goal), "results": results})

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> DescribedShop:
        """The shop of a spec that `to_spec` wrote."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in spec["goal"].items()
        }
        return cls(
            Goal(**values),
            {query: [_product(values) for values in found] for query, found in spec["results"].items()},
        )


def _product(values: dict[str, Any] | None) -> Product:
    if values is None:
        return _UNTOLD
    lists = {name: tuple(values[name]) for name in ("bullets", "attributes", "prices")}
    return Product(
        **{**values, **lists, "options": {name: tuple(listed) for name, listed in values["options"].items()}}
    )


def embody(dreamed: Trajectory, goals: Mapping[str, Goal]) -> Task:
    """The task of the shop that `dreamed` described.

    Args:
        goals: the catalogue's, by key.

    Raises:
        EnvironmentFailure: the instruction is neither a goal's nor of a wording that can be read.
    """
    goal = goal_of(dreamed.task, goals)
    known, bought = _first_told(dreamed), _bought(dreamed)
    results: dict[str, list[Product]] = {}
    for query, pages in known.lengths.items():
        found = [_UNTOLD] * _length(known, query, pages)
        for (other, rank), item in known.items.items():
            if other == query and rank <= len(found):
                won = dreamed.success and bought == (query, rank)
                found[rank - 1] = _described(item, goal, won, read_wants(dreamed.task.instruction).exact)
        results[query] = found
    spec = DescribedShop(goal, results).to_spec()
    return replace(dreamed.task, id=f"{dreamed.task.id}/embodied", split=TRAIN, spec=spec, parent="")


def read_spec(task: Task) -> dict[str, Any]:
    """The spec of a WebShop task. Raises EnvironmentFailure if it is none."""
    try:
        spec = json.loads(task.spec)
    except ValueError:
        spec = None
    if not isinstance(spec, dict) or "catalogue" not in spec:
        raise EnvironmentFailure(
            f"The task {task.id} has the spec {task.spec[:80]!r}.", "Expected one of WebShop's."
        )
    return spec


def goal_of(task: Task, goals: Mapping[str, Goal]) -> Goal:
    """The goal of a task: the catalogue's where the instruction is its own, else what the instruction says.

    Raises:
        EnvironmentFailure: it is neither.
    """
    spec = read_spec(task)
    if spec["catalogue"] == DESCRIBED:
        return DescribedShop.from_spec(spec).goal
    known = goals.get(spec.get("goal", ""))
    if known and known.instruction == task.instruction:
        return known
    wants = read_wants(task.instruction)
    if not wants.exact:
        raise EnvironmentFailure(
            f"The dreamed task {task.instruction!r} follows no wording of the generated goals."
        )
    kind = BY_NAME[wants.kind]
    return Goal(
        "",
        "",
        kind.department,
        kind.name,
        kind.name,
        _category(kind.name),
        task.instruction,
        wants.attributes,
        wants.options,
        float(wants.limit or NO_LIMIT),
    )


def _category(name: str) -> str:
    return f"{BY_NAME[name].department} › {BY_NAME[name].shelf} › {name}"


class _FirstTold(Knowledge):
    """Knowledge in which what was said first of a result stays."""

    def _list(self, seen: Any) -> None:
        length = self.lengths.get(seen.query)
        super()._list(seen)
        self.lengths[seen.query] = length or seen.pages

    def _look(self, seen: Any) -> None:
        key = (self.query, seen.rank)
        before = self.items.get(key)
        if before is None:
            return
        super()._look(seen)
        after = self.items[key]
        groups = after.groups if before.groups is None else before.groups
        features = after.features if before.features is None else before.features
        self.items[key] = replace(
            after, groups=groups, features=features, description=before.description or after.description
        )


def _first_told(dreamed: Trajectory) -> Knowledge:
    known = _FirstTold()
    for state in dreamed.states:
        known.see(state)
    return known


def _bought(dreamed: Trajectory) -> tuple[str, int]:
    """The query and rank of what the episode bought; ("", 0) if nothing."""
    query = ""
    for state in dreamed.states:
        seen = read_state(state)
        query = seen.query if seen.event == "results" else query
        if seen.event == "bought":
            return query, seen.rank
    return "", 0


def _length(known: Knowledge, query: str, pages: int) -> int:
    """How many results the search has: as many as its last page shows, or whole pages where that was not
    seen.
    """
    last = known.listings.get((query, pages))
    return pages * PAGE if last is None else (pages - 1) * PAGE + min(PAGE, len(last))


def _described(item: Item, goal: Goal, won: bool, exact: bool) -> Product:
    """The product that a result must be. `won`: it was bought with success; `exact`: its states show all that
    the reward compares.
    """
    same_kind = set(goal.query.split()) <= set(item.title.split()) or (won and not exact)
    prices = tuple(float(dollars) for dollars in item.price.split(" to "))
    features = item.features or ()
    hidden = goal.attributes if won and (item.features is None or not exact) else ()
    return Product(
        asin="",
        name=f"{item.title}, {goal.name}" if won and not exact else item.title,
        category=goal.category if same_kind else "",
        query=goal.query if same_kind else "",
        product_category=goal.product_category if same_kind else "",
        description=item.description,
        bullets=features,
        options=dict(item.groups or ()),
        attributes=(*features, *hidden),
        prices=prices,
        price=min(prices),
    )
