"""The least memory of a GPU, against sums by hand."""

from types import SimpleNamespace

import pytest

from components.config import VllmConfig, load_config
from components.errors import ConfigError
from components.language.compute import Compute
from components.language.gpu_memory import least_gpu_memory, require_gpu_memory

BILLION = 1_000_000_000
LORA = load_config(None, ["lora.rank=16"])
FULL = load_config()


def gpu(precision="bf16", engine="vllm", cache_gb=12.0):
    return Compute("cuda", precision, engine=engine, vllm=VllmConfig(cache_gb=cache_gb))


def test_adapters_on_1_5_billion_weights_with_two_caches_fit_into_40_gb():
    memory = least_gpu_memory(LORA, gpu(), 1_540_000_000, 1_540_000_000)
    assert memory.parts == {
        "policy in training": 3_080_000_000,
        "policy in generation": 15_080_000_000,
        "experience model": 15_080_000_000,
    }
    assert memory.total == 33_240_000_000 < 40 * BILLION


def test_training_all_weights_takes_sixteen_bytes_each():
    memory = least_gpu_memory(FULL, gpu("fp32", "kept-cache"), BILLION, BILLION)
    assert memory.parts == {
        "policy in training": 16 * BILLION,
        "policy in generation": 0,
        "experience model": 4 * BILLION,
    }
    assert least_gpu_memory(FULL, gpu("fp32", "kept-cache"), 0, BILLION).parts == {
        "fine-tuning": 16 * BILLION
    }


def test_servers_take_no_memory_here():
    servers = Compute("cuda", "bf16", engine="vllm-server", vllm=VllmConfig(servers=["http://localhost:1"]))
    assert least_gpu_memory(LORA, servers, BILLION, 0).total == 2 * BILLION


def test_a_run_that_cannot_fit_is_refused_with_the_numbers(monkeypatch):
    monkeypatch.setattr(
        "torch.cuda.get_device_properties", lambda device: SimpleNamespace(total_memory=24 * BILLION)
    )
    with pytest.raises(
        ConfigError,
        match="at least 33.2 GB of GPU memory .policy in training 3.1 GB.*the GPU has 24.0 GB.*vllm.cache_gb",
    ):
        require_gpu_memory(LORA, gpu(), 1_540_000_000, 1_540_000_000)
    require_gpu_memory(LORA, gpu(cache_gb=4), 1_540_000_000, 1_540_000_000)
    require_gpu_memory(LORA, Compute("cpu"), 10**12, 10**12)


def test_divided_training_takes_each_processs_part_and_the_whole_policy_beside_it(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    memory = least_gpu_memory(FULL, gpu("fp32", "kept-cache"), BILLION, BILLION)
    assert memory.parts == {
        "policy in training": 4 * BILLION,
        "policy in generation": 4 * BILLION,
        "experience model": 4 * BILLION,
    }
