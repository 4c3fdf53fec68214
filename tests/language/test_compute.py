"""Device, precision and gradient checkpointing: what is refused, and which numbers must not change."""

from __future__ import annotations

import pickle
import random

import pytest
import torch
from foreign import make_checkpoint

from components.config import BackboneConfig, LoraConfig, load_config
from components.errors import ConfigError
from components.language.adapters import add_lora
from components.language.backbone import build_backbone, load_backbone
from components.language.compute import Compute, compute_of, describe, has_bf16
from components.language.engines.kept_cache import KeptCacheEngine
from components.language.training.examples import Example, Segment, collate
from components.language.training.fine_tuning import supervised_finetune
from components.language.training.token_scores import token_logprobs
from components.language.vocabulary.compact_vocabulary import CompactVocabulary
from language.training.test_training import EXAMPLES, SETTINGS, weights_of
from language.training.test_training import make_model as make_tiny

VOCABULARY = CompactVocabulary.train(["put mug 1 in cabinet 2"], 300)
CHECKPOINTED = Compute(gradient_checkpointing=True)
without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
with_bf16 = pytest.mark.skipif(not has_bf16("cpu"), reason="this CPU has neither AMX nor AVX512-BF16")


@without_gpu
def test_without_a_gpu_auto_is_the_cpu_and_cuda_is_refused():
    assert compute_of(load_config()) == Compute(engine="auto")
    assert describe(Compute()) == "cpu, fp32"
    with pytest.raises(
        ConfigError, match="device is cuda, and torch .* finds no CUDA device here.*Set device=auto"
    ):
        compute_of(load_config(None, ["device=cuda"]))


