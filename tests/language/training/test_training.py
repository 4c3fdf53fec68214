"""Supervised fine-tuning: scores equal plain sequences, runs are repeatable and resume to the same bits."""

import copy

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from components.config import BackboneConfig, LoraConfig
from components.errors import TrainingError
from components.language.adapters import add_lora
from components.language.backbone import build_backbone
from components.language.training import fine_tuning
from components.language.training.examples import Example, Segment, collate
from components.language.training.fine_tuning import supervised_finetune
from components.language.training.token_scores import token_logprobs

SIZE = 64
SETTINGS = {"learning_rate": 1e-2, "batch_tokens": 60, "seed": 3}


def make_model(seed=0):
    return build_backbone(BackboneConfig(hidden=32, layers=2, heads=4), SIZE, seed)


def make_example(number):
    prefix = [11 + number % 7, 12 + number % 5]
    return Example(
        [
            Segment(prefix, [False, False]),
            Segment([40 + prefix[0], 2], [True, True], branch=True),
            Segment([13 + number % 3] * (1 + number % 4), [True] * (1 + number % 4)),
        ]
    )


EXAMPLES = [make_example(number) for number in range(40)]


def weights_of(model):
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


def test_logprobs_and_entropies_equal_those_of_plain_sequences():
    model = make_model().eval()
    scores = token_logprobs(model, collate(EXAMPLES[:3], 0), temperature=0.5, with_entropy=True)
    prefix, branch, trunk = (segment.tokens for segment in EXAMPLES[1].segments)
    with torch.no_grad():
        on_branch = (model(input_ids=torch.tensor([prefix + branch])).logits[0, 1:-1] / 0.5).log_softmax(-1)
        on_trunk = (model(input_ids=torch.tensor([prefix + trunk])).logits[0, 1:-1] / 0.5).log_softmax(-1)
    expected = torch.cat([on_branch, on_trunk])
    is_second_row = scores.rows == 1
    expected_logprobs = expected.gather(1, torch.tensor(branch + trunk)[:, None])[:, 0]
    torch.testing.assert_close(scores.logprobs[is_second_row], expected_logprobs, atol=1e-4, rtol=0)
    torch.testing.assert_close(
        scores.entropies[is_second_row], -(expected.exp() * expected).sum(-1), atol=1e-4, rtol=0
    )
    assert scores.columns[is_second_row].tolist() == list(range(2, 2 + len(branch + trunk)))


def test_other_architectures_and_adapters_are_scored_too():
    config = GPT2Config(
        vocab_size=SIZE,
        n_embd=32,
        n_layer=1,
        n_head=2,
        n_positions=64,
        attn_pdrop=0,
        resid_pdrop=0,
        embd_pdrop=0,
    )
    model = GPT2LMHeadModel(config).eval()
    batch = collate(EXAMPLES[:2], 0)
    with torch.no_grad():
        logits = model(
            input_ids=batch.input_ids, attention_mask=batch.attention, position_ids=batch.position_ids
        ).logits
    first = logits[0, 1].log_softmax(-1)[batch.input_ids[0, 2]]
    torch.testing.assert_close(token_logprobs(model, batch).logprobs[0], first, atol=1e-4, rtol=0)
    plain = make_model().eval()
    expected = token_logprobs(plain, batch).logprobs.detach()
    wrapped = add_lora(plain, LoraConfig(rank=2))
    scores = token_logprobs(wrapped, batch)
    torch.testing.assert_close(scores.logprobs, expected)
    scores.logprobs.sum().backward()
    assert any(weight.grad is not None for name, weight in wrapped.named_parameters() if "lora" in name)


