"""One session of `dreamgym play`: it loads the dream and the task, and plays typed or scripted actions.

    dreamgym play --side-by-side
    dreamgym play --task 3 --actions actions.txt --transcript transcript.svg

It is no stage and no run: nothing is recorded. The real steps of `--side-by-side` and `:check` train nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from components.config import Config
from components.environments import make_adapter
from components.errors import ConfigError, DataError
from components.experience.side_by_side import ReplayChecker
from components.records import Task, Transition
from components.tracking.chosen_model import choose_model
from components.tracking.find_model import offline_transitions
from components.trajectories.store import DataLayout, held_out, read_tasks
from flows.cli.play.comparison_view import QUIET
from flows.cli.play.player import Player, Worlds, line_source, pick_task
from flows.cli.play.record import played_record
from flows.cli.play.screen import Screen

SPLITS = ("fidelity", "test", "train")


@dataclass(frozen=True)
class PlaySettings:
    """Options of `dreamgym play`; "" or None: the option was not given."""

    task: str = ""
    split: str = SPLITS[0]
    model: Path | None = None
    side_by_side: bool = False
    actions: Path | None = None
    transcript: Path | None = None


def play(config: Config, root: Path, settings: PlaySettings, console: Console) -> dict[str, Any]:
    """Play a task with the lines that are typed or scripted; return the episodes as `--json` prints them.

    Raises:
        ConfigError: there is no such split, task, or format of a transcript.
        DataError: the model, the data or the action file is missing, or the transcript cannot be written.
    """
    for stream in (sys.stdin, sys.stdout):
        with suppress(AttributeError):  # a stream without an encoding
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    script = None if settings.actions is None else read_actions(settings.actions)
    screen = Screen(console, settings.transcript)
    model = choose_model(config, root, settings.model)
    layout = DataLayout.of(root, config.environment.name)
    task, tasks = find_task(layout, settings.split, settings.task)
    from components.language.threads import decoding
    from flows.run.run_dream import dream_with

    adapter = make_adapter(config.environment.model_copy(update={"workers": 1}))
    transitions = offline_transitions(config, layout)
    with decoding(config):
        dream = dream_with(model.directory, config, transitions, [], held_out(layout), root)
        real = adapter.open() if settings.side_by_side else None
        witness = ReplayChecker(adapter)
        try:
            words = f"The dream of {model.shown(root)} retrieves from {len(transitions):,} transitions."
            screen.show(Text(f"{words} `:help` lists the commands.", style=QUIET))
            worlds = Worlds(adapter, dream, real, witness, config.environment.max_steps)
            player = Player(worlds, screen, settings.split, tasks, example_actions(transitions))
            player.play(task, line_source(script))
        finally:
            for world in (dream, real, witness):
                if world is not None:
                    world.close()
            screen.save()
    return {"model": model.shown(root), **played_record(player.episodes)}


def find_task(layout: DataLayout, split: str, name: str) -> tuple[Task, list[Task]]:
    """Return the task with a number (from 1) or an id in `split`, and all tasks of the split.

    Args:
        name: number or id; empty: the first task.

    Raises:
        ConfigError: there is no such split or task.
    """
    if split not in SPLITS:
        raise ConfigError(f"There is no split {split!r}.", f"Expected one of {', '.join(SPLITS)}.")
    tasks = read_tasks(layout.tasks(split))
    if not name:
        return tasks[0], tasks
    task = pick_task(tasks, name)
    if isinstance(task, Task):
        return task, tasks
    for other in SPLITS:
        if other != split and any(one.id == name for one in read_tasks(layout.tasks(other))):
            raise ConfigError(
                f"The task {name} is not in the split {split}.",
                next_step=f"Type --split {other} --task {name}",
            )
    raise ConfigError(f"{task} (split {split})")


def read_actions(path: Path) -> list[str]:
    """Return the lines of an action file: actions, commands with a colon, comments with a #.

    Raises:
        DataError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else str(error)
        problem = f"The action file {path} cannot be read: {reason}."
        raise DataError(
            problem, "Expected one action a line.", "Name a text file, or leave --actions out to type."
        ) from None


def example_actions(transitions: Sequence[Transition], limit: int = 12) -> list[str]:
    """Return one recorded action for each first word, the most frequent first, as examples for the player."""
    actions_by_word: dict[str, list[str]] = {}
    for step in transitions:
        if step.behaviour in ("expert", "") and step.action.split():
            actions_by_word.setdefault(step.action.split()[0], []).append(step.action)
    return [actions[0] for actions in sorted(actions_by_word.values(), key=len, reverse=True)[:limit]]
