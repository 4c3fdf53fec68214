"""The budget of real interactions, which every real environment keeps in the same way."""

from __future__ import annotations

from components.errors import EnvironmentFailure


def spend(spent: int, steps: int, budget: int | None) -> int:
    """Return the number of interactions after `steps` more.

    Args:
        budget: the largest number allowed; None: any.

    Raises:
        EnvironmentFailure: the budget does not allow them; none of them is spent.
    """
    if budget is not None and spent + steps > budget:
        raise EnvironmentFailure(
            f"{spent} real interactions are spent and {steps} more were asked for.",
            f"The budget is {budget}.",
            "Raise rl.real.budget.",
        )
    return spent + steps
