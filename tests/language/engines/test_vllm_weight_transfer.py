"""All weights of both models of a run to real vLLM servers on the CPU, by vLLM's weight transfer."""

import multiprocessing

import pytest
from vllm_models import NEEDS_VLLM, VOCABULARY, make_model, perturb, require_numbers_of
from vllm_servers import running, served, stop

from components.config import LoraConfig
from components.errors import ConfigError, TrainingError
from components.language.adapters import add_lora
from components.language.engines.open_engine import open_engine
from components.language.engines.vllm.weight_transfer import WeightTransfer

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


def test_a_role_without_servers_names_the_command(servers):
    with pytest.raises(
        ConfigError, match="None of the servers .* serves the policy.*--served-model-name policy"
    ):
        open_engine(trained(2), VOCABULARY, served(servers.urls[2:]), 0, "policy")


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
