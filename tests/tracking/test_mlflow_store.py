"""The adapter against a real SQLite MLflow. A server behaves the same, because the same client calls it."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mlflow import MlflowClient

from components.config import Config, TrackingConfig
from components.errors import DataError, TrackingError
from components.tracking.curve_file import Point
from components.tracking.mlflow_adapter import runs_view
from components.tracking.mlflow_adapter.mlflow_uri import require_reachable, resolve_uri, without_password
from components.tracking.mlflow_adapter.run_lifecycle import GIT_COMMIT_TAG
from components.tracking.mlflow_adapter.tracker import Tracker


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("repository")


@pytest.fixture(scope="module")
def tracker(root):
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        return Tracker(TrackingConfig(), root)


@pytest.fixture
def client(tracker):
    return MlflowClient(tracking_uri=tracker.uri, registry_uri=tracker.uri)


@pytest.fixture
def model(tmp_path):
    directory = tmp_path / "model"
    (directory / "adapter").mkdir(parents=True)
    (directory / "config.json").write_text("{}")
    (directory / "adapter" / "weights.bin").write_bytes(b"\x00\x01")
    return directory


def test_the_store_is_created_below_mlflow_and_nothing_else_is(tracker, root):
    assert tracker.uri == f"sqlite:///{root}/mlflow/mlflow.db"
    assert [entry.name for entry in root.iterdir()] == ["mlflow"]


@pytest.mark.parametrize("name", ["e'f\"g", "a%20b", "c#d", "i;j", "André's"])
def test_a_store_can_be_created_in_a_directory_of_any_name(tmp_path, monkeypatch, name):
    """MLflow puts the working directory into an SQL statement, with Python's quotation marks."""
    place = tmp_path / name
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    tracker = Tracker(TrackingConfig(), place)
    run = tracker.start_run("first")
    (place / "file").write_text("text")
    tracker.log_artifact(run, place / "file")
    assert [path.read_text() for path in (place / "mlflow" / "artifacts").rglob("file")] == ["text"]
    assert (
        tracker.client.get_experiment("0").artifact_location
        == f"{(place / 'mlflow' / 'artifacts').as_uri()}/0"
    )
    assert not (place / "mlruns").exists()


def test_two_processes_can_create_the_store_at_once(tmp_path, monkeypatch):
    """Two first runs in a new clone: each process waits until the other has imported MLflow."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    script = (
        "import sys, time; from pathlib import Path; from components.config import TrackingConfig;"
        "from components.tracking.mlflow_adapter.tracker import Tracker; here = Path(sys.argv[1]); (here / "
        "sys.argv[2]).touch()\n"
        "while len(list(here.glob('ready-*'))) < 2: time.sleep(0.001)\n"
        "t = Tracker(TrackingConfig(), here); t.finish(t.start_run(sys.argv[2]))"
    )
    root = Path(__file__).parents[2]
    jobs = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path), f"ready-{number}"],
            cwd=root,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    errors = [job.communicate(timeout=240)[1] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], errors
    tracker = Tracker(TrackingConfig(), tmp_path)
    runs = tracker.client.search_runs([tracker.experiment_id])
    assert {run.info.run_name for run in runs} == {"ready-0", "ready-1"}


def test_a_process_killed_while_it_creates_the_store_leaves_no_broken_store(tmp_path, monkeypatch):
    """It is killed after the first of dozens of tables. The next process creates the store again."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    script = (
        "import os, signal, sys; from pathlib import Path; from sqlalchemy import event, Table\n"
        "from components.config import TrackingConfig; from components.tracking.mlflow_adapter.tracker "
        "import Tracker\n"
        "event.listen(Table, 'after_create', lambda *args, **options: os.kill(os.getpid(), signal.SIGKILL))\n"
        "Tracker(TrackingConfig(), Path(sys.argv[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        timeout=240,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert [path.name for path in (tmp_path / "mlflow").iterdir() if "new" in path.name], "it had started"
    tracker = Tracker(TrackingConfig(), tmp_path)
    tracker.finish(tracker.start_run("after the kill"))
    assert not [path.name for path in (tmp_path / "mlflow").iterdir() if "new" in path.name]


def test_a_stage_is_nested_in_its_run_with_tags_and_params(tracker, client):
    config = Config().model_dump()
    parent = tracker.start_run("retrain", {GIT_COMMIT_TAG: "abc"}, {"config": config, "long": "x" * 9000})
    stage = tracker.start_stage(parent, "experience_model")
    tracker.finish(stage, "FAILED")
    run, child = client.get_run(parent), client.get_run(stage)
    assert child.data.tags["mlflow.parentRunId"] == parent
    assert (run.info.run_name, child.info.run_name, child.info.status) == (
        "retrain",
        "experience_model",
        "FAILED",
    )
    assert run.data.tags[GIT_COMMIT_TAG] == "abc"
    assert run.data.params["config.rl.dream.num_generations"] == "8"
    assert len(run.data.params["long"]) == 6000


