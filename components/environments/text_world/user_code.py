"""Call code that the user brings, and report its exceptions in one sentence with the call, error and line."""

from __future__ import annotations

import contextlib
import inspect
import traceback
from collections.abc import Iterator
from typing import Any

from components.errors import DreamGymError, EnvironmentFailure

SEED_ADVICE = (
    "Give it that parameter, `def reset(self, *, seed=None)`, and let it decide the episode. A world that "
    "has no seeds can list its tasks in an adapter of its own: environment.name=own, "
    "docs/guides/add-a-world.md."
)


@contextlib.contextmanager
def users_call(call: str) -> Iterator[None]:
    """Raise EnvironmentFailure in place of any exception of the user's code.

    Args:
        call: what was called, such as `reset(seed=3)`, for the message.
    """
    try:
        yield
    except DreamGymError:
        raise
    except (Exception, SystemExit) as error:
        lacks_seed = isinstance(error, TypeError) and "'seed'" in str(error)
        raise EnvironmentFailure(
            f"{call} raised {type(error).__name__}: {error} ({place_of(error)}).",
            next_step=SEED_ADVICE if lacks_seed else "Mend it there.",
        ) from error


def place_of(error: BaseException) -> str:
    """Return the line on which `error` was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"line {frame.lineno} of {frame.filename}"


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
    except (TypeError, ValueError):  # Python cannot inspect this code
        return
    if not any(_accepts_seed(parameter) for parameter in signature.parameters.values()):
        raise EnvironmentFailure(
            f"The reset of {type(world).__name__} takes no seed: it is reset{signature}.",
            "A task is a seed of reset.",
            SEED_ADVICE,
        )


def _accepts_seed(parameter: inspect.Parameter) -> bool:
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return True
    return parameter.name == "seed" and parameter.kind is not inspect.Parameter.POSITIONAL_ONLY
