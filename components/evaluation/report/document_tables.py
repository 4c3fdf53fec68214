"""Tables inserted between two markers of a Markdown document, so that documents show measured numbers."""

from __future__ import annotations

from pathlib import Path

from components.errors import DataError
from components.files import write_text


def table_markers(name: str) -> tuple[str, str]:
    """Return the lines before and after the table `name`."""
    return f"<!-- {name}:begin -->", f"<!-- {name}:end -->"


def insert_table(path: Path, table: str, name: str = "study") -> None:
    """Replace the text between the markers of the document `path` with `table`.

    Raises:
        DataError: see `text_around_table`.
    """
    before, after = text_around_table(path, name)
    begin, end = table_markers(name)
    write_text(path, f"{before}{begin}\n{table}\n{end}{after}")


def text_around_table(path: Path, name: str = "study") -> tuple[str, str]:
    """Return the text before the first marker and after the second.

    Raises:
        DataError: the file does not exist, or it does not have both markers in order.
    """
    begin_marker, end_marker = table_markers(name)
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    before, begin, rest = text.partition(begin_marker)
    _, end, after = rest.partition(end_marker)
    if not (begin and end):
        raise DataError(
            f"{path} has no place for the table {name}.",
            f"Expected a file with the lines {begin_marker} and {end_marker}.",
            "Add these two lines to the file.",
        )
    return before, after
