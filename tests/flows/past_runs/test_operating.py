"""The commands `compare`, `lineage` and `rollback` on a finished run."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from components.config import load_config
from components.errors import DataError
from components.tracking.chosen_model import choose_model, choose_stage
from components.tracking.manifest import Manifest
from components.tracking.mlflow_adapter.tracker import Tracker
from flows.cli import app as cli
from flows.stages.promote import PROMOTED_AT

TRAJECTORIES = "data/alfworld/trajectories"


@pytest.fixture(scope="module")
def clone(finished, tmp_path_factory):
    """A copy of the clone with a finished run, to which these tests add."""
    return shutil.copytree(finished.kept, tmp_path_factory.mktemp("operated") / "clone", symlinks=True)


@pytest.fixture
def dreamgym(clone, quiet_process):
    """Run a command there, in this process; return exit code and output."""

    def run(*arguments):
        done = CliRunner().invoke(cli.app, [*map(str, arguments), "--root", str(clone)])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, done.output

    return run


@pytest.fixture
def first(clone):
    """The run's manifest."""
    return Manifest.load((clone / "runs" / "latest").resolve())


@pytest.fixture
def second(clone, first):
    """Another run: the same but for another data version, threshold, package and count of real steps."""
    place = clone / "runs" / "29990101-000000-0000"
    shutil.copytree(clone / "runs" / first.run_id, place)
    values = first.model_dump(mode="json") | {"run_id": place.name}
    values["data"]["dvc_in"], values["environment"]["packages"]["numpy"] = "f" * 32 + ".dir", "0.1"
    values["data"]["parts_in"][TRAJECTORIES] = "e" * 32 + ".dir"
    values["config"]["promotion"]["threshold"] = 0.875
    next(stage for stage in values["stages"] if stage["name"] == "sim_to_real")["key"] = "e" * 64
    (place / "manifest.json").write_text(json.dumps(values))
    metrics = json.loads((place / "metrics.json").read_text())
    metrics["synthetic_rl/real_interactions"] |= {"value": 7.0, "low": 7.0, "high": 7.0}
    (place / "metrics.json").write_text(json.dumps(metrics))
    yield place.name
    shutil.rmtree(place)


def cells(said):
    """Return the rows of all tables."""
    return [
        [cell.strip() for cell in line.strip("│┃").split("│")]
        for line in said.splitlines()
        if line.startswith("│")
    ]


def test_compare_prints_only_what_differs(dreamgym, first, second, tmp_path):
    code, said = dreamgym("compare", first.run_id, second, "--json", tmp_path / "changes.json")
    assert code == 0, said
    rows = cells(said)
    at = next(place for place, row in enumerate(rows) if row[0] == "data")
    assert [row[1:] for row in rows[at : at + 2]] == [
        ["dvc_in", first.data.dvc_in, "f" * 32 + ".dir"],
        [TRAJECTORIES, first.data.parts_in[TRAJECTORIES], "e" * 32 + ".dir"],
    ]
    assert [row[1:] for row in rows if row[0] == "config"] == [["promotion.threshold", "0.0", "0.875"]]
    assert [row[1:] for row in rows if row[0] == "packages"] == [
        ["numpy", first.environment.packages["numpy"], "0.1"]
    ]
    assert not {"code", "prompts", "seeds", "machine"} & {row[0] for row in rows}
    (changed,) = (row for row in rows if "synthetic_rl/real_interactions" in row[0])
    assert changed[1:4] == ["0", "7", "+7"]
    told = json.loads((tmp_path / "changes.json").read_text())
    assert told["runs"] == [first.run_id, second] and set(told["differences"]) == {
        "data",
        "config",
        "packages",
    }
    assert list(told["metrics"]) == ["synthetic_rl/real_interactions"]


def test_compare_of_a_run_with_itself_and_with_none(dreamgym, first):
    code, said = dreamgym("compare", first.run_id)
    assert code == 1 and f"Both names mean the run {first.run_id}" in said
    code, said = dreamgym("compare", first.run_id, "20260101-000000-0000")
    assert code == 1 and "There is no run '20260101-000000-0000'" in said


