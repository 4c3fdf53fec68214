"""The ladder: where it ends, and that it asks for what the documents promise."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
import torch
from rich.console import Console

from components.config import load_config
from flows import doctor
from flows.output import Output

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("name", "words"), [("", "is not the top of a git repository"), ("typo", "there is no directory")])
def test_without_a_repository_it_ends_at_git_and_makes_nothing(tmp_path, name, words):
    printed = io.StringIO()
    assert not doctor.climb(load_config(), tmp_path / name, Output(Console(file=printed, width=400)))
    lines = [line for line in printed.getvalue().splitlines() if re.match("ok|doubt|wrong", line)]
    assert "wrong git: " in lines[-1] and "not the top of a git repository" in lines[-1]
    assert any(words in line for line in lines)
    assert not list(tmp_path.iterdir())


def test_memory_is_what_the_documents_promise():
    promised = doctor._FREE_MEMORY_BYTES // 1_000_000_000
    assert f"{promised} GB of memory" in (ROOT / "configs" / "quick.yaml").read_text().splitlines()[0]
    assert f"{promised} GB of free memory" in (ROOT / "README.md").read_text()


def test_the_device_and_its_precision_are_told():
    rung = doctor.check_device(load_config(None, ["device=cpu"]), ROOT)
    assert (rung.state, rung.found) == ("ok", "cpu, fp32")
    assert list(doctor.LADDER).index("device") < list(doctor.LADDER).index("backbone")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_wrong_and_said(tmp_path):
    printed = io.StringIO()
    doctor.climb(load_config(None, ["device=cuda"]), tmp_path, Output(Console(file=printed, width=400)))
    assert re.search(r"wrong device: device is cuda, and torch .* finds no CUDA device.*\n +next: Set device=auto", printed.getvalue())
