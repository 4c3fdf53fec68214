"""What `dreamgym import` prints: what the logs became, what was left out, and what to type next."""

from __future__ import annotations

from components.trajectories.imports.dataset import Imported
from flows.cli.data import COMMIT_HINT
from flows.jobs.import_logs import SKIPPED, WORLD, ImportedData, Judging
from flows.printing.output import Output
from flows.printing.table import Column, Table


def print_imported(page: Output, data: ImportedData, *, is_last: bool = True) -> None:
    """Print the tables of an import. Args: is_last: what to type next is printed, too."""
    imported = data.imported
    rows: list[list[str | int]] = [
        [
            split,
            len(imported.tasks[split]),
            len({step.episode_id for step in imported.transitions[split]}),
            len(imported.transitions[split]),
        ]
        for split in imported.tasks
    ]
    columns = [
        Column("split"),
        *(Column(name, right=True) for name in ("tasks", "episodes", "transitions")),
    ]
    page.table("splits", Table(f"Imported into data/{WORLD}", columns, rows))
    outcomes = ", ".join(f"{count:,} {name}" for name, count in imported.outcomes.most_common())
    page.text(f"Outcomes of the episodes: {outcomes}.")
    steps = sum(map(len, imported.transitions.values()))
    page.text(
        f"{imported.without_thoughts:,} of {steps:,} steps have no thought; {data.masked:,} secrets masked."
    )
    if data.judging is not None:
        _print_judging(page, data.judging)
    if imported.reasons:
        left_out: list[list[str | int]] = [
            [reason, count] for reason, count in imported.reasons.most_common()
        ]
        page.table(
            "skipped",
            Table(
                f"Left out (each with its place in {SKIPPED})",
                [Column("reason"), Column("count", right=True)],
                left_out,
            ),
        )
    _print_doubts(page, imported)
    if is_last:
        _print_next_steps(page, data)
    page.put(
        outcomes=dict(imported.outcomes),
        masked=data.masked,
        without_thoughts=imported.without_thoughts,
        system=imported.systems.most_common(1)[0][0],
        worlds=dict(imported.worlds),
        dvc_hash=data.version.hash,
    )


def _print_judging(page: Output, judging: Judging) -> None:
    usage = judging.usage
    page.text(
        f"Outcomes by the judge: {usage.calls:,} answers, {usage.cached_calls:,} more from the cache; "
        f"{usage.prompt_tokens:,} tokens read and {usage.completion_tokens:,} written. They are its opinion."
    )
    if judging.unanswered:
        page.text(
            f"{judging.unanswered:,} of {judging.asked:,} questions to the judge have no usable answer: "
            "these outcomes stay unknown.",
            style="yellow",
        )
    page.put(judge=usage.costs() | {"asked": judging.asked, "unanswered": judging.unanswered})


def _print_next_steps(page: Output, data: ImportedData) -> None:
    page.text(f"DVC hash of data/: {data.version.hash}. {COMMIT_HINT}")
    page.text(
        f"Next: dreamgym validate environment.name={WORLD}, then dreamgym retrain --config configs/logs.yaml"
    )


def _print_doubts(page: Output, imported: Imported) -> None:
    """Say what in the logs makes a poor dream, or may be a mistake of reading."""
    outcomes = imported.outcomes
    if not outcomes["failure"]:
        page.text(
            "No episode is known as a failure. A dream that has seen none grants too much. Is the outcome "
            "read rightly (--outcome, --success)?",
            style="yellow",
        )
    if not outcomes["success"]:
        page.text(
            "No episode is known as a success, so nothing can be cloned or rewarded: see --outcome.",
            style="yellow",
        )
    (system, count), *others = imported.systems.most_common()
    if system:
        page.text(
            f"{count:,} of {outcomes.total():,} episodes have the same system message, which describes the "
            f"world (environment.description): {system[:60]!r}{' ...' if len(system) > 60 else ''}"
        )
    if others:
        page.text(
            f"{len(others):,} other system messages: {others[0][0][:60]!r} in {others[0][1]:,} episodes. If "
            "they are of other worlds, import each world by itself.",
            style="yellow",
        )
    if len(imported.worlds) > 1:
        most = ", ".join(f"{name!r} in {count:,} episodes" for name, count in imported.worlds.most_common(3))
        page.text(
            f"{len(imported.worlds):,} environments are named: {most}. A dream is of one world: import each "
            "by itself, for example what jq -c 'select(.env_id == \"NAME\")' leaves of the log.",
            style="yellow",
        )