@pytest.fixture
def copied(clone, first):
    """Create another run with the same stages, or with another key of the last stage; removed at the end."""
    run, stages = clone / "runs" / "29990102-000000-0000", clone / ".dreamgym" / "stages"
    shutil.copytree(clone / "runs" / first.run_id, run)

    def copy(key):
        values = first.model_dump(mode="json") | {"run_id": run.name}
        stage = next(stage for stage in values["stages"] if stage["name"] == "sim_to_real")
        if key != stage["key"]:
            made = shutil.copytree(
                stages / f"sim_to_real-{stage['key'][:12]}", stages / f"sim_to_real-{key[:12]}"
            )
            (made / "stage.json").write_text((made / "stage.json").read_text().replace(stage["key"], key))
            stage["key"] = key
        (run / "manifest.json").write_text(json.dumps(values))
        return run.name

    yield copy
    shutil.rmtree(run)
    shutil.rmtree(stages / f"sim_to_real-{'d' * 12}", ignore_errors=True)


@pytest.mark.parametrize("verb", ["compare", "pool"])
@pytest.mark.parametrize("same", ["stage", "files"])
def test_two_runs_that_are_one_policy_are_refused(dreamgym, first, copied, verb, same):
    """A run that reused every stage is a copy: counting it as another seed would inflate n."""
    key = next(stage.key for stage in first.stages if stage.name == "sim_to_real")
    copy = copied(key if same == "stage" else "d" * 64)
    code, said = dreamgym(verb, first.run_id, copy)
    assert code == 1 and f"The runs {first.run_id} and {copy} are one policy" in said and "refined" in said, (
        said
    )


def test_pool_refuses_a_run_that_is_named_twice(dreamgym, first):
    code, said = dreamgym("pool", first.run_id, "latest")
    assert code == 1 and f"The run {first.run_id} is named twice" in said


def test_the_champions_experience_model_is_opened_and_named(clone, first):
    """From its stage, else from the registry; without a champion the newest."""
    config = load_config(None, [])
    key = next(stage.key for stage in first.stages if stage.name == "experience_model")
    stage = clone / ".dreamgym" / "stages" / f"experience_model-{key[:12]}"
    chosen = choose_model(config, clone, None)
    assert (
        chosen.directory == stage / "model" and "the champion's: version 1 of dreamgym-policy" in chosen.why
    )
    assert first.run_id in chosen.shown(clone) and not chosen.shown(clone).startswith("/")
    newer = shutil.copytree(stage, stage.with_name("experience_model-ffffffffffff"))
    moved = stage.rename(stage.with_name("moved"))
    try:
        kept = choose_model(config, clone, None)
        assert kept.directory.parent == clone / ".dreamgym" / "champion" and kept.why == chosen.why
        other = load_config(None, ["tracking.experiment=other"])
        assert choose_model(other, clone, None).directory == newer / "model"
        assert "no policy is the champion" in choose_model(other, clone, None).why
    finally:
        moved.rename(stage)
        shutil.rmtree(newer)
    assert choose_model(config, clone, stage / "model").why == "named with --model"


@pytest.mark.parametrize("policy", ["champion", "1", "latest"])
def test_lineage_reaches_the_trajectories_as_text_and_as_figure(dreamgym, first, policy, tmp_path):
    figure = tmp_path / "lineage.svg"
    code, said = dreamgym("lineage", "--figure", figure, policy)
    assert code == 0, said
    commit, keys = first.environment.git.commit, {stage.name: stage.key[:12] for stage in first.stages}
    told = [
        f"{name} {keys[stage]}"
        for stage, name in (("sim_to_real", "refined policy"), ("experience_model", "experience model"))
    ]
    parts_in, replay = first.data.parts_in, first.data.parts_out["data/alfworld/replay"]
    told += [f"{name} {parts_in[f'data/alfworld/{name}']}" for name in ("trajectories", "backbone")]
    told += [
        f"replay buffer data/alfworld/replay {replay}",
        f"version of data/ {first.data.dvc_in}",
        "fidelity.parquet ",
    ]
    for words in (*told, f"commit {commit}", first.run_id):
        assert words in said, words
    drawn = figure.read_text()
    boxes = [
        keys[stage] for stage in ("sim_to_real", "synthetic_rl", "experience_model", "clone", "validate")
    ]
    boxes += [replay[:12], *(parts_in[f"data/alfworld/{name}"][:12] for name in ("trajectories", "backbone"))]
    for words in (*boxes, f"commit {commit[:12]}", "experience model"):
        assert words in drawn, words


