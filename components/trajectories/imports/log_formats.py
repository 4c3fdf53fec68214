"""The formats of logs that `dreamgym import --as` reads, each as an iterator of episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from components.trajectories.imports.conversations import whole_records
from components.trajectories.imports.dataset_rows import dataset_rows
from components.trajectories.imports.json_lines import common_folder, documents, log_files, records
from components.trajectories.imports.logged_episode import LoggedEpisode, Skipped, Unusable
from components.trajectories.imports.message_lists import episode_of
from components.trajectories.imports.otel.spans import span_records
from components.trajectories.imports.outcomes import OutcomeRule
from components.trajectories.imports.step_lines import episode_of_steps, step_episodes
from components.trajectories.imports.transition_tables import table_episodes

LogFormat = Literal["openai", "otel", "datasets", "steps", "transitions"]
ENVIRONMENTS = ("env_id", "environment", "env_name", "env")
"""Fields with the name of a record's environment."""
Entries = Iterator[tuple[str, Any] | Skipped]


def logged_episodes(
    paths: Sequence[Path], form: LogFormat, rule: OutcomeRule, mask: Callable[[str], str]
) -> Iterator[LoggedEpisode | Skipped]:
    """Return the episodes of some logs, and what of them cannot be used.

    Raises:
        DataError: a file cannot be read.
    """
    if form == "transitions":
        for path in paths:
            yield from table_episodes(path, rule, mask)
        return
    read_episode = episode_of_steps if form == "steps" else episode_of
    for entry in _entries(paths, form):
        if isinstance(entry, Skipped):
            yield entry
            continue
        place, record = entry
        try:
            yield replace(read_episode(record, place, rule, mask), world=_world(record))
        except Unusable as problem:
            yield Skipped(problem.reason, place, problem.found)


def _world(record: Any) -> str:
    """Return the environment that a record, its metadata, its first step or the `info` of it names, or ""."""
    sections = [record]
    if isinstance(record, Mapping):
        steps = record.get("steps")
        first = steps[0] if isinstance(steps, list) and steps else None
        sections += [record.get("metadata"), first, first.get("info") if isinstance(first, Mapping) else None]
    names = (
        section.get(field) for section in sections if isinstance(section, Mapping) for field in ENVIRONMENTS
    )
    return next((name for name in names if isinstance(name, str) and name), "")


def _entries(paths: Sequence[Path], form: LogFormat) -> Entries:
    if form == "datasets":
        return chain.from_iterable(map(dataset_rows, paths))
    files = log_files(paths)
    folder = common_folder(paths)
    if form == "otel":
        return span_records(chain.from_iterable(documents(file, folder) for file in files))
    lines = chain.from_iterable(records(file, folder) for file in files)
    return step_episodes(lines) if form == "steps" else whole_records(lines)
