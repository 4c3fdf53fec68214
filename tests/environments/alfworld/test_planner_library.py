"""The planner's library without its debugging symbols is loaded like the whole one; what is no such library
is left as it is.
"""

from __future__ import annotations

import ctypes
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import fast_downward.interface
import pytest

from components.environments.alfworld.planner_library import loadable, small_copy

WHOLE = Path(fast_downward.interface.DOWNWARD_LIB_PATH)


def sizes() -> tuple[int, int]:
    """Bytes of the whole library and of the copy, which answers. In a process of its own: it stays loaded."""
    copy = Path(small_copy(str(WHOLE)))
    library = ctypes.CDLL(str(copy))
    library.get_applicable_operators_count.restype = int
    assert library.load_sas and library.cleanup
    return WHOLE.stat().st_size, copy.stat().st_size


def test_what_is_mapped_is_kept_and_loads():
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        whole, small = pool.submit(sizes).result()
    assert 100_000 < small <= whole and small < 5_000_000
    data = WHOLE.read_bytes()
    kept = loadable(data)
    assert len(kept) == small and kept[64:] == data[64:small] and loadable(kept) == kept


@pytest.mark.parametrize(
    "data",
    [b"", b"\x7fELF\x01\x01" + bytes(80), b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + bytes(80), b"MZ" * 90],
)
def test_another_form_is_left_alone(data, tmp_path):
    assert loadable(data) == b""
    library = tmp_path / "libdownward.so"
    library.write_bytes(data)
    assert small_copy(str(library)) == str(library)
