"""Output heads and embedding rows of downloaded models: the file decides; unused ids are never sampled."""

from __future__ import annotations

import json

import pytest
import torch
from builders import make_episode, make_task
from foreign import make_checkpoint
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from components.language.backbone import load_backbone, save_model
from components.language.engines.kept_cache import KeptCacheEngine
from components.language.engines.plain_generate import plain_generate
from components.language.exercises.copying import copy_examples
from components.language.training.examples import Example, Segment, collate
from components.language.training.fine_tuning import supervised_finetune
from components.language.training.token_scores import token_logprobs
from components.language.vocabulary.markers import MARKERS
from components.policy.policy import Policy
from components.policy.rl.log_probabilities import score_tokens
from components.policy.rollout import Rollout
from components.records import Trajectory

PROMPT = [5, 6, 7, 8]
EMBEDDINGS = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
SPARE = 64


def rewrite(directory, change):
    """Apply `change` to the weights in `directory`."""
    weights = load_file(directory / "model.safetensors")
    change(weights)
    save_file(weights, directory / "model.safetensors", {"format": "pt"})


def configure(directory, **changes):
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def logits_of(model, ids=PROMPT):
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).logits[0]


@pytest.mark.parametrize("is_tied_in_config", [True, False])
@pytest.mark.parametrize("head", ["other", "equal"])
@pytest.mark.parametrize("kind", ["llama", "gemma3_text"])
def test_a_head_in_the_file_is_used_whatever_the_config_says(kind, head, is_tied_in_config, tmp_path):
    base = make_checkpoint(tmp_path / "base", kind, tie_word_embeddings=True)

    def add_head(weights):
        weights[HEAD] = (
            weights[EMBEDDINGS].flip(0).contiguous() if head == "other" else weights[EMBEDDINGS].clone()
        )

    rewrite(base, add_head)
    configure(base, tie_word_embeddings=is_tied_in_config)
    stored = load_file(base / "model.safetensors")
    model, vocabulary = load_backbone(base)
    before = len(stored[EMBEDDINGS])
    assert len(vocabulary) == before + len(MARKERS), "the tokenizer and the embeddings have the same size"
    assert torch.equal(model.get_output_embeddings().weight[:before], stored[HEAD])
    assert torch.equal(model.get_input_embeddings().weight[:before], stored[EMBEDDINGS])
    plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    torch.testing.assert_close(logits_of(model)[:, :before], logits_of(plain), atol=1e-5, rtol=0)
    tied = is_tied_in_config and head == "equal"
    assert model.config.tie_word_embeddings == tied
    save_model(model, vocabulary, tmp_path / "saved")
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["tie_word_embeddings"] == tied
    assert torch.equal(logits_of(load_backbone(tmp_path / "saved")[0]), logits_of(model))


def test_a_tied_model_without_a_head_stays_tied(tmp_path):
    model, _ = load_backbone(make_checkpoint(tmp_path, "llama", tie_word_embeddings=True))
    assert (
        model.config.tie_word_embeddings
        and model.get_output_embeddings().weight is model.get_input_embeddings().weight
    )