@pytest.mark.parametrize("plain_head", [True, False])
def test_gradients_of_many_branches_are_the_same_with_two_threads(plain_head, monkeypatch):
    """All branches are predicted at one place. An index would add their gradients in the order in which the
    threads arrive.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr("components.language.training.token_scores.has_plain_head", lambda model: plain_head)
    try:
        model = make_model()
        many_branches = Example(
            [
                Segment([3, 4], [False, False]),
                *(Segment([5 + number % 50], [True], branch=True) for number in range(1100)),
            ]
        )
        batch = collate([many_branches], 0)
        weight = model.get_input_embeddings().weight
        gradients = []
        for _ in range(4):
            model.zero_grad()
            token_logprobs(model, batch).logprobs.sum().backward()
            gradients.append(weight.grad.clone())
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(gradient, gradients[0]) for gradient in gradients)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_finetuning_learns_and_is_repeatable(optimizer):
    records = []
    models = [make_model(), make_model()]
    for model in models:
        records.append(supervised_finetune(model, EXAMPLES, epochs=12, optimizer=optimizer, **SETTINGS))
    assert records[0].losses[0] > 3.5
    assert records[0].final_loss < 1.2
    assert records[0].losses == records[1].losses
    assert torch.equal(weights_of(models[0]), weights_of(models[1]))


def test_a_fraction_of_an_epoch_is_a_fraction_of_its_tokens():
    tokens = sum(map(len, EXAMPLES))
    half = supervised_finetune(make_model(), EXAMPLES, epochs=0.5, **SETTINGS)
    assert 0.5 * tokens <= half.tokens <= 0.5 * tokens + SETTINGS["batch_tokens"]
    counted = supervised_finetune(make_model(), EXAMPLES, epochs=1, total_tokens=2 * tokens, **SETTINGS)
    assert 2 * tokens <= counted.tokens <= 2 * tokens + SETTINGS["batch_tokens"]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("rank", [0, 2])
def test_a_stopped_run_resumes_to_the_same_weights(tmp_path, rank, optimizer):
    def fresh():
        torch.manual_seed(0)
        return add_lora(make_model(), LoraConfig(rank=rank))

    whole = fresh()
    stopped = fresh()
    settings = {**SETTINGS, "epochs": 3, "checkpoint_every": 4, "optimizer": optimizer}
    expected = supervised_finetune(whole, EXAMPLES, **settings)
    assert expected.steps > 12

    def stop(step, tokens, loss):
        if step == 10:
            raise KeyboardInterrupt

    path = tmp_path / "training.pt"
    with pytest.raises(KeyboardInterrupt):
        supervised_finetune(stopped, EXAMPLES, checkpoint=path, on_step=stop, **settings)
    resumed = fresh()
    steps = []
    record = supervised_finetune(
        resumed, EXAMPLES, checkpoint=path, on_step=lambda step, *_: steps.append(step), **settings
    )
    assert steps[0] == 9
    assert torch.equal(weights_of(resumed), weights_of(whole))
    assert record.losses == expected.losses
    with pytest.raises(TrainingError, match="of another training.*Delete"):
        supervised_finetune(fresh(), EXAMPLES[1:], checkpoint=path, **settings)


def test_a_checkpoint_is_saved_when_the_time_is_up(tmp_path, monkeypatch):
    monkeypatch.setattr(fine_tuning, "CHECKPOINT_SECONDS", 0.0)

    def stop(step, tokens, loss):
        if step == 3:
            raise KeyboardInterrupt

    settings = {**SETTINGS, "epochs": 3, "checkpoint_every": 1000, "checkpoint": tmp_path / "training.pt"}
    with pytest.raises(KeyboardInterrupt):
        supervised_finetune(make_model(), EXAMPLES, on_step=stop, **settings)
    steps = []
    supervised_finetune(make_model(), EXAMPLES, on_step=lambda step, *_: steps.append(step), **settings)
    assert steps[0] == 4


def test_a_damaged_checkpoint_is_named(tmp_path):
    (tmp_path / "training.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(TrainingError, match="cannot be read.*Delete"):
        supervised_finetune(make_model(), EXAMPLES, epochs=1, checkpoint=tmp_path / "training.pt", **SETTINGS)


def test_nothing_to_learn_and_nan_are_refused():
    without_loss = [Example([Segment([5, 6], [False, False])])]
    for examples in ([], without_loss):
        with pytest.raises(TrainingError, match="without one token to predict"):
            supervised_finetune(make_model(), examples, epochs=1, **SETTINGS)
    model = copy.deepcopy(make_model())
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    with pytest.raises(TrainingError, match="loss is nan at step 1.*Lower"):
        supervised_finetune(model, EXAMPLES, epochs=1, **SETTINGS)
