"""The whole small job with `engine: vllm`, beside the same job with the kept cache. Five minutes, so by hand:

    pytest -m slow tests/flows/test_retrain_with_vllm.py

The engine itself, its weights after an update and the loop on it are tested in language/engines and policy/.
"""

import json

import pytest
from small_job import make_clone, run
from vllm_models import NEEDS_VLLM

pytestmark = [NEEDS_VLLM, pytest.mark.slow]


def metrics_of(clone):
    return json.loads((clone / "runs" / "latest" / "metrics.json").read_text())


def test_the_job_runs_on_vllm_and_greedy_numbers_stay(finished, tmp_path):
    clone = make_clone(tmp_path / "clone")
    code, output, _ = run(clone, "promotion.threshold=0", "engine=vllm", "vllm.cache_gb=0.2")
    assert code == 0, output
    ours, vllm = metrics_of(finished.clone), metrics_of(clone)
    for trained in ("experience_model/loss", "clone/loss"):
        assert vllm[trained] == ours[trained]
    # Answers are greedy but where the history determines nothing: they differ there and at near ties alone.
    for name in ("fidelity/next_state_exact", "fidelity/reward_precision"):
        assert vllm[name]["n"] == pytest.approx(ours[name]["n"], abs=3)
        assert vllm[name]["value"] == pytest.approx(ours[name]["value"], abs=0.1)
    assert vllm["synthetic_rl/sampler_ratio_p50"]["value"] == pytest.approx(1, abs=1e-3)
    assert vllm["sim_to_real/sampler_ratio_outside"]["value"] == 0
    manifest = json.loads((clone / "runs" / "latest" / "manifest.json").read_text())
    keys = {stage["name"]: stage["key"] for stage in manifest["stages"]}
    first = json.loads((finished.clone / "runs" / "latest" / "manifest.json").read_text())
    assert all(
        keys[stage["name"]] != stage["key"] for stage in first["stages"] if stage["name"] == "synthetic_rl"
    )
