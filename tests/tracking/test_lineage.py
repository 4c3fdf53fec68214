"""The lineage of a policy leads through reused stages to the runs that made them, past damaged manifests."""

from __future__ import annotations

import pytest
from test_manifest import make_manifest, repository  # noqa: F401

from components.errors import DataError
from components.tracking.lineage import lineage
from components.tracking.manifest import StageEntry

STAGES = ("validate", "experience_model", "clone", "synthetic_rl", "sim_to_real")


@pytest.fixture
def runs(repository):  # noqa: F811
    """Two runs: the second one reuses all but the last two stages of the first."""
    for number, computed in (("1", STAGES), ("2", STAGES[3:])):
        run = make_manifest(repository)
        run.run_id, run.status = f"r{number}", "finished"
        run.data.dvc_in, run.data.dvc_out = "in.dir", f"out{number}.dir"
        run.stages = [
            StageEntry(
                name=name,
                key=f"{name}-{number if name in computed else '1'}",
                seconds=1,
                reused=name not in computed,
            )
            for name in STAGES
        ]
        (repository / "runs" / run.run_id).mkdir(parents=True)
        run.save(repository / "runs" / run.run_id)
    (repository / "runs" / "r3").mkdir()
    (repository / "runs" / "r3" / "manifest.json").write_text("{")
    return repository / "runs"


def test_the_chain_names_the_run_that_made_each_stage(runs):
    refined = lineage(runs, "sim_to_real", "sim_to_real-2")
    assert (refined.name, refined.run_id) == ("refined policy", "r2") and refined.facts["commit"]
    (dreamed,) = refined.parents
    assert dreamed.run_id == "r2" and dreamed.facts["replay buffer"] == "data out2.dir"
    model, cloned = dreamed.parents
    assert (model.name, model.key, model.run_id) == (
        "experience model",
        "experience_model-1",
        "r1",
    ) and cloned.run_id == "r1"
    (validated,) = model.parents
    (trajectories,) = validated.parents
    assert (trajectories.name, trajectories.key, trajectories.parents) == ("trajectories", "in.dir", ())


def test_an_earlier_policy_and_the_beginning_of_a_key_are_found(runs):
    assert lineage(runs, "sim_to_real", "sim_to_real-1").run_id == "r1"
    assert lineage(runs, "synthetic_rl", "synthetic_rl").run_id == "r2"


def test_a_policy_that_no_run_made_is_refused(runs):
    with pytest.raises(DataError, match="No run under .* has a stage clone with the key abc"):
        lineage(runs, "clone", "abc")
