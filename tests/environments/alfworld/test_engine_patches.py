"""The patches of the engine's packages: the stripped library, the check of versions, and their removal."""

from __future__ import annotations

import ctypes
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import fast_downward.interface
import pytest

from components.environments.alfworld import engine_patches
from components.environments.alfworld.engine_patches import loadable_part, small_library_copy

WHOLE = Path(fast_downward.interface.DOWNWARD_LIB_PATH)


def in_new_process(function):
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function).result()


def library_sizes() -> tuple[int, int]:
    """Bytes of the whole library and of its loadable copy. The copy stays loaded in the process."""
    copy = Path(small_library_copy(str(WHOLE)))
    library = ctypes.CDLL(str(copy))
    library.get_applicable_operators_count.restype = int
    assert library.load_sas and library.cleanup
    return WHOLE.stat().st_size, copy.stat().st_size


def patched_objects() -> list[object]:
    import textworld.envs.pddl.logic as logic
    import textworld.envs.pddl.textgen as textgen
    from textworld.logic import Rule

    return [
        textgen._parse_and_convert,
        logic._parse_and_convert,
        vars(Rule)["parse_conjunctive_query"],
        fast_downward.pddl2sas,
        logic.fast_downward.pddl2sas,
        fast_downward.interface.DOWNWARD_LIB_PATH,
    ]


def patches_are_removed() -> tuple[list[bool], bool]:
    """Whether each object differs while the patches are installed, and whether all are the same after."""
    before = patched_objects()
    engine_patches.install_patches()
    engine_patches.install_patches()
    during = patched_objects()
    engine_patches.remove_patches()
    differs = [old is not new for old, new in zip(before, during, strict=True)]
    return differs, all(old is new for old, new in zip(before, patched_objects(), strict=True))


def test_the_stripped_library_loads_and_keeps_what_is_mapped():
    whole, small = in_new_process(library_sizes)
    assert 100_000 < small <= whole and small < 5_000_000
    data = WHOLE.read_bytes()
    part = loadable_part(data)
    assert len(part) == small and part[64:] == data[64:small] and loadable_part(part) == part


@pytest.mark.parametrize(
    "data",
    [b"", b"\x7fELF\x01\x01" + bytes(80), b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + bytes(80), b"MZ" * 90],
)
def test_a_library_of_another_format_is_left_as_it_is(data, tmp_path):
    assert loadable_part(data) == b""
    library = tmp_path / "libdownward.so"
    library.write_bytes(data)
    assert small_library_copy(str(library)) == str(library)


def test_installed_patches_are_removed_again():
    differs, are_restored = in_new_process(patches_are_removed)
    assert all(differs) and are_restored


def test_another_version_of_a_package_is_warned_of(recwarn, monkeypatch):
    engine_patches.warn_about_other_versions()
    assert not recwarn.list, "the constraints install the versions that the patches were written for"
    monkeypatch.setitem(engine_patches.WRITTEN_FOR, "textworld", "1.6.0")
    with pytest.warns(RuntimeWarning, match=r"textworld 1\.7\.0 is installed.*written for 1\.6\.0.*pip"):
        engine_patches.warn_about_other_versions()
