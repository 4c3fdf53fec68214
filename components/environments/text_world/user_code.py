"""Calls of code that the user brings: an exception there is told in a sentence that names the call, the error
and its line.
"""

from __future__ import annotations

import contextlib
import inspect
import traceback
from collections.abc import Iterator
from typing import Any

from components.errors import DreamGymError, EnvironmentFailure

SEED_CURE = (
    "Give it that parameter, `def reset(self, *, seed=None)`, and let it decide the episode. A world that "
    "has no seeds can list its tasks "
    "in an adapter of its own: environment.name=own, docs/guides/add-a-world.md."
)


@contextlib.contextmanager
def users_call(call: str) -> Iterator[None]:
    """Raise EnvironmentFailure in place of any exception of the user's code; `call` is what was asked, as
    `reset(seed=3)`.
    """
    try:
        yield
    except DreamGymError:
        raise
    except (Exception, SystemExit) as error:
        cure = SEED_CURE if isinstance(error, TypeError) and "'seed'" in str(error) else "Mend it there."
        raise EnvironmentFailure(
            f"{call} raised {type(error).__name__}: {error} ({place_of(error)}).", next_step=cure
        ) from error


def place_of(error: BaseException) -> str:
    """The line on which `error` was raised."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"line {where.lineno} of {where.filename}"


def require_seed(world: Any) -> None:
    """Raise EnvironmentFailure if `world` has no `reset`, or one that cannot be called with a seed."""
    reset = getattr(world, "reset", None)
    if not callable(reset):
        raise EnvironmentFailure(
            f"{type(world).__name__} has no method reset.",
            "Expected Gymnasium's reset(seed=...) and step(action).",
        )
    try:
        signature = inspect.signature(reset)
    except (TypeError, ValueError):  # of code that Python cannot look into
        return
    named = [
        one
        for one in signature.parameters.values()
        if one.name == "seed" and one.kind is not inspect.Parameter.POSITIONAL_ONLY
    ]
    if not named and not any(
        one.kind is inspect.Parameter.VAR_KEYWORD for one in signature.parameters.values()
    ):
        raise EnvironmentFailure(
            f"The reset of {type(world).__name__} takes no seed: it is reset{signature}.",
            "A task is a seed of reset.",
            SEED_CURE,
        )
