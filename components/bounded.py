"""Text files read whole, but none of any size: a file that somebody else made could otherwise take all
memory.
"""

from __future__ import annotations

from pathlib import Path

from components.errors import DataError

MOST_BYTES = 256 * 2**20
"""The largest of ours, the record of a stage with an hour's curves, has a few million."""


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """The UTF-8 text of a file of at most `most` bytes.

    Raises:
        DataError: it is larger.
        OSError, UnicodeDecodeError: as `Path.read_text`.
    """
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        wanted = "Expected the record of a run or a stage, a config, or a listing of data."
        raise DataError(
            f"{path} has more than {most:,} bytes.",
            wanted,
            f"Move it away, if it is not yours: mv {path} /tmp",
        )
    return content.decode("utf-8")
