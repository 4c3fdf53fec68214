"""The lines that a player types: an action is played, a command with a colon shows something.

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

from components.environments.capabilities import Adapter
from components.environments.protocol import Environment
from components.experience.side_by_side import Confirmation, Playthrough, ReplayChecker, Turn
from components.records import Task
from flows.cli.play import view
from flows.cli.play.comparison_view import QUIET, confirmation_view, facts_view
from flows.cli.play.screen import Screen

COMMANDS = {
    "help": "show this list",
    "why": "the dream's reasoning at the last step, in full",
    "demos": "the demonstrations that the dream was shown at the last step, in full",
    "facts": "the facts of the present state; with --side-by-side also where the real state differs",
    "history": "the steps so far",
    "check": "play the dream so far in the real engine, in the world that the dream described",
    "tasks": "the tasks of this split; `:tasks WORDS` those that contain the words",
    "task": "`:task NUMBER` or `:task ID` starts another task",
    "restart": "start this task again",
    "quit": "leave (so does Ctrl-D)",
}
_MAX_LISTED_TASKS = 30
_MAX_ACTION_CHARS = 500


def pick_task(tasks: Sequence[Task], name: str) -> Task | str:
    """Return the task with this number (from 1) or id, or an error message with the nearest ids.

    A part of an id is enough if it occurs in one id only.
    """
    if name.isdecimal():
        number = int(name)
        if 1 <= number <= len(tasks):
            return tasks[number - 1]
        return f"There is no task number {number}: expected 1 to {len(tasks)}."
    matching = [task for task in tasks if name in task.id]
    exact = [task for task in matching if task.id == name] or matching
    if len(exact) == 1:
        return exact[0]
    all_ids = [task.id for task in tasks]
    ids = [task.id for task in matching] or difflib.get_close_matches(name, all_ids, n=3, cutoff=0.3)
    nearest = f" Did you mean {', '.join(ids[:3])}?" if ids else ""
    return f"{len(matching) or 'No'} tasks have {name!r} in their id.{nearest}"


ReadLine = Callable[[str], str | None]
"""Takes a prompt, returns the next line; None at the end."""


@dataclass
class LineSource:
    """Where lines come from.

    Args:
        read: returns the next line.
        typed: whether a person types the lines.
    """

    read: ReadLine
    typed: bool


def line_source(script: Sequence[str] | None) -> LineSource:
    """Return the lines of a script, of a standard input that is no terminal, or those that a person types."""
    if script is None and sys.stdin is not None and sys.stdin.isatty():
        with suppress(ImportError):
            import readline  # noqa: F401  (the arrow keys then work in `input`)
        return LineSource(_read_typed_line, True)
    lines: Iterator[str] = iter(script if script is not None else sys.stdin)
    return LineSource(lambda prompt: next(lines, None), False)


def _read_typed_line(prompt: str) -> str | None:
    try:
        return input(prompt)
    except EOFError:
        print()
        return None


@dataclass(frozen=True)
class Worlds:
    """The environments of a session.

    Args:
        real: the real environment, which plays the same actions; None: only the dream is played.
        witness: the real engine in the world that the dream described.
    """

    adapter: Adapter
    dream: Environment
    real: Environment | None
    witness: ReplayChecker
    max_steps: int

    def start(self, task: Task) -> Playthrough:
        """Start a new episode of `task`."""
        return Playthrough(self.adapter, self.dream, task, self.max_steps, self.real)


@dataclass
class Player:
    """Executes each line: plays an action, or runs a command that begins with a colon.

    Args:
        split: of the tasks, for display.
        examples: actions that `:help` shows.
    """

    worlds: Worlds
    screen: Screen
    split: str
    tasks: Sequence[Task]
    examples: Sequence[str] = ()
    skipped_actions: int = field(default=0, init=False)
    episodes: list[Playthrough] = field(default_factory=list, init=False)
    _has_summary: bool = field(default=False, init=False)
    _is_interrupted: bool = field(default=False, init=False)

    def play(self, task: Task, source: LineSource) -> None:
        """Play `task`, then any task that the lines ask for, until they end or Ctrl-C is pressed."""
        self._start(task)
        try:
            while (line := source.read(self._prompt())) is not None:
                line = line.strip()
                if not line or (line.startswith("#") and not source.typed):
                    continue
                self.screen.echo(self._prompt(), line, source.typed)
                if line.startswith(":"):
                    if not self._run_command(line[1:]):
                        break
                else:
                    self._play_action(line, source.typed)
        except KeyboardInterrupt:
            self.screen.show("", Text("Interrupted.", style="yellow"))
            self._is_interrupted = True
        self._finish()

    def _prompt(self) -> str:
        return f"step {len(self.episode.turns) + 1}> " if self.episode.end is None else "over> "

    def _start(self, task: Task) -> None:
        self.task = task
        self.episode = self.worlds.start(task)
        self._has_summary = False
        self.episodes.append(self.episode)
        self.screen.show("", view.task_view(task, self.tasks.index(task) + 1, len(self.tasks), self.split))

    def _play_action(self, action: str, typed: bool) -> None:
        if self.episode.end is not None:
            self.skipped_actions += 1
            if typed:
                self._print_note("The episode is over: `:restart`, `:task NUMBER` or `:quit`.")
            return
        if len(action) > _MAX_ACTION_CHARS:
            self._print_note(
                f"Not played: an action of {len(action):,} characters; expected at most {_MAX_ACTION_CHARS}."
            )
            return
        turn = self.episode.act(action)
        self.screen.show(view.turn_view(turn, self.episode, self._confirm_own_world(turn)), "")
        if turn.unanswered and turn.number == 1:
            self._print_note(
                "If this happens at every first step, the config does not fit the model: "
                "experience_model.reasoning and .history must be those that it was trained with."
            )
        if self.episode.end is not None:
            self.screen.show(view.end_view(self.episode))
            self._show_summary()

    def _confirm_own_world(self, turn: Turn) -> Confirmation | None:
        """Ask the real engine about the world that the dream described, once the two environments differ.

        Comparing the two different worlds would say little.
        """
        first_disagreement = self.episode.first_disagreement
        later = (
            first_disagreement is not None and turn.number > first_disagreement.number and not turn.unanswered
        )
        return self.worlds.witness.confirm(self.episode.dreamed) if later else None

    def _show_summary(self) -> None:
        """Print the summary once an episode; side by side, check the dream in the real engine first."""
        if self.episode.turns and not self._has_summary:
            self._has_summary = True
            # Ctrl-C ends the engine's processes too, and starting new ones takes seconds.
            has_engine = self.episode.side_by_side and not self._is_interrupted
            confirmation = self._check_dream() if has_engine else None
            self.screen.show(view.summary_view(self.episode, confirmation))

    def _check_dream(self) -> Confirmation | None:
        if not self.episode.dreamed.steps:
            return None
        confirmation = self.worlds.witness.confirm(self.episode.dreamed)
        self.screen.show(confirmation_view(confirmation))
        return confirmation

    def _finish(self) -> None:
        self._show_summary()
        if self.skipped_actions:
            plural = "s" if self.skipped_actions > 1 else ""
            self._print_note(
                f"{self.skipped_actions} action{plural} came after the end of the episode and had no effect."
            )

    def _run_command(self, line: str) -> bool:
        """Run a command; return False to leave."""
        name, _, argument = line.strip().partition(" ")
        turn = self.episode.turns[-1] if self.episode.turns else None
        if name == "quit":
            return False
        if name == "restart":
            self._start(self.task)
        elif name == "help":
            self.screen.show(self._help_table())
        elif name == "history":
            self.screen.show(view.history_view(self.episode))
        elif name == "facts":
            self.screen.show(facts_view(turn, self.worlds.adapter.facts(self.episode.dreamed)))
        elif name == "tasks":
            self._list_tasks(argument.strip())
        elif name == "task":
            self._change_task(argument.strip())
        elif name in ("why", "demos", "check"):
            self._show_last_step(name)
        else:
            near = difflib.get_close_matches(name, COMMANDS, n=1)
            self._print_note(
                f"There is no command :{name}. "
                + (f"Did you mean :{near[0]}?" if near else ":help lists them.")
            )
        return True

    def _show_last_step(self, name: str) -> None:
        if not self.episode.turns:
            self._print_note("No step yet: type an action first.")
        elif name == "demos":
            self.screen.show(view.demonstrations_view(self.episode.turns[-1]))
        elif name == "why":
            self.screen.show(
                str(self.episode.turns[-1].dreamed.info.get("reasoning", "") or "The dream gave no reason.")
            )
        elif self._check_dream() is None:
            self._print_note("The dream has answered no step that could be checked.")

    def _change_task(self, name: str) -> None:
        if not name:
            self._print_note("Name a task: `:task 3`, or `:tasks` for the list.")
            return
        task = pick_task(self.tasks, name)
        if isinstance(task, str):
            self._print_note(task)
        else:
            self._start(task)

    def _list_tasks(self, words: str) -> None:
        chosen = [
            (number, task)
            for number, task in enumerate(self.tasks, 1)
            if words in f"{task.id} {task.instruction}"
        ]
        table = Table(box=None, show_header=False)
        for number, task in chosen[:_MAX_LISTED_TASKS]:
            table.add_row(str(number), Text(task.instruction), Text(task.id, style=QUIET))
        self.screen.show(table)
        if len(chosen) > _MAX_LISTED_TASKS or not chosen:
            self._print_note(
                f"{len(chosen)} of {len(self.tasks)} tasks; `:tasks WORDS` shows those that contain the "
                "words."
            )

    def _help_table(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        for name, meaning in COMMANDS.items():
            table.add_row(Text(f":{name}", style="bold"), Text(meaning))
        if self.examples:
            table.add_row(
                Text("actions", style="bold"),
                Text("anything else; in the data they look like: " + ", ".join(self.examples)),
            )
        return table

    def _print_note(self, words: str) -> None:
        self.screen.show(Text(words, style=QUIET))
