"""What an adapter may know beyond its core: optional capabilities, each with its default.

A world has a capability if its adapter defines the methods of that capability. Where it does not, `Adapter`
answers with the default below, which needs no knowledge of the world. `ValidationSplit`, `Judging` and
`Grounding` have no default: what needs them asks by `isinstance`, and refuses or does without.
Capabilities of an environment, such as forking, stand beside `Environment` in `protocol.py`.

An expert is no capability of its own: the core's `behaviour` refuses the behaviours that a world cannot play.

    dreamgym check-environment ...        # lists the capabilities of a world
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from components.environments.protocol import AdapterCore, Fact, Forkable
from components.environments.text_world.phrases import IS, SAYS, phrase_fact, phrases, words
from components.errors import EnvironmentFailure
from components.records import Task, Trajectory


@runtime_checkable
class Description(Protocol):
    """What the world is and which actions it has, in words: the system turn of chat models.

    Buys: a pretrained model knows from its first step what it plays or simulates. Default: nothing is said;
    `environment.description` says it for any world.
    """

    def describe_world(self) -> str:
        """Return what the world is, in a few lines."""
        return ""

    def describe_actions(self) -> str:
        """Return which actions there are, as an agent has to write them."""
        return ""


@runtime_checkable
class Reflection(Protocol):
    """Why an expert's action is better than others, for Early Experience (`cloning.early_experience`).

    It is a template, whose words the adapter's author wrote. Buys: the reflection says what is wrong with the
    alternatives. Default: it quotes the states that they led to, which the agent cannot know before it acts.
    """

    def reflect(self, trajectory: Trajectory, alternatives: Sequence[tuple[str, str]], thought: str) -> str:
        """Return the expert's `thought` after `trajectory`, behind what its alternatives led to.

        Args:
            alternatives: (action, next state) of actions that were really executed from there. Those that
                raise `progress` are not among them.
            thought: what the expert wrote before its action; may be empty.
        """
        outcomes = [f"{action} would give: {state}" for action, state in alternatives]
        return ". ".join([*outcomes, *([thought] if thought else [])])


@runtime_checkable
class Reasoning(AdapterCore, Protocol):
    """The programmatic teacher's reasoning R* (paper, Eq. 5), which the experience model learns to write.

    Buys: the largest gain in fidelity. Default: whether the state changed and whether the goal was reached,
    from which the dream gains nothing; a language model can annotate instead
    (`experience_model.teacher=llm`).
    """

    def reason(self, trajectory: Trajectory, action: str, next_state: str, reward: float) -> str:
        """Return why `action` leads to `next_state`, from what the agent could know."""
        refusal = "refused, " if self.refused(next_state) else ""
        change = "nothing changes" if next_state == trajectory.states[-1] else "the state changes"
        return f"{refusal}{change}, {'won' if reward > 0.5 else 'not won'}"


@runtime_checkable
class Facts(Protocol):
    """What a state asserts, as tuples. All fidelity metrics count facts.

    Buys: fidelity in terms of the world. Default: facts are the phrases of a state, and a claim is
    contradicted only where `name: value` has another value; the hallucination rate is then a lower bound.
    """

    def facts(self, trajectory: Trajectory) -> set[Fact]:
        """Return what the last state of `trajectory` asserts, given its history."""
        state = trajectory.states[-1]
        return {phrase_fact(phrase) for phrase in phrases(state)} or {(SAYS, state)}

    def contradicts(self, claim: Fact, truth: set[Fact]) -> bool:
        """Return True if `truth` denies `claim`. Not mentioning it is no denial."""
        values = (
            {fact[2] for fact in truth if fact[0] == IS and fact[1] == claim[1]} if claim[0] == IS else set()
        )
        return bool(values) and claim[2] not in values


@runtime_checkable
class Coherence(Protocol):
    """What in a dreamed state cannot be true.

    Buys: the dream is asked again for a state that contradicts its history. Default: no objection.
    """

    def contradiction(self, trajectory: Trajectory, next_state: str) -> str:
        """Return what in `next_state` cannot be true if all states of `trajectory` are; empty if nothing.

        Called for every dreamed state, so it must be fast. It must never object to a real state.
        """
        return ""


@runtime_checkable
class Revelations(Protocol):
    """Which steps show what no history could tell.

    Buys: fidelity of such steps is measured apart, and a dream may invent there. Default: a step reveals
    something if its state has a word that neither the task, an earlier state nor an action had.
    """

    def revealing(self, trajectory: Trajectory, action: str, next_state: str) -> bool:
        """Return True if `next_state` shows something that the history does not determine.

        Example: what lies in a cabinet.
        """
        texts = [
            trajectory.task.instruction,
            *trajectory.states,
            *(step.action for step in trajectory.steps),
            action,
        ]
        return not words(next_state) <= set().union(*map(words, texts))


@runtime_checkable
class HiddenState(Protocol):
    """The hidden part of the world that decides a task, which a dream samples before its first step.

    Buys: a dream is consistent about where hidden things lie (`Trajectory.premise`). Default: no episode
    shows a premise, and every premise is refused; set `experience_model.premise=false`.
    """

    def premise(self, trajectory: Trajectory) -> str:
        """Return what the whole `trajectory` has shown of the hidden state that decides its task.

        Empty where it has not shown all of it.
        """
        return ""

    def objection(self, task: Task, premise: str) -> str:
        """Return why `premise` cannot be true of `task`, judged by their texts; empty if it can.

        A premise without objection is accepted by the dream.
        """
        return "this world knows no premise"


@runtime_checkable
class Progress(Protocol):
    """How far an episode has come, for rewards that rank episodes of the same outcome (`reward: hero`).

    Buys: a learning signal among failures; reflections that blame no alternative that helps. Default: the
    outcome, with which `reward: hero` is refused.
    """

    def progress(self, trajectory: Trajectory) -> float:
        """Return the progress towards the goal, from 0.0 to 1.0; 1.0 for a success alone.

        It is read from the states, so that real and dreamed episodes are measured in the same way.
        """
        return float(trajectory.success)


@runtime_checkable
class Embodiment(Protocol):
    """The real world that a dream described, in which its actions are replayed.

    Buys: a dream may invent what nobody has seen yet, and is still checked. Default: the task's own world,
    where such an invention counts as a disagreement: expect a lower `fidelity/rollout_agreement`.
    """

    def embody(self, dreamed: Trajectory) -> Task:
        """Return the task whose real world is the one that `dreamed` described.

        Raises:
            EnvironmentFailure: no world agrees with the dream, or the task was generated and has none.
        """
        if dreamed.task.generated:
            raise EnvironmentFailure(
                f"The task {dreamed.task.id} was generated: it has no real world.",
                "This world cannot build one.",
            )
        return dreamed.task


@runtime_checkable
class UnseenWorlds(Protocol):
    """Which worlds no training task plays in.

    Buys: fidelity on held-out worlds, not on held-out tasks alone. Default: none; set
    `data.fidelity_worlds=0`.
    """

    def unseen(self, task: Task) -> bool:
        """Return True if no training task plays in the world of `task` (its floor plan, its site)."""
        return False


@runtime_checkable
class Variation(Protocol):
    """Which generated tasks are possible.

    Buys: the curriculum generates tasks that the world can do. Default: every instruction but the task's own
    is refused; the curriculum then asks the recorded tasks
    (`components/experience/tasks/task_feasibility.py`).
    """

    def feasible(self, task: Task) -> str:
        """Return why a generated task cannot be solved, judged by its text; empty if it can."""
        try:
            own_instruction = json.loads(task.spec).get("instruction")
        except (ValueError, AttributeError):
            own_instruction = None
        if own_instruction == task.instruction:
            return ""
        return "nobody can tell whether it can be done in this world"


@runtime_checkable
class ValidationSplit(Protocol):
    """The splits that `tasks` lists, with `validation` among them.

    Buys: validation games that are kept apart by construction. Without it they are further games of the
    test split, drawn with another seed.
    """

    splits: Sequence[str]


@runtime_checkable
class Judging(Protocol):
    """How an episode would have ended under another instruction.

    Buys: hindsight-relabelled episodes (`experience_model.hindsight`). Without it that option is refused.
    """

    def judged(self, trajectory: Trajectory) -> float | None:
        """Return the reward of the last step of `trajectory` under its task's instruction.

        None if the states do not determine it, or if an earlier step would have ended the episode.
        """
        ...


@runtime_checkable
class Grounding(Protocol):
    """Where reasoning quotes what it was never shown.

    Buys: such reasoning is written again from there (`experience_model.grounded`). Without it that option is
    refused.
    """

    def grounded(self, task: Task, states: Sequence[str], action: str, reasoning: str) -> int:
        """Return how many leading characters of `reasoning` quote task and states correctly.

        `reasoning` is about `action` in the last of `states`, and is compared with these texts alone. Called
        for every answer, so it must be fast. It must never object to the text of `reason`.
        """
        ...


@runtime_checkable
class Adapter(
    Description,
    Reflection,
    Reasoning,
    Facts,
    Coherence,
    Revelations,
    HiddenState,
    Progress,
    Embodiment,
    UnseenWorlds,
    Variation,
    Protocol,
):
    """What the pipeline knows of one real environment: the core, and every capability that has a default.

    An adapter inherits it, writes the core, and redefines the methods of the capabilities that its world has.
    """

    is_live: bool = True
    """Whether the world can be played; False: there are only records of its tasks and episodes."""


WITH_DEFAULT = tuple(base for base in Adapter.__bases__ if base is not Protocol)
WITHOUT_DEFAULT = (ValidationSplit, Judging, Grounding)
OF_ENVIRONMENTS = (Forkable,)
_INTERFACES = (AdapterCore.__module__, __name__)


def own_members(adapter: object) -> set[str]:
    """Return the names that the adapter's classes define themselves, without the defaults of this module."""
    classes = (kind for kind in type(adapter).__mro__ if kind.__module__ not in _INTERFACES)
    return {name for kind in classes for name in vars(kind)} | set(vars(adapter))


def capabilities(adapter: object, environment: object) -> list[str]:
    """Return the names of the capabilities that an adapter and its environment have."""
    own = own_members(adapter)
    declared = [kind for kind in WITH_DEFAULT if any(name in own for name in members(kind))]
    declared += [kind for kind in WITHOUT_DEFAULT if isinstance(adapter, kind)]
    declared += [kind for kind in OF_ENVIRONMENTS if isinstance(environment, kind)]
    return [kind.__name__ for kind in declared]


def members(protocol: type) -> list[str]:
    """Return the names that `protocol` itself declares, methods and attributes."""
    return [name for name in (*vars(protocol), *protocol.__annotations__) if not name.startswith("_")]
