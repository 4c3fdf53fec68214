"""One game in the real engine, with caches that change the time it takes (and the disk) and nothing else.

The engine re-parses its grammar, re-translates the PDDL and derives every admissible command anew at each
step. The caches keep the parses, the translation, and the command text of each ground action (constant within
a game, since the templates ask only for facts that never change).
`tests/environments/alfworld/test_alfworld_engine.py` holds cached and stock transcripts against each other.
The engine is not thread-safe and writes `sys.argv`: run it in worker processes only.
"""

from __future__ import annotations

import copy
import functools
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.environments.alfworld.games import World, game_data
from components.environments.alfworld.planner_library import small_copy
from components.errors import EnvironmentFailure


@dataclass(frozen=True)
class Observation:
    """The engine's own words, the commands it would accept, and whether the goal is reached."""

    text: str
    admissible: tuple[str, ...]
    won: bool


@functools.cache
def install_caches() -> None:
    """Memoise the engine's grammar parse, query parse and PDDL translation in this process; seats copy a
    small planner library.
    """
    import fast_downward
    import textworld.envs.pddl.logic as logic
    import textworld.envs.pddl.textgen as textgen
    from textworld.logic import Rule

    parse = textgen._parse_and_convert
    memo: dict[Any, list[Any]] = {}

    def cached(text: str, **options: Any) -> list[Any]:
        options.pop("trace", None)
        key = (text, tuple(sorted(options.items())))
        if key not in memo:
            if len(memo) > 20_000:
                memo.clear()
            memo[key] = parse(text, **options)
        return [copy.copy(symbol) for symbol in memo[key]]

    textgen._parse_and_convert = cached
    Rule.parse_conjunctive_query = staticmethod(functools.lru_cache(4096)(Rule.parse_conjunctive_query))
    translate, arguments = fast_downward.pddl2sas, list(sys.argv)

    @functools.lru_cache(64)
    def translated(domain: str, problem: str) -> Any:
        try:
            return translate(domain, problem, verbose=False)
        finally:
            sys.argv = list(arguments)

    # The second translation (optimize=True) serves the planner alone, which nothing here asks for.
    fast_downward.pddl2sas = logic.fast_downward.pddl2sas = lambda domain, problem, **_: translated(
        domain, problem
    )
    logic._parse_and_convert = functools.lru_cache(64)(logic._parse_and_convert)
    fast_downward.interface.DOWNWARD_LIB_PATH = small_copy(str(fast_downward.interface.DOWNWARD_LIB_PATH))


class Game:
    """A seat at the engine of the textworld package: loads one game after the other, each seat with its own
    planner library.
    """

    def __init__(self, *, cached: bool = True) -> None:
        if cached:
            install_caches()
        import textworld

        self._engine = _engine_class(cached)(textworld.EnvInfos(won=True, admissible_commands=True))
        self._env: Any = None
        self._instruction = ""

    def load(self, world: World | Path) -> None:
        """Load `world`, a generated game, or the path of an official `game.tw-pddl`.

        Raises:
            EnvironmentFailure: the engine cannot load it; the message names the game.
        """
        self.name = world.instruction if isinstance(world, World) else str(world)
        try:
            self._env = self._load(world)
        except EnvironmentFailure:
            raise
        except Exception as error:  # the engine raises whatever its parsers raise
            raise EnvironmentFailure(
                f"The game {self.name!r} cannot be loaded: {type(error).__name__}: {error}",
                next_step="Check the file, or remove it from $ALFWORLD_DATA; generated games: run `dreamgym "
                "doctor`.",
            ) from error

    def _load(self, world: World | Path) -> Any:
        if isinstance(world, World):
            self._engine.load(game_data(world))
            self._instruction = world.instruction
            for info in self._engine._entity_infos.values():
                info.name = info.id.replace("_", " ")
            return self._engine
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler

        json.loads(world.read_text())
        env = AlfredDemangler(self._engine, shuffle=False)
        env.load(str(world))
        return env

    def reset(self) -> Observation:
        """Start the episode; the text is the engine's introduction without its banner."""
        return self._observe(self._env.reset(), intro=True)

    def step(self, command: str) -> Observation:
        """One command; an impossible or malformed one is answered "Nothing happens."."""
        return self._observe(self._env.step(command)[0])

    def _observe(self, state: Any, intro: bool = False) -> Observation:
        text = state.feedback.replace("UNKNOWN GOAL", self._instruction)
        if intro and "\n\n" in text:
            text = text.split("\n\n", 1)[1]
        commands = sorted({command.strip() for command in state["admissible_commands"]})
        return Observation(" ".join(text.split()), tuple(commands), bool(state["won"]))


@functools.cache
def _engine_class(cached: bool) -> Any:
    from textworld.envs import PddlEnv

    return _cached_engine(PddlEnv) if cached else PddlEnv


def _cached_engine(base: Any) -> Any:
    class CachedPddlEnv(base):
        """PddlEnv that derives the command text of a ground action once a game."""

        def load(self, data: Any) -> None:
            super().load(data)
            self._commands: dict[tuple[Any, ...], str] = {}

        def _gather_infos(self) -> None:
            self.state["won"] = self._pddl_state.check_goal()
            self.state["lost"] = False
            self.state["last_action"], self.state["_last_action"] = None, self._last_action
            actions = list(self._pddl_state.all_applicable_actions())
            self.state["_valid_actions"] = actions
            self.state["_valid_commands"] = [self._command(action) for action in actions]
            self.state["admissible_commands"] = sorted(set(self.state["_valid_commands"]))

        def _command(self, action: Any) -> str:
            key = (action.name, *(variable.name for variable in action.mapping.values()))
            if key not in self._commands:
                context = {
                    "state": self._pddl_state,
                    "facts": list(self._pddl_state.facts),
                    "variables": {
                        ph.name: self._entity_infos[var.name] for ph, var in action.mapping.items()
                    },
                    "mapping": action.mapping,
                    "entity_infos": self._entity_infos,
                }
                action.command_template = self._logic.grammar.derive(action.command_template, context)
                names = {name: info.name for name, info in self._entity_infos.items()}
                self._commands[key] = action.format_command(names).strip()
            return self._commands[key]

    return CachedPddlEnv
