"""SIGKILL during the main job: each resumed run ends with the numbers of the undisturbed one.

By default there is one kill. Twenty, four of them between two checkpoints of fine-tuning:

    pytest -m slow tests/flows/test_kills.py                    # all twenty, some hours on two cores
    pytest -m slow tests/flows/test_kills.py -k fine_tuning     # the four
    DREAMGYM_KILLS=5 pytest -m slow tests/flows/test_kills.py   # fewer
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time

import httpx
import pytest
import torch
from prefect_server import shared_server
from small_job import ANYHOW, SMALL, command_of, environment_of, log_of, make_clone, numbers, run

KILLS = int(os.environ.get("DREAMGYM_KILLS", "20"))
IN_FINE_TUNING = max(1, KILLS // 5)
"""How many of the kills fall between two checkpoints of fine-tuning; the others fall anywhere."""
AFTER = ("sim_to_real", "evaluate")
"""The stages that the default kill makes anew."""


@pytest.mark.timeout(900)
def test_a_run_killed_at_a_checkpoint_of_real_rl_resumes_to_the_same_numbers(finished, tmp_path):
    """It also spends no real interaction twice. Earlier stages are reused, to save time."""
    clone = make_clone(tmp_path / "clone")
    stages = clone / ".dreamgym" / "stages"
    shutil.copytree(
        finished.kept / ".dreamgym" / "stages",
        stages,
        ignore=shutil.ignore_patterns(*(f"{name}-*" for name in AFTER)),
    )
    command, environment = command_of("retrain", *SMALL, "promotion.threshold=0"), environment_of(clone)
    environment |= {"PREFECT_API_URL": shared_server()}
    with (tmp_path / "log").open("wb") as output:
        child = subprocess.Popen(
            command, cwd=clone, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            while not list(stages.glob("sim_to_real-*/checkpoint.pt")) and not list(
                stages.glob("evaluate-*")
            ):
                assert child.poll() is None, (tmp_path / "log").read_text()
                time.sleep(0.05)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    killed = json.loads((clone / "runs" / "latest" / "manifest.json").read_text())["prefect_flow_run_id"]
    code, said, _ = run(clone, verb=("resume",), small=False)
    assert code == 0 and said.count(": reused") >= 6, said
    shown = httpx.get(f"{shared_server()}/flow_runs/{killed}", timeout=30).json()
    assert shown["state_name"] == "Crashed", "Prefect knows its end"
    assert numbers(clone) == numbers(finished.kept)
    assert sorted(log_of(clone)) == sorted(log_of(finished.kept)), "no transition lost, none twice"


def make_clone_with_many_checkpoints(place):
    """A clone whose fine-tuning saves a checkpoint every two updates."""
    clone = make_clone(place)
    file = clone / "components" / "config" / "experience_model_config.py"
    code = file.read_text()
    changed = code.replace("checkpoint_every: ClassVar[int] = 200", "checkpoint_every: ClassVar[int] = 2")
    assert changed != code
    file.write_text(changed)
    subprocess.run(["git", "commit", "-qam", "Many checkpoints"], cwd=clone, check=True)
    return clone


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """An uninterrupted run: its clone, its numbers, its seconds."""
    clone = make_clone_with_many_checkpoints(tmp_path_factory.mktemp("whole") / "clone")
    code, output, seconds = run(clone, *ANYHOW, own_server=True)
    assert code == 0, output
    return numbers(clone), log_of(clone), seconds


@pytest.fixture
def killed(tmp_path):
    """A function that starts the run in a clone, waits, kills it, and returns the clone."""

    def kill(wait):
        clone = make_clone_with_many_checkpoints(tmp_path / "clone")
        command = command_of("retrain", *SMALL, *ANYHOW)
        environment = environment_of(clone)
        with (tmp_path / "log").open("wb") as output:
            child = subprocess.Popen(
                command, cwd=clone, env=environment, stdout=output, stderr=output, start_new_session=True
            )
            try:
                wait(clone, child)
            finally:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        return clone

    yield kill
    shutil.rmtree(tmp_path / "clone")


def go_on(clone, undisturbed):
    """Resume the killed run, or start it again if it had not begun; check its numbers; return its output."""
    expected, log, _ = undisturbed
    begun = (clone / "runs" / "latest" / "manifest.json").is_file()
    said = ""
    if (
        not begun
        or json.loads((clone / "runs" / "latest" / "manifest.json").read_text())["status"] != "finished"
    ):
        more = () if begun else ANYHOW
        verb = ("resume",) if begun else ("retrain",)
        code, said, _ = run(clone, *more, verb=verb, small=not begun, own_server=True)
        assert code == 0, said
    assert numbers(clone) == expected
    steps = log_of(clone)
    assert sorted(steps) == sorted(log), "no transition lost"
    assert len({step[1:3] for step in steps}) == len(steps), "none twice"
    return said


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("number", range(KILLS - IN_FINE_TUNING))
def test_a_killed_run_resumes_to_the_same_numbers(undisturbed, killed, number):
    moment = random.Random(number).uniform(1, undisturbed[2])
    go_on(killed(lambda _clone, _child: time.sleep(moment)), undisturbed)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("number", range(IN_FINE_TUNING))
def test_a_run_killed_between_two_checkpoints_of_fine_tuning_resumes_to_the_same_numbers(
    undisturbed, killed, number
):
    draw = random.Random(number)
    count, pause = draw.randint(1, 3), draw.uniform(0, 0.5)

    def wait(clone, child):
        """Wait until the checkpoint was written `count` times, and a moment longer."""
        times: set[int] = set()
        while len(times) < count:
            assert child.poll() is None
            for file in (clone / ".dreamgym" / "stages").glob("experience_model-*.partial/checkpoint.pt"):
                times.add(file.stat().st_mtime_ns)
            time.sleep(0.01)
        time.sleep(pause)

    clone = killed(wait)
    assert list((clone / ".dreamgym" / "stages").glob("experience_model-*.partial/checkpoint.pt")), (
        "in fine-tuning"
    )
    assert "from checkpoint.pt" in go_on(clone, undisturbed)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_run_killed_while_fidelity_is_measured_does_not_train_again(undisturbed, killed):
    def wait(clone, child):
        """Wait until the fine-tuned model was saved."""
        while not list((clone / ".dreamgym" / "stages").glob("experience_model-*.partial/model/*.json")):
            assert child.poll() is None
            time.sleep(0.01)

    clone = killed(wait)
    (work,) = (clone / ".dreamgym" / "stages").glob("experience_model-*.partial")
    trained = torch.load(work / "checkpoint.pt")["record"]["tokens"]
    assert trained == undisturbed[0]["experience_model/tokens"]["value"], "the whole training"
    assert "from checkpoint.pt" in go_on(clone, undisturbed)
