"""Early Experience (arXiv 2510.08558): training on alternatives to an expert's actions, before any RL.

    L_IWM = - sum log p(s_i^j | s_i, a_i^j)     implicit world modelling, before cloning
    L_SR  = - sum log p(c_i, a_i | s_i)         self-reflection, mixed with cloning

Both train the weights that cloning trains. c_i says why a_i was chosen and not the alternatives.

    dreamgym retrain cloning.early_experience=self_reflection

At each state of an expert's episode, K alternatives are drawn uniformly from the admissible actions; where a
world lists none, from those that were recorded for the task. They are executed in a fork of the game, or in a
second one behind the same actions (`replayed_forks.py`). The expert's own steps are executed too and must
lead to the recorded states, so no alternative is out of step with the game. All of these steps are real
interactions. Where actions can be listed, as in ALFWorld, the authors draw alternatives from the list, too.
With `own_reflection` the policy's chat model proposes the alternatives (`own_alternatives.py`).

Deviations from the paper:
1. One reflection covers all K alternatives: c_i. The paper writes one for each of them: c_i^j.
2. A language model writes the paper's reflections, and what it wrote is kept. With `self_reflection` they are
   templates of the adapter (`reflect`), filled with the states that the alternatives led to, without those
   that bring the episode further. The default template, of plain worlds, quotes these states word for word:
   the policy writes before it acts what it cannot know, which `has_leak` forbids a chat model. With
   `own_reflection` the policy's chat model writes; a reflection is kept if it makes the expert's action
   likelier (`own_reflections.py`).
3. K is 3; the paper has 8 for IWM and 3 for SR.
4. As in the paper, as much is trained as in plain cloning, here counted in tokens: world modelling takes
   the place of epochs of cloning (at most half of them), and a demonstration with reflections counts twice.
5. With `world_modelling` and `self_reflection` the policy proposes no alternatives itself: all are drawn
   uniformly, as the authors do for world modelling in ALFWorld. A small policy is untrained before it is
   cloned. With `own_reflection` they are sampled from the initial policy, as in the paper. Where a bounded
   number of samples yields fewer than K, the others are drawn uniformly, and counted.
6. The demonstrations may be successes of an agent that errs (`cloning.behaviours`). Steps at which it gave no
   thought, though it did at others, have no reflection. World modelling takes all steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from components.environments.protocol import Forkable, Step
from components.environments.retry import play_whole
from components.errors import EnvironmentFailure
from components.language.training.examples import Example, Segment
from components.policy.formats.agent_format import AgentFormat
from components.policy.formats.demonstrations import without_loss
from components.records import Trajectory, Transition

Reflect = Callable[[Trajectory, Sequence[tuple[str, str]], str], str]
"""(history, alternatives, expert's thought) -> thought before the action."""
Progress = Callable[[Trajectory], float]
"""Episode -> share of the goal that is reached, 0 to 1 (`capabilities.Progress`)."""
Alternative = tuple[str, str]
"""An action and the state that it led to in the real environment."""


@dataclass(frozen=True)
class ExploredEpisode:
    """An expert's episode and, for each of its steps, the alternatives that were executed there."""

    episode: Trajectory
    alternatives: tuple[tuple[Alternative, ...], ...]


def action_key(action: str) -> str:
    """Return what two actions share that differ in upper case and blanks alone."""
    return " ".join(action.casefold().split())


def explore(
    world: Forkable,
    episodes: Sequence[Trajectory],
    count: int,
    seed: int,
    proposals: Sequence[Sequence[Sequence[str]]] | None = None,
) -> list[ExploredEpisode]:
    """Replay each episode in `world` and execute up to `count` alternatives at each of its states.

    If infrastructure ends an episode, it is replayed with the same alternatives. An alternative that fails
    for such a reason is left out.

    Args:
        proposals: per episode and step, up to `count` alternatives that are executed before any is drawn;
            None: all are drawn.

    Raises:
        EnvironmentFailure: its budget is spent, a step leads to another state than the recorded one, no step
            has an alternative, or an episode broke in each of `retry.TRIES` tries.
    """
    names = {row: f"{episode.steps[0].episode_id}" for row, episode in enumerate(episodes)}
    expected = "An episode without executed alternatives gives no training example."
    explored = list(
        play_whole(
            names,
            lambda rows, _: _replay(world, episodes, rows, count, seed, proposals),
            "episodes",
            expected,
        ).values()
    )
    if not any(any(entry.alternatives) for entry in explored):
        raise EnvironmentFailure(
            f"At no step of {len(explored)} episodes is another action than the expert's known.",
            "Expected at least one alternative to execute.",
            "Record more episodes of these tasks, let the world list its admissible actions, or set "
            "cloning.early_experience=none.",
        )
    return explored


def _replay(
    world: Forkable,
    all_episodes: Sequence[Trajectory],
    rows: Sequence[int],
    count: int,
    seed: int,
    proposals: Sequence[Sequence[Sequence[str]]] | None,
) -> tuple[dict[int, ExploredEpisode], dict[int, str]]:
    """Return by row the explored episodes, and the reasons why infrastructure ended the others."""
    episodes = [all_episodes[row] for row in rows]
    rngs = [random.Random(f"early-experience/{seed}/{episode.steps[0].episode_id}") for episode in episodes]
    world.reset([episode.task for episode in episodes])
    admissible: list[Sequence[str]] = list(world.admissible)
    alternatives = [list[tuple[Alternative, ...]]() for _ in episodes]
    failures: dict[int, str] = {}
    for number in range(max(len(episode.steps) for episode in episodes)):
        active = [
            at for at, episode in enumerate(episodes) if number < len(episode.steps) and at not in failures
        ]
        actions = {
            at: _choose_alternatives(
                rngs[at],
                admissible[at],
                episodes[at].steps[number].action,
                count,
                proposals[rows[at]][number] if proposals is not None else (),
            )
            for at in active
        }
        answers = world.probe([actions.get(at, []) for at in range(len(episodes))])
        for at in active:
            pairs = zip(actions[at], answers[at], strict=True)
            alternatives[at].append(
                tuple((action, answer.state) for action, answer in pairs if "failed" not in answer.info)
            )
        steps = world.step(
            [episodes[at].steps[number].action if at in active else None for at in range(len(episodes))]
        )
        for at in active:
            step = steps[at]
            if step is not None and "failed" in step.info:
                failures[at] = str(step.info["failed"])
            else:
                admissible[at] = _admissible_after(episodes[at], number, step)
    explored = {
        rows[at]: ExploredEpisode(episodes[at], tuple(alternatives[at]))
        for at in range(len(episodes))
        if at not in failures
    }
    return explored, {rows[at]: reason for at, reason in failures.items()}


def _choose_alternatives(
    rng: random.Random, admissible: Sequence[str], expert_action: str, count: int, proposed: Sequence[str]
) -> list[str]:
    """Return the proposed alternatives, filled up to `count` with other admissible actions."""
    keys = {action_key(action) for action in proposed}
    others = [action for action in admissible if action != expert_action and action_key(action) not in keys]
    return [*proposed, *rng.sample(others, min(count - len(proposed), len(others)))]


def _admissible_after(episode: Trajectory, number: int, step: Step | None) -> Sequence[str]:
    """Return the admissible actions after the expert's step `number`.

    Raises:
        EnvironmentFailure: the step led to another state than the recorded one.
    """
    recorded = episode.steps[number]
    if step is None or step.state != recorded.next_state:
        raise EnvironmentFailure(
            f"Step {number} of {recorded.episode_id} leads to {step.state if step else 'nothing'!r}.",
            f"The data recorded {recorded.next_state!r}.",
            "The data is of another version of the world: run `dreamgym collect`.",
        )
    actions: Sequence[str] = step.info.get("admissible", ())
    return actions


def world_examples(text: AgentFormat, explored: Sequence[ExploredEpisode]) -> list[Example]:
    """Return examples for implicit world modelling.

    An example is an episode as the agent reads it. At each step, branches with loss hold the states that the
    alternatives and the expert's action lead to. Episodes without alternatives give no example.
    """
    return [_world_example(text, entry) for entry in explored if any(entry.alternatives)]


def _world_example(text: AgentFormat, explored: ExploredEpisode) -> Example:
    task = explored.episode.task
    segments = [without_loss(text.opening(task))]
    for step, alternatives in zip(explored.episode.steps, explored.alternatives, strict=True):
        for action, state in (*alternatives, (step.action, step.next_state)):
            before, target = text.observation_parts(state)
            prompt = text.ask(task) + text.reply("", action) + before
            loss = [False] * len(prompt) + [True] * len(target)
            segments.append(Segment(prompt + target, loss, branch=True))
        reply = text.ask(task) + text.reply("", step.action)
        segments.append(without_loss(reply + text.observation(step.next_state)))
    return Example(segments)


def is_reasoned(episode: Trajectory, step: Transition) -> bool:
    """Whether the agent gave a thought at this step; True for all steps of one that never gives any.

    A step without one, in an episode with thoughts, may be a mistake: no reason is written for it.
    """
    return bool(step.thought) or not any(other.thought for other in episode.steps)


def reflections(explored: Sequence[ExploredEpisode], reflect: Reflect, progress: Progress) -> list[list[str]]:
    """Return, for self-reflection, the thought before each step of each episode.

    An alternative that brings the episode further, by `progress`, is no mistake: `reflect` does not get it.
    For a step that is no `is_reasoned` the thought is the agent's own.

    Args:
        reflect: writes the thought.
        progress: of the world; where it tells no more than the outcome, all alternatives count as mistakes.
    """
    return [
        [
            _reflection(entry.episode.up_to(step.step), alternatives, step, reflect, progress)
            if is_reasoned(entry.episode, step)
            else step.thought
            for step, alternatives in zip(entry.episode.steps, entry.alternatives, strict=True)
        ]
        for entry in explored
    ]


def _reflection(
    history: Trajectory,
    alternatives: Sequence[Alternative],
    step: Transition,
    reflect: Reflect,
    progress: Progress,
) -> str:
    reached = progress(history)
    mistakes = [
        (action, state)
        for action, state in alternatives
        if progress(_after(history, action, state)) <= reached
    ]
    return reflect(history, mistakes, step.thought)


def _after(history: Trajectory, action: str, state: str) -> Trajectory:
    """Return the episode after an alternative. Its reward is not recorded: it counts as no success."""
    before = history.states[-1]
    alternative = Transition(
        history.task.id, "alternative", len(history.steps), before, action, state, 0.0, False
    )
    return history.with_step(alternative)
