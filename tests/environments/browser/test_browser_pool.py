"""Rows and processes when browsers die, hang, or lose their owner. Real processes are really killed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import psutil
import pytest
from real_browser import settings

from components.environments.browser.engine.messages import Fork
from components.environments.browser.engine.pool import Browsers
from components.environments.browser.engine.processes import (
    FOLDER_PREFIX,
    OWNER_VARIABLE,
    remove_abandoned_folders,
    started_by,
)
from components.environments.browser.states import read_state

BUTTONS = {"task": "miniwob.click-button", "seed": 3}


def folders(browsers) -> list[Path]:
    """Return the folders of the running workers."""
    return [worker.folder for worker in browsers._workers if worker]


def chromium_of(folder) -> psutil.Process:
    """Return the browser itself: the process that is no renderer, zygote or helper."""
    return next(
        process
        for process in started_by(folder)
        if not any(part.startswith("--type=") for part in process.cmdline()[1:]) and _is_browser(process)
    )


def _is_browser(process) -> bool:
    return "chrom" in process.name()


def left_after(folder, seconds=20.0) -> list[str]:
    """Return the processes of a worker that do not end in time."""
    deadline = time.monotonic() + seconds
    while (still := started_by(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return [f"{process.pid} {process.name()}" for process in still]


def test_closing_leaves_no_process_and_no_file():
    browsers = Browsers(settings(size=2))
    browsers.load({0: BUTTONS, 1: BUTTONS})
    worker_folders, workers = folders(browsers), browsers.processes()
    assert len(worker_folders) == 2
    for folder in worker_folders:
        kinds = {
            part for process in started_by(folder) for part in process.cmdline() if part.startswith("--type=")
        }
        assert {"--type=renderer", "--type=gpu-process", "--type=utility"} <= kinds
    browsers.close()
    browsers.close()
    assert not any(started_by(folder) or folder.exists() for folder in worker_folders)
    assert not any(psutil.pid_exists(worker) for worker in workers)


def test_a_killed_browser_fails_its_rows_and_the_next_episode_has_a_new_one():
    browsers = Browsers(settings(size=2))
    try:
        observation = browsers.load(dict.fromkeys(range(4), BUTTONS))
        chromium_of(folders(browsers)[0]).kill()
        answers = browsers.step(dict.fromkeys(range(4), f"click [{read_state(observation[0].state).ids[0]}]"))
        assert [isinstance(answers[row], str) for row in range(4)] == [True, True, False, False]
        assert "The page died" in answers[0] or "Error" in answers[0]
        assert browsers.load(dict.fromkeys(range(4), BUTTONS)) == observation
    finally:
        browsers.close()


def test_an_alternative_that_fails_costs_its_row_nothing(browsers):
    observation = browsers.load({0: BUTTONS})[0]
    answer = browsers.probe(
        {0: Fork({"task": "miniwob.no-such-task", "seed": 0}, (), observation.state, ("click [1]",))}
    )[0]
    assert isinstance(answer, str) and "no task 'miniwob.no-such-task'" in answer
    assert browsers.step({0: "click [9999]"})[0].state == f"Failed: no such element.\n{observation.state}"


def test_an_alternative_is_not_tried_in_another_state(browsers, page):
    """A page that changes by itself cannot be replayed, so an alternative would be tried in another state."""
    restless = page("<p id=p></p><button>Go</button><script>p.textContent = Date.now()</script>")
    button = read_state(browsers.load({0: restless})[0].state).ids[0]
    state = browsers.step({0: f"click [{button}]"})[0].state
    answer = browsers.probe({0: Fork(restless, (f"click [{button}]",), state, (f"click [{button}]",))})[0]
    assert isinstance(answer, str) and "ReplayDiverged: the replayed episode shows" in answer


def test_probes_count_as_loads_of_a_browser(browsers):
    observation = browsers.load({0: BUTTONS})[0]
    before = browsers._workers[0].loads
    browsers.probe({0: Fork(BUTTONS, (), observation.state, ("click [1]",) * 3)})
    assert browsers._workers[0].loads == before + 3


def test_a_long_replay_is_no_timeout(page):
    """The timeout is for one step, not for the whole replay."""
    browsers = Browsers(settings(page_seconds=1.5, action_seconds=0.5))
    slow = page("<button onclick='setTimeout(() => document.body.append(1), 900)'>Wait</button>")
    try:
        click = f"click {browsers.load({0: slow})[0].state.split()[0]}"
        state = [browsers.step({0: click})[0].state for _ in range(5)][-1]
        began = time.monotonic()
        results = browsers.probe({0: Fork(slow, (click,) * 5, state, (click,))})[0]
        assert time.monotonic() - began > 4.0 + 0.5 and not browsers.replaced, "longer than its patience"
        assert "111111" in results[0].state.replace(" ", "").replace("text:", "").replace("\n", "")
    finally:
        browsers.close()


@pytest.mark.parametrize("is_joined", [False, True], ids=["just-killed", "joined"])
def test_a_killed_worker_ends_with_all_its_processes_and_is_replaced(is_joined):
    """The pipe of a worker that was just killed may still take a message; that of one that has ended does
    not.
    """
    browsers = Browsers(settings())
    try:
        observation, folder = browsers.load({0: BUTTONS}), folders(browsers)[0]
        os.kill(browsers.processes()[0], signal.SIGKILL)
        if is_joined:
            browsers._workers[0].process.join()
        answer = browsers.step({0: "click [13]"})[0]
        assert isinstance(answer, str) and "process ended" in answer and browsers.replaced == 1
        assert not started_by(folder) and not folder.exists()
        assert browsers.load({0: BUTTONS}) == observation
    finally:
        browsers.close()


def test_a_hanging_browser_is_given_up_and_the_others_continue(page):
    browsers = Browsers(settings(size=2, page_seconds=3.0, action_seconds=1.0))
    hang = page("<button onclick='for (;;) ;'>Hang</button>")
    try:
        state = browsers.load({0: hang, 1: BUTTONS})[0].state
        folders_before = folders(browsers)
        began = time.monotonic()
        answers = browsers.step({0: f"click {state.split()[0]}", 1: "click [99]"})
        assert isinstance(answers[0], str) and ("did not answer" in answers[0] or "Timeout" in answers[0])
        assert answers[1].state.startswith("Failed: no such element.")
        assert time.monotonic() - began < 30 and not (browsers.replaced and started_by(folders_before[0]))
        assert browsers.load({0: BUTTONS})[0].state
    finally:
        browsers.close()


def test_a_suspended_browser_is_killed_too():
    browsers = Browsers(settings(page_seconds=2.0, action_seconds=1.0))
    browsers.load({0: BUTTONS})
    folder = folders(browsers)[0]
    chromium_of(folder).suspend()
    browsers.close()
    assert not left_after(folder, 2) and not folder.exists()


def test_a_page_that_never_loads_fails_its_row_alone():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        browsers = Browsers(settings(page_seconds=2.0))
        try:
            address = f"http://127.0.0.1:{silent.getsockname()[1]}/"
            answers = browsers.load({0: {"task": "openended", "url": address, "goal": ""}, 1: BUTTONS})
            assert "Timeout" in answers[0] and answers[1].state
            assert browsers.replaced == 0
        finally:
            browsers.close()


def ends(pid, seconds):
    """Return whether the process ends within `seconds`, or becomes a zombie that nobody reaps."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.1)
    return False


