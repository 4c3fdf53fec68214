"""Two real vLLM servers on the CPU behind the engine's interface: adapters, prefixes, a lost replica."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from ports import free_port
from vllm_models import NEEDS_VLLM, VOCABULARY, make_model, make_prompts, perturb, require_numbers_of
from vllm_servers import ADAPTERS, running, served, stop

from components.config import LoraConfig, load_config
from components.errors import ConfigError, TrainingError
from components.language.adapters import add_lora
from components.language.engines.open_engine import open_engine
from components.language.engines.vllm.weight_transfer import WeightTransfer

pytestmark = NEEDS_VLLM
LORA = LoraConfig(rank=4, targets="all-linear")


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Two replicas of one base model; killed at the end, with all that they started."""
    with running(make_model(), tmp_path_factory.mktemp("served"), [ADAPTERS, ADAPTERS]) as started:
        yield started


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


def test_all_weights_to_a_server_that_takes_none_name_its_flags(servers):
    transfer = WeightTransfer(served(servers.urls), "policy")
    with pytest.raises(TrainingError, match="refuses /init_weight_transfer_engine.*--weight-transfer-config"):
        transfer.send(make_model(seed=9), servers.urls, "new")
    model = make_model().requires_grad_(False)
    require_numbers_of(model, open_engine(model, VOCABULARY, served(servers.urls), 0))


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

    servers.start_again(0)
    engine = open_engine(model, VOCABULARY, served(servers.urls), 2)
    assert replicas.lost == [] and set(replicas.alive) == set(servers.urls)
    assert engine.host._name in {
        entry["id"] for entry in httpx.get(servers.urls[0] + "/v1/models").json()["data"]
    }, "with the adapters in use"
    require_numbers_of(model, engine)
    assert {replicas._replica_of(affinity) for affinity in range(50)} == set(servers.urls)
