"""A dreamed episode in a report: dreamed and real states and rewards per step, and where they diverge."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from html import escape
from typing import Any

DIFFERENCE_KINDS = {
    "denied": "contradicted by the real state",
    "dream_alone": "only in the dream",
    "real_alone": "only in the real state",
}
"""Kind of a differing fact, as in an example -> its words in the report."""
SAME = "same text"
SAME_FACTS = "same facts in other words"
NOT_PLAYED = "not played"


@dataclass(frozen=True)
class Turn:
    """One action with the dreamed and the real state and reward.

    `real` and `real_reward` are None if the real engine did not play the step. `facts` are the differing
    facts, by the keys of `DIFFERENCE_KINDS`. `reasoning` is the dream's and `real_reasoning` that of the real
    transition; both are empty if they were not kept.
    """

    number: int
    action: str
    dreamed: str
    reward: float | None = None
    real: str | None = None
    real_reward: float | None = None
    same_facts: bool = False
    facts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    reasoning: str = ""
    real_reasoning: str = ""

    @property
    def same_reward(self) -> bool:
        """True unless both worlds gave a reward and the rewards differ."""
        return None in (self.reward, self.real_reward) or self.reward == self.real_reward

    @property
    def comparison(self) -> str:
        """Words shown instead of the real state's text; empty if the real state differs."""
        if self.real is None:
            return NOT_PLAYED
        if self.real == self.dreamed:
            return SAME
        return SAME_FACTS if self.same_facts else ""


@dataclass(frozen=True)
class Episode:
    """A dreamed episode and the real engine's verdict on its success.

    `confirmed` is None if the real engine did not play the episode. `diverges_at` is the number, from 1, of
    the first step where dream and reality diverge; 0 if they do not.
    """

    task: str
    turns: Sequence[Turn]
    verdict: str
    confirmed: bool | None
    note: str = ""
    start: str = ""
    diverges_at: int = 0

    @property
    def divergence(self) -> Turn | None:
        """The first step where dream and reality diverge."""
        return self.turns[self.diverges_at - 1] if 0 < self.diverges_at <= len(self.turns) else None


def parse_episode(example: Mapping[str, Any]) -> Episode:
    """Return the episode of an entry of `ReportData.examples`."""
    turns = [
        Turn(
            number,
            str(step.get("action", "")),
            str(step.get("state", "")),
            step.get("reward"),
            step.get("real"),
            step.get("real_reward"),
            bool(step.get("same_facts")),
            step.get("facts", {}),
            str(step.get("why", "")),
            str(step.get("real_why", "")),
        )
        for number, step in enumerate(example.get("steps", ()), start=1)
    ]
    confirmed = None if example.get("confirmed") is None else bool(example["confirmed"])
    diverges_at = example.get("parts_at")
    return Episode(
        task=str(example.get("task", "")),
        turns=turns,
        verdict=_verdict(confirmed, turns),
        confirmed=confirmed,
        note=str(example.get("note", "")),
        start=str(example.get("start", "")),
        diverges_at=0 if diverges_at is None else int(diverges_at) + 1,
    )


def _verdict(confirmed: bool | None, turns: Sequence[Turn]) -> str:
    if confirmed is None:
        return "not played in the real engine"
    if confirmed:
        return "confirmed by the real engine"
    is_false_success = any((turn.reward or 0) > 0.5 and not (turn.real_reward or 0) > 0.5 for turn in turns)
    return "false success" if is_false_success else "not confirmed by the real engine"


def describe_divergence(turn: Turn) -> str:
    """Return a sentence that says what differs at the step where dream and reality diverge."""
    if turn.real is None:
        return f"The dream diverges from reality at step {turn.number}: the real episode had already ended."
    differences = (
        []
        if turn.same_reward
        else [f"the dream gives reward {turn.reward:g}, the real engine {turn.real_reward:g}"]
    )
    differences += [
        f"{words}: {fact}" for kind, words in DIFFERENCE_KINDS.items() for fact in turn.facts.get(kind, ())
    ]
    dreamed, real = _differing_clauses(turn.reasoning, turn.real_reasoning)
    if dreamed and real:
        differences.append(f"the dream concludes '{dreamed}', the real state gives '{real}'")
    return (
        f"The dream diverges from reality at step {turn.number}, '{turn.action}': "
        f"{'; '.join(differences) or 'the states differ'}."
    )


def _differing_clauses(reasoning: str, real_reasoning: str) -> tuple[str, str]:
    """Return the first pair of clauses that differ; empty if none differ before one reasoning ends."""
    clauses = (re.split(r"[.,;] ", text.strip()) for text in (reasoning, real_reasoning))
    return next(((one, other) for one, other in zip(*clauses, strict=False) if one != other), ("", ""))


