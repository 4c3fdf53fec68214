"""Check what WebArena needs besides a browser: packages, site addresses, a word table, a judge's key.

Its packages are not imported here, since they fetch data on import.
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
"""Two steps, the second without dependencies: libwebarena requires beartype 0.12 and text-generation
huggingface_hub below 1, which conflict with the other packages.
"""
LEFT_OUT = "todo"
"""BrowserGym's word for the address of a site that is left out."""
_WORD_TABLE = "tokenizers/punkt_tab"
_CONNECT_SECONDS = 10.0


class MissingRequirement(NamedTuple):
    """Something that WebArena needs and lacks. `stops` is True if no task can be played without it."""

    found: str
    next_step: str
    stops: bool = True


def find_missing_requirements(*, ask: bool = True) -> list[MissingRequirement]:
    """Return all that is missing, first what stops every task.

    Args:
        ask: also connect to each site, which may take some seconds.
    """
    absent = [name for name in (*PACKAGES, "text_generation") if not _installed(name)]
    if absent:
        return [MissingRequirement(f"not installed: {', '.join(absent)}", INSTALL)]
    unset = [f"WA_{site}" for site in SITES if not os.environ.get(f"WA_{site}")]
    if unset:
        exports = " ".join(f"{name}=http://HOST:PORT" for name in unset)
        return [MissingRequirement(f"not set: {', '.join(unset)}", f"export {exports}")]
    invalid = [
        f"WA_{site}"
        for site in SITES
        if os.environ[f"WA_{site}"] != LEFT_OUT and not _host(os.environ[f"WA_{site}"])
    ]
    if invalid:
        return [
            MissingRequirement(
                f"no address of a site: {', '.join(invalid)}",
                f"export {invalid[0]}=http://HOST:PORT, or {LEFT_OUT} to leave it out",
            )
        ]
    silent = [
        f"WA_{site} ({os.environ[f'WA_{site}']})"
        for site in SITES
        if ask and not _answers(os.environ[f"WA_{site}"])
    ]
    missing_sites = (
        [
            MissingRequirement(
                f"no answer from {', '.join(silent)}", "start those sites, or correct their addresses"
            )
        ]
        if silent
        else []
    )
    return missing_sites + _missing_for_evaluators()


def _missing_for_evaluators() -> list[MissingRequirement]:
    """Return what only some evaluators lack. Without it their episodes fail as infrastructure failures."""
    missing = []
    if not any((Path(folder) / _WORD_TABLE).is_dir() for folder in _word_folders()):
        missing.append(
            MissingRequirement(
                "NLTK has no table punkt_tab, by which evaluators split answers into words",
                "python -m nltk.downloader punkt_tab",
                stops=False,
            )
        )
    if not os.environ.get("OPENAI_API_KEY"):
        missing.append(
            MissingRequirement(
                "no OPENAI_API_KEY, with which `fuzzy_match` tasks ask a language model",
                "export OPENAI_API_KEY=... if those tasks are played",
                stops=False,
            )
        )
    return missing


def _word_folders() -> list[str]:
    import nltk

    return list(nltk.data.path)


def require_for_web(benchmark: str) -> None:
    """Raise EnvironmentFailure if packages or variables are missing that every task needs."""
    stopping = [requirement for requirement in find_missing_requirements(ask=False) if requirement.stops]
    if stopping:
        raise EnvironmentFailure(
            f"{benchmark} cannot be played: {stopping[0].found}.", next_step=f"Type: {stopping[0].next_step}"
        )


def site_hosts() -> tuple[str, ...]:
    """Return the hosts of the sites that the WA_* variables name. A left-out site (`todo`) has none."""
    hosts = (_host(os.environ.get(f"WA_{site}", "")) for site in SITES)
    return tuple(host for host in hosts if host)


def _host(address: str) -> str:
    """Return the host and port of a site's address; "" if it is not an http or https address."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    return parts.netloc if parts.scheme in ("http", "https") else ""


def _answers(address: str) -> bool:
    """Return whether something listens at `address`, or the site is left out."""
    if address == LEFT_OUT:
        return True
    parts = urlsplit(address)
    try:
        with socket.create_connection(
            (parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)),
            timeout=_CONNECT_SECONDS,
        ):
            return True
    except (OSError, ValueError):
        return False


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
