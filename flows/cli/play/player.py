"""A person's lines and what each of them does: an action is played, a command with a colon shows something.

dreamgym play --side-by-side
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from components.environments.protocol import Adapter, Environment
from components.experience.side_by_side import Confirmation, Playthrough, Turn, Witness
from components.records import Task
from flows.cli.play import view
from flows.cli.play.screen import Screen
from flows.cli.play.view import QUIET

COMMANDS = {
    "help": "this list",
    "why": "the dream's reasoning at the last step, in full",
    "demos": "the demonstrations that the dream was shown at the last step, in full",
    "facts": "what the present state asserts; with the real world beside it, where the two differ",
    "history": "the steps so far",
    "check": "play the dream so far in the real engine, in the world that the dream described",
    "tasks": "the tasks of this split; `:tasks WORDS` those that contain the words",
    "task": "`:task NUMBER` or `:task ID` begins another task",
    "restart": "begin this task anew",
    "quit": "leave (so does Ctrl-D)",
}
_LISTED, _LONGEST_ACTION = 30, 500


def pick(tasks: Sequence[Task], wanted: str) -> Task | str:
    """The task of that number, counted from 1, or that id; else what is wrong, with the nearest names."""
    if wanted.isdecimal():
        number = int(wanted)
        return (
            tasks[number - 1]
            if 1 <= number <= len(tasks)
            else f"There is no task number {number}: expected 1 to {len(tasks)}."
        )
    matching = [task for task in tasks if wanted in task.id]
    exact = [task for task in matching if task.id == wanted] or matching
    if len(exact) == 1:
        return exact[0]
    names = [task.id for task in matching] or difflib.get_close_matches(
        wanted, [task.id for task in tasks], n=3, cutoff=0.3
    )
    nearest = f" Did you mean {', '.join(names[:3])}?" if names else ""
    return f"{len(matching) or 'No'} tasks have {wanted!r} in their id.{nearest}"


Lines = Callable[[str], str | None]
"""Asked with a prompt, the next line; None at the end."""


@dataclass
class Source:
    """Where lines come from, and whether a person types them."""

    ask: Lines
    typed: bool


def lines(script: Sequence[str] | None) -> Source:
    """The script's lines, those of a standard input that is no terminal, or what a person types."""
    if script is None and sys.stdin is not None and sys.stdin.isatty():
        with suppress(ImportError):
            import readline  # noqa: F401  (the arrow keys then work in `input`)
        return Source(_typed, True)
    rest: Iterator[str] = iter(script if script is not None else sys.stdin)
    return Source(lambda prompt: next(rest, None), False)


def _typed(prompt: str) -> str | None:
    try:
        return input(prompt)
    except EOFError:
        print()
        return None


@dataclass(frozen=True)
class Worlds:
    """The dream, the real world if it is played beside it, the one asked about the dream's own world, and
    what knows them all.
    """

    adapter: Adapter
    dream: Environment
    real: Environment | None
    witness: Witness
    max_steps: int

    def begin(self, task: Task) -> Playthrough:
        """A new episode."""
        return Playthrough(self.adapter, self.dream, task, self.max_steps, self.real)


