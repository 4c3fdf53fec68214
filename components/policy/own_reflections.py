"""Reflections that the policy's own chat model writes, for Early Experience (arXiv 2510.08558, section 4.3).

    dreamgym retrain cloning.early_experience=own_reflection

At each step of a demonstration the model that is to be cloned into reads the state, the expert's action, its
own alternatives (`own_alternatives.py`), and the states that all of them led to. It writes why the expert's
action is the better one. The reflection becomes the thought before the action. The paper keeps what the model
wrote; here it is kept only if the same model finds the expert's action likelier behind it than without a
thought, as for reasons of recorded steps (`self_teacher.py`). Where none is kept, the expert's own thought
stays.

The authors' checks for leaks are made (`has_leak`). A reflection is not kept if it contains a state that the
agent has not seen yet, an expert, a label such as "action 1", or a sentence twice. An outcome that is told in
other words is not detected. The authors also penalise repetitions in sampling; here nothing does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from components.errors import ConfigError
from components.language.training.examples import Example, Segment, collate
from components.language.training.token_scores import token_logprobs
from components.policy.early_experience import Alternative, ExploredEpisode, is_reasoned
from components.policy.formats.agent_format import AgentFormat
from components.policy.formats.demonstrations import without_loss
from components.policy.policy import Policy
from components.records import Trajectory, Transition

MAX_REFLECTION_TOKENS = 64
LABELS = re.compile(r"\bexperts?\b|\b(action|alternative|option|choice) #?\d+\b")
"""Words of the request and not of the world: who chose the action, and numbers of the listed ones."""
ROWS = 16
"""Steps that are asked for, and scored, at the same time."""


@dataclass(frozen=True)
class Reflections:
    """What the model wrote.

    Attributes:
        thoughts: per episode, the thought before each step.
        kept: number of steps whose thought is a reflection.
        asked: number of steps with alternatives.
        tokens: number of tokens that were generated.
    """

    thoughts: list[list[str]]
    kept: int
    asked: int
    tokens: int


@dataclass(frozen=True)
class _Place:
    """A step of an episode, with its alternatives."""

    episode: int
    history: Trajectory
    step: Transition
    alternatives: Sequence[Alternative]


def require_conversations(text: AgentFormat) -> None:
    """Raise ConfigError if a policy of this format cannot be asked anything in words."""
    if text.question("Why?") is None:
        raise ConfigError(
            "cloning.early_experience is own_reflection, and the policy's model is no chat model.",
            "Expected a model with a chat template.",
            "Set cloning.early_experience=self_reflection (the adapter writes), or backbone.path to a chat "
            "model (make model).",
        )


def own_reflections(
    policy: Policy,
    explored: Sequence[ExploredEpisode],
    seed: int,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Reflections:
    """Return the thought before each step of each episode.

    Args:
        policy: before it is cloned.
        seed: of sampling.
        progress: called with the number of steps that are done, and of all.

    Raises:
        ConfigError: the model is no chat model.
    """
    require_conversations(policy.text)
    thoughts = [[step.thought for step in entry.episode.steps] for entry in explored]
    places = [
        _Place(number, entry.episode.up_to(step.step), step, alternatives)
        for number, entry in enumerate(explored)
        for step, alternatives in zip(entry.episode.steps, entry.alternatives, strict=True)
        if alternatives and is_reasoned(entry.episode, step)
    ]
    kept = tokens = 0
    for start in range(0, len(places), ROWS):
        some = places[start : start + ROWS]
        written, count = _write(policy, some, seed + start)
        for place, reflection in zip(some, _keep_helpful(policy, some, written), strict=True):
            if reflection:
                thoughts[place.episode][place.step.step] = reflection
                kept += 1
        tokens += count
        progress(start + len(some), len(places))
    return Reflections(thoughts, kept, len(places), tokens)


def request_text(history: Trajectory, step: Transition, alternatives: Sequence[Alternative]) -> str:
    """Return what the model is asked about a step.

    Args:
        history: the episode up to the step.
    """
    others = [f"- {action}: {state}" for action, state in alternatives]
    return "\n".join(
        [
            f"Task: {history.task.instruction}",
            f"Situation: {step.state}",
            f"An expert chose this action: {step.action}",
            f"It led to: {step.next_state}",
            "Other actions, and what they lead to:",
            *others,
            "Write one short sentence, as the one who is about to act: why this action serves the task "
            "better than the others. Do not tell what it will lead to, and do not mention an expert.",
        ]
    )


def _write(policy: Policy, places: Sequence[_Place], seed: int) -> tuple[list[str], int]:
    """Return a reflection for each place, "" where none came to an end, and the number of tokens."""
    prompts = {
        row: policy.text.question(request_text(place.history, place.step, place.alternatives)) or []
        for row, place in enumerate(places)
    }
    longest = max(map(len, prompts.values()))
    session = policy.engine(seed).open(len(prompts), longest + MAX_REFLECTION_TOKENS)
    fitting = {
        row: prompt
        for row, prompt in prompts.items()
        if len(prompt) + MAX_REFLECTION_TOKENS <= session.longest
    }
    written = session.generate(
        fitting, stop=policy.text.stop, max_new_tokens=MAX_REFLECTION_TOKENS, temperature=1.0
    )
    texts = [
        _one_line(policy.text, written[row].tokens) if row in written and written[row].stopped else ""
        for row in prompts
    ]
    return texts, sum(len(generation.tokens) for generation in written.values())


def _one_line(text: AgentFormat, tokens: Sequence[int]) -> str:
    thought, _ = text.parse(tokens)
    return " ".join(thought.split())


def _keep_helpful(policy: Policy, places: Sequence[_Place], reflections: Sequence[str]) -> list[str]:
    """Return the reflections behind which the expert's action is likelier; "" in place of the others."""
    tried = [
        row
        for row, reflection in enumerate(reflections)
        if reflection and not _leaks(places[row], reflection)
    ]
    behind = _logprobs(policy, [(places[row], reflections[row]) for row in tried])
    without = _logprobs(policy, [(places[row], "") for row in tried])
    helpful = {row for row, *both in zip(tried, behind, without, strict=True) if both[0] > both[1]}
    return [reflection if row in helpful else "" for row, reflection in enumerate(reflections)]


