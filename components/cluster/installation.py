"""Code and packages of this process, to compare two machines before they compute together."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from components.errors import ClusterError
from components.installed_packages import installed_packages

_ROOT = Path(__file__).resolve().parents[2]
_SHOWN = 5


@dataclass(frozen=True)
class Installation:
    """What a process computes with.

    Args:
        python: version of Python.
        code: module file of `components` and `flows` -> sha256 of its text.
        packages: installed distribution -> version.
    """

    python: str
    code: dict[str, str]
    packages: dict[str, str]


@cache
def this_installation() -> Installation:
    """Return the installation of this process."""
    code = {
        str(file.relative_to(_ROOT)): hashlib.sha256(file.read_bytes()).hexdigest()
        for package in ("components", "flows")
        for file in sorted((_ROOT / package).rglob("*.py"))
    }
    packages = {name.lower(): version for name, version in installed_packages().items()}
    return Installation(platform.python_version(), code, packages)


def require_same(expected: Installation, found: Installation, where: str) -> None:
    """Raise ClusterError if `found` would compute with something else than `expected`, naming what differs.

    Packages that only one of the two has do not count: a machine without a GPU has others.

    Args:
        where: name of the machine of `found`.
    """
    differences = []
    if expected.python.rpartition(".")[0] != found.python.rpartition(".")[0]:
        differences.append(f"Python {found.python} (here {expected.python})")
    files = sorted(
        name for name in {*expected.code, *found.code} if expected.code.get(name) != found.code.get(name)
    )
    differences += files
    differences += [
        f"{name} {found.packages[name]} (here {version})"
        for name, version in sorted(expected.packages.items())
        if found.packages.get(name, version) != version
    ]
    if differences:
        more = len(differences) - _SHOWN
        raise ClusterError(
            f"A worker on {where} has other code or packages: {', '.join(differences[:_SHOWN])}"
            + (f" and {more} more." if more > 0 else "."),
            "Expected those of this machine, since the numbers depend on them.",
            "On that machine, check out the same commit and type `make install`; then start its Ray again.",
        )
