"""A dreamed episode in a report: each dreamed state beside the real engine's, with the words and facts in which they differ marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from html import escape
from typing import Any

KINDS = {"denied": "denied by reality", "dream_alone": "in the dream alone", "real_alone": "in reality alone"}
"""How facts may differ, as an example names it and as a reader is told."""


@dataclass(frozen=True)
class Turn:
    """One action, the dreamed state, and the real one (None: it was not played); `facts` differ, by the keys of `KINDS`."""

    action: str
    dreamed: str
    real: str | None = None
    facts: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Episode:
    """A dreamed episode and what the real engine said of its success (`confirmed` None: it was not asked)."""

    task: str
    turns: Sequence[Turn]
    verdict: str
    confirmed: bool | None
    note: str = ""


def episode_of(example: Mapping[str, Any]) -> Episode:
    """An entry of `ReportData.examples`."""
    verdicts = {True: "confirmed by the real engine", False: "not confirmed by the real engine", None: "not played in the real engine"}
    confirmed = None if example.get("confirmed") is None else bool(example["confirmed"])
    turns = [
        Turn(str(step.get("action", "")), str(step.get("state", "")), step.get("real"), step.get("facts", {}))
        for step in example.get("steps", ())
    ]
    return Episode(str(example.get("task", "")), turns, verdicts[confirmed], confirmed, str(example.get("note", "")))


def episode_lines(episode: Episode) -> str:
    """The episode as lines of plain text."""
    lines = []
    for turn in episode.turns:
        lines.append(f"> {turn.action}")
        lines += [turn.dreamed] if turn.real in (None, turn.dreamed) else [f"dream:   {turn.dreamed}", f"reality: {turn.real}"]
        lines += [f"{words}: {fact}" for kind, words in KINDS.items() for fact in turn.facts.get(kind, ())]
    return "\n".join(lines)


def episode_html(episode: Episode, badge: str, *, shown: bool) -> str:
    """The episode as a part of a page that can be folded; `badge` is markup, `shown` unfolds it."""
    turns = "\n".join(_turn_html(turn) for turn in episode.turns)
    note = f"<p>{escape(episode.note)}</p>" if episode.note else ""
    head = f"<summary>{escape(episode.task)} {badge}</summary>"
    columns = '<p class="pair muted"><span>the dream</span><span>the real engine, in the world that the dream described</span></p>'
    return f'<details class="episode"{" open" if shown else ""}>\n{head}\n{note}{columns}\n{turns}\n</details>'


def _turn_html(turn: Turn) -> str:
    action = f'<p class="act">{escape(turn.action)}</p>'
    if turn.real == turn.dreamed:
        states = f'<p class="both">{escape(turn.dreamed)}</p>'
    elif turn.real is None:
        states = f'<p class="pair"><span>{escape(turn.dreamed)}</span><span class="muted">not played</span></p>'
    else:
        dreamed, real = marked(turn.dreamed, turn.real)
        states = f'<p class="pair"><span>{dreamed}</span><span>{real}</span></p>'
    facts = "".join(
        f'<span class="fact {kind}">{escape(words)}: {escape(str(fact))}</span> '
        for kind, words in KINDS.items()
        for fact in turn.facts.get(kind, ())
    )
    return f'<div class="turn">{action}{states}{f"<p>{facts}</p>" if facts else ""}</div>'


def marked(one: str, other: str) -> tuple[str, str]:
    """Both texts as markup, the words in which they differ marked."""
    left, right = one.split(), other.split()
    found: tuple[list[str], list[str]] = ([], [])
    for kind, a, b, c, d in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        for side, words in zip(found, (left[a:b], right[c:d]), strict=True):
            text = escape(" ".join(words))
            side += [text if kind == "equal" else f"<mark>{text}</mark>"] if text else []
    return " ".join(found[0]), " ".join(found[1])
