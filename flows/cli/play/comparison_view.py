"""How `dreamgym play` shows the comparison of a dreamed state with the real one.

Red marks what the real state contradicts, yellow what the dream left out, cyan what it had to invent. The
words say the same, so nothing is lost without colours.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from components.environments.protocol import Fact, Step
from components.experience.side_by_side import Confirmation, Playthrough, Turn
from components.experience.state_comparison import Comparison

DENIED = "red"
LEFT_OUT = "yellow"
INVENTED = "cyan"
CONFIRMED = "green"
QUIET = "dim"
_MAX_FACTS_PER_LINE = 4


def fact_text(fact: Fact) -> str:
    """Return a fact as text, such as `in mug 1, shelf 2`."""
    return f"{fact[0]} {', '.join(part for part in fact[1:] if part)}".rstrip()


def outcome_text(step: Step) -> str:
    """Return a step's reward and whether it ended the episode."""
    return f"reward {step.reward:g}, {'the end' if step.done else 'not over'}"


def phrase_styles(comparison: Comparison | None) -> tuple[dict[str, str], dict[str, str]]:
    """Return phrase -> colour for the dreamed and for the real state.

    Coloured are the phrases that occur only in facts that differ.
    """
    if comparison is None:
        return {}, {}
    agreed = {part for fact in comparison.agreed for part in fact[1:]}

    def colour(groups: Sequence[tuple[Collection[Fact], str]]) -> dict[str, str]:
        phrases = [
            (part, _fact_style(comparison, fact, style))
            for facts, style in groups
            for fact in facts
            for part in fact[1:]
        ]
        ordered = sorted(phrases, key=lambda phrase: phrase[1] != INVENTED)
        return {part: style for part, style in ordered if part and part not in agreed}

    dreamed = colour([(comparison.unsaid, DENIED), (comparison.contradicted, DENIED)])
    return dreamed, colour([(comparison.missing, LEFT_OUT)])


def _fact_style(comparison: Comparison, fact: Fact, style: str) -> str:
    return INVENTED if fact in comparison.revealed else style


def comparison_lines(turn: Turn, play: Playthrough) -> list[RenderableType]:
    """Return whether dream and real environment agree at this step, and what differs; nothing without one."""
    comparison = turn.comparison
    if comparison is None:
        return []
    lines: list[RenderableType] = [_facts_verdict(comparison)]
    if not comparison.same_facts:
        lines.append(_differing_facts(comparison))
    if not turn.same_outcome and turn.real is not None:
        outcomes = f"!! dream: {outcome_text(turn.dreamed)}; real: {outcome_text(turn.real)}"
        lines.append(Text(outcomes, style=f"bold {DENIED}"))
    if play.first_disagreement is turn:
        reason = "the dream was wrong"
        if comparison.invented and turn.same_outcome:
            reason = "the dream invented what had not been shown yet"
        words = f"From here on the two episodes differ: {reason}. Later differences need not be errors."
        lines.append(Text(words, style=LEFT_OUT))
    return lines


def own_world_line(confirmation: Confirmation, parted: Turn) -> Text:
    """Return what the real engine says of the last step in the world that the dream described.

    Args:
        confirmation: of the episode so far in that world.
        parted: the step from which dream and real environment differ.
    """
    if not confirmation.comparisons:
        words, style = "cannot be built yet (:check)", QUIET
    elif len(confirmation.comparisons) < len(confirmation.dreamed.steps):
        words, style = "the real episode is over", DENIED
    elif confirmation.comparisons[-1].same_facts:
        words, style = "the real engine says the same", CONFIRMED
    else:
        words, style = f"the real engine says: {_engine_answer(confirmation.comparisons[-1])}", DENIED
    return Text.assemble(
        (f"Diverged at step {parted.number}. ", QUIET), (f"The dream's own: {words}.", style)
    )


def _facts_verdict(comparison: Comparison) -> Text:
    if comparison.same_text:
        return Text("== same text", style=CONFIRMED)
    if comparison.same_facts:
        return Text("=~ same facts in other words", style=CONFIRMED)
    count = len(comparison.differing)
    differ = f"{count} fact{'s differ' if count > 1 else ' differs'}"
    if comparison.invented:
        words = f"?? {differ}, newly revealed: the dream could not know"
        return Text(words, style=f"bold {INVENTED}")
    counts = [(len(facts - comparison.revealed), what) for facts, what, _ in _fact_groups(comparison)]
    counts.append((len(comparison.revealed), "newly revealed"))
    details = ", ".join(f"{count} {what}" for count, what in counts if count)
    return Text(f"!! {differ}: {details}", style=f"bold {DENIED}")


