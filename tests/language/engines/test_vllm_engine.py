"""vLLM behind the engine's interface, on a CPU: transformers' numbers, before and after weights change."""

import copy
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch
from vllm_models import (
    NEEDS_VLLM,
    SIZE,
    VOCABULARY,
    make_model,
    make_prompts,
    perturb,
    plain_logprobs,
    require_numbers_of,
)

from components.config import LoraConfig, VllmConfig
from components.errors import ConfigError, DataError, TrainingError
from components.language.adapters import add_lora
from components.language.compute import Compute
from components.language.engines.kept_cache import KeptCacheEngine
from components.language.engines.open_engine import open_engine
from components.language.engines.vllm.probe import SyncProbe
from components.language.sampled_ids import set_unknown_ids
from components.policy.policy import Policy

ROOT = Path(__file__).parents[3]
COMPUTE = Compute(engine="vllm", vllm=VllmConfig(cache_gb=0.1, rows=16))

pytestmark = NEEDS_VLLM


@pytest.mark.parametrize("family", ["llama", "qwen"])
@pytest.mark.parametrize("tied", [True, False])
def test_numbers_are_those_of_transformers_before_and_after_the_weights_change(family, tied):
    model = make_model(family, tied=tied)
    engine = open_engine(model, VOCABULARY, COMPUTE, 0)
    for temperature in (1.0, 0.7, 0.0):
        require_numbers_of(model, engine, temperature)
    before = copy.deepcopy(model)
    syncs = engine.host.syncs
    perturb(model)
    engine = open_engine(model, VOCABULARY, COMPUTE, 0)
    require_numbers_of(model, engine)
    prompt = make_prompts(1)[0]
    assert (plain_logprobs(before, prompt, [20]) - plain_logprobs(model, prompt, [20])).abs() > 0.01
    assert engine.host.gap < 1e-3 and engine.host.syncs == syncs + 1


def test_unchanged_weights_are_not_sent_again_and_two_models_keep_apart():
    first, second = make_model(seed=1), make_model(seed=2)
    for _ in range(2):
        engines = [open_engine(model, VOCABULARY, COMPUTE, 0) for model in (first, second)]
        for model, engine in zip((first, second), engines, strict=True):
            require_numbers_of(model, engine)
    assert engines[0].host is not engines[1].host
    syncs = engines[0].host.syncs
    assert open_engine(first, VOCABULARY, COMPUTE, 1).host.syncs == syncs


def test_a_pinned_policy_plays_with_the_weights_that_it_began_with():
    policy = Policy(make_model(), VOCABULARY, compute=COMPUTE)
    before = copy.deepcopy(policy.model)
    pinned = policy.pinned()
    perturb(policy.model)
    require_numbers_of(before, pinned.engine(3))
    require_numbers_of(policy.model, policy.engine(3))


def test_the_engine_of_a_deleted_model_serves_the_next_one():
    model = make_model(seed=3)
    host = open_engine(model, VOCABULARY, COMPUTE, 0).host
    del model
    other = make_model(seed=4)
    engine = open_engine(other, VOCABULARY, COMPUTE, 0)
    assert engine.host is host
    require_numbers_of(other, engine)


@pytest.mark.parametrize("added", [(), (17, 30)], ids=["adapters", "adapters and rows of markers"])
def test_adapters_are_used_and_their_updates_arrive(added):
    model = add_lora(make_model(), LoraConfig(rank=4, targets="all-linear"), added=added)
    perturb(model)
    require_numbers_of(model, open_engine(model, VOCABULARY, COMPUTE, 0))
    perturb(model)
    require_numbers_of(model, open_engine(model, VOCABULARY, COMPUTE, 0))


def test_greedy_rows_equal_the_kept_cache_across_rewinds_copies_and_drops():
    model = make_model(scale=10.0)
    sessions = [
        engine.open(6)
        for engine in (KeptCacheEngine(model, VOCABULARY), open_engine(model, VOCABULARY, COMPUTE, 0))
    ]
    stop = set(range(11, 60))
    for step in range(4):
        prompts = make_prompts(6, seed=step, longest=20)
        if step >= 2:
            prompts.pop(4)
        ours, theirs = (
            session.generate(prompts, stop=stop, max_new_tokens=9, temperature=0.0) for session in sessions
        )
        for row in prompts:
            assert (ours[row].tokens, ours[row].stopped) == (theirs[row].tokens, theirs[row].stopped)
        for session in sessions:
            session.rewind({1: 3})
            session.copy({2: 5})
            session.append({5: [20, 30, 40]})
            if step == 1:
                session.drop([4])
        assert sessions[0].lengths == sessions[1].lengths


def test_same_seed_same_samples_whatever_rows_are_beside():
    model = make_model(scale=1.0)
    prompts = make_prompts(4)

    def sample(engine, rows):
        out = engine.open(4).generate(
            {row: prompts[row] for row in rows}, stop=set(), max_new_tokens=8, temperature=1.0
        )
        return {row: out[row].tokens for row in rows}

    first, second = (open_engine(model, VOCABULARY, COMPUTE, 5) for _ in range(2))
    samples = sample(first, [0, 1, 2, 3])
    assert samples[2] == sample(second, [2])[2]
    session = open_engine(model, VOCABULARY, COMPUTE, 5).open(4)
    for _ in range(3):
        session.generate({0: [20]}, stop=set(), max_new_tokens=2, temperature=1.0)
    late = session.generate({2: prompts[2]}, stop=set(), max_new_tokens=8, temperature=1.0)
    assert late[2].tokens == samples[2], "another row's calls have no effect"
    assert samples != sample(first, [0, 1, 2, 3])
    assert samples != sample(open_engine(model, VOCABULARY, COMPUTE, 6), [0, 1, 2, 3])


