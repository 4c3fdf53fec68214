"""Read an instruction of ALFWorld's templates as a goal."""

from __future__ import annotations

import re
from dataclasses import dataclass

from components.environments.alfworld.games import TREATMENTS

_TEMPLATES = (
    (
        "pick_two_obj_and_place",
        re.compile(r"^(?:put two (\w+) in (\w+)|find two (\w+) and put them in (\w+))$"),
    ),
    (
        "pick_clean_then_place_in_recep",
        re.compile(r"^(?:put a clean (\w+) in (\w+)|clean some (\w+) and put it in (\w+))$"),
    ),
    (
        "pick_heat_then_place_in_recep",
        re.compile(r"^(?:put a hot (\w+) in (\w+)|heat some (\w+) and put it in (\w+))$"),
    ),
    (
        "pick_cool_then_place_in_recep",
        re.compile(r"^(?:put a cool (\w+) in (\w+)|cool some (\w+) and put it in (\w+))$"),
    ),
    (
        "look_at_obj_in_light",
        re.compile(r"^(?:look at (\w+) under the (\w+)|examine the (\w+) with the (\w+))$"),
    ),
    ("pick_and_place_simple", re.compile(r"^(?:put a (\w+) in (\w+)|put some (\w+) on (\w+))$")),
)
RESULT = {"heat": "hot", "cool": "cool", "clean": "clean"}
"""Verb of a treatment -> the word for an object that was treated so."""


@dataclass(frozen=True)
class Goal:
    """A parsed instruction, in kinds of entities.

    In the family look_at_obj_in_light `lamp` is set and `parent` is ""; in the others it is the other way
    round.
    """

    family: str
    target: str
    parent: str
    lamp: str

    @property
    def verb(self) -> str:
        """`heat`, `cool` or `clean` where the target must be treated, else ""."""
        return TREATMENTS.get(self.family, ("", ""))[0]

    @property
    def target_count(self) -> int:
        """How many targets must be brought."""
        return 2 if self.family == "pick_two_obj_and_place" else 1


def read_goal(instruction: str) -> Goal | None:
    """Return the goal of an instruction that follows one of the package's templates, else None."""
    for family, template in _TEMPLATES:
        if match := template.match(instruction.strip().rstrip(".").lower()):
            target, place = (part for part in match.groups() if part)
            if family == "look_at_obj_in_light":
                return Goal(family, target, "", place)
            return Goal(family, target, place, "")
    return None
