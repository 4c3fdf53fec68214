"""A config that asks for other data than what lies there is refused before anything starts."""

from __future__ import annotations

import pytest

from components.config import load_config
from components.errors import ConfigError, DataError
from components.tracking.atomic import write_json
from flows.collect import recorded_settings
from flows.preflight import check_settings


@pytest.fixture
def recorded(tmp_path):
    (tmp_path / "data").mkdir()
    write_json(tmp_path / "data" / "settings.json", recorded_settings(load_config()))
    return tmp_path


def test_the_same_settings_pass_and_so_do_those_of_play(recorded):
    check_settings(recorded, load_config())
    check_settings(recorded, load_config(None, ["environment.max_steps=30", "environment.workers=1", "data.quarantine_share=0.5"]))


@pytest.mark.parametrize("override", ["environment.receptacles=20", "data.train_tasks=10", "data.seed=3", "environment.seed=1"])
def test_other_games_or_episodes_are_refused_with_both_values(recorded, override):
    name, asked = override.split("=")
    there = getattr(getattr(load_config(), name.split(".")[0]), name.split(".")[1])
    with pytest.raises(ConfigError, match=rf"recorded with {name}={there}; this config asks for {name}={asked}.*dreamgym collect"):
        check_settings(recorded, load_config(None, [override]))


def test_data_recorded_elsewhere_is_taken_as_it_is(tmp_path):
    check_settings(tmp_path, load_config(None, ["data.train_tasks=10"]))


@pytest.mark.parametrize("text", ["{", "[]", '{"data": 3}'])
def test_damaged_settings_are_named(recorded, text):
    (recorded / "data" / "settings.json").write_text(text)
    with pytest.raises(DataError, match="settings.json cannot be read"):
        check_settings(recorded, load_config())
