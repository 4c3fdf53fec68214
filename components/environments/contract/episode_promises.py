"""Promises about playing episodes.

The docstring of each function is the promise as printed.
"""

from __future__ import annotations

import time

from components.environments.contract.finding import Broken, Doubtful
from components.environments.contract.subject import Subject, require
from components.environments.protocol import NO_ACTION
from components.environments.text_world.replayed_behaviours import BEHAVIOURS
from components.errors import EnvironmentFailure

NONSENSE = (
    "?",
    "",
    "fly to the moon",
    "<success>",
    "<end> <state>",
    "\n",
    "x" * 2000,
    "ünïcödé",
    "go \x11o",
    "\x00",
)
PACE_SECONDS = 2.0
PACE_ROUNDS = 50
"""The pace is measured for so many seconds or rounds of the tasks, whichever ends first."""


def tasks_begin_the_same(it: Subject) -> str:
    """A task begins in its own initial state, every time."""
    for _ in range(2):
        for task, state in zip(it.tasks, it.world.reset(it.tasks), strict=True):
            require(
                state == task.initial_state,
                f"{task.id} began with {state!r:.200}, its initial_state is {task.initial_state!r:.200}.",
            )
        for task, answer in zip(it.tasks, it.world.step([NO_ACTION] * len(it.tasks)), strict=True):
            require(
                answer and "failed" not in answer.info,
                f"{task.id} did not begin as recorded: {answer and answer.info.get('failed')}",
            )
    return f"{len(it.tasks)} tasks, twice"


def behaviours_play(it: Subject) -> str:
    """Behaviours play to the end or the step limit, and only the last step of a success is rewarded."""
    refused: list[tuple[str, EnvironmentFailure]] = []
    for name in BEHAVIOURS:
        try:
            it.played[name] = it.play(name)
        except EnvironmentFailure as failure:
            refused.append((name, failure))
            continue
        for step in (step for episode in it.played[name] for step in episode.steps):
            require(
                step.reward in (0.0, 1.0) and step.reward <= step.done,
                f"{name}: reward {step.reward}, done {step.done}, {step.action!r}.",
            )
    require(it.played, f"No behaviour can be played: {refused[-1][1] if refused else ''}")
    recorded = [(name, failure) for name, failure in refused if getattr(it.config.data, name)]
    if recorded:
        options = " ".join(f"data.{name}=0" for name, _ in recorded)
        raise Doubtful(
            f"{', '.join(name for name, _ in recorded)} cannot be played: {recorded[0][1]}",
            f"Set {options}, or record solutions.",
        )
    without = [f"{name} cannot be played (data.{name}=0)" for name, _ in refused]
    return ", ".join(
        [
            f"{name} won {sum(episode.success for episode in episodes)} of {len(episodes)}"
            for name, episodes in it.played.items()
        ]
        + without
    )


def expert_wins(it: Subject) -> str:
    """The expert wins."""
    won = [episode for episode in it.played.get("expert", []) if episode.success]
    if not won and not it.config.data.expert:
        return "none is recorded (data.expert=0); others are cloned (cloning.behaviours)"
    if not won:
        raise Doubtful(
            f"It won none of {len(it.played.get('expert', []))}.",
            "A policy is cloned from won expert episodes. Set data.expert=0 if there is no expert: then the "
            "other behaviours are cloned.",
        )
    return f"{len(won)} of {len(it.tasks)}"


def episodes_repeat(it: Subject) -> str:
    """The same behaviour with the same seed gives the same episode."""
    for name, episodes in it.played.items():
        for first, second in zip(episodes, it.play(name), strict=True):
            require(
                first == second,
                f"{name} in {first.task.id} went another way the second time.",
                "Recorded data could not be made again.",
            )
    return ", ".join(it.played)


def nonsense_is_answered(it: Subject) -> str:
    """What is no action is answered with a state, and is not the world's failure."""
    for action in NONSENSE:
        it.world.reset(it.tasks[:1])
        (answer,) = it.world.step([action])
        is_refused = (
            answer is not None
            and answer.state.strip()
            and not answer.done
            and not answer.reward
            and "failed" not in answer.info
        )
        require(
            is_refused,
            f"{action!r:.40} was answered with {answer!r:.300}.",
            "Answer with a state that says that nothing happened.",
        )
    return f"{len(NONSENSE)} kinds"


def budget_is_kept(it: Subject) -> str:
    """Steps are counted, and the budget is not exceeded."""
    world = it.adapter.open(budget=3)
    try:
        world.reset(it.tasks[:2])
        answers = world.step(["?", None])
        require(
            answers[1] is None and world.interactions == 1,
            f"One step was taken; interactions is {world.interactions}.",
        )
        world.step(["?", "?"])
        try:
            world.step(["?", None])
        except EnvironmentFailure:
            return "3 of 3"
        raise Broken("A fourth step was taken with a budget of 3.", "Raise EnvironmentFailure before it.")
    finally:
        world.close()


def texts_are_short(it: Subject) -> str:
    """States and actions are short enough for the data's rules."""
    limit = it.config.data.max_text_chars
    longest = max(
        (
            len(text)
            for episode in it.episodes()
            for text in (*episode.states, *(step.action for step in episode.steps))
        ),
        default=0,
    )
    require(
        longest <= limit,
        f"The longest has {longest:,} characters; the limit is {limit:,}.",
        "Map states to what matters in them.",
    )
    return f"at most {longest:,} characters"


def measure_pace(it: Subject) -> str:
    """Its pace: what opening, a reset and a step take."""
    require(it.played, "No behaviour can be played, so nothing was measured.")
    reset_seconds = 0.0
    step_seconds = 0.0
    rounds = 0
    steps = 0
    behaviour, episodes = next(iter(it.played.items()))
    while rounds < PACE_ROUNDS and reset_seconds + step_seconds < PACE_SECONDS:
        started = time.perf_counter()
        it.world.reset(it.tasks)
        ready = time.perf_counter()
        steps_before = it.world.interactions
        for place in range(max(len(episode.steps) for episode in episodes)):
            it.world.step(
                [episode.steps[place].action if place < len(episode.steps) else None for episode in episodes]
            )
        step_seconds += time.perf_counter() - ready
        reset_seconds += ready - started
        rounds += 1
        steps += it.world.interactions - steps_before
    rate = _rate_text(steps / step_seconds)
    rate_with_resets = _rate_text(steps / (step_seconds + reset_seconds))
    sample = f"{len(it.tasks)} rows, {steps} steps of {behaviour} in {rounds} rounds of the same tasks"
    return (
        f"opened in {it.opening:.1f} s, a reset of all in {reset_seconds / rounds:.3g} s, {rate} steps/s, "
        f"{rate_with_resets} with resets ({sample})"
    )


def _rate_text(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
