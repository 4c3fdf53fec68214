"""Encoders from a directory, and their cache of embeddings, with a tiny BERT in safetensors."""

from __future__ import annotations

import importlib.util
import json
import logging
import multiprocessing
import shutil
import sqlite3

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from components.config import RetrievalConfig, load_config
from components.errors import ConfigError, ExperienceModelError
from components.experience.retrieval.embeddings import EmbeddingCache
from components.experience.retrieval.encoders import encoder_identity, make_encoder
from components.experience.retrieval.replay_buffer import ReplayBuffer

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "at",
    "go",
    "to",
    "shelf",
    "desk",
    "mug",
    "pen",
    "take",
    "from",
    "holding",
    "nothing",
]
WORDS += ["1", "2", "3", ":", ".", ","]
TEXTS = [
    "At shelf 1: mug 2. Holding nothing.",
    "go to desk 3",
    "take mug 1 from shelf 2",
    "At desk 1: pen 1, pen 2.",
    "",
]
SENTENCE_TRANSFORMERS = importlib.util.find_spec("sentence_transformers")


def save_bert(folder, seed=0):
    torch.manual_seed(seed)
    words = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.normalizer, words.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    words.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(
        folder
    )
    shape = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 24,
    }
    BertModel(BertConfig(vocab_size=len(WORDS), initializer_range=0.4, **shape)).eval().save_pretrained(
        folder
    )
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return save_bert(tmp_path_factory.mktemp("encoders") / "bert")


def by_path(folder, **changes):
    return RetrievalConfig(encoder="path", encoder_path=str(folder), **changes)


def test_vectors_are_the_mean_of_the_last_hidden_states(bert):
    encoder = make_encoder(by_path(bert))
    vectors = encoder(TEXTS)
    assert vectors.shape == (5, 32) and vectors.dtype == np.float32 and encoder.dimensions == 32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    model, words = BertModel.from_pretrained(bert).eval(), {word: n for n, word in enumerate(WORDS)}
    with torch.no_grad():
        hidden = (
            model(torch.tensor([[words[word] for word in ["[CLS]", "go", "to", "desk", "3", "[SEP]"]]]))
            .last_hidden_state[0]
            .mean(0)
        )
    np.testing.assert_allclose(vectors[1], (hidden / hidden.norm()).numpy(), atol=1e-5)
    np.testing.assert_allclose(encoder(TEXTS[::-1])[::-1], vectors, atol=1e-6)
    assert encoder([]).shape == (0, 32)


def test_a_long_text_is_truncated(bert):
    encoder = make_encoder(by_path(bert))
    long, longer = encoder(["mug " * 40, "mug " * 400])
    np.testing.assert_allclose(long, longer, atol=1e-6)


def test_a_buffer_retrieves_with_a_sentence_encoder(bert):
    from test_replay_buffer import ask, make_log

    log = make_log(6)
    buffer = ReplayBuffer(by_path(bert, k=2), log)
    for query, results in zip(log, ask(buffer, log), strict=True):
        assert len(results) == 2 and all(demo.task_id != query.task_id for demo in results)


def test_the_identity_depends_on_the_content_of_the_directory(bert, tmp_path):
    moved, other = shutil.copytree(bert, tmp_path / "moved"), save_bert(tmp_path / "other", seed=1)
    identity = encoder_identity(by_path(bert))
    assert encoder_identity(by_path(moved)) == identity == make_encoder(by_path(moved)).identity
    assert encoder_identity(by_path(other)) != identity
    (moved / "README.md").write_text("Weights of a test.")
    assert encoder_identity(by_path(moved)) == identity
    (moved / "tokenizer_config.json").write_text((moved / "tokenizer_config.json").read_text() + "\n")
    assert encoder_identity(by_path(moved)) != identity


def test_a_missing_directory_is_refused(tmp_path):
    with pytest.raises(
        ExperienceModelError,
        match="retrieval.encoder_path is '.*nowhere': there is no such directory.*hf download",
    ):
        make_encoder(by_path(tmp_path / "nowhere"))


def test_pickled_weights_are_not_read(bert, tmp_path):
    folder = shutil.copytree(bert, tmp_path / "pickled")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(
        ExperienceModelError, match=r"no weights in safetensors \(only pytorch_model.bin\).*can run code"
    ):
        make_encoder(by_path(folder))


