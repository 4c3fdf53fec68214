"""How far an RL loop has come, and the figures of its iterations."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class LoopState:
    """Progress of a loop.

    Args:
        iteration: number of finished iterations.
        interactions: steps in the world so far.
        iterations_without_signal: number of latest consecutive iterations without a learning signal.
        tokens: number of tokens generated so far.
        series: figure -> one value per iteration.
    """

    iteration: int = 0
    interactions: int = 0
    iterations_without_signal: int = 0
    tokens: int = 0
    series: dict[str, list[float]] = field(default_factory=dict)

    def progress(self, iterations: int, budget: int | None) -> float:
        """Return the share of the training that is over, of its iterations or of its budget, in [0, 1].

        Args:
            iterations: most iterations.
            budget: most interactions; None: no limit.
        """
        share = self.iteration / iterations
        return min(1.0, max(share, self.interactions / budget)) if budget else share
