"""A cell of a study: the results of one method with one seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from components.errors import DataError


@dataclass(frozen=True)
class Cell:
    """Results of one method with one seed.

    A cell is a small JSON file with everything that tables and figures need. So a study can start on one
    machine and end on another.

    Attributes:
        origin: config, data and models of the cell; a stored cell is reused only for the same origin.
        games: task id -> won; empty if the cell crashed.
        families: task id -> family.
        recorded_transitions: different real transitions that the models read before they played: `offline`
            those of the logs, `pretraining` those of the backbone if its card says so. Empty in older cells.
        check_interactions: real steps of checks during training; in older cells, those without
            `evaluation_interactions`, also of the games that evaluate policies.
        evaluation_interactions: real steps of those games, which train nothing; None in older cells.
        seconds: stage -> wall time.
        curve: one entry per iteration of RL: (real interactions, dreamed interactions, seconds, success rate
            of the rollouts), counted from the cloned policy.
        held_out: the same for policies during training, with their success rate on the held-out games.
        curriculum: `Curriculum.life` of RL in the dream.
        watched: one entry per check of the dream watch: (iteration, dreamed success rate, share of replayed
            dreamed successes that were confirmed).
        figures: further numbers by name: single-step fidelity, and means over the iterations of how many
            episodes had a learning signal; of a judge the first and the last iteration's; optimiser updates
            of the clone.
        rl_curves: `stage/figure` -> its value in each iteration of RL, None where it had none: of iStar's
            model, of DPO's pairs, of HERO's learnt reward. Empty in older cells.
        policy: content hash of the policy, empty in older cells.
        crash: error of a cell that did not finish.
    """

    method: str
    seed: int
    origin: dict[str, Any]
    games: dict[str, bool] = field(default_factory=dict)
    families: dict[str, str] = field(default_factory=dict)
    real_interactions: int = 0
    dreamed_interactions: int = 0
    check_interactions: int = 0
    evaluation_interactions: int | None = None
    recorded_transitions: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    curve: list[list[float]] = field(default_factory=list)
    held_out: list[list[float]] = field(default_factory=list)
    curriculum: list[dict[str, Any]] = field(default_factory=list)
    watched: list[list[float]] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    rl_curves: dict[str, list[float | None]] = field(default_factory=dict)
    run_id: str = ""
    commit: str = ""
    policy: str = ""
    crash: str = ""

    @property
    def success(self) -> float:
        """Success rate on the held-out games."""
        return sum(self.games.values()) / len(self.games)

    @property
    def training_families(self) -> list[str]:
        """Families of the training tasks; empty for all families."""
        families: list[str] = self.origin.get("config", {}).get("data", {}).get("families", [])
        return families


def require_distinct_policies(cells: Mapping[str, Sequence[Cell]]) -> None:
    """Check that two seeds of a method are never the same policy, which would inflate n.

    Two cells are the same policy if they have the same run id or the same content hash.

    Raises:
        DataError: two seeds of a method are one policy.
    """
    for method, method_cells in cells.items():
        finished_cells = [cell for cell in method_cells if not cell.crash]
        for one, other in combinations(finished_cells, 2):
            if (one.run_id and one.run_id == other.run_id) or (one.policy and one.policy == other.policy):
                raise DataError(
                    f"The cells {method}, seed {one.seed} and seed {other.seed}, are one policy (run "
                    f"{one.run_id}, run {other.run_id}).",
                    "Expected a different policy for each seed.",
                    f"Remove {method}-{other.seed}.json and run that cell again.",
                )
