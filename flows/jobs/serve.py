"""Serves a trained dream over OpenEnv, for any trainer that supports that protocol.

    DREAMGYM_SERVE_TOKEN=... dreamgym serve --host 0.0.0.0 --port 8000

It is no stage and no run: nothing is recorded, and dreamed transitions are not kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from components.config import Config
from components.environments import make_adapter
from components.errors import ConfigError, DataError, EnvironmentFailure
from components.records import Task
from components.tracking.chosen_model import choose_model
from components.tracking.find_model import offline_transitions
from components.tracking.stage_store.hashes import tree_hash
from components.trajectories.store import DataLayout, held_out, read_tasks

INSTALL = "pip install -c constraints.txt -e '.[serve]' && pip install --no-deps -c constraints.txt openenv"
SPLITS = ("train", "fidelity", "test")


@dataclass(frozen=True)
class ServeSettings:
    """Options of `dreamgym serve`."""

    host: str
    port: int
    split: str
    sessions: int
    idle_seconds: float
    max_chars: int
    model: Path | None = None


def serve(config: Config, root: Path, settings: ServeSettings, on_ready: Callable[[str, str], None]) -> None:
    """Serve the dream until a signal ends it.

    Args:
        on_ready: called with the address and a description of what is served there.

    Raises:
        ConfigError: there is no such split, the address cannot be used, or a token is missing or too short.
        DataError: model or data are missing.
        EnvironmentFailure: OpenEnv is not installed.
    """
    try:
        from components.serving.dream_session import Limits
        from components.serving.guard import TOKEN_VARIABLE, check_token
        from components.serving.server import ServerSettings, listen
        from components.serving.server import serve as run_server
        from components.serving.shared_dream import SharedDream
        from components.serving.task_choice import Catalogue
    except ImportError as error:
        problem = f"OpenEnv is not installed ({error})."
        raise EnvironmentFailure(problem, next_step=INSTALL) from None
    from components.language.threads import decoding
    from flows.run.run_dream import dream_with

    token = check_token(os.environ.get(TOKEN_VARIABLE, ""), settings.host)
    listen(settings.host, settings.port).close()  # fails now, not after the model is loaded
    model = choose_model(config, root, settings.model)
    layout = DataLayout.of(root, config.environment.name)
    tasks = _served_tasks(config, layout, require_split(settings.split))
    adapter = make_adapter(config.environment)
    dream = dream_with(
        model.directory, config, offline_transitions(config, layout), [], held_out(layout), root
    )
    authentication = "with a token" if token else f"without a token ({TOKEN_VARIABLE} is not set)"
    description = (
        f"{len(tasks):,} tasks of {settings.split}, {settings.sessions} sessions, "
        f"the dream of {model.shown(root)}, {authentication}"
    )
    run_server(
        SharedDream(
            dream,
            settings.sessions,
            around=partial(decoding, config),
            version=tree_hash(model.directory)[:12],
        ),
        Catalogue(settings.split, tasks, adapter.feasible),
        Limits(config.environment.max_steps, settings.max_chars),
        ServerSettings(settings.host, settings.port, token, settings.idle_seconds),
        lambda address: on_ready(address, description),
    )


def balance(
    config: Config, addresses: Sequence[str], settings: ServeSettings, on_ready: Callable[[str, str], None]
) -> None:
    """Serve replicas of a dream behind one address until a signal ends it.

    Args:
        addresses: of the replicas, such as http://10.0.0.3:8000.
        on_ready: called with the address and a description of what is served there.

    Raises:
        ConfigError: an address is none, the own one cannot be used, or a token is missing or too short.
        EnvironmentFailure: OpenEnv is not installed.
    """
    try:
        from components.serving.balancer import Balancer
        from components.serving.dream_session import Limits
        from components.serving.guard import TOKEN_VARIABLE, Guard, check_token
        from components.serving.replicas import Replica, Replicas
        from components.serving.server import ServerSettings, serve_app
    except ImportError as error:
        problem = f"OpenEnv is not installed ({error})."
        raise EnvironmentFailure(problem, next_step=INSTALL) from None
    wrong = [address for address in addresses if not address.startswith(("http://", "https://"))]
    if wrong or len(set(addresses)) < len(addresses):
        raise ConfigError(
            f"--replicas names {wrong[0] if wrong else 'an address twice'}.",
            "Expected different addresses, such as http://10.0.0.3:8000,http://10.0.0.4:8000.",
        )
    token = check_token(os.environ.get(TOKEN_VARIABLE, ""), settings.host)
    balancer = Balancer(Replicas(token, [Replica(address) for address in addresses]))
    serve_app(
        Guard(balancer.app, token, settings.idle_seconds),
        Limits(config.environment.max_steps, settings.max_chars),
        ServerSettings(settings.host, settings.port, token, settings.idle_seconds),
        lambda address: on_ready(address, f"{len(addresses)} replicas: {', '.join(addresses)}"),
    )


def _served_tasks(config: Config, layout: DataLayout, split: str) -> list[Task]:
    """Return the tasks to serve, of `data.families` if it is set: the dream was trained on no others."""
    tasks = read_tasks(layout.tasks(split))
    families = config.data.families
    served = [task for task in tasks if not families or task.family in families]
    if not served:
        existing = ", ".join(sorted({task.family for task in tasks}))
        raise DataError(
            f"No task of {split} is of data.families={families}.",
            f"There are {existing}.",
            "Name some of these.",
        )
    return served


def require_split(split: str) -> str:
    """Return `split`. Raises ConfigError if there is none of that name."""
    if split not in SPLITS:
        raise ConfigError(f"There is no split {split!r}.", f"Expected one of {', '.join(SPLITS)}.")
    return split
