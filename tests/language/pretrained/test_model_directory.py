"""A model is named by its directory or by its name on the hub, from a cache or with a clear error."""

from __future__ import annotations

from pathlib import Path

import pytest
from foreign import CHATML, make_checkpoint

from components.config import load_config
from components.errors import ConfigError
from components.language.pretrained.model_directory import ModelSource, find_model, is_hub_name
from flows.run.models.pinned_models import model_sources, pin_models

NAME = "maker/tiny-model"
COMMIT = "7ae557604adf67be50417f59c2c2f167def9a775"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The hub client's cache with one model, and no network."""
    from huggingface_hub import constants

    folder = tmp_path / "hub" / "models--maker--tiny-model"
    make_checkpoint(folder / "snapshots" / COMMIT, "llama", template=CHATML)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return folder / "snapshots" / COMMIT


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Qwen/Qwen2.5-0.5B-Instruct", True),
        (f"{NAME}@{COMMIT}", True),
        (f"{NAME}@main", False),
        ("/models/base", False),
        ("models/a/b", False),
        ("base", False),
    ],
)
def test_a_hub_name_is_an_owner_and_a_name(name, expected):
    assert is_hub_name(name) == expected


def test_a_directory_is_itself(tmp_path, monkeypatch):
    (tmp_path / "models" / "base").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert find_model("models/base") == ModelSource(Path("models/base"))


def test_a_model_in_the_cache_is_found_by_name_and_by_commit(cache):
    assert find_model(NAME) == find_model(f"{NAME}@{COMMIT}") == ModelSource(cache, COMMIT)


def test_without_a_network_a_missing_model_is_refused_with_what_to_type(cache):
    for name in ("maker/other", f"{NAME}@{'0' * 40}"):
        with pytest.raises(ConfigError, match=r"no directory '.*hf download maker/.*make model"):
            find_model(name)


def test_a_run_records_the_commit_of_its_model(cache):
    config = pin_models(load_config(None, [f"backbone.path={NAME}"]))
    assert config.backbone.path == f"{NAME}@{COMMIT}" and config.experience_model.path == ""
    assert pin_models(config) == config
    assert model_sources(config) == {"backbone": f"{NAME}@{COMMIT}"}


def test_the_source_in_a_models_card_is_recorded(tmp_path):
    base = make_checkpoint(tmp_path / "base", "llama", template=CHATML)
    (base / "dreamgym.json").write_text('{"format": "chat", "source": "a package"}')
    config = load_config(None, [f"backbone.path={base}"])
    assert pin_models(config) == config
    assert model_sources(config) == {"backbone": f"{base}: a package"}
