"""Settings of a small generated shop, and builders of products, sessions and trajectories."""

from __future__ import annotations

from components.config.worlds.environment_config import EnvironmentConfig
from components.environments.webshop.shop.products import Goal, Product
from components.environments.webshop.shop.session import Session
from components.environments.webshop.states import INITIAL_STATE
from components.records import Task, Trajectory, Transition

INSTRUCTION = "i want a cotton slim oxford shirt in navy, large, and price lower than 40.00 dollars"


def settings(**webshop):
    """Return the config of a generated shop with 600 products."""
    return EnvironmentConfig(name="webshop", webshop={"catalogue": "generated", "products": 600} | webshop)


def make_product(name="Halden Cotton Slim Oxford Shirt, Button Collar", price=24.99, **changes):
    values = {
        "asin": "B0001",
        "name": name,
        "category": "clothing",
        "query": "oxford shirt",
        "product_category": "clothing › shirts › oxford shirt",
        "description": "A shirt. Of cotton: soft.",
        "bullets": ("cotton", "slim", "washable"),
        "options": {"color": ("navy", "red"), "size": ("small", "large")},
        "attributes": ("cotton", "slim", "washable"),
        "prices": (price,),
        "price": price,
    }
    return Product(**values | changes)


GOAL = Goal(
    "B0001/0",
    "B0001",
    "clothing",
    "oxford shirt",
    "Halden Cotton Slim Oxford Shirt, Button Collar",
    "clothing › shirts › oxford shirt",
    INSTRUCTION,
    ("cotton", "slim"),
    ("navy", "large"),
    40.0,
)


class Shelf:
    """A shop that finds the same products for every query, and nothing for `moon`."""

    def __init__(self, *products):
        self.products = list(products)

    def search(self, query):
        return [] if "moon" in query else self.products


def make_session(*products):
    """Return a session in a shop with these products, at its first page."""
    return Session(Shelf(*products or [make_product()]), GOAL)


def make_history(*states, instruction=INSTRUCTION, won=False, premise=""):
    """Return a trajectory through `states`, with arbitrary actions."""
    task = Task(
        "webshop/clothing/oxford-shirt/B0001-0", "webshop", "train", instruction, INITIAL_STATE, "clothing"
    )
    steps, state = [], INITIAL_STATE
    for number, following in enumerate(states):
        last = number == len(states) - 1
        bought = following.startswith("bought")
        steps.append(
            Transition(task.id, "e", number, state, "?", following, float(won and last), bought and last)
        )
        state = following
    return Trajectory(task, tuple(steps), premise)
