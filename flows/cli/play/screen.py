"""Output of `dreamgym play`: the terminal, and optionally a transcript of all that was shown and typed."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console, RenderableType
from rich.text import Text

from components.errors import ConfigError, DataError
from components.files import write_text

_COLUMNS = 100
_FORMATS = (".txt", ".md", ".html", ".svg")


class Screen:
    """Prints to the terminal and to a transcript.

    Args:
        console: of the terminal.
        transcript: file to write; None: no transcript. `.txt` and `.md` hold text, `.html` and `.svg`
            colours.

    Raises:
        ConfigError: the transcript's name has another ending.
        DataError: the transcript is a directory, or its directory does not exist.
    """

    def __init__(self, console: Console, transcript: Path | None = None) -> None:
        self._console = console
        self._path = transcript
        self._record: Console | None = None
        if transcript is not None:
            _require_writable_transcript(transcript)
            self._record = Console(
                file=io.StringIO(), record=True, width=_COLUMNS, highlight=False, markup=False, emoji=False
            )

    def show(self, *parts: RenderableType) -> None:
        """Print each part; a string is printed as it is, not as markup."""
        for console in (self._console, self._record):
            if console is not None:
                for part in parts:
                    console.print(part, highlight=False, markup=False)

    def echo(self, prompt: str, line: str, typed: bool) -> None:
        """Print an entered line; in the terminal only if nobody typed it there."""
        for console in (None if typed else self._console, self._record):
            if console:
                console.print(Text.assemble((prompt, "dim"), (line, "bold")))

    def save(self) -> None:
        """Write the transcript. Raises DataError if the disk refuses."""
        if self._record and self._path:
            suffix = self._path.suffix
            if suffix == ".html":
                write_text(self._path, self._record.export_html())
            elif suffix == ".svg":
                write_text(self._path, self._record.export_svg(title="dreamgym play"))
            else:
                text = self._record.export_text()
                write_text(self._path, f"```\n{text}```\n" if suffix == ".md" else text)


def _require_writable_transcript(path: Path) -> None:
    if path.suffix not in _FORMATS:
        raise ConfigError(
            f"The transcript {path} ends in {path.suffix!r}.", f"Expected one of {', '.join(_FORMATS)}."
        )
    if path.is_dir():
        problem = "is a directory"
    elif not path.absolute().parent.is_dir():
        problem = f"cannot be written: there is no directory {path.parent}"
    else:
        return
    raise DataError(f"The transcript {path} {problem}.", next_step="Name a file in an existing directory.")
