"""The ledger of the test split: who has read it, how often. Test games choose nothing; each reading makes
them worth a little less.

`.dreamgym/test_reads.jsonl` has a line for each reading: when, the job, the run or policy, games, and the
hash of the list of games.
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
    """Append a reading of the test games in the file `tasks`; how often this list has been read so far, this
    time included.

    Raises:
        DataError: the disk refuses.
    """
    listed = file_hash(tasks)
    entry = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "job": job,
        "reader": reader,
        "games": games,
        "tasks": listed,
    }
    path = root / LEDGER
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
    except OSError as error:
        raise cannot_write(path, error) from error
    return sum(entry["tasks"] == listed for entry in held_out_reads(root))


def held_out_reads(root: Path) -> list[dict[str, Any]]:
    """All readings, oldest first; a line that a crash cut short is left out."""
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
