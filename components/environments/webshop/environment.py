"""The real shop for a batch of tasks, with a budget of interactions. It needs no processes of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

from components.environments.budget import spend
from components.environments.protocol import Step
from components.environments.webshop.goals import keywords
from components.environments.webshop.shop.pages import observation
from components.environments.webshop.shop.session import Session
from components.environments.webshop.shop.state_text import describe_failure, describe_page
from components.errors import EnvironmentFailure
from components.records import Task

SUCCESS_REWARD = 1.0 - 1e-9
"""Graded reward from which a purchase is a success."""


class WebshopEnvironment:
    """One session per row. `open_session` returns the session of a task."""

    def __init__(self, open_session: Callable[[Task], Session], budget: int | None = None) -> None:
        self.interactions = 0
        self.budget = budget
        self._open = open_session
        self._sessions: list[Session] = []
        self.admissible: list[tuple[str, ...]] = []

    def reset(self, tasks: Sequence[Task]) -> list[str]:
        """Open a session for each task and return the initial states.

        Raises:
            EnvironmentFailure: a task was generated and has no world of its own, or its products or goal are
                not in the catalogue.
        """
        for task in tasks:
            if task.generated:
                raise EnvironmentFailure(
                    f"The task {task.id} was generated: it has no real world.",
                    next_step="Embody a dreamed episode of it.",
                )
        self._sessions = [self._open(task) for task in tasks]
        self.admissible = [admissible_actions(session) for session in self._sessions]
        return [describe_page(session) for session in self._sessions]

    def step(self, actions: Sequence[str | None]) -> list[Step | None]:
        """Take one step for each row with an action.

        Raises:
            EnvironmentFailure: the budget of interactions does not allow these steps.
        """
        self.interactions = spend(
            self.interactions, sum(action is not None for action in actions), self.budget
        )
        return [None if action is None else self._answer(row, action) for row, action in enumerate(actions)]

    def probe(self, actions: Sequence[Sequence[str]]) -> list[list[Step]]:
        """Return what each of a row's actions would lead to; the rows stay where they are.

        Each action is tried in a copy of the session.

        Raises:
            EnvironmentFailure: the budget of interactions does not allow these steps.
        """
        self.interactions = spend(self.interactions, sum(map(len, actions)), self.budget)
        return [
            [_take_action(self._sessions[row].fork(), action) for action in alternatives]
            for row, alternatives in enumerate(actions)
        ]

    def _answer(self, row: int, action: str) -> Step:
        answer = _take_action(self._sessions[row], action)
        self.admissible[row] = answer.info["admissible"]
        return answer

    def close(self) -> None:
        """Drop the sessions. The catalogue is shared and stays."""
        self._sessions = []


def _take_action(session: Session, action: str) -> Step:
    """Take one action in a session and return its step.

    `info` has `observation` and `admissible`, and after a purchase `score`: the graded reward and its terms.
    """
    state = describe_page(session) if session.act(action) else describe_failure(session)
    info = {"observation": observation(session), "admissible": admissible_actions(session)}
    if session.score is None:
        return Step(state, 0.0, False, info)
    return Step(
        state,
        1.0 if session.score.r >= SUCCESS_REWARD else 0.0,
        True,
        info | {"score": asdict(session.score)},
    )


def admissible_actions(session: Session) -> tuple[str, ...]:
    """Return everything that can be clicked, and a search for the words of the instruction."""
    clicks = tuple(f"click[{name}]" for name in session.clickables())
    return clicks if session.score else (f"search[{keywords(session.goal.instruction)}]", *clicks)