@dataclass
class Player:
    """Answers each line: an action is played, a command with a colon shows something."""

    worlds: Worlds
    screen: Screen
    split: str
    tasks: Sequence[Task]
    examples: Sequence[str] = ()
    skipped: int = field(default=0, init=False)
    episodes: list[Playthrough] = field(default_factory=list, init=False)
    _summed: bool = field(default=False, init=False)
    _interrupted: bool = field(default=False, init=False)

    def play(self, task: Task, source: Source) -> None:
        """Play `task`, and whatever task the lines ask for, until they end. Ctrl-C ends politely too."""
        self._begin(task)
        try:
            while (line := source.ask(self._prompt())) is not None:
                line = line.strip()
                if not line or (line.startswith("#") and not source.typed):
                    continue
                self.screen.echo(self._prompt(), line, source.typed)
                if line.startswith(":"):
                    if not self._command(line[1:]):
                        break
                else:
                    self._act(line, source.typed)
        except KeyboardInterrupt:
            self.screen.show("", Text("Interrupted.", style="yellow"))
            self._interrupted = True
        self._leave()

    def _prompt(self) -> str:
        return f"step {len(self.now.turns) + 1}> " if self.now.end is None else "over> "

    def _begin(self, task: Task) -> None:
        self.task, self.now, self._summed = task, self.worlds.begin(task), False
        self.episodes.append(self.now)
        self.screen.show("", view.task_view(task, self.tasks.index(task) + 1, len(self.tasks), self.split))

    def _act(self, action: str, typed: bool) -> None:
        if self.now.end is not None:
            self.skipped += 1
            if typed:
                self._say("The episode is over: `:restart`, `:task NUMBER` or `:quit`.")
            return
        if len(action) > _LONGEST_ACTION:
            self._say(
                f"Not played: an action of {len(action):,} characters; expected at most {_LONGEST_ACTION}."
            )
            return
        turn = self.now.act(action)
        self.screen.show(view.turn_view(turn, self.now, self._in_its_own_world(turn)), "")
        if turn.unanswered and turn.number == 1:
            self._say(
                "Where this happens at every first step, model and config do not fit: "
                "experience_model.reasoning and .history "
                "must be those that it was trained with."
            )
        if self.now.end is not None:
            self.screen.show(view.end_view(self.now))
            self._sum_up()

    def _in_its_own_world(self, turn: Turn) -> Confirmation | None:
        """Once these are two worlds their agreement says little, so the real engine is asked about the
        dream's own.
        """
        parted = self.now.parted
        later = parted is not None and turn.number > parted.number and not turn.unanswered
        return self.worlds.witness.confirm(self.now.dreamed) if later else None

    def _sum_up(self) -> None:
        """Once an episode; side by side, the real engine is asked about the dream's own world."""
        if self.now.turns and not self._summed:
            self._summed = True
            # Ctrl-C reaches the engine's processes too: whoever is in a hurry does not wait for new ones.
            found = self._check() if self.now.side_by_side and not self._interrupted else None
            self.screen.show(view.summary_view(self.now, found))

    def _check(self) -> Confirmation | None:
        if not self.now.dreamed.steps:
            return None
        found = self.worlds.witness.confirm(self.now.dreamed)
        self.screen.show(view.confirmation_view(found))
        return found

    def _leave(self) -> None:
        self._sum_up()
        if self.skipped:
            plural = "s" if self.skipped > 1 else ""
            self._say(f"{self.skipped} action{plural} came after the end of the episode and had no effect.")

    def _command(self, line: str) -> bool:
        """Carry out a command; False to leave."""
        name, _, rest = line.strip().partition(" ")
        turn = self.now.turns[-1] if self.now.turns else None
        if name == "quit":
            return False
        if name == "restart":
            self._begin(self.task)
        elif name == "help":
            self.screen.show(self._help())
        elif name == "history":
            self.screen.show(view.history_view(self.now))
        elif name == "facts":
            self.screen.show(view.facts_view(turn, self.worlds.adapter.facts(self.now.dreamed)))
        elif name == "tasks":
            self._list(rest.strip())
        elif name == "task":
            self._change(rest.strip())
        elif name in ("why", "demos", "check"):
            self._look_back(name)
        else:
            near = difflib.get_close_matches(name, COMMANDS, n=1)
            self._say(
                f"There is no command :{name}. "
                + (f"Did you mean :{near[0]}?" if near else ":help lists them.")
            )
        return True

    def _look_back(self, name: str) -> None:
        if not self.now.turns:
            self._say("No step yet: type an action first.")
        elif name == "demos":
            self.screen.show(view.demonstrations_view(self.now.turns[-1]))
        elif name == "why":
            self.screen.show(
                str(self.now.turns[-1].dreamed.info.get("reasoning", "") or "The dream gave no reason.")
            )
        elif self._check() is None:
            self._say("The dream has answered no step that could be checked.")

    def _change(self, wanted: str) -> None:
        found = pick(self.tasks, wanted) if wanted else "Which one? `:task 3`, or `:tasks` for the list."
        if isinstance(found, str):
            self._say(found)
        else:
            self._begin(found)

    def _list(self, words: str) -> None:
        chosen = [
            (n, task) for n, task in enumerate(self.tasks, 1) if words in f"{task.id} {task.instruction}"
        ]
        table = Table(box=None, show_header=False)
        for number, task in chosen[:_LISTED]:
            table.add_row(str(number), Text(task.instruction), Text(task.id, style=QUIET))
        self.screen.show(table)
        if len(chosen) != min(len(chosen), _LISTED) or not chosen:
            self._say(
                f"{len(chosen)} of {len(self.tasks)} tasks; `:tasks WORDS` shows those that contain the "
                "words."
            )

    def _help(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        for name, meaning in COMMANDS.items():
            table.add_row(Text(f":{name}", style="bold"), Text(meaning))
        if self.examples:
            table.add_row(
                Text("actions", style="bold"),
                Text("anything else; in the data they look like: " + ", ".join(self.examples)),
            )
        return table

    def _say(self, words: str) -> None:
        self.screen.show(Text(words, style=QUIET))