def _leaks(place: _Place, reflection: str) -> bool:
    return has_leak(reflection, place.history, place.step, place.alternatives)


def has_leak(reflection: str, history: Trajectory, step: Transition, others: Sequence[Alternative]) -> bool:
    """Whether a reflection says what its agent cannot know before it acts, or repeats itself.

    Args:
        reflection: one line.
        history: the episode up to the step.
        others: alternatives with the states that they led to.
    """
    text = reflection.lower()
    outcomes = {
        " ".join(state.lower().split()) for state in (step.next_state, *(state for _, state in others))
    }
    outcomes -= {"", " ".join(step.state.lower().split())}
    sentences = [part.strip() for part in re.split(r"[.!?]+(?:\s|$)", text) if part.strip()]
    own_words = f"{history.task.instruction} {step.state} {step.action}".lower()
    return (
        any(outcome in text for outcome in outcomes)
        or len(set(sentences)) < len(sentences)
        or any(label.group() not in own_words for label in LABELS.finditer(text))
    )


def _logprobs(policy: Policy, places: Sequence[tuple[_Place, str]]) -> list[float]:
    """Return the log-probability of each expert's action behind a thought, in nats."""
    if not places:
        return []
    examples = [_scored(policy.text, place, thought) for place, thought in places]
    batch = collate(examples, policy.vocabulary.pad_id).to(policy.model.device)
    with torch.no_grad(), policy.compute.forward():
        scores = token_logprobs(policy.model, batch)
    sums = torch.zeros(len(examples), device=scores.logprobs.device)
    return list(map(float, sums.index_add_(0, scores.rows, scores.logprobs.float())))


def _scored(text: AgentFormat, place: _Place, thought: str) -> Example:
    """Return the episode up to the reply of the step, whose action is what is scored."""
    task = place.history.task
    segments = [without_loss(text.opening(task))]
    for step in place.history.steps:
        segments.append(without_loss(text.ask(task) + text.reply(step.thought, step.action)))
        segments.append(without_loss(text.observation(step.next_state)))
    reply = text.reply(thought, place.step.action)
    scored = _common_end(reply, text.reply("", place.step.action))
    unscored = len(reply) - scored
    segments.append(without_loss(text.ask(task)))
    segments.append(Segment(reply, [False] * unscored + [True] * scored))
    return Example(segments)


def _common_end(reply: Sequence[int], action: Sequence[int]) -> int:
    """Return how many tokens at the end of both are equal: those of the action."""
    count = 0
    while count < min(len(reply), len(action)) and reply[-1 - count] == action[-1 - count]:
        count += 1
    return count
