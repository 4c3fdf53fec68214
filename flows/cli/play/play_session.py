"""A person steps into the dream: types actions, sees the dreamed states, and what the real world would have
said.

    dreamgym play --side-by-side
    dreamgym play --task 3 --actions actions.txt --transcript transcript.svg

No stage and no run: nothing is recorded, and the real steps of `--side-by-side` and `:check` train nothing.
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
from components.experience.side_by_side import Witness
from components.records import Task, Transition
from components.tracking.chosen_model import choose_model
from components.tracking.find_model import lessons
from components.trajectories.store import DataLayout, held_out, read_tasks
from flows.cli.play.player import Player, Worlds, lines, pick
from flows.cli.play.record import played_record
from flows.cli.play.screen import Screen
from flows.cli.play.view import QUIET

SPLITS = ("fidelity", "test", "train")


@dataclass(frozen=True)
class Wishes:
    """What the command line asked for; "" and None where it did not."""

    task: str = ""
    split: str = SPLITS[0]
    model: Path | None = None
    side_by_side: bool = False
    actions: Path | None = None
    transcript: Path | None = None


def play(config: Config, root: Path, wishes: Wishes, console: Console) -> dict[str, Any]:
    """Find the model and the task, open the worlds, play what is typed or scripted; what was played, as
    `--json` prints it.

    Raises:
        ConfigError: there is no such split, task, or format of a transcript.
        DataError: model, data or action file are missing, or the transcript cannot be written.
    """
    for stream in (sys.stdin, sys.stdout):
        with suppress(AttributeError):  # a stream without an encoding
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    script = None if wishes.actions is None else read_actions(wishes.actions)
    screen = Screen(console, wishes.transcript)
    model = choose_model(config, root, wishes.model)
    layout = DataLayout.of(root, config.environment.name)
    task, tasks = find_task(layout, wishes.split, wishes.task)
    from components.language.threads import decoding
    from flows.run.run_dream import dream_with

    adapter = make_adapter(config.environment.model_copy(update={"workers": 1}))
    known = lessons(config, layout)
    with decoding():
        dream = dream_with(model.directory, config, known, [], held_out(layout), root)
        real, witness = adapter.open() if wishes.side_by_side else None, Witness(adapter)
        try:
            screen.show(
                Text(
                    f"The dream of {model.shown(root)} remembers {len(known):,} transitions. `:help` tells "
                    "more.",
                    style=QUIET,
                )
            )
            worlds = Worlds(adapter, dream, real, witness, config.environment.max_steps)
            player = Player(worlds, screen, wishes.split, tasks, examples(known))
            player.play(task, lines(script))
        finally:
            for world in (dream, real, witness):
                if world is not None:
                    world.close()
            screen.save()
    return {"model": model.shown(root), **played_record(player.episodes)}


def find_task(layout: DataLayout, split: str, wanted: str) -> tuple[Task, list[Task]]:
    """The task that a number (from 1) or an id means in `split`, the first one if nothing was said; and all
    of the split.

    Raises:
        ConfigError: there is no such split or task.
    """
    if split not in SPLITS:
        raise ConfigError(f"There is no split {split!r}.", f"Expected one of {', '.join(SPLITS)}.")
    tasks = read_tasks(layout.tasks(split))
    if not wanted:
        return tasks[0], tasks
    found = pick(tasks, wanted)
    if isinstance(found, Task):
        return found, tasks
    for other in SPLITS:
        if other != split and any(task.id == wanted for task in read_tasks(layout.tasks(other))):
            raise ConfigError(
                f"The task {wanted} is none of the split {split}.",
                next_step=f"Type --split {other} --task {wanted}",
            )
    raise ConfigError(f"{found} (split {split})")


def read_actions(path: Path) -> list[str]:
    """The lines of an action file: actions, commands with a colon, comments with a #. Raises DataError if it
    cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else str(error)
        found = f"The action file {path} cannot be read: {reason}."
        raise DataError(
            found, "Expected one action a line.", "Name a text file, or leave --actions out to type."
        ) from None


def examples(known: Sequence[Transition], most: int = 12) -> list[str]:
    """One action of the data for each first word, the most frequent first: what actions look like in this
    world.
    """
    chosen: dict[str, list[str]] = {}
    for step in known:
        if step.behaviour in ("expert", "") and step.action.split():
            chosen.setdefault(step.action.split()[0], []).append(step.action)
    return [actions[0] for actions in sorted(chosen.values(), key=len, reverse=True)[:most]]
