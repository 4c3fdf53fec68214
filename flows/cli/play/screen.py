"""Where `dreamgym play` prints: the terminal, and beside it a transcript of all that was shown and typed."""

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
    """The terminal, and beside it the transcript if one is wanted: `.txt` and `.md` hold the text, `.html`
    and `.svg` the colours.
    """

    def __init__(self, console: Console, transcript: Path | None = None) -> None:
        """Raises ConfigError for another ending, DataError if there is no folder to write to."""
        self._console, self._path = console, transcript
        record = Console(
            file=io.StringIO(), record=True, width=_COLUMNS, highlight=False, markup=False, emoji=False
        )
        self._record = record if transcript else None
        if transcript and transcript.suffix not in _FORMATS:
            raise ConfigError(
                f"The transcript {transcript} ends in {transcript.suffix!r}.",
                f"Expected one of {', '.join(_FORMATS)}.",
            )
        if transcript and (transcript.is_dir() or not transcript.absolute().parent.is_dir()):
            problem = (
                "is a directory"
                if transcript.is_dir()
                else f"cannot be written: there is no directory {transcript.parent}"
            )
            raise DataError(
                f"The transcript {transcript} {problem}.",
                next_step="Name a file in a directory that is there.",
            )

    def show(self, *things: RenderableType) -> None:
        """Print each thing; a string is taken as it is, not as markup."""
        for console in (self._console, self._record):
            for thing in things if console else ():
                console.print(thing, highlight=False, markup=False)  # type: ignore[union-attr]

    def echo(self, prompt: str, line: str, typed: bool) -> None:
        """What was entered; in the terminal only where nobody typed it there."""
        for console in (None if typed else self._console, self._record):
            if console:
                console.print(Text.assemble((prompt, "dim"), (line, "bold")))

    def save(self) -> None:
        """Write the transcript. Raises DataError if the disk refuses."""
        if self._record and self._path:
            form = self._path.suffix
            if form == ".html":
                write_text(self._path, self._record.export_html())
            elif form == ".svg":
                write_text(self._path, self._record.export_svg(title="dreamgym play"))
            else:
                text = self._record.export_text()
                write_text(self._path, f"```\n{text}```\n" if form == ".md" else text)