def test_bf16_is_refused_where_the_hardware_has_none(monkeypatch):
    """The capabilities of another CPU are patched in, because those of this one cannot be turned off."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_f": True})
    with pytest.raises(
        ConfigError,
        match="precision is bf16, and this machine's cpu does not.*AMX or AVX512-BF16.*Set precision=fp32",
    ):
        compute_of(load_config(None, ["precision=bf16", "device=cpu"]))
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True})
    assert compute_of(load_config(None, ["precision=bf16", "device=cpu"])).precision == "bf16"


def test_precision_auto_is_bf16_where_the_hardware_has_it(monkeypatch):
    config = load_config(None, ["precision=auto", "device=cpu"])
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    assert compute_of(config).precision == "bf16"
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {})
    assert compute_of(config).precision == "fp32"


def test_a_format_without_a_path_is_refused():
    with pytest.raises(ConfigError, match="format has no effect with an empty path"):
        load_config(None, ["backbone.format=chat"])
    named = load_config(None, ["backbone.format=compact", "backbone.path=models/base"])
    assert named.backbone.format == "compact"


def gradients(model, batch, compute):
    with compute.training(model), compute.forward():
        loss = -token_logprobs(model, batch).logprobs.mean()
        loss.backward()
    by_name = {
        name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None
    }
    model.zero_grad(set_to_none=True)
    return loss.item(), by_name


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("kind", ["own", "qwen3", "gpt_neox"])
def test_gradient_checkpointing_gives_the_same_loss_and_gradients(kind, rank, tmp_path):
    model = make_tiny() if kind == "own" else load_backbone(make_checkpoint(tmp_path, kind, scale=1.0))[0]
    model = add_lora(model, LoraConfig(rank=rank, targets="all-linear" if rank else ["q_proj", "v_proj"]))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(0, 0.1, generator=torch.Generator().manual_seed(0))
    batch = collate(EXAMPLES[:5], 0)
    assert batch.tree is not None
    plain_loss, plain = gradients(model, batch, Compute())
    loss, checkpointed = gradients(model, batch, CHECKPOINTED)
    assert loss == pytest.approx(plain_loss, abs=1e-6)
    assert set(checkpointed) == set(plain) and (rank == 0 or all("lora" in name for name in checkpointed))
    for name in plain:
        torch.testing.assert_close(checkpointed[name], plain[name], atol=1e-5, rtol=1e-5, msg=name)
    assert any(value.abs().max() > 1e-3 for value in plain.values())


def test_gradients_with_branches_differ_from_those_of_plain_attention():
    """If a recomputed layer used stock attention, which sees all earlier tokens, its gradients would differ
    widely: the test above would fail.
    """
    model = make_tiny()
    batch = collate(EXAMPLES[:5], 0)
    tree_gradients = gradients(model, batch, Compute())[1]
    batch.tree = None
    assert (
        max(
            (tree_gradients[name] - value).abs().max()
            for name, value in gradients(model, batch, Compute())[1].items()
        )
        > 1e-3
    )


def saved_bytes(model, batch, compute):
    """Bytes that a forward pass stores for its backward pass, without weights."""
    weights = {weight.data_ptr() for weight in model.parameters()}
    storage_sizes = {}

    def pack(tensor):
        if tensor.data_ptr() not in weights:
            storage_sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with compute.training(model), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        token_logprobs(model, batch).logprobs.mean()
    return sum(storage_sizes.values())


def test_gradient_checkpointing_stores_far_less_of_a_long_sequence():
    rng = random.Random(0)
    model = build_backbone(BackboneConfig(hidden=64, layers=6, heads=4), 300, seed=0)
    parts = [
        Segment([rng.randrange(300) for _ in range(60)], [False] * 60, branch=number % 2 == 1)
        for number in range(20)
    ]
    parts[-1] = Segment([5, 6, 7], [True] * 3, branch=True)
    batch = collate([Example(parts)], 0)
    assert saved_bytes(model, batch, CHECKPOINTED) < 0.35 * saved_bytes(model, batch, Compute())


def test_after_training_the_model_is_restored_and_can_be_pickled():
    model = make_tiny()
    supervised_finetune(model, EXAMPLES, epochs=0.2, compute=CHECKPOINTED, **SETTINGS)
    assert (
        not any(getattr(module, "gradient_checkpointing", False) for module in model.modules())
        and not model.training
    )
    assert torch.equal(weights_of(pickle.loads(pickle.dumps(model))), weights_of(model))


def test_an_architecture_without_gradient_checkpointing_is_refused(tmp_path):
    model, _ = load_backbone(make_checkpoint(tmp_path, "gpt_neox_japanese"))
    with (
        pytest.raises(ConfigError, match="has no gradient checkpointing.*gradient_checkpointing=false"),
        CHECKPOINTED.training(model),
    ):
        pass


@with_bf16
@pytest.mark.parametrize("rank", [0, 2])
def test_bf16_training_keeps_fp32_weights_and_learns_the_same(rank):
    records = []
    for compute in (
        Compute(),
        Compute(precision="bf16"),
        Compute(precision="bf16", gradient_checkpointing=True),
    ):
        model = add_lora(make_tiny(), LoraConfig(rank=rank))
        records.append(supervised_finetune(model, EXAMPLES, epochs=6, compute=compute, **SETTINGS))
        assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    exact, rounded, checkpointed = (record.losses for record in records)
    assert (
        rounded != exact
        and rounded[0] == pytest.approx(exact[0], abs=0.02)
        and rounded[-1] == pytest.approx(exact[-1], abs=0.15)
    )
    assert checkpointed == pytest.approx(rounded, abs=0.05)


@with_bf16
@pytest.mark.parametrize("family", ["llama", "qwen"])
def test_bf16_decoding_uses_a_copy_with_exact_positions_and_nearly_the_same_numbers(family):
    model = build_backbone(
        BackboneConfig(family=family, hidden=64, layers=2, heads=4), len(VOCABULARY), seed=1
    ).eval()
    copied = Compute(precision="bf16").for_decoding(model)
    assert {weight.dtype for weight in copied.parameters()} == {
        torch.bfloat16
    } and model.dtype == torch.float32
    for (name, exact), (_, buffer) in zip(model.named_buffers(), copied.named_buffers(), strict=True):
        assert torch.equal(exact, buffer), name
    assert Compute().for_decoding(model) is model
    rng = random.Random(0)
    # At late positions, where rounded rotary frequencies would be wrong.
    prompts = {row: [rng.randrange(12, len(VOCABULARY)) for _ in range(900)] for row in range(2)}
    generations = (
        KeptCacheEngine(copied, VOCABULARY)
        .open(2)
        .generate(prompts, stop=set(), max_new_tokens=20, temperature=1.0)
    )
    for row, prompt in prompts.items():
        tokens = generations[row].tokens
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
        exact = logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None])[:, 0]
        assert (exact - torch.tensor(generations[row].logprobs)).abs().mean() < 0.02


@with_bf16
def test_an_architecture_that_needs_a_probe_decodes_in_bf16(tmp_path):
    model, vocabulary = load_backbone(make_checkpoint(tmp_path, "gpt_neox", scale=1.0))
    session = KeptCacheEngine(Compute(precision="bf16").for_decoding(model), vocabulary).open(1)
    assert len(session.generate({0: [5, 6]}, stop=set(), max_new_tokens=4, temperature=0.0)[0].tokens) == 4


@with_bf16
def test_a_small_update_of_adapters_survives_decoding_in_bf16():
    model = build_backbone(BackboneConfig(hidden=64, layers=2, heads=4), len(VOCABULARY), seed=1).eval()
    tuned = add_lora(model, LoraConfig(rank=4, targets="all-linear"))
    with torch.no_grad():
        for name, weight in tuned.named_parameters():
            if "lora_B" in name:
                weight.fill_(1e-4)
    copied = Compute(precision="bf16").for_decoding(tuned)
    layer, exact = (each.get_base_model().model.layers[0].mlp.up_proj for each in (copied, tuned))

    def update(adapted):
        return (adapted.lora_B["default"].weight @ adapted.lora_A["default"].weight).float()

    torch.testing.assert_close(update(layer), update(exact), rtol=0.02, atol=1e-7)
    merged = (exact.weight + exact.scaling["default"] * update(exact)).bfloat16().float()
    rounded = merged - exact.weight.bfloat16().float()
    lost = (rounded - exact.scaling["default"] * update(exact)).norm() / (
        exact.scaling["default"] * update(exact)
    ).norm()
    assert lost > 0.5, "merged into bf16 weights, most of it would be lost"
