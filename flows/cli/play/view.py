"""What `dreamgym play` shows: one renderable for a task, a step, a list or a verdict; `screen.py` prints
them.

Red is what the real state denies, yellow what the dream left out, cyan what it had to invent. Everything is
said in words too, so nothing is lost where there are no colours.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from components.environments.protocol import Fact, Step
from components.experience.side_by_side import Comparison, Confirmation, End, Playthrough, Turn
from components.records import Task, Transition

DENIED, LEFT_OUT, INVENTED, FINE, QUIET = "red", "yellow", "cyan", "green", "dim"
NARROW = 80
"""Columns below which the two worlds stand below one another."""
_WHY_LINES, _FACTS_A_LINE = 2, 4


def task_view(task: Task, number: int, count: int, split: str) -> RenderableType:
    """What is to be done and where one stands."""
    body = Group(Text(task.instruction, style="bold"), Text(task.initial_state))
    return Panel(
        body,
        title=Text(f"task {number} of {count} ({split})"),
        subtitle=Text(task.id, style=QUIET),
        title_align="left",
        subtitle_align="left",
        border_style="blue",
    )


def turn_view(turn: Turn, play: Playthrough, own: Confirmation | None = None) -> RenderableType:
    """One step: the state of each world, whether they agree, the reasoning in short, the demonstrations in a
    line each.

    `own` is what the real engine says of the episode up to here in the world that the dream described, where
    it was asked.
    """
    parts: list[RenderableType] = [_Worlds(turn, play)]
    parts += _verdict(turn, play)
    if own is not None and play.parted is not None:
        parts.append(_own_world(own, play.parted))
    reasoning = str(turn.dreamed.info.get("reasoning", ""))
    if reasoning:
        parts.append(_Shortened("why  ", reasoning))
    for demo in turn.dreamed.info.get("demonstrations", ()):
        parts.append(Text.assemble(("like ", QUIET), (f"{demo.action} -> {demo.next_state}", QUIET)))
    return Group(*parts)


class _Worlds:
    """Dream and real state beside each other, below one another in a narrow terminal."""

    def __init__(self, turn: Turn, play: Playthrough) -> None:
        left, right = _styles(turn.comparison)
        self._panels = [_world("dream", turn.dreamed, left)]
        if play.side_by_side:
            over = Panel(
                Text("its episode is over", style=QUIET), title="real", title_align="left", border_style=QUIET
            )
            self._panels.append(_world("real", turn.real, right) if turn.real else over)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[RenderableType]:
        """One row of panels of the same size, or a panel a row."""
        if len(self._panels) == 1 or options.max_width < NARROW:
            yield from self._panels
            return
        half = options.update(width=options.max_width // 2)
        tallest = max(len(console.render_lines(panel, half)) for panel in self._panels)
        row = Table.grid(expand=True)
        for panel in self._panels:
            row.add_column(ratio=1)
            panel.height = tallest
        row.add_row(*self._panels)
        yield row


class _Shortened:
    """A text in at most two lines; whoever wants all of it asks `:why`."""

    def __init__(self, head: str, text: str) -> None:
        self._head, self._text = head, text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[RenderableType]:
        """The head, then what fits."""
        lines = Text(self._text, style=QUIET).wrap(console, max(20, console.width - len(self._head)))
        if len(lines) > _WHY_LINES:
            last = lines[_WHY_LINES - 1].plain[: console.width - len(self._head) - 12].rstrip()
            lines[_WHY_LINES - 1] = Text(f"{last} ... (:why)", style=QUIET)
        for place, line in enumerate(lines[:_WHY_LINES]):
            yield Text.assemble((self._head if place == 0 else " " * len(self._head), QUIET), line)


def _world(name: str, step: Step, styles: Mapping[str, str]) -> Panel:
    if step.info.get("unparsable"):
        words = "The dream has no answer: every try was unreadable or contradicted the episode so far."
        return Panel(Text(words, style=DENIED), title=name, title_align="left")
    if failed := step.info.get("failed"):
        return Panel(Text(f"the engine failed: {failed}", style=DENIED), title=name, title_align="left")
    return Panel(
        Group(_marked(step.state, styles), Text(_outcome(step), style=QUIET)),
        title=name,
        title_align="left",
        padding=(0, 1),
    )


def _outcome(step: Step) -> str:
    return f"reward {step.reward:g}, {'the end' if step.done else 'it goes on'}"


def _styles(found: Comparison | None) -> tuple[dict[str, str], dict[str, str]]:
    """The phrases that only one side's differing facts name -> their colour, for the dream and for the real
    state.
    """
    if found is None:
        return {}, {}
    same = {part for fact in found.agreed for part in fact[1:]}

    def coloured(groups: Sequence[tuple[Collection[Fact], str]]) -> dict[str, str]:
        ranked = [
            (part, _style(found, fact, style))
            for facts, style in groups
            for fact in facts
            for part in fact[1:]
        ]
        return {
            part: style
            for part, style in sorted(ranked, key=lambda one: one[1] != INVENTED)
            if part and part not in same
        }

    return coloured([(found.unsaid, DENIED), (found.contradicted, DENIED)]), coloured(
        [(found.missing, LEFT_OUT)]
    )


def _style(found: Comparison, fact: Fact, style: str) -> str:
    return INVENTED if fact in found.revealed else style


def _marked(state: str, styles: Mapping[str, str]) -> Text:
    text = Text(state)
    for part, style in styles.items():
        text.highlight_regex(rf"(?<!\w){re.escape(part)}(?!\w)", f"bold {style}")
    return text


def _verdict(turn: Turn, play: Playthrough) -> list[RenderableType]:
    found, parted = turn.comparison, play.parted
    if found is None:
        return []
    lines: list[RenderableType] = (
        [_facts_verdict(found)] if found.same_facts else [_facts_verdict(found), _fact_lines(found)]
    )
    if not turn.same_outcome and turn.real is not None:
        lines.append(
            Text(f"!! dream: {_outcome(turn.dreamed)}; real: {_outcome(turn.real)}", style=f"bold {DENIED}")
        )
    if parted is turn:
        why = (
            "the dream invented what no one had seen"
            if found.invented and turn.same_outcome
            else "the dream was wrong"
        )
        lines.append(
            Text(
                f"From here on these are two worlds: {why}. What differs later may be no error.",
                style=LEFT_OUT,
            )
        )
    return lines


def _own_world(own: Confirmation, parted: Turn) -> Text:
    """What the real engine says of the last step in the world that the dream described."""
    if not own.comparisons:
        words, style = "cannot be built yet (:check)", QUIET
    elif len(own.comparisons) < len(own.dreamed.steps):
        words, style = "the real episode is over", DENIED
    elif own.comparisons[-1].same_facts:
        words, style = "the real engine says the same", FINE
    else:
        words, style = f"the real engine says: {_confirmed(own.comparisons[-1])}", DENIED
    return Text.assemble(
        (f"Two worlds since step {parted.number}. ", QUIET), (f"The dream's own: {words}.", style)
    )


def _facts_verdict(found: Comparison) -> Text:
    if found.same_text:
        return Text("== same text", style=FINE)
    if found.same_facts:
        return Text("=~ same facts in other words", style=FINE)
    many = f"{len(found.differing)} fact{'s differ' if len(found.differing) > 1 else ' differs'}"
    if found.invented:
        return Text(f"?? {many}, newly revealed: no one could know", style=f"bold {INVENTED}")
    counts = [(len(facts - found.revealed), what) for facts, what, _ in _groups(found)] + [
        (len(found.revealed), "newly revealed")
    ]
    return Text(
        f"!! {many}: {', '.join(f'{count} {what}' for count, what in counts if count)}",
        style=f"bold {DENIED}",
    )


def _groups(found: Comparison) -> list[tuple[frozenset[Fact], str, str]]:
    return [
        (found.contradicted, "contradicted", DENIED),
        (found.unsaid, "dreamed alone", DENIED),
        (found.missing, "missing", LEFT_OUT),
    ]


def _fact_lines(found: Comparison) -> Table:
    """A line for each kind of difference, first what the dream is to blame for."""
    lines = Table.grid(padding=(0, 2))
    for revealed in (False, True):
        for facts, what, style in _groups(found):
            if chosen := sorted(fact for fact in facts if (fact in found.revealed) is revealed):
                shown = [in_words(fact) for fact in chosen[:_FACTS_A_LINE]]
                shown += [f"and {len(chosen) - _FACTS_A_LINE} more (:facts)"] * (len(chosen) > _FACTS_A_LINE)
                style = _style(found, chosen[0], style)
                lines.add_row("", Text(_so(what, revealed), style=style), Text("; ".join(shown), style=style))
    return lines


def _so(what: str, revealed: bool) -> str:
    """What is newly revealed is no error of the dream: only whose it is is said."""
    return what if not revealed else "real" if what == "missing" else "invented"


def in_words(fact: Fact) -> str:
    """`in mug 1, shelf 2`."""
    return f"{fact[0]} {', '.join(part for part in fact[1:] if part)}".rstrip()


def facts_view(turn: Turn | None, facts: Collection[Fact]) -> RenderableType:
    """What the present state asserts, and beside it what the real one says of each, where it is played."""
    table = Table(box=box.ROUNDED, title="Facts", title_justify="left")
    table.add_column("fact")
    found = turn.comparison if turn else None
    if found is None:
        for fact in sorted(facts):
            table.add_row(in_words(fact))
        return table
    table.add_column("dream and real")
    for fact in sorted(found.agreed):
        table.add_row(Text(in_words(fact)), Text("both", style=FINE))
    for facts, what, style in _groups(found):
        for fact in sorted(facts):
            newly = ", newly revealed" if fact in found.revealed else ""
            table.add_row(
                Text(in_words(fact)), Text(_so(what, bool(newly)) + newly, style=_style(found, fact, style))
            )
    return table


def history_view(play: Playthrough) -> RenderableType:
    """The steps so far."""
    table = Table(box=box.ROUNDED, title="Steps", title_justify="left", show_lines=False)
    for name in ("step", "action", "dreamed state", "reward", *(["agrees"] if play.side_by_side else [])):
        table.add_column(name, justify="right" if name in ("step", "reward") else "left")
    table.add_row("0", "", Text(play.task.initial_state), "")
    for turn in play.turns:
        state = Text("no answer" if turn.unanswered else turn.dreamed.state)
        agrees = (
            ""
            if turn.comparison is None
            else "yes"
            if turn.agrees
            else "invented"
            if turn.comparison.invented
            else "no"
        )
        table.add_row(
            str(turn.number),
            Text(turn.action),
            state,
            f"{turn.dreamed.reward:g}",
            *([agrees] if play.side_by_side else []),
        )
    return table


def demonstrations_view(turn: Turn) -> RenderableType:
    """The retrieved transitions in full, the most similar first."""
    demos: Sequence[Transition] = turn.dreamed.info.get("demonstrations", ())
    if not demos:
        return Text(
            "The dream was shown no demonstration (retrieval.k is 0, or the buffer is empty).", style=QUIET
        )
    table = Table(
        box=box.ROUNDED,
        title=f"Demonstrations shown to the dream at step {turn.number}",
        title_justify="left",
        show_lines=True,
    )
    for name in ("in this state", "this action", "led to", "from"):
        table.add_column(name)
    for demo in demos:
        table.add_row(
            Text(demo.state), Text(demo.action), Text(demo.next_state), Text(f"{demo.source}, {demo.task_id}")
        )
    return table


def confirmation_view(found: Confirmation) -> RenderableType:
    """Step by step, whether the real engine says the same in the world that the dream described; then the
    verdict.
    """
    if not found.comparisons:
        return Text(
            f"No real world can be built from what this dream has shown so far: {found.reason}",
            style=LEFT_OUT,
        )
    table = Table(
        box=box.ROUNDED, title="The real engine in the world that the dream described", title_justify="left"
    )
    for name in ("step", "action", "the real engine says"):
        table.add_column(name, justify="right" if name == "step" else "left")
    for number, (step, one) in enumerate(zip(found.dreamed.steps, found.comparisons, strict=False), 1):
        table.add_row(str(number), Text(step.action), _confirmed(one))
    return Group(table, _conclusion(found))


def _confirmed(one: Comparison) -> Text:
    if one.same_text or one.same_facts:
        return Text("the same" if one.same_text else "the same in other words", style=FINE)
    differing = [f"not {in_words(fact)}" for fact in sorted(one.contradicted)] + [
        in_words(fact) for fact in sorted(one.missing)
    ]
    return Text("; ".join(differing) or "nothing of what the dream adds", style=DENIED)


def _conclusion(found: Confirmation) -> Text:
    same = sum(one.same_facts for one in found.comparisons)
    steps = f"{same} of {len(found.dreamed.steps)} states confirmed"
    if not found.agrees:
        return Text(f"Denied: {found.reason} ({steps}).", style=f"bold {DENIED}")
    what = "the success is real there" if found.dreamed.success else "there is no reward there either"
    return Text(
        f"Confirmed: {what} ({steps}).",
        style=f"bold {FINE if same == len(found.dreamed.steps) else LEFT_OUT}",
    )


_ENDINGS = {
    End.WON: ("The dream says: success.", FINE),
    End.LOST: ("The dream says: failure.", LEFT_OUT),
    End.NO_ANSWER: (
        "The episode ends without an answer: a failure, which training would count and not learn from.",
        DENIED,
    ),
}


def end_view(play: Playthrough) -> RenderableType:
    """Why the episode is over."""
    if play.end in _ENDINGS:
        words, style = _ENDINGS[play.end]
        return Text(words, style=f"bold {style}")
    return Text(
        f"{play.max_steps} steps are the limit (environment.max_steps): the episode is cut off.",
        style=f"bold {LEFT_OUT}",
    )


def summary_view(play: Playthrough, confirmation: Confirmation | None) -> RenderableType:
    """The episode in numbers."""
    table = Table(box=box.ROUNDED, title="Summary", title_justify="left", show_header=False)
    rewards = sum(turn.dreamed.reward for turn in play.turns)
    table.add_row("steps", f"{len(play.turns)} of at most {play.max_steps}")
    table.add_row("the dream", f"reward {rewards:g}, {play.end or 'left before its end'}")
    if play.side_by_side:
        _add_agreement(table, play)
    if confirmation is not None:
        same = sum(one.same_facts for one in confirmation.comparisons)
        verdict = (
            f"{'confirmed' if confirmation.agrees else 'denied'}; {same} of "
            f"{len(confirmation.dreamed.steps)} states the same"
        )
        table.add_row(
            "real engine, dream's world", verdict if confirmation.comparisons else "cannot be built"
        )
    return table


def _add_agreement(table: Table, play: Playthrough) -> None:
    compared = [turn for turn in play.turns if turn.comparison is not None]
    found = [turn.comparison for turn in compared if turn.comparison is not None]
    alike, exact = sum(one.same_facts for one in found), sum(one.same_text for one in found)
    real = play.real.steps[-1].reward if play.real and play.real.steps else 0.0
    table.add_row("the real world", f"reward {real:g}, {'over' if play.real_over else 'not over'}")
    table.add_row("states that agree", f"{alike} of {len(found)} in their facts, {exact} to the letter")
    table.add_row("facts contradicted", _contradicted(compared, play.parted))
    if play.parted is not None:
        table.add_row("two worlds", f"since step {play.parted.number}")


def _contradicted(compared: Sequence[Turn], parted: Turn | None) -> str:
    """How many, and how many of them cannot be held against the dream: newly revealed ones, and those of
    another world.
    """
    counts = {"": 0, "newly revealed": 0, "since these are two worlds": 0}
    for turn in compared:
        if turn.comparison is not None:
            denied, revealed = turn.comparison.contradicted, turn.comparison.revealed
            later = parted is not None and turn.number > parted.number
            counts["since these are two worlds" if later else ""] += len(denied - revealed)
            counts["newly revealed"] += len(denied & revealed)
    return ", ".join(f"{count} {kind}".rstrip() for kind, count in counts.items() if count or not kind)