@pytest.fixture
def own_temporary_folder(
    tmp_path, monkeypatch
):  # tmp_path comes first: it lies where other tests have theirs
    """A temporary folder for tests that remove abandoned folders, so that other pools' folders are safe.

    Its name is short, since Chromium's sockets lie in it.
    """
    folder = tempfile.mkdtemp(prefix="sweep-")
    monkeypatch.setenv("TMPDIR", folder)
    monkeypatch.setattr(tempfile, "tempdir", folder)
    yield
    shutil.rmtree(folder)


@pytest.mark.usefixtures("own_temporary_folder")
def test_nothing_outlives_an_owner_that_is_killed(tmp_path):
    script = tmp_path / "owner.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import sys, time
            sys.path[:0] = {sys.path!r}
            from components.environments.browser.engine.pool import Browsers
            from real_browser import settings
            if __name__ == "__main__":
                browsers = Browsers(settings())
                browsers.load({{0: {BUTTONS!r}}})
                print(browsers._workers[0].folder, *browsers.processes(), flush=True)
                time.sleep(600)
            """
        )
    )
    owner = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    folder, worker = owner.stdout.readline().split()
    assert len(started_by(Path(folder))) > 3
    owner.kill()
    owner.wait()
    assert not left_after(Path(folder))
    assert ends(int(worker), seconds=20)
    assert Path(folder).exists()
    remove_abandoned_folders(least_age_seconds=0)
    assert not Path(folder).exists()


def test_an_owner_that_forgets_to_close_leaves_nothing(tmp_path):
    script = tmp_path / "owner.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import sys
            sys.path[:0] = {sys.path!r}
            from components.environments.browser.engine.pool import Browsers
            from real_browser import settings
            if __name__ == "__main__":
                browsers = Browsers(settings())
                browsers.load({{0: {BUTTONS!r}}})
                print(browsers._workers[0].folder)
            """
        )
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    folder = Path(done.stdout.strip())
    assert not started_by(folder) and not folder.exists()


@pytest.mark.usefixtures("own_temporary_folder")
def test_a_folder_is_kept_before_its_browser_has_started():
    browsers = Browsers(settings())
    try:
        browsers._worker(0, "load", {0: BUTTONS})
        folder = folders(browsers)[0]
        assert not started_by(folder)
        remove_abandoned_folders(least_age_seconds=0)
        assert browsers.load({0: BUTTONS})[0].state and folders(browsers) == [folder]
    finally:
        browsers.close()
    assert not folder.exists()


@pytest.mark.usefixtures("own_temporary_folder")
def test_folders_of_running_workers_are_kept():
    folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
    process = subprocess.Popen(["sleep", "60"], env={**os.environ, OWNER_VARIABLE: str(folder)})
    try:
        until = time.monotonic() + 10
        while not psutil.Process(process.pid).environ() and time.monotonic() < until:
            time.sleep(0.01)  # the kernel shows an environment a moment after `exec` has returned
        remove_abandoned_folders(least_age_seconds=0)
        assert folder.exists()
    finally:
        process.kill()
        process.wait()
    remove_abandoned_folders(least_age_seconds=0)
    assert not folder.exists()