def test_the_page_of_runs_opens_in_the_view_that_compares_them(tracker, client):
    tracker.start_run("viewed")
    saved = client.get_experiment(tracker.experiment_id).tags[runs_view.TAG]
    assert "metrics.`evaluate/refined/success_rate`" in json.loads(saved)["selectedColumns"]
    client.set_experiment_tag(tracker.experiment_id, runs_view.TAG, "{}")
    page = tracker.page("http://127.0.0.1:5000")
    assert (
        page == f"http://127.0.0.1:5000/#/experiments/{tracker.experiment_id}/runs?viewStateShareKey=dreamgym"
    )
    assert client.get_experiment(tracker.experiment_id).tags[runs_view.TAG] == saved


def test_metrics_keep_their_names_and_intervals(tracker, client):
    run = tracker.start_run("metrics")
    tracker.log_metrics(run, {"fidelity/next_state_exact": 0.9}, step=3)
    tracker.log_estimates(
        run, {"evaluate/refined/success_rate": {"value": 0.5, "n": 64, "low": 0.38, "high": 0.62}}
    )
    tracker.log_estimates(run, {"count": {"value": 7, "n": 1, "low": 7, "high": 7}})
    tracker.log_estimates(run, {"odd": {"value": None, "n": 0, "low": None, "high": None}})
    metrics = client.get_run(run).data.metrics
    assert metrics["fidelity/next_state_exact"] == 0.9
    assert metrics["evaluate/refined/success_rate_low"] == 0.38
    assert metrics["evaluate/refined/success_rate_n"] == 64
    assert set(metrics) >= {"count", "odd_n"}
    assert not {"count_low", "count_n"} & set(metrics), "no interval of one point, no n of 1"
    assert client.get_metric_history(run, "fidelity/next_state_exact")[0].step == 3


def test_values_start_with_the_columns_of_the_view(tracker, client):
    run, entry = tracker.start_run("values"), {"value": 0.5, "n": 64, "low": 0.38, "high": 0.62}
    last = runs_view.METRICS[-1]
    tracker.log_values(
        run, {"validate/rows": entry, "clone/loss": entry, last: entry, "odd": {**entry, "value": None}}
    )
    assert list(client.get_run(run).data.metrics) == [last, "clone/loss", "validate/rows"]


def test_a_summary_is_not_a_point_of_the_curve_with_its_name(tracker, client):
    run, stage = tracker.start_run("summaries"), tracker.start_run("stage")
    points = [
        Point("synthetic_rl/success_rate", step, 1_700_000_000_000 + step, step / 4) for step in range(4)
    ]
    tracker.log_points((stage, run), points)
    metrics = {
        "synthetic_rl/success_rate": {"value": 0.5, "n": 1, "low": 0.5, "high": 0.5},
        "other": {"value": 2, "n": 1, "low": 2, "high": 2},
    }
    tracker.log_estimates(stage, metrics, {"synthetic_rl/success_rate"})
    tracker.log_values(run, metrics, {"synthetic_rl/success_rate"})
    for logged in (stage, run):
        history = client.get_metric_history(logged, "synthetic_rl/success_rate")
        assert [(m.step, m.timestamp, m.value) for m in history] == [
            (p.step, p.time, p.value) for p in points
        ]
        assert client.get_run(logged).data.metrics == {
            "synthetic_rl/success_rate": 0.75,
            "synthetic_rl/success_rate_final": 0.5,
            "other": 2,
        }


@pytest.mark.parametrize("family", ["put two!", "a//b", "../up", "", "50 % (more)", "x" * 300])
def test_names_that_mlflow_refuses_are_logged_in_a_readable_form(tracker, client, family):
    run = tracker.start_run("families")
    tracker.log_estimates(run, {f"rate/{family}": {"value": 0.5, "n": 1, "low": 0.5, "high": 0.5}})
    ((name, value),) = client.get_run(run).data.metrics.items()
    assert value == 0.5 and name.startswith("rate") and len(name) <= 250


