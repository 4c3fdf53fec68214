"""`dreamgym bench gpu` with a tiny model on the CPU: every measurement runs, with the real vLLM and TRL."""

import json

from typer.testing import CliRunner
from vllm_models import NEEDS_VLLM

from flows.cli import app as cli
from flows.jobs.bench.gpu_device import attempt
from flows.jobs.bench.gpu_shapes import QWEN, SHAPES, SMOLLM2

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
