"""`dreamgym doctor`: where its checks stop, and that they ask for what the documents say."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console

from components.config import load_config
from components.trajectories.dvc.dvc_cache import default_remote
from flows.checks import doctor, doctor_machine
from flows.printing.output import Output

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("name", "words"), [("", "is not the top of a git repository"), ("typo", "There is no directory")]
)
def test_without_a_repository_it_stops_at_git_and_creates_nothing(tmp_path, name, words):
    printed = io.StringIO()
    assert not doctor.run_checks(load_config(), tmp_path / name, Output(Console(file=printed, width=400)))
    lines = [line for line in printed.getvalue().splitlines() if re.match("ok|doubt|wrong", line)]
    assert "wrong git: " in lines[-1] and "not the top of a git repository" in lines[-1]
    assert any(words in line for line in lines)
    assert not list(tmp_path.iterdir())


def test_every_result_is_full_sentences_and_names_what_was_expected(tmp_path, monkeypatch):
    """In an empty directory, with missing tools and used ports; what stops a run also says what to type."""
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)  # importing alfworld sets it
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(doctor_machine, "port_is_free", lambda port: port not in (5000, 5001))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    page = Output(Console(file=io.StringIO()))
    options = ["environment.games=official", "threads=512", "backbone.path=nowhere"]
    for name in (
        "build tools",
        "official games",
        "disk and memory",
        "cores",
        "git",
        "files",
        "data",
        "backbone",
        "ports",
    ):
        rung = doctor.run_check(doctor.SETUP_CHECKS[name], load_config(None, options), tmp_path)
        doctor.print_check(page, name, rung.state, rung.found, rung.next_step, rung.expected)
    results = {result["name"]: result for result in page.data["checks"]}
    for result in results.values():
        parts = (
            [result["found"]]
            if result["state"] == "ok"
            else [result["found"], result["expected"], result["next"]]
        )
        assert all(parts), result
        assert result["found"].endswith(".") and result["expected"].endswith(".") == (
            result["state"] != "ok"
        ), result
    assert results["build tools"]["expected"] == "Expected gcc, g++, make and cmake."
    assert results["official games"]["found"] == "ALFWORLD_DATA is not set."
    assert re.fullmatch("Type: dreamgym retrain threads=[0-9]+", results["cores"]["next"])
    assert results["ports"]["next"] == "Type: dreamgym ui --mlflow-port 5002"
    assert [results[name]["state"] for name in ("git", "data", "backbone", "ports")] == [
        "wrong",
        "wrong",
        "wrong",
        "doubt",
    ]


def test_an_old_setting_that_hides_the_default_remote_is_named_with_the_command_that_removes_it(tmp_path):
    """Real DVC: the default remote of the user takes effect only after the command."""

    def run(*words):
        subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, check=True, capture_output=True)

    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    run("dvc", "init", "-q")
    run("dvc", "remote", "add", "--local", "local", "old")
    run("dvc", "config", "--local", "core.remote", "local")
    run("dvc", "remote", "add", "-d", "team", "store")
    assert default_remote(tmp_path) == "local"
    rung = doctor.check_remote(load_config(), tmp_path)
    assert (
        rung.state == "doubt"
        and f"{tmp_path / '.dvc' / 'config.local'} sets core.remote = local" in rung.found
    )
    command = rung.next_step.removeprefix("Type: ")
    run(*command.split())
    assert default_remote(tmp_path) == "team"
    rung = doctor.check_remote(load_config(), tmp_path)
    assert (rung.state, rung.found) == ("ok", "New versions of data/ are pushed to the remote team.")


def test_required_memory_is_the_documented_one():
    promised = doctor_machine.MIN_FREE_MEMORY_BYTES // 1_000_000_000
    assert f"{promised} GB of memory" in (ROOT / "configs" / "quick.yaml").read_text().splitlines()[0]
    assert f"{promised} GB of free memory" in (ROOT / "README.md").read_text()


def test_the_device_its_precision_and_the_engine_are_printed():
    rung = doctor.check_device(load_config(None, ["device=cpu"]), ROOT)
    assert rung.state == "ok"
    assert re.fullmatch(
        r"Models compute on cpu, fp32; engine is auto, (vLLM is not|vllm(-cpu)? [0-9.]+ is) installed\.",
        rung.found,
    )
    assert list(doctor.SETUP_CHECKS).index("device") < list(doctor.SETUP_CHECKS).index("backbone")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_reported_as_wrong(tmp_path):
    printed = io.StringIO()
    doctor.run_checks(load_config(None, ["device=cuda"]), tmp_path, Output(Console(file=printed, width=400)))
    assert re.search(
        r"wrong device: device is cuda, and torch .* finds no CUDA device.*\n +next: Set device=auto",
        printed.getvalue(),
    )
