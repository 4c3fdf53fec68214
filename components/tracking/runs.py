"""Run directories `runs/<id>/`, the link `runs/latest`, and the format of final metrics.

A run's id is its start in UTC and four random digits, such as `20260131-142530-9f3a`. Ids sort by time.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import math
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from components.errors import DataError, TrackingError
from components.files import cannot_write, read_text, write_json

Metrics = dict[str, dict[str, float | int | None]]
METRICS = "metrics.json"
GAMES = "games.json"
_LATEST = "latest"
_ENTRY_KEYS = ("value", "n", "low", "high")


def new_run_id(now: datetime | None = None) -> str:
    """A new run id. `now` must have a time zone."""
    start = (now or datetime.now(UTC)).astimezone(UTC)
    return f"{start:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def start_run_directory(runs: Path, run_id: str | None = None) -> Path:
    """Create `runs/<id>/`, make `runs/latest` point at it, and return it. An existing directory is kept.

    Args:
        run_id: the id; None for a new one.

    Raises:
        DataError: the directory cannot be created.
    """
    directory = runs / (run_id or new_run_id())
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(directory, error) from error
    point_latest(directory)
    return directory


def point_latest(run_directory: Path) -> None:
    """Make `runs/latest` point at `run_directory` atomically, unless it points at a newer run.

    Raises:
        DataError: `runs/latest` is not a link, or the disk refuses.
    """
    link = run_directory.parent / _LATEST
    if link.exists() and not link.is_symlink():
        raise DataError(
            f"{link} is not a link.",
            "Expected a link to the newest run.",
            f"Move it away: mv {link} {link}.old",
        )
    if link.is_symlink() and link.exists() and link.readlink().name > run_directory.name:
        return
    temporary = link.with_name(f".{_LATEST}.{secrets.token_hex(4)}")
    try:
        temporary.symlink_to(run_directory.name, target_is_directory=True)
        temporary.replace(link)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise cannot_write(link, error) from error


def find_run(runs: Path, run_id: str = _LATEST) -> Path:
    """The directory of a run by its id or `latest`, with the link resolved.

    Raises:
        DataError: there is no such run; the message names the nearest ones.
    """
    directory = runs / run_id
    if run_id and Path(run_id).name == run_id and directory.is_dir():
        return directory.resolve()
    run_ids = list_runs(runs)
    nearest = difflib.get_close_matches(run_id, run_ids, n=3) or run_ids[-3:]
    hint = (
        f"Name an existing run, such as {', '.join(nearest)}."
        if nearest
        else "Type `dreamgym retrain` to make a first run."
    )
    raise DataError(f"There is no run {run_id!r} under {runs}.", next_step=hint)


def list_runs(runs: Path) -> list[str]:
    """Ids of all runs, oldest first."""
    if not runs.is_dir():
        return []
    return sorted(
        entry.name
        for entry in runs.iterdir()
        if entry.is_dir() and not entry.is_symlink() and not entry.name.startswith(".")
    )


def write_metrics(run_directory: Path, metrics: Mapping[str, Mapping[str, float]]) -> Path:
    """Replace `metrics.json` by `{name: {"value", "n", "low", "high"}}` atomically, and return its path.

    Raises:
        TrackingError: an entry has other keys, or a value that is not a number.
        DataError: the disk refuses.
    """
    path = run_directory / METRICS
    write_json(path, checked_metrics(metrics))
    return path


def read_metrics(run_directory: Path) -> Metrics:
    """The metrics of a run.

    Raises:
        DataError: they are missing or damaged.
    """
    path = run_directory / METRICS
    if not path.is_file():
        next_step = "Type `dreamgym retrain` with the same config to finish it: finished stages are reused."
        raise DataError(f"There is no {path}: the run is not finished.", next_step=next_step)
    try:
        return checked_metrics(json.loads(read_text(path)))
    except (ValueError, OSError, TrackingError) as error:
        raise DataError(
            f"{path} is damaged: {error}", next_step="Run it again: finished stages are reused."
        ) from None


def write_games(run_directory: Path, games: Mapping[str, Mapping[str, bool]]) -> Path:
    """Write `games.json` of the held-out games: policy -> task id -> True if the game was won.

    Raises:
        DataError: the disk refuses.
    """
    path = run_directory / GAMES
    write_json(path, games)
    return path


def read_games(run_directory: Path) -> dict[str, dict[str, bool]]:
    """Outcomes of a run's held-out games: policy -> task id -> True if the game was won.

    Raises:
        DataError: the run has no outcomes, or they are damaged.
    """
    path = run_directory / GAMES
    if not path.is_file():
        raise DataError(
            f"There is no {path}: the run has not finished its evaluation.",
            next_step="Name a finished run.",
        )
    try:
        games = json.loads(read_text(path))
        return {
            str(policy): {str(task): bool(won) for task, won in played.items()}
            for policy, played in games.items()
        }
    except (ValueError, OSError, AttributeError) as error:
        raise DataError(
            f"{path} is damaged: {error}", next_step="Run it again: finished stages are reused."
        ) from None


def checked_metrics(metrics: Mapping[str, Mapping[str, Any]]) -> Metrics:
    """The metrics with plain keys and numbers. Numbers that are not finite become None, which JSON can hold.

    Raises:
        TrackingError: an entry has other keys than value, n, low and high, or a value that is not a number.
    """
    if not isinstance(metrics, Mapping):
        raise TrackingError(f"The metrics are a {type(metrics).__name__}.", "Expected a mapping of names.")
    return {str(name): _entry(str(name), entry) for name, entry in metrics.items()}


def _entry(name: str, entry: Any) -> dict[str, float | int | None]:
    if not isinstance(entry, Mapping) or set(entry) != set(_ENTRY_KEYS):
        content = sorted(entry) if isinstance(entry, Mapping) else repr(entry)
        raise TrackingError(
            f"The metric {name} holds {content}.",
            f"Expected exactly {', '.join(_ENTRY_KEYS)}.",
            "Pass the value of Estimate.to_json().",
        )
    return {key: _number(name, key, entry[key]) for key in _ENTRY_KEYS}


def _number(name: str, key: str, value: Any) -> float | int | None:
    if value is None:
        return None
    try:
        number = int(value) if key == "n" else float(value)
    except (TypeError, ValueError, OverflowError):
        raise TrackingError(f"The metric {name} has {key} = {value!r}.", "Expected a number.") from None
    return number if math.isfinite(number) else None