def _fact_groups(comparison: Comparison) -> list[tuple[frozenset[Fact], str, str]]:
    """Return (facts, what they are, colour) of each kind of difference."""
    return [
        (comparison.contradicted, "contradicted", DENIED),
        (comparison.unsaid, "only in the dream", DENIED),
        (comparison.missing, "missing", LEFT_OUT),
    ]


def _differing_facts(comparison: Comparison) -> Table:
    """Return a line for each kind of difference; errors of the dream come before newly revealed facts."""
    lines = Table.grid(padding=(0, 2))
    for revealed in (False, True):
        for facts, what, style in _fact_groups(comparison):
            chosen = sorted(fact for fact in facts if (fact in comparison.revealed) is revealed)
            if not chosen:
                continue
            texts = [fact_text(fact) for fact in chosen[:_MAX_FACTS_PER_LINE]]
            if len(chosen) > _MAX_FACTS_PER_LINE:
                texts.append(f"and {len(chosen) - _MAX_FACTS_PER_LINE} more (:facts)")
            line_style = _fact_style(comparison, chosen[0], style)
            label = Text(_difference_label(what, revealed), style=line_style)
            lines.add_row("", label, Text("; ".join(texts), style=line_style))
    return lines


def _difference_label(what: str, revealed: bool) -> str:
    """Return the kind of a difference; a newly revealed fact is no error, so only its side is named."""
    if not revealed:
        return what
    return "real" if what == "missing" else "invented"


def facts_view(turn: Turn | None, facts: Collection[Fact]) -> RenderableType:
    """Return the facts of the present state; side by side also whether each is in the dream, real or both."""
    table = Table(box=box.ROUNDED, title="Facts", title_justify="left")
    table.add_column("fact")
    comparison = turn.comparison if turn else None
    if comparison is None:
        for fact in sorted(facts):
            table.add_row(fact_text(fact))
        return table
    table.add_column("dream and real")
    for fact in sorted(comparison.agreed):
        table.add_row(Text(fact_text(fact)), Text("both", style=CONFIRMED))
    for group, what, style in _fact_groups(comparison):
        for fact in sorted(group):
            revealed = fact in comparison.revealed
            label = _difference_label(what, revealed) + (", newly revealed" if revealed else "")
            table.add_row(Text(fact_text(fact)), Text(label, style=_fact_style(comparison, fact, style)))
    return table


def confirmation_view(confirmation: Confirmation) -> RenderableType:
    """Return the real engine's answer at each step in the world that the dream described, and a verdict."""
    if not confirmation.comparisons:
        words = f"No real world can be built from what this dream has shown so far: {confirmation.reason}"
        return Text(words, style=LEFT_OUT)
    title = "The real engine in the world that the dream described"
    table = Table(box=box.ROUNDED, title=title, title_justify="left")
    for name in ("step", "action", "the real engine says"):
        table.add_column(name, justify="right" if name == "step" else "left")
    answers = zip(confirmation.dreamed.steps, confirmation.comparisons, strict=False)
    for number, (step, comparison) in enumerate(answers, 1):
        table.add_row(str(number), Text(step.action), _engine_answer(comparison))
    return Group(table, _confirmation_verdict(confirmation))


def _engine_answer(comparison: Comparison) -> Text:
    if comparison.same_text or comparison.same_facts:
        return Text("the same" if comparison.same_text else "the same in other words", style=CONFIRMED)
    contradicted = [f"not {fact_text(fact)}" for fact in sorted(comparison.contradicted)]
    missing = [fact_text(fact) for fact in sorted(comparison.missing)]
    return Text("; ".join(contradicted + missing) or "nothing of what the dream adds", style=DENIED)


def _confirmation_verdict(confirmation: Confirmation) -> Text:
    confirmed = sum(comparison.same_facts for comparison in confirmation.comparisons)
    count = len(confirmation.dreamed.steps)
    states = f"{confirmed} of {count} states confirmed"
    if not confirmation.agrees:
        return Text(f"Denied: {confirmation.reason} ({states}).", style=f"bold {DENIED}")
    success = confirmation.dreamed.success
    outcome = "the success is real there" if success else "there is no reward there either"
    style = CONFIRMED if confirmed == count else LEFT_OUT
    return Text(f"Confirmed: {outcome} ({states}).", style=f"bold {style}")


def highlight_phrases(state: str, styles: Mapping[str, str]) -> Text:
    """Return a state with its phrases coloured. `styles`: phrase -> colour."""
    text = Text(state)
    for phrase, style in styles.items():
        text.highlight_regex(rf"(?<!\w){re.escape(phrase)}(?!\w)", f"bold {style}")
    return text
