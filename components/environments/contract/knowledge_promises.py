"""Promises about what an adapter knows of its world.

The docstring of each function is the promise as printed. They hold for the defaults of
`capabilities.py` as well.
"""

from __future__ import annotations

from dataclasses import replace

from components.environments.capabilities import Grounding
from components.environments.contract.finding import Doubtful
from components.environments.contract.subject import LISTED_TASKS, Subject, require
from components.records import TEST, Trajectory, Transition


def steps_have_words(it: Subject) -> str:
    """Every step has a reason, and facts that do not contradict themselves."""
    for episode in it.episodes():
        for step in episode.steps:
            _require_words(it, episode, step)
    return f"{sum(len(episode.steps) for episode in it.episodes())} steps"


def _require_words(it: Subject, episode: Trajectory, step: Transition) -> None:
    history = episode.up_to(step.step)
    facts = it.adapter.facts(episode.up_to(step.step + 1))
    reason = it.adapter.reason(history, step.action, step.next_state, step.reward)
    require(reason, f"reason gives no words for {step.action!r}.")
    if isinstance(it.adapter, Grounding):
        length = it.adapter.grounded(episode.task, history.states, step.action, reason)
        require(
            length == len(reason),
            f"grounded objects to {reason[length:]!r} in {reason!r}, which is what reason says.",
        )
    require(facts, f"facts finds nothing in {step.next_state!r:.200}.")
    denied = [fact for fact in facts if it.adapter.contradicts(fact, facts)]
    require(not denied, f"{step.next_state!r:.200} contradicts itself: {denied[:1]}.")


def real_steps_are_believed(it: Subject) -> str:
    """No real step is called a contradiction, and what was seen is no revelation."""
    for episode in it.episodes():
        for step in episode.steps:
            objection = it.adapter.contradiction(episode.up_to(step.step), step.next_state)
            require(
                not objection,
                f"A real state is objected to: {objection} ({step.action!r} in {episode.task.id}).",
            )
            is_revealed_again = it.adapter.revealing(
                episode.up_to(step.step + 1), step.action, step.next_state
            )
            require(
                not is_revealed_again,
                f"{step.next_state!r:.200} is called revealing right after it was seen.",
            )
    return f"{len(it.episodes())} episodes"


def dreams_are_embodied(it: Subject) -> str:
    """An episode replays in the world that `embody` gives."""
    for episode in it.played.get("expert") or it.episodes()[:1]:
        states = it.world.reset([it.adapter.embody(episode)])
        for step in episode.steps:
            (answer,) = it.world.step([step.action])
            states.append(answer.state if answer else "")
        require(states == episode.states, f"{episode.task.id} replayed went another way.")
    return "the same states"


def own_tasks_are_feasible(it: Subject) -> str:
    """The world's own tasks are feasible, and nonsense is not."""
    for task in it.tasks:
        problem = it.adapter.feasible(task)
        require(not problem, f"{task.id} is called infeasible: {problem}.")
    require(
        it.adapter.feasible(replace(it.tasks[0], instruction="be happy")),
        "The instruction 'be happy' is called feasible.",
    )
    return f"{len(it.tasks)} tasks"


def premises_are_accepted(it: Subject) -> str:
    """Premises that real episodes have shown are not objected to."""
    shown = [(episode.task, premise) for episode in it.episodes() if (premise := it.adapter.premise(episode))]
    if not shown:
        require(
            bool(it.adapter.objection(it.tasks[0], "nothing")),
            "No episode shows a premise, and one made up is not objected to.",
        )
        if not it.config.experience_model.premise:
            return "none was shown, and dreams begin without one (experience_model.premise=false)"
        raise Doubtful(
            "No episode has shown one.", "Set experience_model.premise=false: dreams begin without a premise."
        )
    for task, premise in shown:
        problem = it.adapter.objection(task, premise)
        require(not problem, f"{premise!r} is objected to: {problem}.")
    return f"{len(shown)} premises"


def progress_is_whole(it: Subject) -> str:
    """Progress is whole for a success, and for nothing else."""
    for episode in it.episodes():
        progress = it.adapter.progress(episode)
        require(
            progress == 1.0 if episode.success else 0.0 <= progress < 1.0,
            f"{progress} in {episode.task.id}, success {episode.success}.",
        )
    return f"{len(it.episodes())} episodes"


def unseen_worlds_exist(it: Subject) -> str:
    """Some held-out tasks play in worlds that no training task has."""
    tasks = it.adapter.tasks(TEST, min(LISTED_TASKS, it.config.evaluation.tasks), 1)
    count = sum(it.adapter.unseen(task) for task in tasks)
    if not count and not it.config.data.fidelity_worlds:
        return f"none of {len(tasks)}, and none is asked for (data.fidelity_worlds=0)"
    if not count:
        raise Doubtful(f"None of {len(tasks)} does.", "Set data.fidelity_worlds=0.")
    return f"{count} of {len(tasks)}"