def test_metric_names_are_kept_if_possible_and_stay_distinct(tracker, client):
    families = ["café", "pick and place", "heat!", "heat?", "heat_"]
    run = tracker.start_run("families")
    values = {
        f"rate/{family}": {"value": place, "n": 1, "low": 0, "high": 0}
        for place, family in enumerate(families)
    }
    tracker.log_estimates(run, values)
    logged = client.get_run(run).data.metrics
    assert len(logged) == len(families) and sorted(logged.values()) == list(range(len(families)))
    assert [logged[f"rate/{family}"] for family in ("café", "pick and place", "heat_")] == [0, 1, 4]


def test_a_long_series_is_logged_completely(tracker, client):
    run = tracker.start_run("series")
    tracker.log_series(run, "synthetic_rl/success_rate", [i / 1200 for i in range(1200)])
    history = client.get_metric_history(run, "synthetic_rl/success_rate")
    assert sorted((m.step, m.value) for m in history) == [(i, i / 1200) for i in range(1200)]


def test_a_dataset_has_its_dvc_hash(tracker, client):
    run, dvc_hash = tracker.start_run("data"), "0123456789abcdef0123456789abcdef.dir"
    tracker.log_dataset(run, "data", dvc_hash, "data.dvc", version="abc.dir")
    (entry,) = client.get_run(run).inputs.dataset_inputs
    assert entry.dataset.digest == dvc_hash
    assert json.loads(entry.dataset.source)["path"] == "data.dvc"
    tags = {tag.key: tag.value for tag in entry.tags}
    assert (tags["dvc.hash"], tags["dvc.version"]) == (dvc_hash, "abc.dir")


def test_a_dataset_of_a_parquet_file_has_schema_and_rows(tracker, client, tmp_path):
    table = pa.table(
        {
            "step": [1, 2, 3],
            "reward": [0.0, 0.5, 1.0],
            "done": [False, False, True],
            "task": pa.array(["a", "b", "c"]).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "train.parquet")
    run = tracker.start_run("rows")
    tracker.log_dataset(run, "trajectories", "c" * 32 + ".dir", str(tmp_path / "train.parquet"))
    (entry,) = client.get_run(run).inputs.dataset_inputs
    assert json.loads(entry.dataset.profile) == {"num_rows": 3, "num_elements": 12}
    columns = {
        column["name"]: column["type"] for column in json.loads(entry.dataset.schema)["mlflow_colspec"]
    }
    assert columns == {"step": "long", "reward": "double", "done": "boolean", "task": "string"}


def test_artifacts_are_stored_and_a_missing_one_is_a_data_error(tracker, client, model):
    run = tracker.start_run("artifacts")
    tracker.log_artifact(run, model / "config.json")
    tracker.log_artifact(run, model, "files")
    assert {entry.path for entry in client.list_artifacts(run)} == {"config.json", "files"}
    with pytest.raises(DataError, match="does not exist"):
        tracker.log_artifact(run, model / "nothing")


def test_errors_of_mlflow_become_tracking_errors(tracker):
    with pytest.raises(TrackingError, match="could not log metrics.*same command again"):
        tracker.log_metrics("no-such-run", {"a": 1.0})
    with pytest.raises(TrackingError, match="could not read dreamgym-policy version 999"):
        tracker.version("policy", "999")


def test_the_uri_comes_from_the_config_else_the_environment_else_the_repository(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://server:5000")
    assert resolve_uri(TrackingConfig(uri="sqlite:///x.db"), tmp_path) == "sqlite:///x.db"
    assert resolve_uri(TrackingConfig(), tmp_path) == "http://server:5000"
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert resolve_uri(TrackingConfig(), tmp_path).startswith("sqlite:////")


def test_an_unusable_uri_is_refused_at_once(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(TrackingError, match="does not answer.*mlflow/README.md"):
            Tracker(TrackingConfig(uri=closed), tmp_path)
    with pytest.raises(TrackingError, match="no longer supports"):
        Tracker(TrackingConfig(uri="./mlruns"), tmp_path)
    (tmp_path / "broken.db").write_text("this is no database, " * 100)
    with pytest.raises(TrackingError, match="cannot be opened.*mv "):
        require_reachable(f"sqlite:///{tmp_path}/broken.db")


def test_passwords_are_not_printed():
    assert without_password("postgresql://me:secret@db:5432/x") == "postgresql://me:***@db:5432/x"
    assert without_password("http://server:5000") == "http://server:5000"


def test_mlflow_is_the_installed_package_and_prints_nothing(tracker, root):
    script = (
        "from pathlib import Path; from components.config import TrackingConfig; from "
        "components.tracking.mlflow_adapter.tracker import Tracker;"
        "import mlflow, sys; assert mlflow.__file__;"
        f"t = Tracker(TrackingConfig(uri={tracker.uri!r}), Path({str(root)!r})); "
        "t.finish(t.start_run('quiet'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("", "")