def test_rollback_returns_to_the_earlier_champion_and_then_says_that_there_is_none(
    dreamgym, clone, first, tmp_path
):
    code, said = dreamgym("rollback")
    assert code == 1 and "Version 1 of dreamgym-policy is the first champion" in said
    tracker = Tracker(load_config(clone / "configs" / "quick.yaml").tracking, clone)
    (tmp_path / "weights").write_text("another policy")
    version = tracker.register_model(
        tracker.start_run("r"), "policy", tmp_path, {"dreamgym.run_id": "another"}
    )
    tracker.set_alias("policy", "champion", version)
    tracker.tag_version(
        "policy", version, {PROMOTED_AT: datetime.now(UTC).isoformat(timespec="microseconds")}
    )
    code, said = dreamgym("rollback", "--dry-run")
    wanted = f"Version 1 of dreamgym-policy {{}} the champion (was {version}), made by run {first.run_id}."
    assert (
        code == 0 and wanted.format("would become") in said and tracker.alias("policy", "champion") == version
    )
    code, said = dreamgym("rollback")
    assert code == 0 and wanted.format("is") in said and tracker.alias("policy", "champion") == "1"
    code, said = dreamgym("rollback", "--to", "9")
    assert code == 1 and "Version 9 of dreamgym-policy was never promoted" in said
    code, said = dreamgym("rollback", "--to", version)
    assert code == 0 and tracker.alias("policy", "champion") == version
    dreamgym("rollback", "--to", "1")


def test_fidelity_examines_the_champions_model_unless_another_is_meant(clone, first):
    """The champion's finished stage, or the config's own model if the command line asks for it."""
    key = next(stage.key for stage in first.stages if stage.name == "experience_model")
    stage, which = choose_stage(load_config(None, []), clone, "")
    assert stage.key == key and "the champion's" in which
    assert choose_stage(load_config(None, []), clone, "config")[0] is None
    own, which = choose_stage(load_config(None, ["experience_model.epochs=0.1"]), clone, "")
    assert own is None and "experience_model.epochs=0.1 was set" in which
    model = clone / ".dreamgym" / "stages" / f"experience_model-{key[:12]}" / "model"
    assert choose_stage(load_config(None, []), clone, str(model))[0].key == key
    clone_of = next((clone / ".dreamgym" / "stages").glob("clone-*")) / "policy"
    with pytest.raises(DataError, match="is not the output of a finished experience model"):
        choose_stage(load_config(None, []), clone, str(clone_of))


def test_scale_simulates_from_the_times_of_the_run(dreamgym, tmp_path, first):
    file = tmp_path / "scale.json"
    code, said = dreamgym("scale", "latest", "--devices", "1,4", "--json", file)
    assert code == 0, said
    found = json.loads(file.read_text())
    assert found["fitted"]["workers"] == 1 and found["fitted"]["turn"] + found["fitted"]["row"] > 0
    assert {(row["workers"], row["schedule"]) for row in found["simulated"]} == {
        (count, schedule) for count in (1, 4) for schedule in ("lockstep", "overlapped", "asynchronous")
    }
    assert "arithmetic on the times of one machine" in " ".join(said.split())


@pytest.mark.parametrize("devices", ["0", "two", ",", "-1"])
def test_scale_refuses_what_is_no_number_of_workers(dreamgym, devices):
    code, said = dreamgym("scale", "latest", f"--devices={devices}")
    assert code == 2 and "Expected positive whole numbers" in said


def test_scale_needs_the_times_of_rl_in_the_dream(dreamgym, clone, second):
    manifest = clone / "runs" / second / "manifest.json"
    values = json.loads(manifest.read_text())
    values["config"]["rl"]["dream"]["staleness"] = 1
    manifest.write_text(json.dumps(values))
    code, said = dreamgym("scale", second)
    assert code == 1 and "played rollouts during updates" in " ".join(said.split())
    values["stages"] = [stage for stage in values["stages"] if stage["name"] != "synthetic_rl"]
    manifest.write_text(json.dumps(values))
    code, said = dreamgym("scale", second)
    assert code == 1 and "no finished stage synthetic_rl" in said
