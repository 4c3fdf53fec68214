"""The report of a run, as one Markdown file and one self-contained HTML file.

Both files render the same sections. Prefect shows the Markdown as an artifact, so its curves are lines of
block characters. The HTML embeds its pictures. All text of environments and models is escaped: a state with
the text "<script>" is shown and not executed. Sections without data are left out, such as curves of a run
without RL, or a decision without a champion.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.errors import DataError
from components.evaluation.report.blocks import Block, Facts, Section
from components.evaluation.report.render import blocks_to_markdown, to_html, to_markdown
from components.evaluation.report.report_curves import all_curves, learning_curves
from components.evaluation.report.run_sections import (
    COST_METRICS,
    all_metrics_blocks,
    curriculum_blocks,
    decision_blocks,
    example_blocks,
    fidelity_blocks,
    metric_table,
    next_step_blocks,
    reliability_blocks,
    stage_blocks,
    success_blocks,
    unverified_blocks,
)


@dataclass
class ReportData:
    """The contents of a report.

    Attributes:
        run_id: id of the run, shown in the title.
        metrics: name -> {"value", "n", "low", "high"}, as in metrics.json.
        stages: in order, each with `name`, `seconds`, `reused` and, if available, `key`.
        series: name -> one value per iteration, such as `synthetic_rl/success_rate`.
        decision: `Decision.to_json()`, empty if there was no decision.
        notes: sentences shown below the success rates.
        unverified: sentences on what is not known, of a run without a live world; empty for all others.
        reliability: bins of the experience model's confidence (`calibration.reliability`).
        curriculum: one entry per iteration of RL in the dream (`Curriculum.life`); empty without one.
        examples: dreamed episodes as `experience.replay_record` writes them; None without such a check.
        head: pairs of a name and its text, shown at the top: date, place and inputs of the run.
        next_steps: commands or paths for a closer look, in addition to the run's own files.
        confidence: level of the metrics' intervals.
    """

    run_id: str
    metrics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    stages: Sequence[Mapping[str, Any]] = ()
    series: Mapping[str, Sequence[float]] = field(default_factory=dict)
    decision: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    unverified: Sequence[str] = ()
    reliability: Sequence[Mapping[str, Any]] = ()
    curriculum: Sequence[Mapping[str, Any]] = ()
    examples: Sequence[Mapping[str, Any]] | None = None
    head: Sequence[tuple[str, str]] = ()
    next_steps: Sequence[str] = ()
    confidence: float = 0.95


def write_report(run_directory: Path, data: ReportData) -> tuple[Path, Path]:
    """Write `report.md` and `report.html` and return their paths.

    Raises:
        DataError: a file cannot be written.
    """
    title = f"Run {data.run_id}"
    head = _head(data)
    sections = list(report_sections(data, run_directory))
    markdown_path, html_path = run_directory / "report.md", run_directory / "report.html"
    markdown = to_markdown(title, head, sections)
    html = to_html(title, head, sections)
    _write(markdown_path, markdown)
    _write(html_path, html)
    return markdown_path, html_path


def summary(data: ReportData) -> str:
    """Return the decision with its conditions, the policies' success rates and the costs as Markdown."""
    _, success = _success_section(data)
    return blocks_to_markdown([*decision_blocks(data.decision), *success])


def report_sections(data: ReportData, run_directory: Path) -> Iterator[Section]:
    """Yield the sections for which the run has data, in reading order."""
    metrics = data.metrics
    confidence = data.confidence
    for title, blocks in (
        _success_section(data),
        ("Decision", decision_blocks(data.decision)),
        ("Learning", learning_curves(data.series)),
        (
            "Fidelity of the experience model",
            [*fidelity_blocks(metrics, confidence), *reliability_blocks(data.reliability)],
        ),
        ("Dreamed episodes", example_blocks(data.examples)),
        ("Curriculum", curriculum_blocks(data.curriculum, metrics, confidence)),
        ("Costs", metric_table(metrics, COST_METRICS, confidence, with_group=True)),
        ("Stages", stage_blocks(data.stages)),
        ("Where to look next", next_step_blocks(run_directory, data.next_steps)),
        ("All curves", all_curves(data.series)),
        ("All metrics", all_metrics_blocks(metrics, confidence)),
    ):
        if blocks:
            yield Section(title, blocks, folded=title.startswith("All "))


def _success_section(data: ReportData) -> tuple[str, list[Block]]:
    """Return title and blocks of the section on success."""
    if data.unverified:
        blocks = unverified_blocks(data.metrics, data.unverified, data.notes, data.confidence)
        return "What is not verified", blocks
    return "Success on held-out real games", success_blocks(data.metrics, data.notes, data.confidence)


def _head(data: ReportData) -> list[Block]:
    """Return the inputs of the run and the decision in one word."""
    entries = list(data.head)
    if data.decision:
        entries.append(("decision", "promoted" if data.decision.get("promoted") else "not promoted"))
    return [Facts(entries)] if entries else []


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8", errors="replace")
        temporary.replace(path)
    except OSError as error:
        raise DataError(
            f"The report {path} cannot be written: {error.strerror or error}.",
            next_step=f"Free disk space or make {path.parent} writable; the run itself is complete.",
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
