"""One game in the real engine, and the PDDL problem of a generated game.

By default the engine runs with caches that change the time and the disk space that a game takes, and no
answer: those of `engine_patches.py`, and the command text of each ground action. That text is constant within
a game, since the grammar's templates ask only for facts that never change; the stock engine derives it again
at each step. The engine is not thread-safe and writes `sys.argv`: run it in worker processes only.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alfworld.gen.goal_library import gdict
from alfworld.info import ALFRED_PDDL_PATH, ALFRED_TWL2_PATH

from components.environments.alfworld.engine_patches import install_patches
from components.environments.alfworld.games import (
    AFFORDS,
    HOLDS,
    LAMPS,
    NAMES,
    OPENABLE,
    STATIONS,
    GameSpec,
    kind,
)
from components.errors import EnvironmentFailure


@dataclass(frozen=True)
class Observation:
    """The engine's own text, the commands that it would accept, and whether the goal is reached."""

    text: str
    admissible: tuple[str, ...]
    won: bool


class Game:
    """An engine of the textworld package that loads one game after the other."""

    def __init__(self, *, cached: bool = True) -> None:
        if cached:
            install_patches()
        import textworld

        self._engine = _engine_class(cached)(textworld.EnvInfos(won=True, admissible_commands=True))
        self._env: Any = None
        self._instruction = ""

    def load(self, game: GameSpec | Path) -> None:
        """Load a generated game, or the official `game.tw-pddl` at a path.

        Raises:
            EnvironmentFailure: the engine cannot load it; the message names the game.
        """
        self.name = game.instruction if isinstance(game, GameSpec) else str(game)
        try:
            self._env = self._load(game)
        except EnvironmentFailure:
            raise
        except Exception as error:  # the engine raises whatever its parsers raise
            raise EnvironmentFailure(
                f"The game {self.name!r} cannot be loaded: {type(error).__name__}: {error}",
                next_step="Check the file, or remove it from $ALFWORLD_DATA; generated games: run `dreamgym "
                "doctor`.",
            ) from error

    def _load(self, game: GameSpec | Path) -> Any:
        if isinstance(game, GameSpec):
            self._engine.load(game_data(game))
            self._instruction = game.instruction
            for info in self._engine._entity_infos.values():
                info.name = info.id.replace("_", " ")
            return self._engine
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler

        json.loads(game.read_text())
        env = AlfredDemangler(self._engine, shuffle=False)
        env.load(str(game))
        return env

    def reset(self) -> Observation:
        """Start the episode; the text is the engine's introduction without its banner."""
        return self._observe(self._env.reset(), is_introduction=True)

    def step(self, command: str) -> Observation:
        """Execute one command; an impossible or malformed one is answered "Nothing happens."."""
        return self._observe(self._env.step(command)[0])

    def _observe(self, state: Any, is_introduction: bool = False) -> Observation:
        text = state.feedback.replace("UNKNOWN GOAL", self._instruction)
        if is_introduction and "\n\n" in text:
            text = text.split("\n\n", 1)[1]
        commands = sorted({command.strip() for command in state["admissible_commands"]})
        return Observation(" ".join(text.split()), tuple(commands), bool(state["won"]))


@functools.cache
def _engine_class(cached: bool) -> Any:
    from textworld.envs import PddlEnv

    return _cached_engine_class(PddlEnv) if cached else PddlEnv


def _cached_engine_class(base: Any) -> Any:
    class CachedPddlEnv(base):
        """PddlEnv that derives the command text of a ground action once a game."""

        def load(self, data: Any) -> None:
            super().load(data)
            self._commands: dict[tuple[Any, ...], str] = {}

        def _gather_infos(self) -> None:
            self.state["won"] = self._pddl_state.check_goal()
            self.state["lost"] = False
            self.state["last_action"] = None
            self.state["_last_action"] = self._last_action
            actions = list(self._pddl_state.all_applicable_actions())
            self.state["_valid_actions"] = actions
            self.state["_valid_commands"] = [self._command(action) for action in actions]
            self.state["admissible_commands"] = sorted(set(self.state["_valid_commands"]))

        def _command(self, action: Any) -> str:
            key = (action.name, *(variable.name for variable in action.mapping.values()))
            if key not in self._commands:
                variables = {
                    placeholder.name: self._entity_infos[variable.name]
                    for placeholder, variable in action.mapping.items()
                }
                context = {
                    "state": self._pddl_state,
                    "facts": list(self._pddl_state.facts),
                    "variables": variables,
                    "mapping": action.mapping,
                    "entity_infos": self._entity_infos,
                }
                action.command_template = self._logic.grammar.derive(action.command_template, context)
                names = {name: info.name for name, info in self._entity_infos.items()}
                self._commands[key] = action.format_command(names).strip()
            return self._commands[key]

    return CachedPddlEnv


