"""The table of a finished run."""

import os

from rich.console import Console


def test_a_finished_run_is_a_table(tmp_path):
    """It has success with n and interval, agreement, costs, stages, paths; brackets are no markup."""
    from components.evaluation.metrics.intervals import proportion
    from components.tracking.manifest import Manifest, StageEntry
    from components.tracking.run_environment import Environment, Git
    from components.tracking.runs import write_metrics
    from flows.cli.tables.run_table import print_run
    from flows.printing.output import Output

    metrics = {
        f"evaluate/{name}/success_rate": proportion(won, 64).to_json()
        for name, won in (("cloned", 16), ("dreamed", 32))
    }
    metrics["fidelity/rollout_agreement/cloned"] = proportion(9, 10).to_json()
    write_metrics(tmp_path, metrics)
    stages = [
        StageEntry(name="validate", key="0", seconds=4, reused=True),
        StageEntry(name="clone", key="1", seconds=75, reused=False),
    ]
    config = {"evaluation": {"confidence": 0.9}}
    manifest = Manifest(
        run_id="r", environment=Environment(git=Git(commit="0" * 40)), config=config, stages=stages
    )
    manifest.costs.real_interactions, manifest.costs.tokens_trained = 3210, 6_100_000
    manifest.save(tmp_path)
    console = Console(record=True, width=160, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    print_run(Output(console), tmp_path, False, "It won [4] of 64 games.", 79.0)
    text = console.export_text()
    assert "25.0%" in text and "50.0%" in text and "64" in text and "not measured" in text
    assert "90.0%" in text and "n=10" in text
    assert "90 % interval" in text and "confirmed (95 % interval)" in text
    assert "3,210 for training" in text and "6,100,000 trained on, 0 generated" in text
    assert "1 made, 1 reused (saved 4 s)" in text and "1 min 19 s" in text
    assert "Not promoted." in text and "It won [4] of 64 games." in text
    assert str(tmp_path / "report.html") in text and "dreamgym ui" in text