def pad(directory, *, tied, value=0.0):
    """Add rows beyond the tokenizer."""

    def grow(weights):
        for name in [EMBEDDINGS] if tied else [EMBEDDINGS, HEAD]:
            rows = torch.full((SPARE, weights[name].shape[1]), value if name == HEAD else 0.0)
            weights[name] = torch.cat([weights[name], rows])

    rewrite(directory, grow)
    configure(directory, vocab_size=json.loads((directory / "config.json").read_text())["vocab_size"] + SPARE)
    return directory


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_new_markers_get_distinct_rows_that_are_the_same_at_every_load(padded, tied, tmp_path):
    base = make_checkpoint(tmp_path / "base", "llama", tie_word_embeddings=tied)
    stored = load_file(base / "model.safetensors")
    if padded:
        pad(base, tied=tied)
    torch.manual_seed(1)
    first, vocabulary = load_backbone(base)
    torch.manual_seed(2)
    second, _ = load_backbone(base)
    assert len(vocabulary.added) == len(MARKERS)
    for name in ("get_input_embeddings", "get_output_embeddings"):
        table = getattr(first, name)().weight
        rows = table[vocabulary.added]
        assert torch.equal(rows, getattr(second, name)().weight[vocabulary.added])
        gaps = torch.cdist(rows, rows) + torch.eye(len(MARKERS)) * 1e9
        trained_rows = stored[EMBEDDINGS if tied or "input" in name else HEAD]
        assert gaps.min() > 0.1 * trained_rows.std(0).norm(), (
            "the rows differ as much as those of a trained model"
        )
        assert torch.equal(table[: len(trained_rows)], trained_rows), "trained rows do not change"


def test_untrained_rows_of_existing_markers_become_distinct(tmp_path):
    base = make_checkpoint(tmp_path / "base", "llama", tie_word_embeddings=True)
    model, vocabulary = load_backbone(base)
    with torch.no_grad():
        model.get_input_embeddings().weight[vocabulary.added] = 0.0
    save_model(model, vocabulary, tmp_path / "saved")
    loaded, words = load_backbone(tmp_path / "saved")
    assert not words.added
    assert len(loaded.get_input_embeddings().weight[vocabulary.added].unique(dim=0)) == len(MARKERS)


@pytest.fixture(scope="module")
def padded(tmp_path_factory):
    """A model whose head prefers ids without a token."""
    base = make_checkpoint(tmp_path_factory.mktemp("padded"), "llama", tie_word_embeddings=False, scale=1.0)
    pad(base, tied=False)

    def prefer_unknown_ids(weights):
        state = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        hidden = state.model(input_ids=torch.tensor([PROMPT])).last_hidden_state[0, -1].detach()
        weights[HEAD][-SPARE:] = 40 * hidden / hidden.norm()

    rewrite(base, prefer_unknown_ids)
    return base


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("temperature", [0.0, 1.0, 5.0])
def test_ids_without_a_token_are_neither_sampled_nor_normalised_over(padded, temperature, fused, monkeypatch):
    if not fused:
        monkeypatch.setattr("components.language.engines.cached_rows.can_fuse", lambda model: False)
    model, vocabulary = load_backbone(padded)
    raw = logits_of(model)[-1]
    unknown = vocabulary.unknown_ids(len(raw))
    assert len(unknown) == SPARE - len(MARKERS) and raw.softmax(-1)[unknown].sum() > 0.9, (
        "plain sampling would choose them"
    )
    rows = 40
    session = KeptCacheEngine(model, vocabulary, seed=1).open(rows)
    generations = session.generate(
        dict.fromkeys(range(rows), PROMPT), stop=set(), max_new_tokens=8, temperature=temperature
    )
    assert not {token for row in generations.values() for token in row.tokens} & set(unknown)
    known_ids = [index for index in range(len(raw)) if index not in unknown]
    for row in (0, 1):
        tokens = PROMPT + generations[row].tokens
        logits = logits_of(model, tokens)[len(PROMPT) - 1 : -1, known_ids] / (temperature or 1.0)
        places = torch.tensor([known_ids.index(token) for token in generations[row].tokens])
        expected = logits.log_softmax(-1).gather(1, places[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(generations[row].logprobs), expected, atol=1e-4, rtol=0)
        example = Example([Segment(PROMPT, [False] * 4), Segment(generations[row].tokens, [True] * 8)])
        scores = token_logprobs(
            model, collate([example], 0), temperature=temperature or 1.0, with_entropy=True
        )
        torch.testing.assert_close(scores.logprobs.detach(), expected, atol=1e-4, rtol=0)
        entropies = torch.distributions.Categorical(logits=logits).entropy()
        torch.testing.assert_close(scores.entropies.detach(), entropies, atol=1e-4, rtol=1e-4)


def test_plain_generate_equals_the_engine(padded):
    model, vocabulary = load_backbone(padded)
    generations = (
        KeptCacheEngine(model, vocabulary)
        .open(2)
        .generate({0: PROMPT, 1: [9]}, stop={3}, max_new_tokens=6, temperature=0.0)
    )
    assert plain_generate(model, [PROMPT, [9]], stop={3}, max_new_tokens=6) == [
        generations[0].tokens,
        generations[1].tokens,
    ]


def test_sampler_and_learner_agree_before_the_first_update_and_gradients_are_finite(padded):
    policy = Policy.load(padded)
    session = policy.engine(0).open(1)
    generation = session.generate({0: PROMPT}, stop=set(), max_new_tokens=8, temperature=1.0)[0]
    example = Example([Segment(PROMPT, [False] * 4), Segment(generation.tokens, [True] * 8)])
    rollout = Rollout(Trajectory(make_task()), example, generation.logprobs)
    for other in (policy, policy.frozen_copy()):
        scores = score_tokens(other, [rollout], temperature=1.0, with_entropy=True)
        torch.testing.assert_close(
            scores.logprobs.detach(), torch.tensor(generation.logprobs), atol=1e-4, rtol=0
        )
    scores = score_tokens(policy, [rollout], temperature=1.0, with_entropy=True)
    (scores.logprobs.sum() + scores.entropies.sum()).backward()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in policy.model.parameters())
    assert (
        not policy.model.get_output_embeddings()
        .weight.grad[policy.vocabulary.unknown_ids(len(logits_of(policy.model)[-1]))]
        .any()
    )