def game_data(game: GameSpec) -> dict[str, object]:
    """Return what the engine's PddlEnv loads: the package's domain and grammar, this game's problem and goal.

    The grammar keeps its placeholder for the instruction, so that one parse serves all games; `Game` fills it
    in.
    """
    problem = "\n".join(
        [
            "(define (problem game)",
            "(:domain alfred)",
            "(:objects",
            *_declarations(game),
            ")",
            "(:init (= (total-cost) 0)",
            "(atLocation agent1 loc_start)",
            *_initial_facts(game),
            ")",
            _goal(game),
        ]
    )
    return {
        "pddl_domain": Path(ALFRED_PDDL_PATH).read_text(),
        "grammar": Path(ALFRED_TWL2_PATH).read_text(),
        "pddl_problem": problem,
        "walkthrough": None,
    }


def _goal(game: GameSpec) -> str:
    names = {
        "obj": NAMES[game.target],
        "recep": NAMES.get(game.parent, ""),
        "toggle": NAMES.get(game.lamp, ""),
    }
    return gdict[game.family]["pddl"].replace("#", "-").format(**names)


def _symbol(name: str) -> str:
    return name.replace(" ", "_")


def _declarations(game: GameSpec) -> list[str]:
    object_types = {kind(thing) for thing in game.placement} | {game.target} | ({game.lamp} - {""})
    places = {kind(place) for place in game.receptacles}
    receptacle_types = places | {game.parent, *STATIONS.values()} - {""}
    return (
        ["agent1 - agent", "loc_start - location"]
        + [f"{_symbol(thing)} - object" for thing in game.placement]
        + [f"{_symbol(place)} - receptacle" for place in game.receptacles]
        + [f"loc_{_symbol(place)} - location" for place in game.receptacles]
        + [f"{NAMES[name]}Type - otype" for name in sorted(object_types)]
        + [f"{NAMES[name]}Type - rtype" for name in sorted(receptacle_types - {""})]
    )


def _initial_facts(game: GameSpec) -> list[str]:
    facts = []
    for name, place in game.placement.items():
        facts += _facts_of_object(name, place)
    for name in game.receptacles:
        facts.append(f"(receptacleType {_symbol(name)} {NAMES[kind(name)]}Type)")
        facts.append(f"(receptacleAtLocation {_symbol(name)} loc_{_symbol(name)})")
        facts += [f"(openable {_symbol(name)})"] if kind(name) in OPENABLE else []
    objects = sorted({kind(thing) for thing in game.placement})
    for receptacle in sorted({kind(place) for place in game.receptacles}):
        facts += [
            f"(canContain {NAMES[receptacle]}Type {NAMES[name]}Type)"
            for name in objects
            if name in HOLDS[receptacle]
        ]
    return facts


def _facts_of_object(name: str, place: str) -> list[str]:
    what = kind(name)
    symbol = _symbol(name)
    return [
        f"(objectType {symbol} {NAMES[what]}Type)",
        f"(inReceptacle {symbol} {_symbol(place)})",
        f"(objectAtLocation {symbol} loc_{_symbol(place)})",
        f"(wasInReceptacle {symbol} {_symbol(place)})",
        f"(toggleable {symbol})" if what in LAMPS else f"(pickupable {symbol})",
        *(
            f"({ability} {symbol})"
            for ability in ("cleanable", "heatable", "coolable")
            if what in AFFORDS[ability]
        ),
    ]