def test_a_model_that_decodes_is_no_encoder(tmp_path):
    shape = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "vocab_size": 32,
    }
    LlamaForCausalLM(LlamaConfig(**shape)).save_pretrained(tmp_path)
    with pytest.raises(
        ExperienceModelError, match="holds a model of the type 'llama', not an encoder.*such as bert"
    ):
        make_encoder(by_path(tmp_path))
    config = json.loads((tmp_path / "config.json").read_text()) | {"model_type": "bert", "is_decoder": True}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ExperienceModelError, match="'bert' that decodes, not an encoder"):
        make_encoder(by_path(tmp_path))


@pytest.mark.parametrize("content", [None, "{", "[]", '{"hidden_size": 3}'])
def test_weights_without_a_valid_config_are_refused(bert, tmp_path, content):
    folder = shutil.copytree(bert, tmp_path / "bare")
    (folder / "config.json").unlink()
    if content:
        (folder / "config.json").write_text(content)
    with pytest.raises(ExperienceModelError, match="has no config.json of a model"):
        make_encoder(by_path(folder))


def test_a_config_that_is_too_large_is_refused(bert, tmp_path):
    folder = shutil.copytree(bert, tmp_path / "large")
    with (folder / "config.json").open("ab") as file:
        file.truncate(257 * 2**20)  # a sparse file
    with pytest.raises(ExperienceModelError, match="config.json has more than 268,435,456 bytes"):
        make_encoder(by_path(folder))


def test_damaged_or_missing_weights_are_an_error_not_random_vectors(bert, tmp_path):
    folder = shutil.copytree(bert, tmp_path / "damaged")
    weights = load_file(bert / "model.safetensors")
    name = next(name for name in weights if "layer.1" in name)
    save_file(
        {key: value for key, value in weights.items() if key != name},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    with pytest.raises(ExperienceModelError, match="lack 1 tensors of the model, such as encoder.layer.1"):
        make_encoder(by_path(folder))
    (folder / "model.safetensors").write_bytes((bert / "model.safetensors").read_bytes()[:2000])
    with pytest.raises(ExperienceModelError, match="cannot be read"):
        make_encoder(by_path(folder))


@pytest.mark.skipif(bool(SENTENCE_TRANSFORMERS), reason="sentence-transformers is installed")
def test_nan_weights_are_refused_with_the_text_that_shows_them(bert, tmp_path):
    """NaN in every vector is an error when the encoder is made; NaN of one word is one at the first text
    with it.
    """
    weights = load_file(bert / "model.safetensors")
    name = next(name for name in weights if name.endswith("word_embeddings.weight"))
    folders = [shutil.copytree(bert, tmp_path / which) for which in ("all", "mug")]
    for folder, rows in zip(folders, (slice(None), WORDS.index("mug")), strict=True):
        broken = {key: tensor.clone() for key, tensor in weights.items()}
        broken[name][rows] = float("nan")
        save_file(broken, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(
        ExperienceModelError, match="all gives no finite vector for 1 of 1 texts, such as 'A text.'"
    ):
        make_encoder(by_path(folders[0]))
    encoder = make_encoder(by_path(folders[1]), tmp_path)
    assert np.isfinite(encoder(["go to desk 3"])).all()
    with pytest.raises(ExperienceModelError, match="1 of 2 texts, such as 'take mug 1'") as caught:
        encoder(["at desk 1", "take mug 1"])
    assert caught.value.expected == "Expected weights without NaN."
    with sqlite3.connect(tmp_path / "embeddings.sqlite") as database:
        assert database.execute("select count(*) from embeddings").fetchone() == (1,), (
            "nothing of that call is stored"
        )


def test_a_sentence_transformers_model_without_that_library(bert, tmp_path):
    folder = shutil.copytree(bert, tmp_path / "whole")
    (folder / "modules.json").write_text("[]")
    with pytest.raises(
        ExperienceModelError, match=r"that library is not installed.*pip install .*\[minilm\]"
    ):
        make_encoder(by_path(folder))


@pytest.mark.skipif(not SENTENCE_TRANSFORMERS, reason="needs the extra minilm")
def test_a_sentence_transformers_model_is_read_by_that_library(bert, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    words = Transformer(str(bert))
    SentenceTransformer(modules=[words, Pooling(32, pooling_mode="max")], device="cpu").save(
        str(tmp_path / "max")
    )
    by_library, averaged = make_encoder(by_path(tmp_path / "max")), make_encoder(by_path(bert))
    assert by_library(TEXTS).shape == (5, 32)
    assert np.abs(by_library(TEXTS) - averaged(TEXTS)).max() > 0.01


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["retrieval.encoder_path=models/x"], "encoder_path has no effect with encoder: hashing"),
        (
            ["retrieval.encoder=minilm", "retrieval.encoder_path=models/x"],
            "encoder_path has no effect with encoder: minilm",
        ),
        (["retrieval.encoder=path"], "encoder: path needs encoder_path"),
        (
            ["retrieval.encoder=path", "retrieval.encoder_path=x", "retrieval.dimensions=64"],
            "dimensions has no effect with encoder: path",
        ),
        (
            ["retrieval.k=0", "retrieval.encoder=path", "retrieval.encoder_path=x"],
            "encoder, encoder_path has no effect with k: 0",
        ),
    ],
)
def test_options_without_effect_are_refused(overrides, words):
    with pytest.raises(ConfigError, match=words):
        load_config(None, overrides)


