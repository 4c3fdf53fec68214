"""Household games made offline: the engine, domain, grammar, floor plans, affordances and goals are those of
the alfworld package.

Only the placement of the objects is ours, and how many of a floor plan's receptacles take part. A `World`
describes one game completely and readably (names as the player sees them), so it travels inside `Task.spec`,
and a dream can be turned into a real game by writing the World that the dream described (`embody.py`). Scores
on such games are not ALFWorld benchmark scores.

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
from alfworld.info import ALFRED_PDDL_PATH, ALFRED_TWL2_PATH

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
LAMPS = ("desklamp", "floorlamp")
_LAYOUTS = Path(alfworld.__file__).parent / "gen" / "layouts"


def _lower(table: dict[str, object]) -> dict[str, frozenset[str]]:
    return {key.lower(): frozenset(value.lower() for value in values) for key, values in table.items()}  # type: ignore[attr-defined]


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
    """The kind of an entity: `mug 1` -> `mug`."""
    return name.rsplit(" ", 1)[0]


def natural(name: str) -> tuple[str, int]:
    """Sort key that puts `drawer 2` before `drawer 10`."""
    head, _, number = name.rpartition(" ")
    return (head, int(number)) if number.isdigit() else (name, 0)


@dataclass(frozen=True)
class World:
    """One game: what is asked, which receptacles there are, and where every object starts."""

    family: str
    target: str
    parent: str
    lamp: str
    instruction: str
    receptacles: tuple[str, ...]
    placement: dict[str, str] = field(default_factory=dict)
    floor: int = 0

    def to_json(self) -> str:
        """The World as one line of JSON, keys sorted."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> World:
        """Read `to_json` back.

        Raises:
            EnvironmentFailure: the text is not a World.
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
    """Numbers of the floor plans that can host `family`."""
    return tuple(floor for kinds in constants.SCENE_TYPE.values() for floor in kinds if _hosts(floor, family))


@functools.cache
def _plan(floor: int) -> tuple[dict[str, int], frozenset[str], str]:
    """Receptacle kinds with their counts, portable object kinds, and the lamp of a floor plan."""
    points = json.loads((_LAYOUTS / f"FloorPlan{floor}-openable.json").read_text())
    things = json.loads((_LAYOUTS / f"FloorPlan{floor}-objects.json").read_text())
    counts: dict[str, int] = {}
    for point in points:
        name = point.split("|")[0].lower()
        name += "basin" if "Basin" in point and "basin" not in name else ""
        if name in PLACES:
            counts[name] = counts.get(name, 0) + 1
    present = {thing.lower() for thing in things}
    portable = {t for t in present if t in NAMES and any(t in HOLDS[r] for r in counts) and t not in LAMPS}
    portable -= {receptacle.lower() for receptacle in constants.RECEPTACLES} - _MOVABLE_RECEPTACLES
    lamp = next((lamp for lamp in LAMPS if lamp in present), "")
    return counts, frozenset(portable), lamp


def goals(
    family: str, receptacles: frozenset[str] | set[str], objects: frozenset[str] | set[str]
) -> list[tuple[str, str]]:
    """All (target kind, parent kind) that `family` can ask for among these kinds; the parent is "" where none
    is asked.
    """
    if family == "look_at_obj_in_light":
        return sorted((target, "") for target in objects)
    verb, station = TREATMENTS.get(family, ("", ""))
    if station and station not in receptacles:
        return []
    able = (
        objects & AFFORDS[{"clean": "cleanable", "heat": "heatable", "cool": "coolable"}[verb]]
        if verb
        else objects
    )
    pairs = [(t, p) for t in able for p in receptacles if t in HOLDS[p] and p != station]
    return sorted((t, p) for t, p in pairs if any(t in HOLDS[r] for r in receptacles if r != p))


@functools.cache
def _hosts(floor: int, family: str) -> bool:
    counts, objects, lamp = _plan(floor)
    if family == "look_at_obj_in_light" and (not lamp or not _lamp_hosts(set(counts))):
        return False
    return bool(goals(family, set(counts), objects))


def _lamp_hosts(kinds: set[str]) -> list[str]:
    return sorted(
        kinds & {"desk", "sidetable", "dresser", "shelf", "coffeetable", "diningtable", "sofa", "armchair"}
    )


def make_world(family: str, floor: int, seed: int, receptacles: int, objects: int) -> World:
    """A game of `family` on `floor`, the same for the same arguments.

    Args:
        receptacles: most receptacles that take part (those the goal needs are always among them).
        objects: objects placed beside the targets and the lamp.

    Raises:
        EnvironmentFailure: the floor plan cannot host the family.
    """
    if not _hosts(floor, family):
        raise EnvironmentFailure(
            f"The game {family} on FloorPlan{floor} (seed {seed}) cannot be generated: the plan lacks what "
            "the goal needs.",
            next_step=f"Choose one of the {len(floors(family))} plans that can, such as "
            f"{floors(family)[:5]}.",
        )
    rng = random.Random(f"{family}/{floor}/{seed}")
    counts, kinds, lamp = _plan(floor)
    target, parent = rng.choice(goals(family, set(counts), kinds))
    chosen = _choose_receptacles(
        rng, counts, target, parent, TREATMENTS.get(family, ("", ""))[1], receptacles, look=not parent
    )
    lamp = lamp if not parent else ""
    placement = _place(
        rng,
        chosen,
        target,
        parent,
        lamp,
        sorted(kinds - {target}),
        objects,
        pair=family == "pick_two_obj_and_place",
    )
    template = rng.choice(gdict[family]["templates"])
    instruction = template.format(obj=target, recep=parent, toggle=lamp, mrecep="")
    return World(
        family, target, parent, lamp, instruction, tuple(sorted(chosen, key=natural)), placement, floor
    )


def _choose_receptacles(
    rng: random.Random,
    counts: dict[str, int],
    target: str,
    parent: str,
    station: str,
    most: int,
    *,
    look: bool,
) -> list[str]:
    """Names of the receptacles that take part: what the goal needs, a start for the target, then others at
    random.
    """
    start = rng.choice(sorted(r for r in counts if target in HOLDS[r] and r != parent))
    needed = {parent, station, start, rng.choice(_lamp_hosts(set(counts))) if look else ""} - {""}
    pool = [r for r in sorted(counts) for _ in range(counts[r] - (r in needed))]
    rng.shuffle(pool)
    kinds = sorted(needed) + pool[: max(0, rng.randint(max(3, most - 2), most) - len(needed))]
    seen: dict[str, int] = {}
    names = []
    for name in kinds:
        seen[name] = seen.get(name, 0) + 1
        names.append(f"{name} {seen[name]}")
    return names


def _place(
    rng: random.Random,
    receptacles: list[str],
    target: str,
    parent: str,
    lamp: str,
    others: list[str],
    count: int,
    *,
    pair: bool,
) -> dict[str, str]:
    """Object name -> receptacle name. Targets never start where the goal wants them."""
    placement: dict[str, str] = {}
    number: dict[str, int] = {}

    def put(what: str, where: list[str]) -> None:
        if where:
            number[what] = number.get(what, 0) + 1
            placement[f"{what} {number[what]}"] = rng.choice(where)

    for _ in range(2 if pair else rng.choice((1, 1, 2))):
        put(target, [r for r in receptacles if target in HOLDS[kind(r)] and kind(r) != parent])
    if lamp:
        put(lamp, [r for r in receptacles if kind(r) in _lamp_hosts({kind(x) for x in receptacles})])
    for _ in range(count if others else 0):
        what = rng.choice(others)
        put(what, [r for r in receptacles if what in HOLDS[kind(r)]])
    return dict(sorted(placement.items(), key=lambda item: natural(item[0])))


def initial_observation_state(world: World) -> str:
    """The state text in which every episode of `world` starts (the mapper's form, see `states.py`)."""
    return f"Room: {', '.join(world.receptacles)}. Holding nothing."


def game_data(world: World) -> dict[str, object]:
    """What the engine's PddlEnv loads: the package's domain and grammar with this world's problem and goal.

    The grammar keeps its placeholder for the instruction (one parse serves all games); the engine's reader
    fills it in.
    """
    problem = "\n".join(
        [
            "(define (problem game)",
            "(:domain alfred)",
            "(:objects",
            *_declarations(world),
            ")",
            "(:init (= (total-cost) 0)",
        ]
        + ["(atLocation agent1 loc_start)", *_facts(world), ")", _goal(world)]
    )
    grammar = Path(ALFRED_TWL2_PATH).read_text()
    return {
        "pddl_domain": Path(ALFRED_PDDL_PATH).read_text(),
        "grammar": grammar,
        "pddl_problem": problem,
        "walkthrough": None,
    }


def _goal(world: World) -> str:
    names = {
        "obj": NAMES[world.target],
        "recep": NAMES.get(world.parent, ""),
        "toggle": NAMES.get(world.lamp, ""),
    }
    return gdict[world.family]["pddl"].replace("#", "-").format(**names)


def _symbol(name: str) -> str:
    return name.replace(" ", "_")


def _declarations(world: World) -> list[str]:
    object_types = {kind(o) for o in world.placement} | {world.target} | ({world.lamp} - {""})
    receptacle_types = {kind(r) for r in world.receptacles} | {world.parent, *STATIONS.values()} - {""}
    return (
        ["agent1 - agent", "loc_start - location"]
        + [f"{_symbol(o)} - object" for o in world.placement]
        + [f"{_symbol(r)} - receptacle" for r in world.receptacles]
        + [f"loc_{_symbol(r)} - location" for r in world.receptacles]
        + [f"{NAMES[t]}Type - otype" for t in sorted(object_types)]
        + [f"{NAMES[t]}Type - rtype" for t in sorted(receptacle_types - {""})]
    )


def _facts(world: World) -> list[str]:
    facts = []
    for name, where in world.placement.items():
        what, symbol = kind(name), _symbol(name)
        facts += [f"(objectType {symbol} {NAMES[what]}Type)", f"(inReceptacle {symbol} {_symbol(where)})"]
        facts += [
            f"(objectAtLocation {symbol} loc_{_symbol(where)})",
            f"(wasInReceptacle {symbol} {_symbol(where)})",
        ]
        facts.append(f"(toggleable {symbol})" if what in LAMPS else f"(pickupable {symbol})")
        facts += [
            f"({ability} {symbol})"
            for ability in ("cleanable", "heatable", "coolable")
            if what in AFFORDS[ability]
        ]
    for name in world.receptacles:
        facts += [f"(receptacleType {_symbol(name)} {NAMES[kind(name)]}Type)"]
        facts += [f"(receptacleAtLocation {_symbol(name)} loc_{_symbol(name)})"]
        facts += [f"(openable {_symbol(name)})"] if kind(name) in OPENABLE else []
    objects = sorted({kind(o) for o in world.placement})
    for receptacle in sorted({kind(r) for r in world.receptacles}):
        facts += [
            f"(canContain {NAMES[receptacle]}Type {NAMES[o]}Type)" for o in objects if o in HOLDS[receptacle]
        ]
    return facts