def test_the_cloning_loss_leaves_out_ids_without_a_token(padded):
    model, vocabulary = load_backbone(padded)
    example = Example([Segment(PROMPT, [False] * 4), Segment([9, 10, 11], [True] * 3)])
    known_ids = [
        index
        for index in range(model.config.vocab_size)
        if index not in vocabulary.unknown_ids(model.config.vocab_size)
    ]
    logits = logits_of(model, [*PROMPT, 9, 10])[3:, known_ids].log_softmax(-1)
    expected = -logits.gather(
        1, torch.tensor([[known_ids.index(9)], [known_ids.index(10)], [known_ids.index(11)]])
    ).mean()
    record = supervised_finetune(model, [example], epochs=1, learning_rate=1e-6, batch_tokens=64, seed=0)
    assert record.losses[0] == pytest.approx(float(expected), abs=1e-4)


def test_exercises_use_only_ids_with_a_token(padded):
    _, vocabulary = load_backbone(padded)
    vocabulary.ids = [
        index for index in vocabulary.ids if index not in range(20, 40)
    ]  # a tokenizer with a hole
    ids = {
        token
        for example in copy_examples(vocabulary, 3000, 0)
        for segment in example.segments
        for token in segment.tokens
    }
    assert not ids & set(range(20, 40)) and len(ids) > 100


def test_a_fine_tuned_and_merged_model_never_samples_ids_without_a_token(padded, tmp_path):
    from components.config import CloningConfig, LoraConfig
    from components.policy.behaviour_cloning import clone

    policy = Policy.load(padded)
    episodes = [make_episode(make_task(), ("go to desk 1", "At desk 1: mug 1."), won=True)]
    clone(policy, episodes, CloningConfig(epochs=1), 0, lora=LoraConfig(rank=2))
    policy.save(tmp_path / "policy")
    for one in (policy, policy.frozen_copy(), Policy.load(tmp_path / "policy")):
        generations = (
            one.engine(0)
            .open(8)
            .generate(dict.fromkeys(range(8), PROMPT), stop=set(), max_new_tokens=6, temperature=1.0)
        )
        unknown = one.vocabulary.unknown_ids(len(logits_of(one.model)[-1]))
        assert unknown and not {token for row in generations.values() for token in row.tokens} & set(unknown)
