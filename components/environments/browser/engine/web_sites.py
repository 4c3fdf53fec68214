"""What WebArena needs beside a browser: packages, the sites that the WA_* variables name, a table of words, a
key for its judge.

Nothing is imported of it here: its packages fetch data when they are.
"""

from __future__ import annotations

import importlib.util
import os
import socket
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from components.errors import EnvironmentFailure

SITES = ("SHOPPING", "SHOPPING_ADMIN", "REDDIT", "GITLAB", "WIKIPEDIA", "MAP", "HOMEPAGE")
PACKAGES = (
    "webarena",
    "browsergym.webarena",
    "browsergym.webarenalite",
    "nltk",
    "evaluate",
    "openai",
    "aiolimiter",
    "tiktoken",
)
INSTALL = (
    "pip install -c constraints.txt -e '.[browser,webarena]' && "
    "pip install --no-deps -c constraints.txt libwebarena text-generation browsergym-webarena "
    "browsergym-webarenalite"
)
"""In two steps, the second without dependencies: libwebarena asks for beartype 0.12 and text-generation for
huggingface_hub below 1, which the other packages cannot have.
"""
LEFT_OUT = "todo"
"""BrowserGym's word for the address of a site that is left out."""
_TABLE = "tokenizers/punkt_tab"
_SECONDS = 10.0


class Want(NamedTuple):
    """Something that WebArena lacks; `stops` if no task can be played without it."""

    found: str
    next_step: str
    stops: bool = True


def lacking(*, ask: bool = True) -> list[Want]:
    """All that is missing, what stops everything first. `ask` also knocks at each site, which may take some
    seconds.
    """
    absent = [name for name in (*PACKAGES, "text_generation") if not _installed(name)]
    if absent:
        return [Want(f"not installed: {', '.join(absent)}", INSTALL)]
    unset = [f"WA_{site}" for site in SITES if not os.environ.get(f"WA_{site}")]
    if unset:
        exports = " ".join(f"{name}=http://HOST:PORT" for name in unset)
        return [Want(f"not set: {', '.join(unset)}", f"export {exports}")]
    strange = [
        f"WA_{site}"
        for site in SITES
        if os.environ[f"WA_{site}"] != LEFT_OUT and not _host(os.environ[f"WA_{site}"])
    ]
    if strange:
        return [
            Want(
                f"no address of a site: {', '.join(strange)}",
                f"export {strange[0]}=http://HOST:PORT, or {LEFT_OUT} to leave it out",
            )
        ]
    silent = [
        f"WA_{site} ({os.environ[f'WA_{site}']})"
        for site in SITES
        if ask and not _answers(os.environ[f"WA_{site}"])
    ]
    found = (
        [Want(f"no answer from {', '.join(silent)}", "start those sites, or mend their addresses")]
        if silent
        else []
    )
    return found + _for_evaluators()


def _for_evaluators() -> list[Want]:
    """What only some evaluators need: without it their episodes fail by infrastructure."""
    found = []
    if not any((Path(folder) / _TABLE).is_dir() for folder in _word_folders()):
        cure = "python -m nltk.downloader punkt_tab"
        found.append(
            Want(
                "NLTK has no table punkt_tab, by which evaluators split answers into words", cure, stops=False
            )
        )
    if not os.environ.get("OPENAI_API_KEY"):
        cure = "export OPENAI_API_KEY=... if those tasks are played"
        found.append(
            Want("no OPENAI_API_KEY, with which `fuzzy_match` tasks ask a language model", cure, stops=False)
        )
    return found


def _word_folders() -> list[str]:
    import nltk

    return list(nltk.data.path)


def require_for_web(benchmark: str) -> None:
    """Raise EnvironmentFailure if the packages or variables without which no task can be opened are
    missing.
    """
    stopping = [want for want in lacking(ask=False) if want.stops]
    if stopping:
        raise EnvironmentFailure(
            f"{benchmark} cannot be played: {stopping[0].found}.", next_step=f"Type: {stopping[0].next_step}"
        )


def site_hosts() -> tuple[str, ...]:
    """The hosts of the sites that the WA_* variables name; a site that is left out (`todo`) has none."""
    found = (_host(os.environ.get(f"WA_{site}", "")) for site in SITES)
    return tuple(host for host in found if host)


def _host(address: str) -> str:
    """The host and port of a site's address; "" if it is none of http or https."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    return parts.netloc if parts.scheme in ("http", "https") else ""


def _answers(address: str) -> bool:
    """True if something listens where `address` points, or it is left out."""
    if address == LEFT_OUT:
        return True
    parts = urlsplit(address)
    try:
        with socket.create_connection(
            (parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)), timeout=_SECONDS
        ):
            return True
    except (OSError, ValueError):
        return False


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
