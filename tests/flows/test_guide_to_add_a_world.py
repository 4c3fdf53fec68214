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
FITTED = ("fidelity.tasks", "fidelity.policy_tasks", "cloning.demonstrations")


def block(language, word):
    """Return the first code block of the guide in a language that contains a word."""
    blocks = re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return next(text for text in blocks if word in text)


@pytest.fixture
def clone(tmp_path):
    return make_clone(tmp_path / "clone")


def follow(clone, *overrides):
    """Type the guide's commands with a tiny backbone and a small job; return what `retrain` printed."""

    def type_command(verb, *words, codes=(0,)):
        code, text, _ = run(clone, "--config", "my_world.yaml", *words, *overrides, verb=(verb,), small=False)
        assert code in codes, text
        return text

    checked = type_command("check-environment")
    assert "The adapter keeps the whole contract." in checked and "cannot be played:" not in checked
    type_command("collect")
    backbone = make_checkpoint(clone / "model", "llama", template=CHATML, max_position_embeddings=4096)
    planned = type_command("retrain", "--dry-run", f"backbone.path={backbone}")
    type_command("pretrain", *TINY_BACKBONE)
    small = [word for word in (*SMALL, *ANYHOW) if not word.startswith(FITTED)]
    text = type_command("retrain", *TINY_BACKBONE, *small, codes=(0, PROMOTION_REFUSED))
    fitted = [line for line in text.splitlines() if line.startswith("Set from the recorded data")]
    assert fitted == [line for line in planned.splitlines() if line.startswith("Set from the recorded data")]
    return "\n".join(fitted)


def test_the_shop_of_the_guide_is_trained_in(clone):
    (clone / "my_shop.py").write_text(block("python", "class Shop"))
    config = block("yaml", "name: gymnasium")
    assert len(config.splitlines()) <= 10
    (clone / "my_world.yaml").write_text(config)
    fitted = follow(clone)
    assert "cloning.behaviours=['random']" in fitted and "rl.dream.demonstration_weight=0.0" in fitted
    used = json.loads((clone / "runs" / "latest" / "config.json").read_text())
    assert used["cloning"]["behaviours"] == ["random"]
    metrics = json.loads((clone / "runs" / "latest" / "metrics.json").read_text())
    assert metrics["evaluate/refined/success_rate"]["n"] == 6


def test_an_openenv_server_with_few_tasks_is_trained_in(clone):
    config = block("yaml", "name: openenv")
    assert len(config.splitlines()) <= 10
    (clone / "my_world.yaml").write_text(config)
    with counting_server() as url:
        fitted = follow(clone, f"environment.openenv.url={url}")
    assert "fidelity.tasks=8" in fitted and "fidelity.policy_tasks=40" in fitted
    assert "cloning.behaviours=['random']" in fitted
