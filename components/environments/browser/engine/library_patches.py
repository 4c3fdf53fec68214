"""Temporary patches of other libraries: what each replaces, why, and the version it was written for.

Each patch is a context manager, so it is undone on exit, also after an error.

1. `default_executable` (Playwright 1.44): BrowserGym's own environment starts a second browser, for the chat
   window, without the executable that the first one is given. There is no other way to run it on a system's
   Chromium.
2. `without_nltk_downloads` (NLTK 3): WebArena's packages download a table as they are imported, and fail
   offline. Tasks and evaluators load without it (`web_sites.py` names the evaluators that need it).
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

WRITTEN_FOR = {"playwright": "1.44", "nltk": "3"}
"""Package -> the version, or its beginning, that the patches were written for."""


def version_mismatches() -> list[str]:
    """Return a sentence for each installed package of another version than the patches were written for."""
    mismatches = []
    for package, expected in WRITTEN_FOR.items():
        try:
            installed = version(package)
        except PackageNotFoundError:
            continue
        if installed != expected and not installed.startswith(f"{expected}."):
            mismatches.append(
                f"{package} {installed} is installed, but {__name__} was written for {package} {expected}. "
                "Its patches may have no effect. Type: pip install -c constraints.txt -e '.[browser]'"
            )
    return mismatches


for _mismatch in version_mismatches():
    warnings.warn(_mismatch, RuntimeWarning, stacklevel=2)


@contextlib.contextmanager
def default_executable(chromium: Any, executable: str) -> Iterator[None]:
    """While this lasts, `chromium.launch` starts `executable` unless it is given another one.

    Args:
        chromium: Playwright's browser type, whose `launch` is replaced on this object alone.
        executable: path of the program.
    """
    original = chromium.launch

    def launch(**options: Any) -> Any:
        return original(**{"executable_path": executable, **options})

    chromium.launch = launch
    try:
        yield
    finally:
        chromium.launch = original


@contextlib.contextmanager
def without_nltk_downloads() -> Iterator[None]:
    """While this lasts, `nltk.download` fetches nothing."""
    import nltk

    original = nltk.download
    nltk.download = lambda *_args, **_options: False
    try:
        yield
    finally:
        nltk.download = original
