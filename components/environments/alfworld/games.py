"""Generate household games offline from the floor plans, affordances and goals of the alfworld package.

Engine, domain and grammar are those of the package as well. Only the placement of the objects is ours, and
how many receptacles of a floor plan take part. A `GameSpec` describes one game completely, with names as the
player sees them. So it travels inside `Task.spec`, and a dream becomes a real game by writing the GameSpec
that it described (`embody.py`). Scores on such games are not ALFWorld benchmark scores.

Differences from the official games: no slicing, no receptacle objects, each receptacle has a location of its
own.
"""

from __future__ import annotations

import functools
import json
import random
from dataclasses import asdict, dataclass, field
from pathlib import Path

import alfworld
from alfworld.gen import constants
from alfworld.gen.goal_library import gdict

from components.errors import EnvironmentFailure

FAMILIES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
TREATMENTS = {
    "pick_clean_then_place_in_recep": ("clean", "sinkbasin"),
    "pick_heat_then_place_in_recep": ("heat", "microwave"),
    "pick_cool_then_place_in_recep": ("cool", "fridge"),
}
"""Family -> (the verb that treats the target, the kind of receptacle that does it)."""
STATIONS = dict(TREATMENTS.values())
"""Verb of a treatment -> the kind of receptacle that does it."""
ABILITIES = {"clean": "cleanable", "heat": "heatable", "cool": "coolable"}
"""Verb of a treatment -> the key of `AFFORDS`."""
LAMPS = ("desklamp", "floorlamp")
LAMP_PLACES = frozenset(
    {"desk", "sidetable", "dresser", "shelf", "coffeetable", "diningtable", "sofa", "armchair"}
)
"""Kinds of receptacles that a lamp can stand on."""
_LAYOUTS = Path(alfworld.__file__).parent / "gen" / "layouts"


def _lower(table: dict[str, list[str]]) -> dict[str, frozenset[str]]:
    return {key.lower(): frozenset(value.lower() for value in values) for key, values in table.items()}


HOLDS = _lower(constants.VAL_RECEPTACLE_OBJECTS)
"""Kind of receptacle -> the kinds of objects it can hold."""
AFFORDS = _lower(constants.VAL_ACTION_OBJECTS)
"""`heatable`, `coolable`, `cleanable` -> kinds of objects."""
OPENABLE = frozenset(kind.lower() for kind in constants.OPENABLE_CLASS_LIST)
NAMES = {
    name.lower(): name for name in [*constants.OBJECTS, *constants.RECEPTACLES, "SinkBasin", "BathtubBasin"]
}
"""Kind as the player sees it -> the package's own spelling."""
_MOVABLE_RECEPTACLES = frozenset(kind.lower() for kind in constants.MOVABLE_RECEPTACLES)
PLACES = frozenset(HOLDS) - _MOVABLE_RECEPTACLES
"""Kinds of receptacles that lie in no other."""
PORTABLE = frozenset().union(*HOLDS.values()) & NAMES.keys()
"""Kinds of objects that lie in some receptacle and that the engine has a name for."""


def kind(name: str) -> str:
    """Return the kind of an entity: `mug 1` -> `mug`."""
    return name.rsplit(" ", 1)[0]


def natural_order(name: str) -> tuple[str, int]:
    """Return a sort key that puts `drawer 2` before `drawer 10`."""
    head, _, number = name.rpartition(" ")
    return (head, int(number)) if number.isdigit() else (name, 0)


@dataclass(frozen=True)
class GameSpec:
    """One game: what is asked, which receptacles there are, and where every object starts."""

    family: str
    target: str
    parent: str
    lamp: str
    instruction: str
    receptacles: tuple[str, ...]
    placement: dict[str, str] = field(default_factory=dict)
    """Object -> the receptacle that it starts in."""
    floor: int = 0

    def to_json(self) -> str:
        """Return the game as one line of JSON, keys sorted."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> GameSpec:
        """Read what `to_json` wrote.

        Raises:
            EnvironmentFailure: the text is no game.
        """
        try:
            values = json.loads(text)
            return cls(**{**values, "receptacles": tuple(values["receptacles"])})
        except (ValueError, TypeError, KeyError) as error:
            raise EnvironmentFailure(
                f"The game {text[:80]!r} cannot be read: {error}.",
                "Expected the JSON of a generated game.",
                "Run `dreamgym collect` again.",
            ) from None


@functools.cache
def floors(family: str) -> tuple[int, ...]:
    """Return the numbers of the floor plans that can host `family`."""
    return tuple(
        floor for numbers in constants.SCENE_TYPE.values() for floor in numbers if _can_host(floor, family)
    )


@functools.cache
def _plan(floor: int) -> tuple[dict[str, int], frozenset[str], str]:
    """Return a floor plan's receptacle kinds with their counts, portable object kinds, and lamp."""
    points = json.loads((_LAYOUTS / f"FloorPlan{floor}-openable.json").read_text())
    objects = json.loads((_LAYOUTS / f"FloorPlan{floor}-objects.json").read_text())
    counts: dict[str, int] = {}
    for point in points:
        name = point.split("|")[0].lower()
        name += "basin" if "Basin" in point and "basin" not in name else ""
        if name in PLACES:
            counts[name] = counts.get(name, 0) + 1
    present = {name.lower() for name in objects}
    portable = {
        name
        for name in present
        if name in NAMES and any(name in HOLDS[place] for place in counts) and name not in LAMPS
    }
    portable -= {receptacle.lower() for receptacle in constants.RECEPTACLES} - _MOVABLE_RECEPTACLES
    lamp = next((lamp for lamp in LAMPS if lamp in present), "")
    return counts, frozenset(portable), lamp


