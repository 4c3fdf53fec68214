"""Comparison of a dreamed state with the real state after the same actions, by their facts.

A dream may invent what nobody has seen yet. So a difference is an error only where the episode so far
determined the outcome. Where both worlds reveal something, the differing facts that were not in the state
before count as `revealed`. Only the adapter knows what a fact is and what contradicts it.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from components.environments.capabilities import Adapter
from components.environments.protocol import Fact
from components.records import Trajectory, Transition

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class Comparison:
    """The facts of a dreamed state compared with those of the real state after the same actions.

    Attributes:
        same_text: both states are the same text.
        agreed: facts of both states.
        contradicted: dreamed facts that the real state contradicts.
        unsaid: dreamed facts that the real state does not mention.
        missing: facts of the real state alone.
        revealed: those of the last three that nobody could know before this step.
    """

    same_text: bool
    agreed: frozenset[Fact]
    contradicted: frozenset[Fact]
    unsaid: frozenset[Fact]
    missing: frozenset[Fact]
    revealed: frozenset[Fact]

    @property
    def differing(self) -> frozenset[Fact]:
        """The facts that only one of the two states asserts."""
        return self.contradicted | self.unsaid | self.missing

    @property
    def invented(self) -> bool:
        """True if all differences are facts that nobody could know."""
        return bool(self.differing) and self.differing == self.revealed

    @property
    def same_facts(self) -> bool:
        """True if both states assert the same facts."""
        return not self.differing


def compare(adapter: Adapter, dreamed: Trajectory, real: Trajectory) -> Comparison:
    """Compare the last states. Both trajectories hold at least one step and end with the same action."""
    dreamed_facts = adapter.facts(dreamed)
    real_facts = adapter.facts(real)
    contradicted = frozenset(fact for fact in dreamed_facts if adapter.contradicts(fact, real_facts))
    unsaid = frozenset(dreamed_facts - real_facts - contradicted)
    missing = frozenset(real_facts - dreamed_facts)
    revealed: frozenset[Fact] = frozenset()
    history, last_step = _split_last_step(dreamed)
    if (
        _reveals(adapter, dreamed)
        and _reveals(adapter, real)
        and not adapter.contradiction(history, last_step.next_state)
    ):
        real_history, _ = _split_last_step(real)
        newly_dreamed = (contradicted | unsaid) - adapter.facts(history)
        newly_real = missing - adapter.facts(real_history)
        revealed = newly_dreamed | newly_real
    return Comparison(
        same_text=last_step.next_state == real.states[-1],
        agreed=frozenset(dreamed_facts & real_facts),
        contradicted=contradicted,
        unsaid=unsaid,
        missing=missing,
        revealed=revealed,
    )


def compare_states(adapter: Adapter, dreamed: Trajectory, real_states: Sequence[str]) -> list[Comparison]:
    """One comparison for each step that the real engine played.

    Args: real_states: its answers to the actions of `dreamed`, from the first one on.
    """
    steps = tuple(
        replace(step, next_state=state) for step, state in zip(dreamed.steps, real_states, strict=False)
    )
    real = Trajectory(dreamed.task, steps)
    return [compare(adapter, dreamed.up_to(count), real.up_to(count)) for count in range(1, len(steps) + 1)]


def _reveals(adapter: Adapter, trajectory: Trajectory) -> bool:
    """True if the last step shows what the history does not determine."""
    history, last_step = _split_last_step(trajectory)
    return adapter.revealing(history, last_step.action, last_step.next_state)


def _split_last_step(trajectory: Trajectory) -> tuple[Trajectory, Transition]:
    return trajectory.up_to(len(trajectory.steps) - 1), trajectory.steps[-1]


def normalised_words(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation and articles.

    As SQuAD compares answers (Rajpurkar et al. 2016, arXiv 1606.05250, section 6.1).
    """
    return _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


def common_word_count(first: Sequence[str], second: Sequence[str]) -> int:
    """Return how many words two texts have in common, each as often as both have it."""
    return (Counter(first) & Counter(second)).total()