def test_samples_follow_the_distribution():
    model = make_model(scale=3.0)
    rows = 2000
    out = (
        open_engine(model, VOCABULARY, COMPUTE, 0)
        .open(rows)
        .generate({row: [20, 21] for row in range(rows)}, stop=set(), max_new_tokens=1, temperature=1.0)
    )
    counts = torch.bincount(torch.tensor([out[row].tokens[0] for row in range(rows)]), minlength=SIZE) / rows
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([[20, 21]])).logits[0, -1].softmax(-1)
    assert (counts - expected).abs().sum() < 0.4


def test_ids_that_the_tokenizer_does_not_know_are_neither_sampled_nor_normalised_over():
    model = make_model(scale=1.0)
    barred = list(range(150, SIZE))
    set_unknown_ids(model, barred)
    require_numbers_of(model, open_engine(model, VOCABULARY, COMPUTE, 0), barred=barred)


def test_generation_ends_at_the_longest_sequence_and_longer_prompts_are_refused():
    session = open_engine(make_model(), VOCABULARY, COMPUTE, 0).open(2)
    out = session.generate({0: [20] * 250, 1: [21]}, stop=set(), max_new_tokens=10, temperature=0.0)
    assert (len(out[0].tokens), out[0].stopped, session.room(0)) == (6, False, 0)
    assert len(out[1].tokens) == 10
    with pytest.raises(DataError, match="258 tokens.*takes 256"):
        session.append({0: [20, 21]})


def test_the_process_keeps_its_random_streams_threads_and_numbers():
    model = make_model()
    before = plain_logprobs(model, [20, 21], [30, 31])
    torch.manual_seed(3)
    random.seed(3)
    numpy.random.seed(3)
    expected = (torch.rand(1), random.random(), numpy.random.rand())
    torch.manual_seed(3)
    random.seed(3)
    numpy.random.seed(3)
    threads = torch.get_num_threads()
    engine = open_engine(model, VOCABULARY, Compute(engine="vllm", vllm=VllmConfig(cache_gb=0.05)), 0)
    engine.open(1).generate({0: [20]}, stop=set(), max_new_tokens=2, temperature=1.0)
    assert (torch.rand(1), random.random(), numpy.random.rand()) == expected
    assert torch.get_num_threads() == threads
    torch.set_num_threads(1)
    assert torch.get_num_threads() == 1
    torch.set_num_threads(threads)
    assert torch.equal(before, plain_logprobs(model, [20, 21], [30, 31]))


def test_a_process_leaves_no_temporary_file(tmp_path):
    """In a process of its own, because vLLM makes its process group once."""
    code = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from language.engines.test_vllm_engine import COMPUTE, VOCABULARY, make_model, open_engine\n"
        "engine = open_engine(make_model(), VOCABULARY, COMPUTE, 0)\n"
        "engine.open(1).generate({0: [20]}, stop=set(), max_new_tokens=1, temperature=0.0)\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT, timeout=300)
    left = [path.name for path in tmp_path.iterdir() if not path.name.startswith("torchinductor")]
    assert done.returncode == 0 and left == []


def test_weights_that_do_not_arrive_end_the_run(monkeypatch):
    model = make_model()
    engine = open_engine(model, VOCABULARY, COMPUTE, 0)
    monkeypatch.setattr(type(engine.host), "_sync_base", lambda self, model: None)
    perturb(model)
    with pytest.raises(TrainingError, match="vLLM is off by .* nats.*Expected at most 0.001"):
        open_engine(model, VOCABULARY, COMPUTE, 0)


def test_a_stale_head_ends_the_run(monkeypatch):
    """The trap of tied embeddings: everything arrives but the head."""
    model = make_model()
    engine = open_engine(model, VOCABULARY, COMPUTE, 0)
    module = "components.language.engines.vllm.resident_model.base_weights"
    monkeypatch.setattr(module, lambda model: model.named_parameters())
    perturb(model)
    with pytest.raises(TrainingError, match="vLLM is off by"):
        open_engine(model, VOCABULARY, COMPUTE, 0)
    assert engine.host.gap > 0.1


def test_in_bf16_a_sync_without_any_effect_is_seen_below_the_tolerance():
    probe = SyncProbe("bf16")
    expected = torch.tensor([-1.0, -2.0])
    probe.require_arrived(expected, expected + 0.01, "vLLM")
    probe.require_arrived(expected + 0.001, expected + 0.012, "vLLM")
    with pytest.raises(TrainingError, match="did not arrive"):
        probe.require_arrived(expected + 0.002, expected + 0.012, "vLLM")


def test_a_failure_of_vllm_is_said_with_the_way_to_go_on(monkeypatch):
    engine = open_engine(make_model(), VOCABULARY, COMPUTE, 0)

    def lost(*arguments, **settings):
        raise RuntimeError("CUDA error: device lost")

    monkeypatch.setattr(engine.host.llm.llm_engine, "step", lost)
    with pytest.raises(TrainingError, match="vLLM failed to generate.*device lost.*same command again"):
        engine.open(1).generate({0: [20]}, stop=set(), max_new_tokens=2, temperature=0.0)


def test_a_cache_that_does_not_fit_is_refused_with_the_number():
    compute = Compute(engine="vllm", vllm=VllmConfig(cache_gb=100_000))
    with pytest.raises(ConfigError, match="cache of 100000 GB.*Lower vllm.cache_gb"):
        open_engine(make_model(), VOCABULARY, compute, 0)