def goals(
    family: str, receptacles: frozenset[str] | set[str], objects: frozenset[str] | set[str]
) -> list[tuple[str, str]]:
    """Return all (target kind, parent kind) that `family` can ask for among these kinds.

    The parent is "" in the family that asks for none.
    """
    if family == "look_at_obj_in_light":
        return sorted((target, "") for target in objects)
    verb, station = TREATMENTS.get(family, ("", ""))
    if station and station not in receptacles:
        return []
    able = objects & AFFORDS[ABILITIES[verb]] if verb else objects
    pairs = [
        (target, place)
        for target in able
        for place in receptacles
        if target in HOLDS[place] and place != station
    ]
    return sorted(
        (target, parent)
        for target, parent in pairs
        if any(target in HOLDS[place] for place in receptacles if place != parent)
    )


@functools.cache
def _can_host(floor: int, family: str) -> bool:
    counts, objects, lamp = _plan(floor)
    if family == "look_at_obj_in_light" and (not lamp or not LAMP_PLACES & set(counts)):
        return False
    return bool(goals(family, set(counts), objects))


def make_game(family: str, floor: int, seed: int, receptacles: int, objects: int) -> GameSpec:
    """Generate a game of `family` on `floor`, the same for the same arguments.

    Args:
        receptacles: the largest number of receptacles that take part; those that the goal needs always do.
        objects: objects placed in addition to the targets and the lamp.

    Raises:
        EnvironmentFailure: the floor plan cannot host the family.
    """
    if not _can_host(floor, family):
        raise EnvironmentFailure(
            f"The game {family} on FloorPlan{floor} (seed {seed}) cannot be generated: the plan lacks what "
            "the goal needs.",
            next_step=f"Choose one of the {len(floors(family))} plans that can, such as "
            f"{floors(family)[:5]}.",
        )
    rng = random.Random(f"{family}/{floor}/{seed}")
    counts, kinds, plan_lamp = _plan(floor)
    target, parent = rng.choice(goals(family, set(counts), kinds))
    names = _choose_receptacles(rng, counts, target, parent, TREATMENTS.get(family, ("", ""))[1], receptacles)
    lamp = plan_lamp if not parent else ""
    placement = _place_objects(
        rng,
        names,
        target,
        parent,
        lamp,
        sorted(kinds - {target}),
        objects,
        family == "pick_two_obj_and_place",
    )
    template = rng.choice(gdict[family]["templates"])
    instruction = template.format(obj=target, recep=parent, toggle=lamp, mrecep="")
    return GameSpec(
        family,
        target,
        parent,
        lamp,
        instruction,
        tuple(sorted(names, key=natural_order)),
        placement,
        floor,
    )


def _choose_receptacles(
    rng: random.Random, counts: dict[str, int], target: str, parent: str, station: str, most: int
) -> list[str]:
    """Return the names of the receptacles that take part.

    Those are what the goal needs, a place for the target to start in, then others at random. A goal without a
    parent needs a place for the lamp.
    """
    start = rng.choice(sorted(place for place in counts if target in HOLDS[place] and place != parent))
    lamp_place = "" if parent else rng.choice(sorted(LAMP_PLACES & set(counts)))
    needed = {parent, station, start, lamp_place} - {""}
    pool = [place for place in sorted(counts) for _ in range(counts[place] - (place in needed))]
    rng.shuffle(pool)
    kinds = sorted(needed) + pool[: max(0, rng.randint(max(3, most - 2), most) - len(needed))]
    numbers: dict[str, int] = {}
    names = []
    for name in kinds:
        numbers[name] = numbers.get(name, 0) + 1
        names.append(f"{name} {numbers[name]}")
    return names


def _place_objects(
    rng: random.Random,
    receptacles: list[str],
    target: str,
    parent: str,
    lamp: str,
    others: list[str],
    count: int,
    is_pair: bool,
) -> dict[str, str]:
    """Return object name -> receptacle name. Targets never start where the goal wants them."""
    placement: dict[str, str] = {}
    numbers: dict[str, int] = {}

    def put(name: str, places: list[str]) -> None:
        if places:
            numbers[name] = numbers.get(name, 0) + 1
            placement[f"{name} {numbers[name]}"] = rng.choice(places)

    for _ in range(2 if is_pair else rng.choice((1, 1, 2))):
        put(
            target, [place for place in receptacles if target in HOLDS[kind(place)] and kind(place) != parent]
        )
    if lamp:
        put(lamp, [place for place in receptacles if kind(place) in LAMP_PLACES])
    for _ in range(count if others else 0):
        name = rng.choice(others)
        put(name, [place for place in receptacles if name in HOLDS[kind(place)]])
    return dict(sorted(placement.items(), key=lambda item: natural_order(item[0])))


def initial_state(game: GameSpec) -> str:
    """Return the state in which every episode of `game` starts, in the form of `states.py`."""
    return f"Room: {', '.join(game.receptacles)}. Holding nothing."
