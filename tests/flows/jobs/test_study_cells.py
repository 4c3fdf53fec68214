"""The points of a cell's curve on the held-out games."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from components.config import Config
from components.config.migration import migrate
from components.evaluation.study.cells import Cell
from flows.jobs.studies.study_cells import _held_out_curve, _mean_figures, _rl_curves, read_cell, write_cell


def stage(name, interactions, tmp_path, *, success_rates=(0.5, 0.5)):
    """Return a stage's result with its curves, and the games that its policies on the way played."""
    games = tmp_path / f"{name}.json"
    games.write_text(json.dumps({"0002": {"a": True, "b": False}}))
    series = {f"{name}/interactions": interactions, f"{name}/success_rate": list(success_rates)}
    own = SimpleNamespace(name=name, details={"series": series})
    return {name: own, f"snapshots_{name}": SimpleNamespace(outputs={"games": games})}


def test_a_policy_on_the_way_has_the_costs_of_its_iteration(tmp_path):
    curve = [[10.0, 0.0, 1.0, 0.1], [20.0, 0.0, 2.0, 0.2]]
    results = stage("real_rl", [10.0, 10.0], tmp_path)
    assert _held_out_curve([results], ["real_rl"], curve) == [[20.0, 0.0, 2.0, 0.5]]


def test_learning_from_logs_has_no_curve(tmp_path):
    """Its loop counts no interactions in each iteration, and has no rate of success."""
    logged = stage("logged_rl", [0.0, 0.0], tmp_path, success_rates=())
    assert _held_out_curve([logged], ["logged_rl"], []) == []


def result(name, **series):
    """Return a stage's result with curves; `__` stands for `/`."""
    curves = {f"{name}/{curve.replace('__', '/')}": values for curve, values in series.items()}
    return SimpleNamespace(name=name, metrics={}, details={"series": curves})


def test_a_cell_has_the_figures_of_its_method_in_each_iteration():
    """Null in the stage's file and None in the cell: an iteration without pairs."""
    first = result("synthetic_rl", margin=[0.5, None], preferred=[1.0, None], lessons=[2.0, 0.0])
    second = result("synthetic_rl", margin=[0.25], preferred=[0.5], reward_model__auc=[0.75])
    real = result("sim_to_real", implicit_accuracy=[0.5], implicit_loss=[0.6], length=[3.0])
    assert _rl_curves([first, real, second]) == {
        "synthetic_rl/margin": [0.5, None, 0.25],
        "synthetic_rl/preferred": [1.0, None, 0.5],
        "synthetic_rl/reward_model/auc": [0.75],
        "sim_to_real/implicit_accuracy": [0.5],
        "sim_to_real/implicit_loss": [0.6],
    }
    assert _rl_curves([]) == {}


@pytest.mark.parametrize(("series", "updates"), [({"loss": [1.0] * 5}, 5), ({"world__loss": [2.0] * 3}, 3)])
def test_a_cell_has_the_number_of_optimiser_updates_of_its_clone(series, updates):
    clone = result("clone", **series)
    both = result("clone", loss=[1.0] * 5, world__loss=[2.0] * 3)
    assert _mean_figures(SimpleNamespace(results={"clone": clone}), [])["clone/updates"] == updates
    assert _mean_figures(SimpleNamespace(results={"clone": both}), [])["clone/updates"] == 8


def test_an_older_cell_without_these_curves_is_finished(tmp_path):
    """Such cells of the study of methods are read, so that `--finished` runs none of them again."""
    directory = Path(__file__).parents[3] / "docs" / "results" / "study-logs-only"
    files = sorted(directory.glob("*.json"))
    older = [path for path in files if '"rl_curves"' not in path.read_text()]
    assert older
    for path in older:
        method, _, seed = path.stem.rpartition("-")
        origin = json.loads(path.read_text())["origin"]
        cell = read_cell(directory, method, int(seed), today(origin))
        assert cell.rl_curves == {} and "clone/updates" not in cell.figures
    new = Cell("clone", 0, origin, {"g": True}, rl_curves={"synthetic_rl/margin": [0.5, None]})
    write_cell(tmp_path, new)
    assert read_cell(tmp_path, "clone", 0, today(origin)).rl_curves == new.rl_curves


def today(origin):
    """Return the origin with the config's present keys, as `origin_of` would make it."""
    config = Config.model_validate(migrate(origin["config"], allow_removed=True)).model_dump(mode="json")
    kept = {name: config[name] for name in origin["config"] if name in config}
    return {**origin, "config": kept}
