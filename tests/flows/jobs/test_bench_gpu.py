"""`dreamgym bench gpu` with a tiny model on the CPU: every measurement runs, with the real vLLM and TRL."""

import json
from pathlib import Path

from typer.testing import CliRunner
from vllm_models import NEEDS_VLLM

from flows.cli import app as cli
from flows.jobs.bench.gpu.device import attempt
from flows.jobs.bench.gpu.shapes import QWEN, SHAPES, SMOLLM2
from flows.jobs.bench.gpu.targets import verdicts

FIGURES = {
    "matmul_tflops",
    "equality/loss_gap",
    "equality/logprob_gap",
    "training/tiny/tokens_per_second",
    "training/tiny/share_of_matmul",
    "training/tiny/memory_gb",
    "trl/tiny/tokens_per_second",
    "trl/tiny/memory_gb",
    "trl_packed/tiny/tokens_per_second",
    "trl_packed/tiny/memory_gb",
    "rl/tiny/tokens_per_second",
    "rl/tiny/memory_gb",
    "rl_trl/tiny/tokens_per_second",
    "rl_trl/tiny/memory_gb",
    "vllm/tiny/start_seconds",
    "vllm/tiny/tokens_per_second",
    "raw_vllm/tiny/tokens_per_second",
    "vllm_mixed/tiny/tokens_per_second",
    "vllm_mixed_lockstep/tiny/tokens_per_second",
    "vllm/tiny/sync_seconds",
    "vllm/tiny/sync_gap",
    "kept_cache/tiny/tokens_per_second",
    "seconds",
}


@NEEDS_VLLM
def test_every_figure_is_measured_on_a_cpu_with_a_tiny_model(quiet_process, tmp_path):
    file = tmp_path / "gpu.json"
    done = CliRunner().invoke(
        cli.app, ["bench", "gpu", "--tiny", "--json", str(file), "vllm.cache_gb=0.1", "device=cpu"]
    )
    assert done.exit_code == 0, done.output
    result = json.loads(file.read_text())
    assert result["failures"] == {}
    assert set(result["figures"]) == FIGURES
    assert result["figures"]["equality/loss_gap"] == 0 and result["figures"]["vllm/tiny/sync_gap"] < 1e-3
    met = {row["figure"]: row["met"] for row in result["targets"]}
    assert met["training/tiny/mfu"] is None, "a CPU has no data sheet"
    assert {type(met[f"{name}/tiny/tokens_per_second"]) for name in ("training", "rl", "vllm")} == {bool}
    assert result["versions"]["torch"] and result["hardware"]["compute"] == "cpu, fp32"


def test_a_measurement_that_fails_is_recorded():
    assert attempt(lambda: 1 / 0) == ({}, "ZeroDivisionError: division by zero")


def test_the_shapes_have_the_sizes_of_their_names():
    import torch

    sizes = {}
    for shape in SHAPES:
        with torch.device("meta"):
            from transformers import AutoModelForCausalLM

            sizes[shape.name] = AutoModelForCausalLM.from_config(shape.config).num_parameters()
    assert sizes[SMOLLM2.name] == 134_515_008
    assert round(sizes[QWEN.name] / 1e9, 2) == 1.54


def test_large_shapes_are_not_measured_on_a_cpu(quiet_process):
    done = CliRunner().invoke(cli.app, ["bench", "gpu", "device=cpu"])
    assert done.exit_code == 2 and "The device is cpu." in done.output
    assert "dreamgym bench gpu device=cuda" in " ".join(done.output.split())


def test_targets_compare_with_the_fastest_contestant_and_say_what_was_not_measured():
    figures = {
        "training/1.5b/mfu": 0.41,
        "training/1.5b/tokens_per_second": 100.0,
        "trl/1.5b/tokens_per_second": 80.0,
        "trl_packed/1.5b/tokens_per_second": 125.0,
        "vllm/1.5b/tokens_per_second": 95.0,
        "raw_vllm/1.5b/tokens_per_second": 100.0,
    }
    found = {row["about"]: (row["value"], row["met"]) for row in verdicts(figures, ("1.5b",))}
    assert found == {
        "1.5b: MFU of fine-tuning": (0.41, True),
        "1.5b: fine-tuning, times TRL's SFTTrainer": (0.8, False),
        "1.5b: RL update, times TRL's GRPOTrainer": (None, None),
        "1.5b: rollouts, times raw vLLM": (0.95, True),
    }


def test_the_make_target_asks_for_a_gpu():
    makefile = (Path(__file__).parents[3] / "Makefile").read_text()
    (command,) = [line for line in makefile.splitlines() if "bench gpu" in line]
    assert "device=cuda" in command
