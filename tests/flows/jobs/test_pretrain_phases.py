"""A pretraining in several phases: settings and key of each, and a killed command continues in its phase."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest
from small_job import command_of, environment_of, make_clone, shared_server

from components.config import Config, load_config
from components.errors import ConfigError
from flows.jobs.pretraining.corpus import pretraining_environment, require_held_out_types
from flows.jobs.pretraining.phases import is_finished, phase_key

FOUR = "[click-button, click-link, choose-list, enter-text]"
BROWSER = ["environment.name=browser", f"environment.browser.types={FOUR}"]
TINY = [
    *(
        "pretrain.tasks=2",
        "pretrain.sizes=[4]",
        "pretrain.max_steps=3",
    ),
    *(
        "backbone.hidden=16",
        "backbone.layers=1",
        "backbone.heads=2",
        "backbone.key_value_heads=1",
        "backbone.vocabulary=400",
    ),
    *("threads=1", "environment.workers=1", "retrieval.k=0"),
    "pretrain.phases=[{copy_tokens: 0, edit_tokens: 0, compare_tokens: 3000, tokens: 3000}, "
    "{copy_tokens: 0, edit_tokens: 0, compare_tokens: 0, tokens: 40000, text_rate: 0.5}]",
]


def test_each_phase_has_its_own_settings_and_seed():
    phases = "pretrain.phases=[{tokens: 5, renamed: 2}, {copy_tokens: 0, text_rate: 0.5}]"
    trainings = load_config(None, ["pretrain.seed=7", phases]).pretrain.trainings()
    (first,), (second,) = (training.phases for training in trainings)
    assert (first.tokens, first.copy_tokens, first.text_rate, first.renamed) == (5, 2_000_000, 1.0, 2)
    assert (second.tokens, second.copy_tokens, second.text_rate, second.renamed) == (28_000_000, 0, 0.5, 0)
    assert [training.seed for training in trainings] == [7, 8], "other names and batches in each phase"
    assert Config().pretrain.trainings() == [Config().pretrain]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["pretrain.phases=[{tokns: 3}]"],
            r"Unknown key pretrain\.phases\.0\.tokns\. Did you mean pretrain\.phases\.0\.tokens",
        ),
        (["pretrain.phases=[{seed: 3}]"], r"Unknown key pretrain\.phases\.0\.seed"),
        (
            ["pretrain.phases=[{tokens: 0, renamed: 2}]"],
            r"renamed has no effect with tokens: 0",
        ),
        (["pretrain.phases=[{}, {tokens: -1}]"], r"pretrain\.phases\.1\.tokens is -1: expected at least 0"),
        (["pretrain.types=[click-link]"], r"types has no effect with environment\.name: alfworld"),
    ],
)
def test_an_invalid_phase_is_refused(overrides, words):
    with pytest.raises(ConfigError, match=words):
        load_config(None, overrides)


def test_pretraining_plays_further_types_but_none_of_the_test_split():
    config = load_config(
        None, [*BROWSER, "pretrain.types=[click-link, click-tab-2, click-option, enter-text, login-user]"]
    )
    require_held_out_types(config)
    assert pretraining_environment(config).browser.types == config.pretrain.types
    assert pretraining_environment(config).browser.elements == config.environment.browser.elements
    leaky = load_config(
        None, [*BROWSER, "pretrain.types=[click-link, enter-text, click-option, click-tab-2]"]
    )
    with pytest.raises(
        ConfigError,
        match=r"would train on enter-text, which environment\.browser\.types keeps for the test split",
    ):
        require_held_out_types(leaky)
    require_held_out_types(load_config(None, BROWSER))


def test_the_shipped_recipe_plays_in_the_world_of_the_shipped_job():
    recipe, job = (load_config(f"configs/{name}-browser.yaml") for name in ("pretrain", "quick"))
    assert recipe.environment == job.environment and recipe.backbone == job.backbone
    assert recipe.experience_model.max_new_tokens <= job.experience_model.max_new_tokens
    require_held_out_types(recipe)
    assert set(job.environment.browser.types) <= set(recipe.pretrain.types)


def test_the_key_of_a_phase_depends_on_its_settings_and_on_all_before_it(tmp_path):
    config = load_config(None, ["pretrain.phases=[{tokens: 5}, {tokens: 6}]"])
    phases = [config.model_copy(update={"pretrain": settings}) for settings in config.pretrain.trainings()]
    keys = {phase_key(phase, before) for phase in phases for before in ("corpus a", "corpus b")}
    assert len(keys) == 4
    assert phase_key(phases[0], "corpus a") == phase_key(
        phases[0].model_copy(update={"threads": 5}), "corpus a"
    )
    assert not is_finished(tmp_path, "key")
    (tmp_path / "card.json").write_text(json.dumps({"phase": {"key": "key"}}))
    assert is_finished(tmp_path, "key") and not is_finished(tmp_path, "other")


@pytest.mark.slow
def test_a_command_killed_in_its_second_phase_continues_there(tmp_path):
    """The same weights as without the kill; the first phase is not trained again."""
    clone = make_clone(tmp_path / "clone")
    environment = environment_of(clone) | {"PREFECT_API_URL": shared_server()}

    def command(to):
        return command_of("pretrain", "--root", str(clone), "--to", str(to), *TINY)

    log = tmp_path / "killed.log"
    with log.open("w") as file:
        killed = subprocess.Popen(
            command(tmp_path / "again"), cwd=clone, env=environment, stdout=file, stderr=subprocess.STDOUT
        )
        until = time.monotonic() + 300
        while "phase 2 of 2" not in log.read_text() and killed.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        assert killed.poll() is None, log.read_text()
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
    assert (clone / ".dreamgym" / "pretrain" / "phase-1" / "model" / "card.json").is_file()
    again = subprocess.run(
        command(tmp_path / "again"), cwd=clone, env=environment, capture_output=True, text=True, timeout=500
    )
    assert again.returncode == 0, again.stdout + again.stderr
    assert "phase 1 of 2 was finished before" in again.stdout + again.stderr
    whole = subprocess.run(
        command(tmp_path / "whole"), cwd=clone, env=environment, capture_output=True, text=True, timeout=500
    )
    assert whole.returncode == 0 and "was finished before" not in whole.stdout + whole.stderr
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("again", "whole")]
    assert files[0] == files[1]
    card = json.loads((tmp_path / "again" / "card.json").read_text())
    assert (card["phase"]["number"], card["phase"]["of"], len(card["went_on_from"])) == (2, 2, 1)
    assert (
        card["recipe"]["phases"][1]["tokens"] == 40_000
        and card["went_on_from"][0]["pretrain"]["tokens"] == 3000
    )
    assert not list((clone / ".dreamgym" / "pretrain").glob("phase-*"))
