"""A dreamed episode in a report: at each step both states and both rewards, and where dream and reality
part.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from html import escape
from typing import Any

KINDS = {"denied": "denied by reality", "dream_alone": "in the dream alone", "real_alone": "in reality alone"}
"""How facts may differ, as an example names it and as a reader is told."""
SAME, SAME_FACTS, NOT_PLAYED = "the same", "the same facts in other words", "not played"


@dataclass(frozen=True)
class Turn:
    """One action, the dreamed state and reward, and the real ones (None: the real engine did not play the
    step).

    `facts` differ, by the keys of `KINDS`. `why` is the dream's reasoning and `real_why` that of the real
    transition, where they were kept.
    """

    number: int
    action: str
    dreamed: str
    reward: float | None = None
    real: str | None = None
    real_reward: float | None = None
    same_facts: bool = False
    facts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    why: str = ""
    real_why: str = ""

    @property
    def same_reward(self) -> bool:
        """True unless both worlds gave a reward and they differ."""
        return None in (self.reward, self.real_reward) or self.reward == self.real_reward

    @property
    def comparison(self) -> str:
        """What the reader is told of the real state instead of its text; empty if it differs from the dreamed
        one.
        """
        if self.real is None:
            return NOT_PLAYED
        if self.real == self.dreamed:
            return SAME
        return SAME_FACTS if self.same_facts else ""


@dataclass(frozen=True)
class Episode:
    """A dreamed episode and what the real engine said of its success (`confirmed` None: it was not asked).

    `parts_at` is the number, from 1, of the step where dream and reality part; 0 if they do not.
    """

    task: str
    turns: Sequence[Turn]
    verdict: str
    confirmed: bool | None
    note: str = ""
    start: str = ""
    parts_at: int = 0

    @property
    def parting(self) -> Turn | None:
        """The step where dream and reality part."""
        return self.turns[self.parts_at - 1] if 0 < self.parts_at <= len(self.turns) else None


def episode_of(example: Mapping[str, Any]) -> Episode:
    """An entry of `ReportData.examples`."""
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
    verdict = _verdict(confirmed, turns)
    parts_at = example.get("parts_at")
    return Episode(
        str(example.get("task", "")),
        turns,
        verdict,
        confirmed,
        str(example.get("note", "")),
        str(example.get("start", "")),
        0 if parts_at is None else int(parts_at) + 1,
    )


def _verdict(confirmed: bool | None, turns: Sequence[Turn]) -> str:
    if confirmed is None:
        return "not played in the real engine"
    if confirmed:
        return "confirmed by the real engine"
    granted = any((turn.reward or 0) > 0.5 and not (turn.real_reward or 0) > 0.5 for turn in turns)
    return "success granted wrongly" if granted else "not confirmed by the real engine"


def parting_words(turn: Turn) -> str:
    """What differs at the step where dream and reality part."""
    if turn.real is None:
        return f"Dream and reality part at step {turn.number}: the real episode is over."
    differing = (
        []
        if turn.same_reward
        else [f"the dream gives reward {turn.reward:g}, the real engine {turn.real_reward:g}"]
    )
    differing += [f"{words}: {fact}" for kind, words in KINDS.items() for fact in turn.facts.get(kind, ())]
    dreamed, real = _differing_clauses(turn.why, turn.real_why)
    if dreamed and real:
        differing.append(f"the dream concludes '{dreamed}', the real state '{real}'")
    return (
        f"Dream and reality part at step {turn.number}, '{turn.action}': "
        f"{'; '.join(differing) or 'the state differs'}."
    )


def _differing_clauses(why: str, real_why: str) -> tuple[str, str]:
    """The first clause in which two reasonings differ; empty where one of them has ended."""
    clauses = (re.split(r"[.,;] ", text.strip()) for text in (why, real_why))
    return next(((one, other) for one, other in zip(*clauses, strict=False) if one != other), ("", ""))


def episode_lines(episode: Episode) -> str:
    """The episode as lines of plain text."""
    lines = [episode.start] if episode.start else []
    for turn in episode.turns:
        lines.append(f"{turn.number}. {turn.action}")
        lines.append(f"   dream:   {_with_reward(turn.dreamed, turn.reward)}")
        lines.append(f"   reality: {_with_reward(turn.comparison or str(turn.real), turn.real_reward)}")
        lines += [f"   {words}: {fact}" for kind, words in KINDS.items() for fact in turn.facts.get(kind, ())]
        if turn is episode.parting:
            lines.append(f"   !! {parting_words(turn)}")
            lines += [f"   {name}: {text}" for name, text in _reasons(turn) if text]
    return "\n".join(lines)


def _with_reward(text: str, reward: float | None) -> str:
    return text if reward is None else f"{text} [reward {reward:g}]"


def _reasons(turn: Turn) -> list[tuple[str, str]]:
    return [("the dream's reasoning", turn.why), ("reasoning from the real state", turn.real_why)]


def episode_html(episode: Episode, badge: str, *, shown: bool) -> str:
    """The episode as a part of a page that can be folded; `badge` is markup, `shown` unfolds it."""
    head = f"<summary>{escape(episode.task)} {badge}</summary>"
    note = f"<p>{escape(episode.note)}</p>" if episode.note else ""
    parting = f'<div class="parting">{_parting_html(episode.parting)}</div>' if episode.parting else ""
    columns = (
        '<p class="pair muted heads"><span>the dream</span><span>the real engine, in the world that '
        "the dream described</span></p>"
    )
    start = (
        f'<div class="turn"><p class="act">start</p><p class="both">{escape(episode.start)}</p></div>'
        if episode.start
        else ""
    )
    turns = "\n".join(_turn_html(turn, turn is episode.parting) for turn in episode.turns)
    opened = " open" if shown else ""
    body = f"{head}\n{note}{parting}{columns}\n{start}{turns}"
    return f'<details class="episode"{opened}>\n{body}\n</details>'


def _parting_html(turn: Turn) -> str:
    """What differs where dream and reality part, and both reasonings with the differing words marked."""
    words = f"<p><strong>{escape(parting_words(turn))}</strong></p>"
    if not (turn.why and turn.real_why):
        return words
    pair = zip(
        ("The dream's reasoning", "Reasoning from the real state"),
        marked(turn.why, turn.real_why),
        strict=True,
    )
    return words + "".join(
        f'<p class="why"><span class="muted">{name}:</span> {text}</p>' for name, text in pair
    )


def _turn_html(turn: Turn, parts_here: bool) -> str:
    here = '<span class="fact denied">dream and reality part here</span>' if parts_here else ""
    action = f'<p class="act">{turn.number}. {escape(turn.action)} {here}</p>'
    dreamed, real = escape(turn.dreamed), f'<span class="muted">{turn.comparison}</span>'
    if not turn.comparison:
        dreamed, real = marked(turn.dreamed, str(turn.real))
    elif turn.comparison == SAME_FACTS:
        real += f" {escape(str(turn.real))}"
    rewards = [_reward_html(reward, turn.same_reward) for reward in (turn.reward, turn.real_reward)]
    states = f'<p class="pair"><span>{dreamed} {rewards[0]}</span><span>{real} {rewards[1]}</span></p>'
    facts = "".join(
        f'<span class="fact {kind}">{escape(words)}: {escape(str(fact))}</span> '
        for kind, words in KINDS.items()
        for fact in turn.facts.get(kind, ())
    )
    kind = "turn parted" if parts_here else "turn"
    return f'<div class="{kind}">{action}{states}{f"<p>{facts}</p>" if facts else ""}</div>'


def _reward_html(reward: float | None, same: bool) -> str:
    return (
        "" if reward is None else f'<span class="reward{"" if same else " differs"}">reward {reward:g}</span>'
    )


def marked(one: str, other: str) -> tuple[str, str]:
    """Both texts as markup, the words in which they differ marked."""
    left, right = one.split(), other.split()
    found: tuple[list[str], list[str]] = ([], [])
    for kind, a, b, c, d in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        for side, words in zip(found, (left[a:b], right[c:d]), strict=True):
            text = escape(" ".join(words))
            side += [text if kind == "equal" else f"<mark>{text}</mark>"] if text else []
    return " ".join(found[0]), " ".join(found[1])
