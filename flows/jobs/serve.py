"""A trained dream as an OpenEnv server, for any trainer that speaks that protocol.

    DREAMGYM_SERVE_TOKEN=... dreamgym serve --host 0.0.0.0 --port 8000

No stage and no run: nothing is recorded, and what is dreamed is forgotten.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from components.config import Config
from components.environments import make_adapter
from components.errors import ConfigError, DataError, EnvironmentFailure
from components.records import Task
from components.tracking.chosen_model import choose_model
from components.tracking.find_model import lessons
from components.trajectories.store import DataLayout, held_out, read_tasks

INSTALL = "pip install -c constraints.txt -e '.[serve]' && pip install --no-deps -c constraints.txt openenv"
SPLITS = ("train", "fidelity", "test")


@dataclass(frozen=True)
class Offer:
    """What the command line asked for."""

    host: str
    port: int
    split: str
    sessions: int
    idle_seconds: float
    max_chars: int
    model: Path | None = None


def serve(config: Config, root: Path, offer: Offer, on_ready: Callable[[str, str], None]) -> None:
    """Serve the dream until a signal ends it; `on_ready` is told the address and what is served there.

    Raises:
        ConfigError: there is no such split, the address cannot be had, or a token is missing or too short.
        DataError: model or data are missing.
        EnvironmentFailure: OpenEnv is not installed.
    """
    try:
        from components.serving.dream_session import Limits
        from components.serving.guard import TOKEN_VARIABLE, check_token
        from components.serving.server import Door, listen
        from components.serving.server import serve as run
        from components.serving.shared_dream import SharedDream
        from components.serving.task_choice import Catalogue
    except ImportError as error:
        found = f"OpenEnv is not installed ({error})."
        raise EnvironmentFailure(found, next_step=INSTALL) from None
    from components.language.threads import decoding
    from flows.run.run_dream import dream_with

    token = check_token(os.environ.get(TOKEN_VARIABLE, ""), offer.host)
    listen(offer.host, offer.port).close()  # refused now, not after the model is loaded
    model, layout = choose_model(config, root, offer.model), DataLayout.of(root, config.environment.name)
    tasks = _tasks(config, layout, require_split(offer.split))
    adapter, known = make_adapter(config.environment), lessons(config, layout)
    dream = dream_with(model.directory, config, known, [], held_out(layout), root)
    served = (
        f"{len(tasks):,} tasks of {offer.split}, {offer.sessions} sessions, the dream of {model.shown(root)}"
    )
    run(
        SharedDream(dream, offer.sessions, around=decoding),
        Catalogue(offer.split, tasks, adapter.feasible),
        Limits(config.environment.max_steps, offer.max_chars),
        Door(offer.host, offer.port, token, offer.idle_seconds),
        lambda address: on_ready(
            address,
            served + (", with a token" if token else f", without a token ({TOKEN_VARIABLE} is not set)"),
        ),
    )


def _tasks(config: Config, layout: DataLayout, split: str) -> list[Task]:
    """The tasks to serve: of `data.families` where those are named, since a dream of these has learnt no
    other.
    """
    tasks, families = read_tasks(layout.tasks(split)), config.data.families
    kept = [task for task in tasks if not families or task.family in families]
    if not kept:
        known = ", ".join(sorted({task.family for task in tasks}))
        raise DataError(
            f"No task of {split} is of data.families={families}.",
            f"There are {known}.",
            "Name some of these.",
        )
    return kept


def require_split(split: str) -> str:
    """`split`. Raises ConfigError if there is none of that name."""
    if split not in SPLITS:
        raise ConfigError(f"There is no split {split!r}.", f"Expected one of {', '.join(SPLITS)}.")
    return split
