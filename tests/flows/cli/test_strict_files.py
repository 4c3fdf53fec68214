"""Files that people write or merge are read as strictly as configs: no repeated key, seeds are integers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prefect.exceptions import ParameterTypeError

from components.environments.text_world.replayed_behaviours import read_demonstrations
from components.errors import ConfigError, DataError
from components.evaluation.study.cells import Cell
from components.files import parse_json
from components.trajectories.dvc.pointer import parse_pointer
from flows.deployment.prefect_yaml import read_deployments
from flows.deployment.scheduled_flows import study_from_file
from flows.jobs.studies.study_cells import cell_file, read_cell, write_cell

ROOT = Path(__file__).parents[3]


def test_a_repeated_key_in_json_is_refused_at_every_level():
    assert parse_json('{"a": {"b": 1}, "c": [{"b": 2}]}') == {"a": {"b": 1}, "c": [{"b": 2}]}
    for text in ('{"a": 1, "a": 2}', '{"x": {"a": 1, "a": 1}}', '[{"a": 1, "a": 2}]'):
        with pytest.raises(ValueError, match="the key 'a' stands twice"):
            parse_json(text)


def _prefect_yaml(tmp_path, parameters):
    path = tmp_path / "prefect.yaml"
    lines = "".join(f"      {line}\n" for line in parameters)
    path.write_text(
        f"deployments:\n  - name: study\n    work_pool: {{name: dreamgym}}\n    parameters:\n{lines}"
    )
    return path


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        ("[true]", "contain true: expected an integer in decimal digits"),
        ("[0, 010]", r"contain 010: expected an integer.*YAML 1.1 reads this as 8"),
        ("[1:30]", "contain 1:30: expected an integer.*YAML 1.1 reads this as 90"),
        ('["1"]', "contain 1: expected an integer.*this is text in quotes"),
        ("[-1]", "contain -1.*Expected a list of integers from 0"),
        ("[1, 2, 1]", "contain 1 twice"),
        ("3", "are 3.*Expected a list"),
    ],
)
def test_seeds_of_a_deployment_are_decimal_integers(tmp_path, seeds, words):
    with pytest.raises(ConfigError, match=f"seeds of the deployment study {words}"):
        read_deployments(_prefect_yaml(tmp_path, [f"seeds: {seeds}"]))


def test_a_repeated_key_in_prefect_yaml_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="the key seeds is already in line 5"):
        read_deployments(_prefect_yaml(tmp_path, ["seeds: [0]", "seeds: [1]"]))
    (study,) = read_deployments(_prefect_yaml(tmp_path, ["seeds: [0, 2]"]))
    assert study["parameters"]["seeds"] == [0, 2]
    assert {entry["name"] for entry in read_deployments(ROOT / "prefect.yaml")} == {
        "retrain",
        "study",
        "watch-data",
    }


@pytest.mark.parametrize("seeds", [[True], ["010"], ["1"], [1.0], [-1]])
def test_seeds_of_a_scheduled_study_are_no_other_values_that_are_read_as_integers(seeds):
    with pytest.raises(ParameterTypeError, match="seeds.0"):
        study_from_file.validate_parameters({"seeds": seeds})
    assert study_from_file.validate_parameters({"seeds": [0, 7]})["seeds"] == [0, 7]


def test_a_repeated_seed_of_a_scheduled_study_is_refused():
    with pytest.raises(ConfigError, match="seeds contain 3 twice"):
        study_from_file.fn(seeds=[3, 1, 3])


@pytest.mark.parametrize(
    ("written", "asked"), [('"seed": true', 1), ('"seed": 1.0', 1), ('"seed": "1"', 1), ('"seed": 4', 1)]
)
def test_a_cell_of_another_seed_is_refused(tmp_path, written, asked):
    path = write_cell(tmp_path, Cell("clone", 1, {}))
    path.write_text(path.read_text().replace('"seed": 1', written))
    with pytest.raises(DataError, match="with the seed .*Expected the method clone and the seed 1"):
        read_cell(tmp_path, "clone", asked, {})


def test_a_cell_with_a_repeated_key_is_refused(tmp_path):
    path = write_cell(tmp_path, Cell("clone", 1, {}, games={"a": True}))
    values = json.loads(path.read_text())
    twice = json.dumps(values)[:-1] + ', "games": {"a": false}}'
    cell_file(tmp_path, "clone", 1).write_text(twice)
    with pytest.raises(DataError, match="no cell of a study: the key 'games' stands twice"):
        read_cell(tmp_path, "clone", 1, {})


def test_a_data_dvc_with_a_repeated_key_is_refused():
    part = "- md5: {0}.dir\n  size: 1\n  nfiles: 1\n  hash: md5\n  path: data\n"
    whole = "outs:\n" + part.format("1" * 32)
    assert parse_pointer(whole, "data.dvc")[0].md5 == "1" * 32 + ".dir"
    with pytest.raises(DataError, match="the key outs is already in line 1"):
        parse_pointer(whole + "outs:\n" + part.format("2" * 32), "data.dvc")


def test_a_task_with_two_demonstrations_is_refused(tmp_path):
    path = tmp_path / "solutions.jsonl"
    path.write_text('{"task": "a", "actions": ["go"]}\n{"task": "a", "actions": ["stop"]}\n')
    with pytest.raises(DataError, match="Line 2 .* has the task 'a', which an earlier line has already"):
        read_demonstrations(str(path))
    path.write_text('{"task": "a", "actions": ["go"], "actions": ["stop"]}\n')
    with pytest.raises(DataError, match="Line 1"):
        read_demonstrations(str(path))
