"""Tables put between two marks of a Markdown document, so that what is read there is what was measured."""

from __future__ import annotations

from pathlib import Path

from components.errors import DataError
from components.files import write_text


def marks(name: str) -> tuple[str, str]:
    """The lines between which the table `name` stands."""
    return f"<!-- {name}:begin -->", f"<!-- {name}:end -->"


def insert_table(path: Path, table: str, name: str = "study") -> None:
    """Replace what stands between the marks of the document at `path`. Raises DataError as `around_table`
    does.
    """
    before, after = around_table(path, name)
    begin, end = marks(name)
    write_text(path, f"{before}{begin}\n{table}\n{end}{after}")


def around_table(path: Path, name: str = "study") -> tuple[str, str]:
    """What stands before and behind the marks.

    Raises:
        DataError: there is no such file, or it has not both marks, in their order.
    """
    first, last = marks(name)
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not (begin and end):
        raise DataError(
            f"{path} has no place for a table.",
            f"Expected a file with the lines {first} and {last}.",
            "Write them there.",
        )
    return before, after
