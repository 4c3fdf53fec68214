"""Curves of a stage on its MLflow run and the parent run, logged while it runs and when it is reused."""

from components.config import load_config
from flows.run.pipeline_run import Run
from flows.run.stage import Outcome, Stage

KEY = "a" * 64


def test_a_reused_stage_shows_its_curves_with_their_original_times(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def begin():
        run = Run(load_config(None, []), tmp_path)
        run.parent = run.tracker.start_run("retrain")
        return run, run.tracker.start_stage(run.parent, "clone")

    def work(_inputs, _directory):
        run.log_curves(0, {"clone/loss": 2.0})
        run.log_curves(1, {"clone/loss": 1.0})
        return Outcome({}, series={"clone/loss": [2.0, 1.0], "clone/late": [5.0, 6.0]})

    def curves(of, child):
        names = ("clone/loss", "clone/late")
        return [
            [
                (m.step, m.timestamp, m.value)
                for n in names
                for m in of.tracker.client.get_metric_history(i, n)
            ]
            for i in (child, of.parent)
        ]

    run, child = begin()
    made = run._run_work(Stage("clone", work, {}, {}, __name__), KEY, {}, child)
    run.curves.log_missing(made, (child, run.parent))
    first = curves(run, child)
    assert first[0] == first[1] and [(step, value) for step, _, value in first[0]] == [
        (0, 2.0),
        (1, 1.0),
        (0, 5.0),
        (1, 6.0),
    ]
    assert run.curves.names == {"clone/loss", "clone/late"}
    again, child = begin()
    again.curves.log_missing(again.store.find("clone", KEY), (child, again.parent))
    assert curves(again, child) == first and again.curves.names == run.curves.names
