"""Imports logs of other programs: reads them, writes tasks and trajectories to `data/`, and versions them.

    dreamgym import agent.jsonl --as openai

All files, the description of the world among them, are written before the first is renamed into place, so a
failed import leaves the old data unchanged. What was left out is listed in `.dreamgym/import/skipped.jsonl`,
with its secrets masked.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

from components.config import Config
from components.errors import ConfigError, DataError
from components.files import write_text
from components.language.endpoint.chat_completions import Usage
from components.language.endpoint.json_endpoint import Endpoint
from components.trajectories.dvc.snapshots import Snapshot, push, snapshot
from components.trajectories.imports.dataset import SPLITS, Imported, TooFewTasks, build
from components.trajectories.imports.judged_outcomes import OutcomeJudge
from components.trajectories.imports.log_formats import LogFormat, logged_episodes
from components.trajectories.imports.logged_episode import LoggedEpisode, Skipped
from components.trajectories.imports.outcomes import JUDGE, NumbersSeen, outcome_rule
from components.trajectories.imports.secrets import Masker
from components.trajectories.store import DataLayout, write_tasks, write_transitions
from flows.jobs.collect import STAGED, move_files
from flows.run.training.teacher_annotations import ANSWERS

SKIPPED = Path(".dreamgym", "import", "skipped.jsonl")
"""List of what was left out, in the repository."""
WORLD = "recorded"
"""Name of the environment of imported logs."""
CUT = " ..."
"""Ends a text that was cut."""
EPISODES_BETWEEN_REPORTS = 1000
Report = Callable[[str], None]


class BuildSettings(TypedDict):
    """Options of `build`."""

    held_out: float
    longest_text: int
    behaviour: str


@dataclass(frozen=True)
class ImportOptions:
    """How logs are read.

    Attributes:
        form: what the records are (`log_formats.py`).
        outcome: see `outcome_rule`.
        success: least number that is a success.
        held_out: share of the tasks for fidelity, and again for tests.
        behaviour: who acted: expert, noisy, near_miss, random or policy.
        cut: cut texts that are too long, instead of leaving their episodes out.
        needs_success: refuse logs without a success in training, and leave the data as it was.
    """

    form: LogFormat = "openai"
    outcome: str = ""
    success: float = 1.0
    held_out: float = 0.1
    behaviour: str = "policy"
    cut: bool = False
    needs_success: bool = False


@dataclass(frozen=True)
class Judging:
    """What a judge was asked: number of episodes, of them those without a usable answer, and the cost."""

    asked: int
    unanswered: int
    usage: Usage


@dataclass(frozen=True)
class ImportedData:
    """What was imported, the number of masked secrets, the new version of data/, and what a judge did."""

    imported: Imported
    masked: int
    version: Snapshot
    judging: Judging | None


def import_logs(
    paths: Sequence[Path], config: Config, root: Path, options: ImportOptions, report: Report = lambda _: None
) -> ImportedData:
    """Replace the data of `WORLD` by the episodes of logs, and save it as a new version.

    Raises:
        ConfigError: the rule of outcomes, or a pattern of secrets, cannot be used; a judge has no endpoint.
        EndpointError: the judge's endpoint refuses every question, or gives no usable answer.
        DataError: a file cannot be read or written, fewer than three tasks are left, or no outcome is told.
    """
    numbers = NumbersSeen()
    rule = outcome_rule(options.outcome, options.success, numbers)
    masker = Masker(config.data.secret_patterns)
    longest = config.data.max_text_chars
    logged = logged_episodes(paths, options.form, rule, masker.mask)
    episodes = _episodes(logged, longest if options.cut else 0, report)
    settings: BuildSettings = {
        "held_out": options.held_out,
        "longest_text": longest,
        "behaviour": options.behaviour,
    }
    judging = None
    try:
        if options.outcome == JUDGE:
            _require_judge(config)
            with Endpoint(config.endpoint, root / ANSWERS) as endpoint:
                judge = OutcomeJudge(endpoint)
                imported = build(episodes, WORLD, **settings, decide=judge.decide)
                judging = Judging(judge.asked, judge.unanswered, endpoint.usage)
        else:
            imported = build(episodes, WORLD, **settings)
    except TooFewTasks as error:
        _write_skipped(root / SKIPPED, error.imported, config)
        raise
    _write_skipped(root / SKIPPED, imported, config)
    _require_outcomes(imported, options, numbers.highest)
    layout = DataLayout.of(root, WORLD)
    if any(path.is_file() for path in (root / "data").rglob("*")):
        report(f"The previous data stays in DVC's cache as {snapshot(root).hash}")
    _write(layout, imported)
    version = snapshot(root)
    push(root)
    return ImportedData(imported, masker.found, version, judging)


def _require_outcomes(imported: Imported, options: ImportOptions, highest: float | None) -> None:
    """Raise DataError if a named field told no outcome, or if a run needs a success and there is none."""
    if options.outcome.startswith("field:") and set(imported.outcomes) == {"unknown"}:
        raise DataError(
            f"No record of {imported.outcomes['unknown']:,} episodes has an outcome in the field "
            f"{options.outcome.removeprefix('field:')!r}.",
            "Expected true or false, a number, or a word such as success in some of them.",
            "Correct the name; dots lead into fields within fields. Nothing was imported.",
        )
    if options.needs_success and not any(step.reward > 0 for step in imported.transitions["train"]):
        outcomes = ", ".join(f"{count:,} {name}" for name, count in imported.outcomes.items())
        number, advice = "", ""
        if highest is not None and highest < options.success:
            number = f" The highest number among the outcomes is {highest}; --success is {options.success:g}."
            advice = f", or which number is one: --success {highest}"
        raise DataError(
            f"No training episode is known as a success ({outcomes}).{number}",
            "Expected at least one: a dream learns from successes what is rewarded.",
            f"Say how a success is told: --outcome field:PATH, last:PATTERN or judge{advice}. Nothing was "
            "imported.",
        )


def _require_judge(config: Config) -> None:
    """Raise ConfigError if no endpoint is named."""
    if not (config.endpoint.url and config.endpoint.model):
        raise ConfigError(
            "--outcome judge asks a language model, and endpoint.url or endpoint.model is empty.",
            "Expected an OpenAI-compatible endpoint.",
            "Add endpoint.url=http://localhost:8000/v1 endpoint.model=NAME.",
        )


def _episodes(
    logged: Iterator[LoggedEpisode | Skipped], cut_at: int, report: Report
) -> Iterator[LoggedEpisode | Skipped]:
    """Return the episodes, cut where `cut_at` is not 0, and report how many were read."""
    count = 0
    for episode in logged:
        if isinstance(episode, Skipped):
            yield episode
            continue
        count += 1
        if count % EPISODES_BETWEEN_REPORTS == 0:
            report(f"{count:,} episodes read")
        yield _cut(episode, cut_at) if cut_at else episode


def _cut(episode: LoggedEpisode, limit: int) -> LoggedEpisode:
    """The episode with its observations cut to `limit` characters."""

    def shorten(text: str) -> str:
        return text if len(text) <= limit else text[: limit - len(CUT)] + CUT

    steps = tuple(
        replace(step, observation=None if step.observation is None else shorten(step.observation))
        for step in episode.steps
    )
    return replace(
        episode,
        instruction=shorten(episode.instruction),
        first_observation=shorten(episode.first_observation),
        steps=steps,
    )


def _write(layout: DataLayout, imported: Imported) -> None:
    staged = DataLayout(layout.root / STAGED)
    shutil.rmtree(staged.root, ignore_errors=True)
    try:
        for split in SPLITS:
            write_tasks(staged.tasks(split), imported.tasks[split])
            write_transitions(staged.trajectories(split), imported.transitions[split])
        description, _ = imported.systems.most_common(1)[0]
        write_text(staged.description, description)
        move_files(staged.root, layout.root)
        layout.settings.unlink(missing_ok=True)  # of games that were recorded here before
    finally:
        shutil.rmtree(staged.root, ignore_errors=True)


def _write_skipped(path: Path, imported: Imported, config: Config) -> None:
    masker = Masker(config.data.secret_patterns)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps(vars(replace(skipped, found=masker.mask(skipped.found))), ensure_ascii=False)
        for skipped in imported.skipped
    ]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", errors="backslashreplace")
