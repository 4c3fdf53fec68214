"""Process-wide patches of textworld and fast_downward, which make a game faster and change no answer.

- `textworld.envs.pddl.textgen._parse_and_convert`: cached, since the engine parses its grammar again for each
  game.
- `textworld.envs.pddl.logic._parse_and_convert`: cached, the same for the rules of the grammar.
- `textworld.logic.Rule.parse_conjunctive_query`: cached, since queries are parsed again at each step.
- `fast_downward.pddl2sas`: cached, since each PDDL problem is translated twice; it also restores `sys.argv`.
- `fast_downward.interface.DOWNWARD_LIB_PATH`: the path of a stripped copy, since the engine copies the
  planner's library for each game.

The stripped library: as installed it has 34 MB, of which 1.1 MB are ever loaded. 256 games at the same time
take 8.7 GB of disk with whole copies, and each takes 34 ms to copy and load instead of 3.

Only the worker processes of an environment install these patches (`workers.py`), so closing the environment
removes them with the processes. A process that lives on undoes them with `remove_patches`.
`tests/environments/alfworld/test_alfworld_engine.py` compares the answers with and without them.
"""

from __future__ import annotations

import copy
import functools
import os
import struct
import sys
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

WRITTEN_FOR = {"textworld": "1.7.0", "fast_downward_textworld": "20.6.4"}
"""Package -> the version whose private functions these patches replace."""
_LARGEST_GRAMMAR_CACHE = 20_000
_ELF64_LITTLE = b"\x7fELF\x02\x01"
_HEADER_BYTES = 64
_SEGMENT_BYTES = 56
"""Bytes of an ELF-64 file header and of a program header (System V ABI, chapters 4 and 5)."""
_restore_steps: list[Callable[[], None]] = []


def warn_about_other_versions() -> None:
    """Warn if an installed package is not of the version that the patches were written for."""
    for package, expected in WRITTEN_FOR.items():
        installed = version(package)
        if installed != expected:
            warnings.warn(
                f"{package} {installed} is installed; the patches of the ALFWorld engine were written for "
                f"{expected}. Type `pip install -c constraints.txt -e '.[alfworld]'`.",
                RuntimeWarning,
                stacklevel=2,
            )


warn_about_other_versions()


def install_patches() -> None:
    """Install all patches in this process. A second call does nothing."""
    if _restore_steps:
        return
    import fast_downward
    import textworld.envs.pddl.logic as logic
    import textworld.envs.pddl.textgen as textgen
    from textworld.logic import Rule

    library = str(fast_downward.interface.DOWNWARD_LIB_PATH)
    parse_query = Rule.parse_conjunctive_query
    _patch(textgen, "_parse_and_convert", _cached_grammar_parse(textgen._parse_and_convert))
    _patch(logic, "_parse_and_convert", functools.lru_cache(64)(logic._parse_and_convert))
    _patch(Rule, "parse_conjunctive_query", staticmethod(functools.lru_cache(4096)(parse_query)))
    translate = _cached_translation(fast_downward.pddl2sas)
    for module in (fast_downward, logic.fast_downward):
        _patch(module, "pddl2sas", translate)
    _patch(fast_downward.interface, "DOWNWARD_LIB_PATH", small_library_copy(library))


def remove_patches() -> None:
    """Put back what `install_patches` replaced. Games that are already loaded keep their library."""
    while _restore_steps:
        _restore_steps.pop()()


def _patch(owner: Any, name: str, value: object) -> None:
    original = vars(owner)[name]
    setattr(owner, name, value)
    _restore_steps.append(lambda: setattr(owner, name, original))


def _cached_grammar_parse(parse: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Return `parse` with a cache. Callers change the symbols that they get, so each gets copies."""
    results: dict[Any, list[Any]] = {}

    def cached_parse(text: str, **options: Any) -> list[Any]:
        options.pop("trace", None)
        key = (text, tuple(sorted(options.items())))
        if key not in results:
            if len(results) > _LARGEST_GRAMMAR_CACHE:
                results.clear()
            results[key] = parse(text, **options)
        return [copy.copy(symbol) for symbol in results[key]]

    return cached_parse


def _cached_translation(translate: Callable[..., Any]) -> Callable[..., Any]:
    """Return `translate` with a cache. It ignores `optimize`, and restores `sys.argv`.

    The translation with `optimize=True` serves the planner alone, which nothing here asks for.
    """
    arguments = list(sys.argv)

    @functools.lru_cache(64)
    def cached_translate(domain: str, problem: str) -> Any:
        try:
            return translate(domain, problem, verbose=False)
        finally:
            sys.argv = list(arguments)

    return lambda domain, problem, **_: cached_translate(domain, problem)


def small_library_copy(library: str) -> str:
    """Return the path of a stripped copy of `library` in memory.

    Only this process sees the copy, and it goes with the process. The result is `library` itself where there
    can be no copy.
    """
    data = loadable_part(Path(library).read_bytes()) if sys.platform == "linux" else b""
    if not data:
        return library
    descriptor = os.memfd_create("libdownward.so")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    return f"/proc/self/fd/{descriptor}"


def loadable_part(data: bytes) -> bytes:
    """Return the part of a shared object that is mapped when it is loaded.

    Empty if `data` is no little-endian ELF-64. The segments come first in the file; the section headers
    behind them, which only linkers and debuggers read, are cut off.
    """
    if data[: len(_ELF64_LITTLE)] != _ELF64_LITTLE or len(data) < _HEADER_BYTES:
        return b""
    (start,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    if size != _SEGMENT_BYTES or not count or start + size * count > len(data):
        return b""
    ends = [
        sum(struct.unpack_from("<Q", data, start + size * number + field)[0] for field in (8, 32))
        for number in range(count)
    ]
    kept = bytearray(data[: max(start + size * count, *ends)])
    struct.pack_into("<Q", kept, 40, 0)
    struct.pack_into("<HH", kept, 60, 0, 0)
    return bytes(kept)
