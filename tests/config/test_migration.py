"""Recorded configs of earlier versions are read with the present keys: cells of studies, model cards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from components.config import Config, PretrainConfig, load_config
from components.config.migration import main, migrate, migrate_pretrain, migrate_stage, removed_options
from components.errors import ConfigError

RESULTS = Path(__file__).parents[2] / "docs" / "results"
RECORDS = [path for path in sorted(RESULTS.rglob("*.json")) if '"origin"' in path.read_text()[:200_000]]


def test_there_are_recorded_cells():
    assert len(RECORDS) > 100


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.relative_to(RESULTS).as_posix())
def test_a_recorded_cell_has_a_config_that_loads(path):
    recorded = json.loads(path.read_text())["origin"]["config"]
    config = Config.model_validate(migrate(recorded, allow_removed=True))
    assert set(removed_options(recorded).values()) <= {0.5}, "interpolation, in some cells"
    assert migrate(config.model_dump(mode="json")) == config.model_dump(mode="json")


def test_an_earlier_rl_section_is_read_as_a_stage_of_rl():
    stage = {
        "algorithm": "grpo",
        "group": 4,
        "clip": 0.1,
        "kl": 0.2,
        "interpolation": 1.0,
        "grpo": {"step_weight": 1.0, "normalise": False, "negative_weight": 0.5},
        "ppo": {"clusters": 8},
        "budget": 5000,
    }
    algorithm = {"type": "grpo", "epsilon": 0.1, "beta": 0.2, "step_weight": 1.0}
    algorithm |= {"scale_rewards": False, "negative_advantage_weight": 0.5}
    assert migrate_stage(stage) == {
        "algorithm": algorithm,
        "num_generations": 4,
        "budget": 5000,
    }


def test_options_of_a_text_world_are_read_from_the_section_of_the_named_world():
    worlds = {"gymnasium": {"instruction": "count", "factory": "m:f"}, "openenv": {"instruction": ""}}
    assert migrate({"environment": {"name": "gymnasium", **worlds}})["environment"] == {
        "name": "gymnasium",
        "text": {"instruction": "count"},
        "gymnasium": {"factory": "m:f"},
        "openenv": {},
    }


def test_the_timeout_of_an_openenv_server_is_that_of_the_environment():
    server = {"url": "http://localhost:8000", "timeout_seconds": 30.0}
    found = migrate({"environment": {"name": "openenv", "openenv": server}})["environment"]
    assert found["timeout_seconds"] == 30 and found["openenv"] == {"url": "http://localhost:8000"}
    unused = migrate({"environment": {"name": "alfworld", "openenv": server}})["environment"]
    assert "timeout_seconds" not in unused


def test_a_removed_option_with_another_value_is_refused():
    with pytest.raises(ConfigError, match=r"synthetic_rl\.interpolation=0\.5.*1\.0 is always used"):
        migrate({"synthetic_rl": {"interpolation": 0.5}})


def test_the_reward_of_an_earlier_ppo_is_left_out_and_heros_is_refused():
    for earlier in (
        {"rl": {"dream": {"algorithm": {"type": "ppo", "reward": "outcome", "gae_lambda": 0.9}}}},
        {"synthetic_rl": {"algorithm": "ppo", "reward": "outcome", "ppo": {"gae_lambda": 0.9}}},
    ):
        dream = migrate(earlier)["rl"]["dream"]
        assert dream["algorithm"] == {"type": "ppo", "gae_lambda": 0.9}
        assert Config.model_validate({"rl": {"dream": dream}}).rl.dream.algorithm.gae_lambda == 0.9
    hero = migrate({"rl": {"dream": {"algorithm": {"type": "ppo", "reward": "hero"}}}})
    with pytest.raises(ValidationError, match="reward"):
        Config.model_validate(hero)


def test_a_card_with_several_trainings_is_read_as_a_list_of_phases():
    card = {"tasks": 5, "tokens": 7, "optimizer": "muon", "phases": [{"copy_tokens": 0}, {"tokens": 0}]}
    recipe = migrate_pretrain(card)
    assert recipe == {"tasks": 5, "phases": [{"tokens": 7, "copy_tokens": 0}, {"tokens": 0}]}
    assert len(PretrainConfig(**recipe).phases) == 2


def test_the_printed_config_can_be_loaded(tmp_path):
    earlier = {"synthetic_rl": {"algorithm": "rft", "rft": {"learning_rate": 0.002, "most": 3}}}
    (tmp_path / "new.json").write_text(json.dumps(migrate(earlier)))
    stage = load_config(tmp_path / "new.json").rl.dream
    assert (stage.algorithm.max_successes, stage.learning_rate) == (3, 0.002)


def test_the_command_prints_a_yaml_file_with_todays_keys(tmp_path, capsys):
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text("seed: 3\nsynthetic_rl:\n  group: 4\n  iterations: 2\n")
    main([str(old)])
    new.write_text(capsys.readouterr().out)
    config = load_config(new)
    assert config.seed == 3 and config.rl.dream.num_generations == 4 and config.rl.dream.iterations == 2


@pytest.mark.parametrize(
    ("text", "words"), [("[1]", "not a mapping"), ("a: [", "cannot be migrated"), (None, "No such file")]
)
def test_the_command_names_a_file_that_it_cannot_read(tmp_path, capsys, text, words):
    file = tmp_path / "old.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SystemExit, match="2"):
        main([str(file)])
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(("earlier", "today"), [("off", "compact"), ("auto", "auto")])
def test_the_chat_template_of_an_earlier_backbone_is_read_as_its_text_format(earlier, today):
    backbone = {"path": "models/base", "chat_template": earlier}
    assert migrate({"backbone": backbone}) == {"backbone": {"path": "models/base", "format": today}}
    with pytest.raises(ConfigError, match=r"backbone\.chat_template is now backbone\.format"):
        load_config(None, [f"backbone.chat_template={earlier}"])
