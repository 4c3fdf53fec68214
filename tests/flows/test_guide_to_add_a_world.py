"""The guide "Add a world": its configs and its shop go through collect, pretrain and retrain as they are."""

from __future__ import annotations

import json
import re

import pytest
from foreign import CHATML, make_checkpoint
from small_job import ANYHOW, ROOT, SMALL, make_clone, run
from text_worlds import counting_server

from components.errors import PROMOTION_REFUSED

GUIDE = ROOT / "docs" / "guides" / "add-a-world.md"
TINY_BACKBONE = [
    *("backbone.hidden=64", "backbone.layers=2"),
    "pretrain.phases=[{copy_tokens: 2000, compare_tokens: 2000, edit_tokens: 0, tokens: 20000}]",
]
FEW = ["data.train_tasks=24", "data.fidelity_tasks=4", "data.random=2"]
"""Fewer episodes than the guide records, for the test's speed."""


def block(language, word):
    """Return the first code block of the guide in a language that contains a word."""
    blocks = re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return next(text for text in blocks if word in text)


@pytest.fixture(scope="module", params=["gymnasium", "openenv"])
def guided(request, tmp_path_factory):
    """A clone whose user has typed the guide's first two commands, and the overrides of the further ones."""
    clone = make_clone(tmp_path_factory.mktemp(request.param) / "clone")
    (clone / "my_shop.py").write_text(block("python", "class Shop"))
    config = block("yaml", f"name: {request.param}")
    assert len(config.splitlines()) <= 10
    (clone / "my_world.yaml").write_text(config)
    with counting_server() as url:
        overrides = [*FEW, *[f"environment.openenv.url={url}"] * (request.param == "openenv")]
        code, text = type_command((clone, overrides), "check-environment")
        assert code == 0 and "cannot be played:" not in text, text
        code, text = type_command((clone, overrides), "collect")
        assert code == 0, text
        yield clone, overrides


def type_command(guided, verb, *words):
    clone, overrides = guided
    return run(clone, "--config", "my_world.yaml", *words, *overrides, verb=(verb,), small=False)[:2]


def fitted_values(text):
    return [line for line in text.splitlines() if line.startswith("Set from the recorded data")]


def test_a_chat_model_of_the_users_is_accepted(guided):
    model = make_checkpoint(guided[0] / "model", "llama", template=CHATML, max_position_embeddings=4096)
    code, text = type_command(guided, "retrain", "--dry-run", f"backbone.path={model}")
    assert code == 0, text
    fitted = "\n".join(fitted_values(text))
    assert "cloning.behaviours=['random']" in fitted and "cloning.demonstrations=48" in fitted
    assert "fidelity.tasks=4" in fitted and "fidelity.policy_tasks=24" in fitted
    assert "rl.dream.demonstration_weight=0.0" in fitted


@pytest.mark.timeout(900)
def test_a_small_backbone_is_made_and_the_main_job_ends(guided):
    code, text = type_command(guided, "pretrain", *TINY_BACKBONE)
    assert code == 0, text
    small = [*SMALL, *ANYHOW, "rl.real.budget=120"]
    code, text = type_command(guided, "retrain", *TINY_BACKBONE, *small)
    assert code in (0, PROMOTION_REFUSED) and fitted_values(text), text
    latest = guided[0] / "runs" / "latest"
    assert json.loads((latest / "config.json").read_text())["cloning"]["behaviours"] == ["random"]
    assert json.loads((latest / "metrics.json").read_text())["evaluate/refined/success_rate"]["n"] == 6
