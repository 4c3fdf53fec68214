"""SmolLM2 from its package: the converted model is checked by its content and speaks as the original does."""

from __future__ import annotations

import importlib.metadata
import shutil

import pytest
import torch

from components.errors import ConfigError, DataError
from components.language.backbone import load_backbone
from components.language.engines.kept_cache import KeptCacheEngine
from components.language.pretrained import smollm2
from components.language.pretrained.smollm2 import CONTENT, content_hash, convert_smollm2


def is_installed() -> bool:
    try:
        return all(importlib.metadata.version(name) for name in (smollm2.PACKAGE, "gguf"))
    except importlib.metadata.PackageNotFoundError:
        return False


needs_package = pytest.mark.skipif(
    not is_installed(), reason="SmolLM2's package is not installed: make model"
)


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    target = tmp_path_factory.mktemp("models") / "smollm2"
    assert convert_smollm2(target)
    return target


@needs_package
def test_the_converted_model_has_the_expected_content_and_is_not_converted_again(converted):
    assert content_hash(converted) == CONTENT
    assert not convert_smollm2(converted)


@needs_package
def test_a_damaged_model_is_refused_with_what_to_type(converted, tmp_path):
    damaged = tmp_path / "smollm2"
    shutil.copytree(converted, damaged)
    template = damaged / "chat_template.jinja"
    template.write_text(template.read_text().replace("SmolLM", "Another"))
    with pytest.raises(DataError, match=r"holds another model.*rm -r .*make model"):
        convert_smollm2(damaged)
    (damaged / "model.safetensors").write_bytes(b"")
    with pytest.raises(DataError, match=r"cannot be read as the converted model.*make model"):
        convert_smollm2(damaged)


@needs_package
def test_it_answers_a_question_in_its_own_template(converted):
    model, vocabulary = load_backbone(converted)
    assert vocabulary.format == "chat" and len(vocabulary) == model.get_input_embeddings().weight.shape[0]
    prompt = vocabulary.begin("What is the capital of France?") + vocabulary.reply_start
    session = KeptCacheEngine(model, vocabulary).open(1, 64)
    answer = session.generate({0: prompt}, stop=vocabulary.stop_ids, max_new_tokens=12, temperature=0.0)[0]
    assert vocabulary.reply_text(answer.tokens) == "The capital of France is Paris." and answer.stopped
    with torch.no_grad():
        logits = model(torch.tensor([prompt + answer.tokens])).logits[0].log_softmax(-1)
    plain = [float(logits[len(prompt) + n - 1, token]) for n, token in enumerate(answer.tokens)]
    assert answer.logprobs == pytest.approx(plain, abs=1e-3)


def test_without_the_package_the_command_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(smollm2, "PACKAGE", "no-such-package")
    with pytest.raises(ConfigError, match=r"not installed.*Type: make model"):
        convert_smollm2(tmp_path / "smollm2")
    assert not (tmp_path / "smollm2").exists()
