"""The kept-cache engine generates what transformers generates, across rewinds, copies and dropped rows."""

import gc
import random
from weakref import ref

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from components.config import BackboneConfig, LoraConfig
from components.errors import DataError
from components.language.adapters import add_lora
from components.language.backbone import build_backbone
from components.language.engines.kept_cache import KeptCacheEngine
from components.language.vocabulary.compact_vocabulary import CompactVocabulary

VOCABULARY = CompactVocabulary.train(["put mug 1 in cabinet 2"], 300)
SIZE = 300


def make_model(family="llama", scale=10.0, max_positions=256):
    """A random model with larger weights than usual, so that greedy choices are far apart."""
    config = BackboneConfig(
        family=family, vocabulary=SIZE, hidden=32, layers=2, heads=4, max_positions=max_positions
    )
    model = build_backbone(config, SIZE, seed=1).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(scale)
    return model


def make_prompts(rows, seed=0, longest=40):
    rng = random.Random(seed)
    return {row: [rng.randrange(11, SIZE) for _ in range(rng.randrange(1, longest))] for row in range(rows)}


def plain_generate(model, tokens, stop, new):
    out = model.generate(
        torch.tensor([tokens]),
        max_new_tokens=new,
        do_sample=False,
        eos_token_id=sorted(stop),
        pad_token_id=0,
        use_cache=True,
    )
    return out[0, len(tokens) :].tolist()


def plain_logprobs(model, prefix, tokens, temperature=1.0):
    with torch.no_grad():
        logits = (
            model(input_ids=torch.tensor([prefix + tokens])).logits[0, len(prefix) - 1 : -1] / temperature
        )
    return logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None])[:, 0]


@pytest.mark.parametrize("family", ["llama", "qwen"])
def test_greedy_generation_equals_generate_across_rewinds_and_drops(family):
    model = make_model(family)
    stop = set(range(11, 60))
    session = KeptCacheEngine(model, VOCABULARY).open(6, capacity=8)
    row_tokens = {row: [] for row in range(6)}
    for step in range(5):
        prompts = make_prompts(6, seed=step, longest=25)
        if step >= 2:
            prompts.pop(4)
        if step >= 3:
            prompts.pop(0)
        if step == 1:
            prompts = {row: prompts[row] for row in (5, 2, 4)}
        before = session.lengths
        out = session.generate(prompts, stop=stop, max_new_tokens=9, temperature=0.0)
        assert list(out) == list(prompts)
        for row, prompt in prompts.items():
            expected_tokens = plain_generate(model, row_tokens[row] + prompt, stop, 9)
            assert out[row].tokens == expected_tokens, (step, row)
            assert out[row].stopped == (expected_tokens[-1] in stop)
            expected = plain_logprobs(model, row_tokens[row] + prompt, expected_tokens)
            torch.testing.assert_close(torch.tensor(out[row].logprobs), expected, atol=1e-4, rtol=0)
            assert session.lengths[row] == before[row] + len(prompt) + len(expected_tokens)
            row_tokens[row] += prompt + expected_tokens
        for row in (1, 2) if step % 2 else (3,):
            length = len(row_tokens[row]) // 2 if step != 2 else len(row_tokens[row])
            session.rewind({row: length})
            row_tokens[row] = row_tokens[row][:length]
        session.append({5: [20, 30, 40]})
        row_tokens[5] += [20, 30, 40]
        if step == 1:
            session.drop([4])
        if step == 2:
            session.drop([0])


def test_sampled_logprobs_are_those_of_the_tempered_distribution():
    model = make_model(scale=3.0)
    session = KeptCacheEngine(model, VOCABULARY, seed=3).open(4)
    prompts = make_prompts(4)
    out = session.generate(prompts, stop={12}, max_new_tokens=20, temperature=0.7)
    for row, prompt in prompts.items():
        expected = plain_logprobs(model, prompt, out[row].tokens, temperature=0.7)
        torch.testing.assert_close(torch.tensor(out[row].logprobs), expected, atol=1e-4, rtol=0)


def test_samples_follow_the_distribution():
    model = make_model(scale=3.0)
    rows = 2000
    out = (
        KeptCacheEngine(model, VOCABULARY)
        .open(rows, capacity=4)
        .generate({row: [20, 21] for row in range(rows)}, stop=set(), max_new_tokens=1, temperature=1.0)
    )
    counts = torch.bincount(torch.tensor([out[row].tokens[0] for row in range(rows)]), minlength=SIZE) / rows
    with torch.no_grad():
        expected_tokens = model(input_ids=torch.tensor([[20, 21]])).logits[0, -1].softmax(-1)
    assert (counts - expected_tokens).abs().max() < 0.04
    assert (counts - expected_tokens).abs().sum() < 0.4


def test_same_seed_same_samples_and_sessions_differ():
    model = make_model(scale=1.0)
    prompts = make_prompts(3)

    def sample(engine):
        out = engine.open(3).generate(prompts, stop=set(), max_new_tokens=8, temperature=1.0)
        return [out[row].tokens for row in prompts]

    first = KeptCacheEngine(model, VOCABULARY, seed=5)
    second = KeptCacheEngine(model, VOCABULARY, seed=5)
    samples = sample(first)
    assert samples == sample(second)
    assert samples != sample(first)


