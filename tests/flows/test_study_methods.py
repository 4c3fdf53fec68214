"""The configs of a study's cells: every method's is valid, a tenth is a tenth, what is idle is left out; and cells on disk."""

from __future__ import annotations

import pytest

from components.config import load_config
from components.errors import ConfigError, DataError
from components.evaluation.study import Cell
from flows.study_cells import read_cell, write_cell
from flows.study_methods import METHODS, chosen_methods, configured

FAMILIES = ["f", "e", "d", "c", "b", "a"]
ROOM = ["sim_to_real.tasks=4", "sim_to_real.group=4"]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("file", ["configs/quick.yaml", "configs/cpu.yaml"])
def test_every_method_has_a_valid_config(name, file):
    config = configured(load_config(file, ROOM), name, 7, FAMILIES)
    method = METHODS[name]
    assert config.seed == 7 and config.data.families == (["a", "b", "c"] if method.transfer else [])
    if method.dream:
        assert config.synthetic_rl.algorithm == method.dream
    if method.real:
        assert getattr(config, method.stages[-1]).algorithm == method.real
    if method.dream and method.real:
        assert 10 * config.sim_to_real.budget <= config.real_rl.budget


def test_ppo_plays_as_many_tasks_once_as_others_have_rollouts():
    before = load_config(None, ["synthetic_rl.grpo.step_weight=1.0", "synthetic_rl.tasks=16", "synthetic_rl.group=8"])
    section = configured(before, "dream-ppo", 0, FAMILIES).synthetic_rl
    assert (section.tasks, section.group) == (128, 1) and section.grpo.step_weight == 2.0, "GRPO's own options are left out"


def test_offline_dpo_never_synchronises():
    section = configured(load_config(None, ["real_rl.clip=0.1"]), "dpo-offline", 0, FAMILIES).real_rl
    assert section.dpo.sync_every == 0 and section.clip == 0.2 and section.budget == 20_000


def test_a_tenth_without_room_for_an_iteration_is_refused():
    with pytest.raises(ConfigError, match="A 10th of real_rl.budget is 2000 steps; an iteration of sim_to_real may take 2560"):
        configured(load_config(None, ["environment.max_steps=40"]), "s2r-grpo", 0, FAMILIES)


def test_methods_are_named():
    assert chosen_methods("") == list(METHODS) and chosen_methods("dream-ppo, clone") == ["clone", "dream-ppo"]
    with pytest.raises(ConfigError, match="no method 'dreem'.*dream-grpo"):
        chosen_methods("dreem")


def test_a_cell_comes_back_for_its_key_alone(tmp_path):
    cell = Cell("clone", 3, "abc", {"g": True}, {"g": "f"}, seconds={"x": 1.5}, curve=[[1.0, 2.0, 3.0, 0.5]])
    path = write_cell(tmp_path, cell)
    assert read_cell(tmp_path, "clone", 3, "abc") == cell and read_cell(tmp_path, "clone", 4, "abc") is None
    with pytest.raises(DataError, match="another config or other data .key abc.*rm "):
        read_cell(tmp_path, "clone", 3, "xyz")
    path.write_text(path.read_text()[:-20])
    with pytest.raises(DataError, match="no cell of a study.*rm "):
        read_cell(tmp_path, "clone", 3, "abc")
