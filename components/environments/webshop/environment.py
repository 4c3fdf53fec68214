"""The real shop for a batch of tasks: counts its interactions and refuses to exceed its budget. It needs no
processes of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

from components.environments.budget import spend
from components.environments.protocol import Step
from components.environments.webshop.goals import keywords
from components.environments.webshop.shop.pages import observation
from components.environments.webshop.shop.session import Session
from components.environments.webshop.states import describe, failed
from components.errors import EnvironmentFailure
from components.records import Task

WON = 1.0 - 1e-9


class WebshopEnvironment:
    """One row a task; `open_session` gives a task's shop and goal."""

    def __init__(self, open_session: Callable[[Task], Session], budget: int | None = None) -> None:
        self.interactions = 0
        self.budget = budget
        self._open = open_session
        self._sessions: list[Session] = []
        self.admissible: list[tuple[str, ...]] = []

    def reset(self, tasks: Sequence[Task]) -> list[str]:
        """Open a session for each task.

        Raises:
            EnvironmentFailure: a task was made up and has no world of its own, or its products or goal are
                not in the catalogue.
        """
        for task in tasks:
            if task.generated:
                raise EnvironmentFailure(
                    f"The task {task.id} was generated: it has no real world.",
                    next_step="Embody a dreamed episode of it.",
                )
        self._sessions = [self._open(task) for task in tasks]
        self.admissible = [admissible(session) for session in self._sessions]
        return [describe(session) for session in self._sessions]

    def step(self, actions: Sequence[str | None]) -> list[Step | None]:
        """One step for each row with an action.

        Raises:
            EnvironmentFailure: the budget of interactions does not allow these steps.
        """
        self.interactions = spend(
            self.interactions, sum(action is not None for action in actions), self.budget
        )
        return [None if action is None else self._answer(row, action) for row, action in enumerate(actions)]

    def probe(self, actions: Sequence[Sequence[str]]) -> list[list[Step]]:
        """What each of a row's actions would lead to, tried in a copy of its session; the rows stay where
        they are.

        Raises:
            EnvironmentFailure: the budget of interactions does not allow these steps.
        """
        self.interactions = spend(self.interactions, sum(map(len, actions)), self.budget)
        return [
            [_played(self._sessions[row].fork(), action) for action in tried]
            for row, tried in enumerate(actions)
        ]

    def _answer(self, row: int, action: str) -> Step:
        answer = _played(self._sessions[row], action)
        self.admissible[row] = answer.info["admissible"]
        return answer

    def close(self) -> None:
        """Nothing is held: the catalogue is shared and stays."""
        self._sessions = []


def _played(session: Session, action: str) -> Step:
    """`info` holds beside `observation` and `admissible`, after a purchase, `score`: the graded reward and
    its terms.
    """
    state = describe(session) if session.act(action) else failed(session)
    info = {"observation": observation(session), "admissible": admissible(session)}
    if session.score is None:
        return Step(state, 0.0, False, info)
    return Step(state, 1.0 if session.score.r >= WON else 0.0, True, info | {"score": asdict(session.score)})


def admissible(session: Session) -> tuple[str, ...]:
    """Everything that can be clicked, and a search for the words of the instruction."""
    clicks = tuple(f"click[{name}]" for name in session.clickables())
    return clicks if session.score else (f"search[{keywords(session.goal.instruction)}]", *clicks)