def test_long_ragged_prefill_over_a_full_cache_is_exact():
    model = make_model(scale=3.0)
    session = KeptCacheEngine(model, VOCABULARY).open(5, capacity=4)
    history = make_prompts(5, seed=1, longest=60)
    session.append(history)
    prompts = {row: make_prompts(1, seed=row + 9, longest=3 + 40 * row)[0] for row in (3, 1, 4, 0)}
    out = session.generate(prompts, stop=set(), max_new_tokens=3, temperature=0.0)
    for row, prompt in prompts.items():
        assert out[row].tokens == plain_generate(model, history[row] + prompt, {299}, 3)


def test_a_copied_row_continues_like_its_source():
    engine = KeptCacheEngine(make_model(), VOCABULARY)
    session = engine.open(5)
    alone = engine.open(1)
    session.append({0: [5, 6, 7], 3: [9]})
    session.generate({1: [4, 4]}, stop=set(), max_new_tokens=2, temperature=0.0)  # its last token is pending
    session.copy({2: 1, 4: 1, 3: 0})
    assert session.lengths == [3, 4, 4, 3, 4]
    generations = session.generate(
        {1: [8], 2: [8], 4: [8], 3: [8], 0: [8]}, stop=set(), max_new_tokens=5, temperature=0.0
    )
    assert (
        generations[1].tokens == generations[2].tokens == generations[4].tokens
        and generations[0].tokens == generations[3].tokens
    )
    alone.append({0: [5, 6, 7]})
    assert (
        alone.generate({0: [8]}, stop=set(), max_new_tokens=5, temperature=0.0)[0].tokens
        == generations[3].tokens
    )


def test_the_memory_of_a_session_is_freed_with_it():
    """The garbage collector is not needed: a rollout worker opens many sessions and would grow by each."""
    session = KeptCacheEngine(make_model(), VOCABULARY).open(2)
    session.append({0: [5, 6, 7]})
    keys = ref(session._store.cache.layers[0].keys)
    gc.disable()
    try:
        del session
        assert keys() is None
    finally:
        gc.enable()


def test_training_is_unaffected_by_the_engine():
    model = make_model().train()
    KeptCacheEngine(model, VOCABULARY).open(1).generate(
        {0: [20]}, stop=set(), max_new_tokens=2, temperature=0.0
    )
    assert model.training
    assert model.config._attn_implementation == "sdpa"


def test_generation_uses_adapters():
    model = make_model()
    plain = plain_generate(model, [20, 21, 22], {299}, 6)
    wrapped = add_lora(model, LoraConfig(rank=4))
    with torch.no_grad():
        for name, weight in wrapped.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=3.0, generator=torch.Generator().manual_seed(0))
    out = (
        KeptCacheEngine(wrapped, VOCABULARY)
        .open(1)
        .generate({0: [20, 21, 22]}, stop=set(), max_new_tokens=6, temperature=0.0)
    )
    assert out[0].tokens == plain_generate(wrapped, [20, 21, 22], {299}, 6) != plain


def test_other_architectures_use_the_same_cache():
    config = GPT2Config(
        vocab_size=SIZE, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=0
    )
    torch.manual_seed(0)
    model = GPT2LMHeadModel(config).eval()
    session = KeptCacheEngine(model, VOCABULARY).open(2)
    out = session.generate({0: [20, 21, 22, 23], 1: [30]}, stop=set(), max_new_tokens=5, temperature=0.0)
    assert out[0].tokens == plain_generate(model, [20, 21, 22, 23], {299}, 5)
    assert out[1].tokens == plain_generate(model, [30], {299}, 5)


def test_generation_ends_at_the_longest_sequence_and_longer_prompts_are_refused():
    model = make_model(max_positions=64)
    session = KeptCacheEngine(model, VOCABULARY).open(2)
    out = session.generate({0: [20] * 60, 1: [21]}, stop=set(), max_new_tokens=10, temperature=0.0)
    assert (len(out[0].tokens), out[0].stopped, session.room(0)) == (4, False, 0)
    assert len(out[1].tokens) == 10
    with pytest.raises(DataError, match="66 tokens.*takes 64.*max_positions"):
        session.append({0: [20, 21]})


def test_misuse_is_refused():
    session = KeptCacheEngine(make_model(), VOCABULARY).open(2)
    session.append({0: [20, 21]})
    with pytest.raises(ValueError, match="row 0 has 2 tokens"):
        session.rewind({0: 3})
    with pytest.raises(ValueError, match="empty prompt"):
        session.generate({1: []}, stop=set(), max_new_tokens=1, temperature=0.0)
    session.drop([1])
    with pytest.raises(ValueError, match="dropped"):
        session.append({1: [20]})
    for sources in ({1: 0}, {0: 1}, {0: 2, 2: 3}):
        with pytest.raises(ValueError, match="cannot be copied"):
            session.copy(sources)
