"""The round after a finished run: the dream learns from its real episodes, the policy goes on."""

from __future__ import annotations

import json
import shutil

import pytest
from small_job import run

from components.errors import DataError
from components.tracking.lineage import lineage
from components.tracking.manifest import Manifest
from components.trajectories.replay_log import read_log
from flows.past_runs.past_rounds import past_round


@pytest.fixture(scope="module")
def clone(finished, tmp_path_factory):
    """A copy of the clone with a finished run, to which these tests add."""
    return shutil.copytree(finished.kept, tmp_path_factory.mktemp("rounds") / "clone", symlinks=True)


@pytest.fixture(scope="module")
def first(clone):
    """The manifest of the first round."""
    return Manifest.load((clone / "runs" / "latest").resolve())


@pytest.fixture(scope="module")
def second(clone, first):
    """The manifest of the second round."""
    code, output, _ = run(clone, verb=("next-round", "latest"), small=False)
    assert code in (0, 4), output  # 4: not promoted
    assert "in the rounds before" in output
    return Manifest.load((clone / "runs" / "latest").resolve())


def stored(clone, manifest, stage):
    """The directory of a run's stage."""
    key = next(entry.key for entry in manifest.stages if entry.name == stage)
    return clone / ".dreamgym" / "stages" / f"{stage}-{key[:12]}"


def test_the_dream_learns_from_every_real_episode_of_the_round_before(clone, first, second):
    played = [
        read_log(stored(clone, first, stage) / "experience")
        for stage in ("synthetic_rl", "check_dreamed", "sim_to_real")
    ]
    known = read_log(stored(clone, second, "experience_model") / "experience")
    assert {step.source for step in known} == {"real"} and all(step.reasoning for step in known)
    assert [(step.episode_id, step.action, step.next_state) for step in known] == [
        (step.episode_id, step.action, step.next_state) for log in played for step in log
    ]
    metrics = json.loads((clone / "runs" / "latest" / "metrics.json").read_text())
    assert metrics["experience_model/real_steps"]["value"] == len(known) > 0
    own = json.loads((stored(clone, first, "sim_to_real") / "stage.json").read_text())["metrics"]
    assert len(played[2]) == own["sim_to_real/real_interactions"]["value"]


def test_a_round_counts_its_own_steps_and_names_those_before(first, second):
    assert (second.flow, second.round, second.continues) == ("next-round", 2, first.run_id)
    spent = first.costs.real_interactions + first.costs.check_interactions
    assert second.costs.earlier_real_interactions == spent > 0
    assert 0 < second.costs.real_interactions <= 90
    assert [stage.name for stage in second.stages] == [
        "validate",
        "clone",
        "experience_model",
        "synthetic_rl",
        "check_dreamed",
        "sim_to_real",
        "evaluate",
    ]


def test_no_round_plays_the_games_of_another(clone, first, second):
    rounds = [
        {step.episode_id for step in read_log(stored(clone, one, "sim_to_real") / "experience")}
        for one in (first, second)
    ]
    assert all(rounds) and not rounds[0] & rounds[1]


def test_the_lineage_goes_back_through_the_round_before(clone, first, second):
    key = next(stage.key for stage in second.stages if stage.name == "sim_to_real")
    policy = lineage(clone / "runs", "sim_to_real", key)
    (dreamed,) = policy.parents
    model, start = dreamed.parents
    assert (start.name, start.run_id) == ("refined policy", first.run_id)
    names = [parent.name for parent in model.parents]
    assert names == ["checked trajectories", "experience model", "refined policy"]
    assert model.parents[1].run_id == first.run_id


def test_a_round_needs_a_finished_run_that_met_reality(clone, first, second):
    place = clone / "runs" / "29990101-000000-0000"
    shutil.copytree(clone / "runs" / first.run_id, place)
    values = first.model_dump(mode="json") | {"run_id": place.name}
    (place / "manifest.json").write_text(json.dumps(values | {"status": "failed"}))
    with pytest.raises(DataError, match="is failed"):
        past_round(clone, place.name)
    stages = [stage for stage in values["stages"] if stage["name"] != "sim_to_real"]
    (place / "manifest.json").write_text(json.dumps(values | {"stages": stages}))
    with pytest.raises(DataError, match="has no stage sim_to_real"):
        past_round(clone, place.name)
    (place / "manifest.json").write_text(json.dumps(values | {"flow": "refine"}))
    with pytest.raises(DataError, match="Expected a finished run of retrain or next-round"):
        past_round(clone, place.name)
    shutil.rmtree(place)
    third = past_round(clone, second.run_id)
    assert third.number == 2
    assert third.real_steps == (
        second.costs.earlier_real_interactions
        + second.costs.real_interactions
        + second.costs.check_interactions
    )


@pytest.mark.slow  # it makes both runs again: some five minutes
def test_a_round_is_reproduced_after_the_round_that_it_went_on_from(clone, first, second):
    code, output, _ = run(clone, verb=("reproduce", second.run_id), small=False)
    assert code == 0, output
    assert f"went on from {first.run_id}, which is repeated first" in output
    counted = output.splitlines()[-1]
    assert counted.endswith(" metrics equal.") and "," not in counted
    assert not (clone / ".dreamgym" / "reproduced" / first.run_id).exists()
