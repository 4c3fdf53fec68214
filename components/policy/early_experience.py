"""Early Experience (arXiv 2510.08558): what an agent learns from its own alternatives beside an expert's way,
before any RL.

    L_IWM = - sum log p(s_i^j | s_i, a_i^j)           implicit world modelling, before cloning, with the same
    weights L_SR  = - sum log p(c_i, a_i | s_i)               self-reflection, mixed with cloning; c_i says
    why a_i and not the alternatives

    dreamgym retrain cloning.early_experience=self_reflection

At each state of an expert's episode K alternatives are drawn evenly from the admissible actions and really
executed in a fork of the game (`Forkable.probe`), so that none is ever out of step with it: the expert's own
steps are played along and must lead where they were recorded to lead. All of these steps are real
interactions.

Deviations: the reflections are the adapter's (`reflect`), from what the alternatives really led to, not a
language model's, and one reflection speaks of all K; with K = 3, where the paper has 8 for IWM and 3 for SR.
The paper keeps the total of updates equal to plain cloning's; here cloning keeps its own passes, and world
modelling comes before them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from components.environments.protocol import Environment, Forkable, Step
from components.environments.retry import play_whole
from components.errors import EnvironmentFailure
from components.language.markers import ACTION, END
from components.language.tokenizer import Vocabulary
from components.language.training.examples import Example, Segment
from components.policy.agent_prompt import observation, opening, reply, turn
from components.records import Trajectory

Reflect = Callable[[Trajectory, str, Sequence[tuple[str, str]]], str]
Alternative = tuple[str, str]
"""An action and the state that it really led to."""


@dataclass(frozen=True)
class ExploredEpisode:
    """An expert's episode and, for each of its steps, the alternatives that were tried there."""

    episode: Trajectory
    alternatives: tuple[tuple[Alternative, ...], ...]


def explore(
    world: Environment, episodes: Sequence[Trajectory], count: int, seed: int
) -> list[ExploredEpisode]:
    """Walk along each episode in `world` and try up to `count` alternatives at each of its states.

    What infrastructure ended on the way is walked again, with the same alternatives. One that fails by itself
    is left out.

    Raises:
        EnvironmentFailure: the world cannot be forked, its budget is spent, it leads elsewhere than it was
            recorded to, or an episode
            broke in each of several tries (`again.TRIES`).
    """
    if not isinstance(world, Forkable):
        message = f"{type(world).__name__} cannot try alternatives."
        raise EnvironmentFailure(
            message, "Expected an environment with `probe`.", "Set cloning.early_experience=none."
        )
    names = {row: f"{episode.steps[0].episode_id}" for row, episode in enumerate(episodes)}
    expected = "An episode whose alternatives are unknown has no lesson."
    return list(
        play_whole(
            names, lambda rows, _: _walk(world, episodes, rows, count, seed), "episodes", expected
        ).values()
    )


def _walk(
    world: Forkable, episodes: Sequence[Trajectory], rows: Sequence[int], count: int, seed: int
) -> tuple[dict[int, ExploredEpisode], dict[int, str]]:
    """Those of the given places, and why infrastructure broke the others."""
    walked = [episodes[row] for row in rows]
    rngs = [random.Random(f"early-experience/{seed}/{episode.steps[0].episode_id}") for episode in walked]
    world.reset([episode.task for episode in walked])
    admissible: list[Sequence[str]] = list(getattr(world, "admissible", [()] * len(walked)))
    found, broken = [list[tuple[Alternative, ...]]() for _ in walked], dict[int, str]()
    for place in range(max(len(episode.steps) for episode in walked)):
        going = [at for at, episode in enumerate(walked) if place < len(episode.steps) and at not in broken]
        tried = {at: _drawn(rngs[at], admissible[at], walked[at].steps[place].action, count) for at in going}
        answers = world.probe([tried.get(at, []) for at in range(len(walked))])
        for at in going:
            tries = zip(tried[at], answers[at], strict=True)
            found[at].append(tuple((action, one.state) for action, one in tries if "failed" not in one.info))
        steps = world.step(
            [walked[at].steps[place].action if at in going else None for at in range(len(walked))]
        )
        for at in going:
            step = steps[at]
            if step is not None and "failed" in step.info:
                broken[at] = str(step.info["failed"])
            else:
                admissible[at] = _checked(walked[at], place, step)
    whole = {
        rows[at]: ExploredEpisode(walked[at], tuple(found[at]))
        for at in range(len(walked))
        if at not in broken
    }
    return whole, {rows[at]: reason for at, reason in broken.items()}


def _drawn(rng: random.Random, admissible: Sequence[str], expert: str, count: int) -> list[str]:
    others = [action for action in admissible if action != expert]
    return rng.sample(others, min(count, len(others)))


def _checked(episode: Trajectory, place: int, step: Step | None) -> Sequence[str]:
    """The actions admissible after a step of the expert, which must have led where it was recorded to
    lead.
    """
    wanted = episode.steps[place]
    if step is None or step.state != wanted.next_state:
        raise EnvironmentFailure(
            f"Step {place} of {wanted.episode_id} leads to {step.state if step else 'nothing'!r}.",
            f"The data recorded {wanted.next_state!r}.",
            "The data is of another version of the world: run `dreamgym collect`.",
        )
    actions: Sequence[str] = step.info.get("admissible", ())
    return actions


def world_examples(vocabulary: Vocabulary, explored: Sequence[ExploredEpisode]) -> list[Example]:
    """For implicit world modelling: each episode as the agent reads it, and beside each step what its
    alternatives lead to.
    """
    return [_world_example(vocabulary, found) for found in explored if any(found.alternatives)]


def _world_example(vocabulary: Vocabulary, found: ExploredEpisode) -> Example:
    task, segments = found.episode.task, [_read(vocabulary, opening(found.episode.task))]
    for step, alternatives in zip(found.episode.steps, found.alternatives, strict=True):
        for action, state in (*alternatives, (step.action, step.next_state)):
            asked = vocabulary.encode([*turn(task), ACTION, action, END, *observation(state)[:-1]])
            told = vocabulary.encode([state])
            segments.append(Segment(asked + told, [False] * len(asked) + [True] * len(told), branch=True))
        segments.append(
            _read(vocabulary, [*turn(task), *reply("", step.action), *observation(step.next_state)])
        )
    return Example(segments)


def _read(vocabulary: Vocabulary, pieces: Sequence[str]) -> Segment:
    tokens = vocabulary.encode(pieces)
    return Segment(tokens, [False] * len(tokens))


def reflections(explored: Sequence[ExploredEpisode], reflect: Reflect) -> list[list[str]]:
    """For self-reflection: the thought before each step of each episode. A step without alternatives has none
    to speak of, and the adapter's usual thought.
    """
    return [
        [
            reflect(found.episode.up_to(step.step), step.action, alternatives)
            for step, alternatives in zip(found.episode.steps, found.alternatives, strict=True)
        ]
        for found in explored
    ]
