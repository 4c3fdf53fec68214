"""On a GPU, engine and training give the numbers of the CPU; also measures the speed of a larger model.

python -m pytest -q -s tests/language/training/test_gpu.py
"""

from __future__ import annotations

import random
import time

import pytest
import torch
from builders import VOCABULARY, make_task

from components.config import BackboneConfig, ExperienceModelConfig, LoraConfig, RetrievalConfig, load_config
from components.experience.dream import Dream
from components.experience.model import ExperienceModel
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.language.adapters import add_lora
from components.language.backbone import build_backbone, load_backbone, save_model
from components.language.compute import Compute, compute_of, describe
from components.language.engines.kept_cache import KeptCacheEngine
from components.language.training.examples import Example, Segment
from components.language.training.fine_tuning import supervised_finetune
from components.policy.policy import Policy
from components.policy.rollout import play
from language.training.test_training import EXAMPLES, SETTINGS, make_model, weights_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
LARGE = BackboneConfig(family="qwen", hidden=768, layers=12, heads=12, key_value_heads=4, max_positions=8192)
SIZE = 16_384
ROWS = 128
NEW = 128


def test_training_and_decoding_in_fp32_give_the_numbers_of_the_cpu():
    assert compute_of(load_config()).device == "cuda"
    losses = {}
    logprobs = {}
    for device in ("cpu", "cuda"):
        model = make_model().to(device)
        losses[device] = supervised_finetune(
            model, EXAMPLES, epochs=2, compute=Compute(device), **SETTINGS
        ).losses
        prompts = {row: [2, 3 + row, 20] for row in range(5)}
        session = KeptCacheEngine(make_model().to(device), VOCABULARY).open(5)
        generations = session.generate(prompts, stop=set(), max_new_tokens=8, temperature=0.0)
        logprobs[device] = [value for row in generations.values() for value in row.logprobs]
        assert weights_of(model).device.type == device
    assert losses["cuda"] == pytest.approx(losses["cpu"], abs=1e-2)
    assert logprobs["cuda"] == pytest.approx(logprobs["cpu"], abs=1e-3)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_policy_plays_in_a_dream_on_the_gpu(precision, tmp_path):
    compute = Compute("cuda", precision)
    save_model(
        build_backbone(BackboneConfig(hidden=64, layers=2), len(VOCABULARY), 0),
        VOCABULARY,
        tmp_path / "model",
    )
    model = ExperienceModel.load(
        tmp_path / "model", ExperienceModelConfig(max_new_tokens=8, resamples=1), compute=compute
    )
    policy = Policy.load(tmp_path / "model", max_new_tokens=6, compute=compute)
    rollouts = play(
        policy,
        Dream(model, ReplayBuffer(RetrievalConfig(k=0))),
        [make_task()] * 4,
        max_steps=3,
        temperature=1.0,
        seed=0,
    )
    assert len(rollouts) == 4 and model.tokens and policy.tokens


def make_example(rng: random.Random) -> Example:
    """An episode of 8 steps with 150 tokens a branch: the length of a household game."""

    def words(count):
        return [rng.randrange(20, SIZE) for _ in range(count)]

    parts = [Segment(words(150), [False] * 150)]
    for _ in range(8):
        parts += [
            Segment(words(150), [False] * 100 + [True] * 50, branch=True),
            Segment(words(60), [False] * 60),
        ]
    return Example(parts)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_model_of_a_hundred_million_parameters_trains_with_adapters_in_bf16(checkpointing):
    compute = Compute("cuda", "bf16", checkpointing)
    model = build_backbone(LARGE, SIZE, 0).to("cuda")
    millions = sum(weight.numel() for weight in model.parameters()) / 1e6
    wrapped, rng = add_lora(model, LoraConfig(rank=16, alpha=32.0, targets="all-linear")), random.Random(0)
    examples = [make_example(rng) for _ in range(96)]
    settings = {"learning_rate": 1e-4, "batch_tokens": 16_384, "seed": 0, "compute": compute}
    supervised_finetune(wrapped, examples[:16], epochs=1, **settings)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    record = supervised_finetune(wrapped, examples, epochs=1, **settings)
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() / 1e9
    print(
        f"\n{describe(compute)}, {millions:.0f} M parameters, rank 16, gradient checkpointing "
        f"{checkpointing}: "
        f"{record.tokens / record.seconds:,.0f} tokens/s trained, peak {peak:.1f} GB"
    )
    assert record.losses[-1] == record.losses[-1] and 80 < millions < 160


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_model_of_a_hundred_million_parameters_decodes(precision):
    compute, rng = Compute("cuda", precision), random.Random(0)
    engine = KeptCacheEngine(
        compute.for_decoding(build_backbone(LARGE, SIZE, 0).to("cuda").eval()), VOCABULARY
    )
    seconds = []
    for _ in range(2):  # the first one warms up
        session = engine.open(ROWS)
        prompts = {row: [rng.randrange(20, SIZE) for _ in range(400)] for row in range(ROWS)}
        torch.cuda.synchronize()
        start_time = time.monotonic()
        generations = session.generate(prompts, stop=set(), max_new_tokens=NEW, temperature=1.0)
        seconds.append(time.monotonic() - start_time)
    print(
        f"\n{describe(compute)}: {ROWS * NEW / seconds[-1]:,.0f} dreamed tokens/s, {ROWS} rows behind "
        "prompts of 400 tokens"
    )
    assert all(len(generation.tokens) == NEW for generation in generations.values())


def test_a_model_from_a_path_is_loaded_to_the_gpu(tmp_path):
    save_model(
        build_backbone(BackboneConfig(hidden=32, layers=1), len(VOCABULARY), 0),
        VOCABULARY,
        tmp_path / "model",
    )
    assert next(load_backbone(tmp_path / "model", "cuda")[0].parameters()).is_cuda