def episode_to_text(episode: Episode) -> str:
    """Return the episode as lines of plain text."""
    lines = [episode.start] if episode.start else []
    for turn in episode.turns:
        lines.append(f"{turn.number}. {turn.action}")
        lines.append(f"   dream:   {_with_reward(turn.dreamed, turn.reward)}")
        lines.append(f"   reality: {_with_reward(turn.comparison or str(turn.real), turn.real_reward)}")
        lines += [
            f"   {words}: {fact}"
            for kind, words in DIFFERENCE_KINDS.items()
            for fact in turn.facts.get(kind, ())
        ]
        if turn is episode.divergence:
            lines.append(f"   !! {describe_divergence(turn)}")
            if turn.reasoning:
                lines.append(f"   the dream's reasoning: {turn.reasoning}")
            if turn.real_reasoning:
                lines.append(f"   reasoning from the real state: {turn.real_reasoning}")
    return "\n".join(lines)


def _with_reward(text: str, reward: float | None) -> str:
    return text if reward is None else f"{text} [reward {reward:g}]"


def episode_to_html(episode: Episode, badge: str, *, is_open: bool) -> str:
    """Return the episode as a foldable part of a page.

    Args:
        episode: what to show.
        badge: markup of the verdict's badge.
        is_open: whether the part is unfolded at first.
    """
    head = f"<summary>{escape(episode.task)} {badge}</summary>"
    note = f"<p>{escape(episode.note)}</p>" if episode.note else ""
    divergence = ""
    if episode.divergence:
        divergence = f'<div class="divergence">{_divergence_html(episode.divergence)}</div>'
    columns = (
        '<p class="pair muted heads"><span>dream</span><span>real engine, loaded with the world that '
        "the dream described</span></p>"
    )
    start = ""
    if episode.start:
        start = f'<div class="turn"><p class="act">start</p><p class="both">{escape(episode.start)}</p></div>'
    turns = "\n".join(_turn_html(turn, turn is episode.divergence) for turn in episode.turns)
    body = f"{head}\n{note}{divergence}{columns}\n{start}{turns}"
    return f'<details class="episode"{" open" if is_open else ""}>\n{body}\n</details>'


def _divergence_html(turn: Turn) -> str:
    """Return what differs at this step, and both reasonings with the differing words marked."""
    sentence = f"<p><strong>{escape(describe_divergence(turn))}</strong></p>"
    if not (turn.reasoning and turn.real_reasoning):
        return sentence
    names = ("The dream's reasoning", "Reasoning from the real state")
    texts = mark_differences(turn.reasoning, turn.real_reasoning)
    return sentence + "".join(
        f'<p class="why"><span class="muted">{name}:</span> {text}</p>'
        for name, text in zip(names, texts, strict=True)
    )


def _turn_html(turn: Turn, diverges_here: bool) -> str:
    label = '<span class="fact denied">the dream diverges from reality here</span>' if diverges_here else ""
    action = f'<p class="act">{turn.number}. {escape(turn.action)} {label}</p>'
    dreamed = escape(turn.dreamed)
    real = f'<span class="muted">{turn.comparison}</span>'
    if not turn.comparison:
        dreamed, real = mark_differences(turn.dreamed, str(turn.real))
    elif turn.comparison == SAME_FACTS:
        real += f" {escape(str(turn.real))}"
    rewards = [_reward_html(reward, turn.same_reward) for reward in (turn.reward, turn.real_reward)]
    states = f'<p class="pair"><span>{dreamed} {rewards[0]}</span><span>{real} {rewards[1]}</span></p>'
    facts = "".join(
        f'<span class="fact {kind}">{escape(words)}: {escape(str(fact))}</span> '
        for kind, words in DIFFERENCE_KINDS.items()
        for fact in turn.facts.get(kind, ())
    )
    css_class = "turn diverged" if diverges_here else "turn"
    return f'<div class="{css_class}">{action}{states}{f"<p>{facts}</p>" if facts else ""}</div>'


def _reward_html(reward: float | None, is_same: bool) -> str:
    if reward is None:
        return ""
    return f'<span class="reward{"" if is_same else " differs"}">reward {reward:g}</span>'


def mark_differences(one: str, other: str) -> tuple[str, str]:
    """Return both texts as markup, with the differing words marked."""
    one_words, other_words = one.split(), other.split()
    one_parts: list[str] = []
    other_parts: list[str] = []
    for kind, a, b, c, d in SequenceMatcher(None, one_words, other_words, autojunk=False).get_opcodes():
        for parts, words in ((one_parts, one_words[a:b]), (other_parts, other_words[c:d])):
            text = escape(" ".join(words))
            if text:
                parts.append(text if kind == "equal" else f"<mark>{text}</mark>")
    return " ".join(one_parts), " ".join(other_parts)
