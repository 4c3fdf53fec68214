"""SIGKILL of a watched process ends its children, from all threads, and no other process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid

import pytest
from marked import VARIABLE, left_after, marked

PARENT = """
import os, subprocess, sys, threading, time
from components.child_processes import watch_over_children
watch_over_children()
watch_over_children()
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
start = lambda: subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True)
thread = threading.Thread(target=start)
thread.start()
thread.join()
nested = "import subprocess as s, time; s.Popen(['sleep', '600'], start_new_session=True); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", nested], env={**os.environ, "OTHER": "1"})
time.sleep(1)
print("ready", flush=True)
sys.stdin.read()
"""
WORKER = """
import sys, time
from concurrent.futures import ProcessPoolExecutor
import multiprocessing
from components.child_processes import end_with_parent
if __name__ == "__main__":
    pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=end_with_parent)
    print(pool.submit(int, 1).result(), flush=True)
    sys.stdin.read()
"""


def start(program, mark, *arguments):
    """Start a Python program and wait for its first line."""
    command, environment = [sys.executable, *arguments, program], {**os.environ, VARIABLE: mark}
    child = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert child.stdout.readline()
    return child


@pytest.fixture
def mark():
    """A value of the variable; processes that have it at the end of the test are killed."""
    value = uuid.uuid4().hex
    yield value
    for process in marked(value):
        os.kill(process, signal.SIGKILL)


@pytest.mark.parametrize("whole_group", [False, True])
def test_after_sigkill_no_child_is_left_and_other_processes_are(mark, whole_group):
    unrelated = subprocess.Popen(["sleep", "600"], env={**os.environ, VARIABLE: mark + "-unrelated"})
    with start(PARENT, mark, "-c") as parent:
        assert len(marked(mark)) == 5, (
            "the parent, three descendants in sessions of their own, and one watcher"
        )
        (os.killpg if whole_group else os.kill)(parent.pid, signal.SIGKILL)
        parent.wait()
        assert not left_after(mark, 10)
    assert unrelated.poll() is None
    unrelated.kill()
    unrelated.wait()


def test_the_watcher_of_a_process_that_exits_by_itself_ends_no_process(mark):
    with start(PARENT, mark, "-c") as parent:
        parent.stdin.close()
        assert parent.wait(10) == 0
    assert len(marked(mark)) == 3, "the three children run on; the watcher is gone"


def test_a_worker_process_without_a_watcher_ends_with_its_parent(mark, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(WORKER)
    with start(str(program), mark) as parent:
        assert len(marked(mark)) > 1
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        assert not left_after(mark, 10)