def refuse(texts):
    raise AssertionError(f"embedded again: {texts}")


def test_a_text_is_embedded_once_for_all_runs(bert, tmp_path):
    first = make_encoder(by_path(bert), tmp_path)
    vectors = first(TEXTS)
    again = make_encoder(by_path(bert), tmp_path)
    again._embed = refuse
    assert np.array_equal(again(TEXTS[::-1] + TEXTS), np.concatenate([vectors[::-1], vectors]))
    with pytest.raises(AssertionError, match="embedded again: .'pen 3'."):
        again(["pen 3"])
    assert np.array_equal(first(TEXTS), vectors)


def test_embeddings_of_another_encoder_are_not_used(bert, tmp_path):
    one, other = (
        make_encoder(by_path(bert), tmp_path),
        make_encoder(by_path(save_bert(tmp_path / "other", seed=1)), tmp_path),
    )
    vectors = one(TEXTS)
    assert np.abs(other(TEXTS) - vectors).max() > 0.01
    assert np.array_equal(make_encoder(by_path(bert), tmp_path)(TEXTS), vectors)


def test_hashing_stores_nothing_on_disk(tmp_path):
    make_encoder(RetrievalConfig(), tmp_path)(TEXTS)
    assert not list(tmp_path.iterdir())


def write_many(path, process, barrier):
    cache = EmbeddingCache(path, "encoder", 8)
    barrier.wait()
    for n in range(60):
        cache.write({f"{process}/{n}": np.full(8, n, np.float32), f"shared/{n}": np.full(8, n, np.float32)})
        assert cache.read([f"shared/{n}"])[f"shared/{n}"][0] == n


def test_several_processes_may_write_at_once(tmp_path):
    context, path = multiprocessing.get_context("fork"), tmp_path / "embeddings.sqlite"
    barrier = context.Barrier(3)
    writers = [context.Process(target=write_many, args=(path, process, barrier)) for process in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    names = [f"{owner}/{n}" for owner in (0, 1, 2, "shared") for n in range(60)]
    results = EmbeddingCache(path, "encoder", 8).read(names)
    assert list(results) and set(results) == set(names)


def test_a_damaged_cache_is_renamed_and_started_again(tmp_path, caplog):
    path = tmp_path / "embeddings.sqlite"
    path.write_bytes(b"This was a database once." * 100)
    cache = EmbeddingCache(path, "encoder", 2)
    assert "is damaged" in caplog.text and "embeddings.damaged" in caplog.text
    cache.write({"a": np.ones(2, np.float32)})
    assert cache.read(["a", "b"]).keys() == {"a"} and (tmp_path / "embeddings.damaged").is_file()


def test_texts_are_embedded_without_a_usable_cache(bert, tmp_path, caplog):
    (tmp_path / "file").write_text("Not a directory.")
    with caplog.at_level(logging.WARNING):
        encoder = make_encoder(by_path(bert), tmp_path / "file")
    assert "cannot be used" in caplog.text
    assert encoder(TEXTS).shape == (5, 32)


def test_a_cached_vector_of_another_length_is_not_used(tmp_path):
    cache = EmbeddingCache(tmp_path / "embeddings.sqlite", "encoder", 4)
    cache.write({"a": np.ones(4, np.float32), "b": np.ones(4, np.float32)})
    with sqlite3.connect(tmp_path / "embeddings.sqlite") as database:
        database.execute(
            "UPDATE embeddings SET vector = x'0000' WHERE text = (SELECT min(text) FROM embeddings)"
        )
    assert len(cache.read(["a", "b"])) == 1
