"""What `dreamgym play` shows: one renderable for a task, a step, a list or a summary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from components.environments.protocol import Step
from components.experience.side_by_side import Confirmation, End, Playthrough, Turn
from components.records import Task, Transition
from flows.cli.play.comparison_view import (
    CONFIRMED,
    DENIED,
    LEFT_OUT,
    QUIET,
    comparison_lines,
    highlight_phrases,
    outcome_text,
    own_world_line,
    phrase_styles,
)

NARROW = 80
"""Columns of the terminal below which dream and real state are stacked."""
_MAX_REASONING_LINES = 2


def task_view(task: Task, number: int, count: int, split: str) -> RenderableType:
    """Return the instruction and the initial state of task `number` of `count`."""
    body = Group(Text(task.instruction, style="bold"), Text(task.initial_state))
    return Panel(
        body,
        title=Text(f"task {number} of {count} ({split})"),
        subtitle=Text(task.id, style=QUIET),
        title_align="left",
        subtitle_align="left",
        border_style="blue",
    )


def turn_view(turn: Turn, play: Playthrough, confirmation: Confirmation | None = None) -> RenderableType:
    """Return one step: the dreamed and real states, their comparison, the reasoning, the demonstrations.

    Args:
        confirmation: the real engine's answers in the world that the dream described; None: not asked.
    """
    parts: list[RenderableType] = [_StatePanels(turn, play)]
    parts += comparison_lines(turn, play)
    if confirmation is not None and play.first_disagreement is not None:
        parts.append(own_world_line(confirmation, play.first_disagreement))
    reasoning = str(turn.dreamed.info.get("reasoning", ""))
    if reasoning:
        parts.append(_ShortReasoning("why  ", reasoning))
    for demo in turn.dreamed.info.get("demonstrations", ()):
        parts.append(Text.assemble(("like ", QUIET), (f"{demo.action} -> {demo.next_state}", QUIET)))
    return Group(*parts)


class _StatePanels:
    """Dreamed and real state next to each other; stacked in a narrow terminal."""

    def __init__(self, turn: Turn, play: Playthrough) -> None:
        dream_styles, real_styles = phrase_styles(turn.comparison)
        self._panels = [_state_panel("dream", turn.dreamed, dream_styles)]
        if play.side_by_side:
            self._panels.append(_state_panel("real", turn.real, real_styles) if turn.real else _ended_panel())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[RenderableType]:
        """Yield one row of panels of the same height, or one panel a row."""
        if len(self._panels) == 1 or options.max_width < NARROW:
            yield from self._panels
            return
        half = options.update(width=options.max_width // 2)
        height = max(len(console.render_lines(panel, half)) for panel in self._panels)
        row = Table.grid(expand=True)
        for panel in self._panels:
            row.add_column(ratio=1)
            panel.height = height
        row.add_row(*self._panels)
        yield row


class _ShortReasoning:
    """A text in at most two lines; the command `:why` shows all of it."""

    def __init__(self, label: str, text: str) -> None:
        self._label = label
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[RenderableType]:
        """Yield the label and as much of the text as fits."""
        lines = Text(self._text, style=QUIET).wrap(console, max(20, console.width - len(self._label)))
        if len(lines) > _MAX_REASONING_LINES:
            room = console.width - len(self._label) - 12
            last = lines[_MAX_REASONING_LINES - 1].plain[:room].rstrip()
            lines[_MAX_REASONING_LINES - 1] = Text(f"{last} ... (:why)", style=QUIET)
        indent = " " * len(self._label)
        for number, line in enumerate(lines[:_MAX_REASONING_LINES]):
            yield Text.assemble((self._label if number == 0 else indent, QUIET), line)


def _ended_panel() -> Panel:
    text = Text("its episode is over", style=QUIET)
    return Panel(text, title="real", title_align="left", border_style=QUIET)


def _state_panel(name: str, step: Step, styles: Mapping[str, str]) -> Panel:
    if step.info.get("unparsable"):
        words = "The dream has no answer: every try was unreadable or contradicted the episode so far."
        return Panel(Text(words, style=DENIED), title=name, title_align="left")
    if failed := step.info.get("failed"):
        return Panel(Text(f"the engine failed: {failed}", style=DENIED), title=name, title_align="left")
    body = Group(highlight_phrases(step.state, styles), Text(outcome_text(step), style=QUIET))
    return Panel(body, title=name, title_align="left", padding=(0, 1))


def history_view(play: Playthrough) -> RenderableType:
    """Return a table of the steps so far."""
    table = Table(box=box.ROUNDED, title="Steps", title_justify="left", show_lines=False)
    for name in ("step", "action", "dreamed state", "reward", *(["agrees"] if play.side_by_side else [])):
        table.add_column(name, justify="right" if name in ("step", "reward") else "left")
    table.add_row("0", "", Text(play.task.initial_state), "")
    for turn in play.turns:
        state = Text("no answer" if turn.unanswered else turn.dreamed.state)
        cells: list[RenderableType] = [
            str(turn.number),
            Text(turn.action),
            state,
            f"{turn.dreamed.reward:g}",
        ]
        table.add_row(*cells, *([_agreement_text(turn)] if play.side_by_side else []))
    return table


def _agreement_text(turn: Turn) -> str:
    if turn.comparison is None:
        return ""
    if turn.agrees:
        return "yes"
    return "invented" if turn.comparison.invented else "no"


def demonstrations_view(turn: Turn) -> RenderableType:
    """Return the demonstrations of a step in full, the most similar first."""
    demonstrations: Sequence[Transition] = turn.dreamed.info.get("demonstrations", ())
    if not demonstrations:
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
    for demo in demonstrations:
        origin = Text(f"{demo.source}, {demo.task_id}")
        table.add_row(Text(demo.state), Text(demo.action), Text(demo.next_state), origin)
    return table


_ENDINGS = {
    End.WON: ("The dream says: success.", CONFIRMED),
    End.LOST: ("The dream says: failure.", LEFT_OUT),
    End.NO_ANSWER: (
        "The episode ends without an answer. Training counts it as a failure and learns nothing from it.",
        DENIED,
    ),
}


def end_view(play: Playthrough) -> RenderableType:
    """Return why the episode is over."""
    if play.end in _ENDINGS:
        words, style = _ENDINGS[play.end]
        return Text(words, style=f"bold {style}")
    return Text(
        f"{play.max_steps} steps are the limit (environment.max_steps): the episode is cut off.",
        style=f"bold {LEFT_OUT}",
    )


def summary_view(play: Playthrough, confirmation: Confirmation | None) -> RenderableType:
    """Return the episode in numbers."""
    table = Table(box=box.ROUNDED, title="Summary", title_justify="left", show_header=False)
    reward = sum(turn.dreamed.reward for turn in play.turns)
    table.add_row("steps", f"{len(play.turns)} of at most {play.max_steps}")
    table.add_row("the dream", f"reward {reward:g}, {play.end or 'left before its end'}")
    if play.side_by_side:
        _add_agreement_rows(table, play)
    if confirmation is not None:
        table.add_row("real engine, dream's world", _confirmation_text(confirmation))
    return table


def _confirmation_text(confirmation: Confirmation) -> str:
    if not confirmation.comparisons:
        return "cannot be built"
    same = sum(comparison.same_facts for comparison in confirmation.comparisons)
    verdict = "confirmed" if confirmation.agrees else "denied"
    return f"{verdict}; {same} of {len(confirmation.dreamed.steps)} states the same"


def _add_agreement_rows(table: Table, play: Playthrough) -> None:
    compared = [turn for turn in play.turns if turn.comparison is not None]
    comparisons = [turn.comparison for turn in compared if turn.comparison is not None]
    same_facts = sum(comparison.same_facts for comparison in comparisons)
    same_text = sum(comparison.same_text for comparison in comparisons)
    reward = play.real.steps[-1].reward if play.real and play.real.steps else 0.0
    table.add_row("the real world", f"reward {reward:g}, {'over' if play.real_over else 'not over'}")
    states = f"{same_facts} of {len(comparisons)} in their facts, {same_text} word for word"
    table.add_row("states that agree", states)
    table.add_row("facts contradicted", _contradicted_text(compared, play.first_disagreement))
    if play.first_disagreement is not None:
        table.add_row("diverged", f"since step {play.first_disagreement.number}")


def _contradicted_text(compared: Sequence[Turn], first_disagreement: Turn | None) -> str:
    """Return how many facts were contradicted, and how many of these are no errors of the dream.

    No errors are newly revealed facts, and facts of steps after dream and real environment differ.
    """
    counts = {"": 0, "newly revealed": 0, "after the divergence": 0}
    for turn in compared:
        if turn.comparison is not None:
            contradicted = turn.comparison.contradicted
            revealed = turn.comparison.revealed
            later = first_disagreement is not None and turn.number > first_disagreement.number
            counts["after the divergence" if later else ""] += len(contradicted - revealed)
            counts["newly revealed"] += len(contradicted & revealed)
    return ", ".join(f"{count} {kind}".rstrip() for kind, count in counts.items() if count or not kind)
