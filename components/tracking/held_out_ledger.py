"""Ledger of evaluations on the test split: which job read it, and how often.

Test games must not select anything. Every read makes them less independent of the choices that follow.
`.dreamgym/test_reads.jsonl` has a line for each read: time, job, run or policy, number of games, and the hash
of the list of games.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from components.files import cannot_write
from components.tracking.stage_store.hashes import file_hash

LEDGER = Path(".dreamgym") / "test_reads.jsonl"


def note_held_out_read(root: Path, tasks: Path, job: str, reader: str, games: int) -> int:
    """Append a read of the test games in the file `tasks`.

    Args:
        job: name of the job, such as evaluate.
        reader: run or policy that was evaluated.
        games: how many games were played.

    Returns:
        How often this list of games has been read, this time included.

    Raises:
        DataError: the disk refuses.
    """
    tasks_hash = file_hash(tasks)
    entry = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "job": job,
        "reader": reader,
        "games": games,
        "tasks": tasks_hash,
    }
    path = root / LEDGER
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
    except OSError as error:
        raise cannot_write(path, error) from error
    return sum(entry["tasks"] == tasks_hash for entry in held_out_reads(root))


def held_out_reads(root: Path) -> list[dict[str, Any]]:
    """All reads, the oldest first. Incomplete lines of a crash are left out."""
    path = root / LEDGER
    entries = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and "tasks" in entry:
            entries.append(entry)
    return entries
