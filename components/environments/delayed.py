"""A real environment whose steps take a stated time, to measure what slow environments cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from components.environments.capabilities import Adapter
from components.environments.protocol import RealEnvironment, Step

TakeStep = Callable[[Sequence[str | None]], list[Step | None]]


def delay_steps(adapter: Adapter, seconds: float, rows: int) -> Adapter:
    """Make the environments that `adapter` opens from now on wait in each step, and return the adapter.

    Args:
        seconds: that a step takes in addition, by sleeping; 0: none.
        rows: episodes whose steps pass at the same time, as with as many browsers; more wait in turn.
    """
    if not seconds:
        return adapter
    open_world = adapter.open

    def open_delayed(
        budget: int | None = None, *, workers: int | None = None, stock: bool = False
    ) -> RealEnvironment:
        world = open_world(budget, workers=workers, stock=stock)
        # On the instance: which capabilities a world has is read from its class.
        setattr(world, "step", _delayed(world.step, seconds, rows))  # noqa: B010
        return world

    setattr(adapter, "open", open_delayed)  # noqa: B010
    return adapter


def _delayed(step: TakeStep, seconds: float, rows: int) -> TakeStep:
    def delayed_step(actions: Sequence[str | None]) -> list[Step | None]:
        active = sum(action is not None for action in actions)
        time.sleep(seconds * -(-active // rows))
        return step(actions)

    return delayed_step
