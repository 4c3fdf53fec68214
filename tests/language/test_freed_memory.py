"""Freed memory is kept for the next update and returned when the process has grown."""

from __future__ import annotations

import subprocess
import sys

import pytest

from components.language import freed_memory
from components.language.freed_memory import GROWTH, LARGEST_GROWTH, KeptMemory, resident_memory

KEEP = """
import torch
from components.language.freed_memory import keep_freed_memory, release_freed_memory, resident_memory
before = resident_memory()
if {keep}:
    keep_freed_memory()
torch.zeros(2**26).fill_(1)
after = resident_memory()
release_freed_memory()
print(after - before, resident_memory() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
@pytest.mark.parametrize("keep", [True, False])
def test_a_freed_block_stays_until_it_is_released(keep):
    code = KEEP.format(keep=keep)
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    kept, released = (int(number) for number in out.split())
    assert (kept > 2**27) == keep
    assert released < 2**27


def test_memory_is_returned_when_the_process_grew_by_the_limit(monkeypatch):
    sizes = iter([GROWTH, 2 * GROWTH - 1, 2 * GROWTH + 1, GROWTH, 2 * GROWTH])
    returned = []
    monkeypatch.setattr(freed_memory, "resident_memory", lambda: next(sizes))
    monkeypatch.setattr(freed_memory, "release_freed_memory", lambda: returned.append(True))
    memory = KeptMemory()
    calls = []
    for _ in range(4):
        memory.return_if_grown()
        calls.append(len(returned))
    assert calls == [0, 0, 1, 1]


def test_memory_that_one_update_needs_is_kept(monkeypatch):
    update = 3 * GROWTH // 2
    resident = 0
    returned = []
    monkeypatch.setattr(freed_memory, "resident_memory", lambda: resident)

    def release():
        nonlocal resident
        returned.append(resident)
        resident = 0

    monkeypatch.setattr(freed_memory, "release_freed_memory", release)
    memory = KeptMemory()
    memory.return_if_grown()
    for _ in range(5):
        resident = max(resident, update)
        memory.return_if_grown()
    assert returned == [update]
    resident = LARGEST_GROWTH + 1
    memory.return_if_grown()
    assert len(returned) == 2


def test_resident_memory_is_a_number_of_bytes():
    assert resident_memory() == 0 or 2**20 < resident_memory() < 2**42
