"""All weights of both models of a run to real vLLM servers on the CPU, by vLLM's weight transfer."""

import multiprocessing
import socket
from types import SimpleNamespace

import httpx
import pytest
from vllm_models import NEEDS_VLLM, VOCABULARY, make_model, perturb, require_numbers_of
from vllm_servers import running, served, stop

from components.config import LoraConfig
from components.errors import ConfigError, TrainingError
from components.language.adapters import add_lora
from components.language.engines.open_engine import open_engine
from components.language.engines.vllm.weight_transfer import WeightTransfer, own_address

pytestmark = NEEDS_VLLM
GLOO = ("--weight-transfer-config", '{"backend": "gloo"}')
POLICY = ("--served-model-name", "policy", *GLOO)
DREAM = ("--served-model-name", "experience-model", *GLOO)


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Two servers of the policy and one of the experience model, all with the same weights at first."""
    with running(make_model(), tmp_path_factory.mktemp("sent"), [POLICY, POLICY, DREAM]) as started:
        yield started


def trained(seed):
    return make_model(seed=seed)


def test_each_model_reaches_its_own_servers_after_every_update(servers):
    policy, dream = trained(2), trained(3)
    for _ in range(2):
        for model, role in ((policy, "policy"), (dream, "experience-model")):
            perturb(model, 0.1)
            engine = open_engine(model, VOCABULARY, served(servers.urls), 0, role)
            require_numbers_of(model, engine)
    host = open_engine(policy, VOCABULARY, served(servers.urls), 0, "policy").host
    assert host._replicas.alive == servers.urls[:2] and host.syncs == 2, "nothing is sent twice"
    assert host.gap < 1e-3


def test_adapters_with_rows_of_the_embeddings_are_merged_and_sent(servers):
    model = add_lora(make_model(seed=4), LoraConfig(rank=4, targets="all-linear"), added=[20, 21], seed=1)
    perturb(model, 0.1)
    require_numbers_of(model, open_engine(model, VOCABULARY, served(servers.urls), 0, "policy"))


def test_two_policies_on_the_same_servers_are_not_mixed_up(servers):
    first, second = trained(6), trained(7)
    engine = open_engine(first, VOCABULARY, served(servers.urls), 0, "policy")
    other = open_engine(second, VOCABULARY, served(servers.urls), 0, "policy")
    require_numbers_of(second, other)
    with pytest.raises(TrainingError, match="servers of the policy hold the weights of another model"):
        require_numbers_of(first, engine)
    require_numbers_of(first, open_engine(first, VOCABULARY, served(servers.urls), 0, "policy"))


def test_a_server_that_is_lost_and_started_again_gets_the_weights_in_use(servers):
    model = trained(8)
    engine = open_engine(model, VOCABULARY, served(servers.urls[:2]), 0, "policy")
    stop(servers.processes[1])
    require_numbers_of(model, engine)
    perturb(model, 0.1)
    require_numbers_of(model, open_engine(model, VOCABULARY, served(servers.urls[:2]), 0, "policy"))
    servers.start_again(1)
    engine = open_engine(model, VOCABULARY, served(servers.urls[:2]), 0, "policy")
    assert set(engine.host._replicas.alive) == set(servers.urls[:2])
    require_numbers_of(model, engine)
    perturb(model, 0.1)
    require_numbers_of(model, open_engine(model, VOCABULARY, served(servers.urls[:2]), 0, "policy"))


def test_a_server_that_tells_other_weights_than_it_was_sent_gets_them_again(servers):
    """As one does that was started again while nothing was asked of it; a real start takes minutes."""
    model = trained(9)
    host = open_engine(model, VOCABULARY, served(servers.urls[:2]), 0, "policy").host
    syncs = host.syncs
    told = httpx.post(servers.urls[0] + "/update_weight_version", json={"new_version": "default"})
    assert told.status_code == 200
    engine = open_engine(model, VOCABULARY, served(servers.urls[:2]), 0, "policy")
    assert engine.host is host and host.syncs == syncs and set(host._replicas.alive) == set(servers.urls[:2])
    versions = {httpx.get(url + "/weight_info").json()["weight_version"] for url in servers.urls[:2]}
    assert versions == {host._digest}
    require_numbers_of(model, engine)


def test_a_role_without_servers_names_the_command(servers):
    with pytest.raises(
        ConfigError, match="None of the servers .* serves the policy.*--served-model-name policy"
    ):
        open_engine(trained(2), VOCABULARY, served(servers.urls[2:]), 0, "policy")


def test_servers_on_other_machines_meet_at_an_address_that_they_reach(monkeypatch):
    """No second machine is at hand, so the connection is made up."""
    ways = {("localhost", 8001): "127.0.0.1", ("10.0.0.4", 443): "10.0.0.9"}

    class Connection:
        def __init__(self, place, timeout):
            self.address = ways[place]

        def __enter__(self):
            return SimpleNamespace(getsockname=lambda: (self.address, 1))

        def __exit__(self, *_):
            pass

    class Socket(Connection):
        def __init__(self, family):
            self.address = "10.0.0.9"

        def __enter__(self):
            return SimpleNamespace(bind=lambda place: None, getsockname=lambda: (self.address, 29500))

    monkeypatch.setattr(socket, "create_connection", Connection)
    monkeypatch.setattr(socket, "socket", Socket)
    assert own_address(["http://localhost:8001", "https://10.0.0.4"]) == ("10.0.0.9", 29500)


def send_from_a_worker(urls, answers):
    try:
        WeightTransfer(served(urls), "policy")
    except ConfigError as error:
        answers.put(str(error))


def test_worker_processes_do_not_send():
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=send_from_a_worker, args=(["http://127.0.0.1:1"], answers))
    process.start()
    assert "rl.dream.processes=1" in answers.get(timeout=120)
    process.join()
