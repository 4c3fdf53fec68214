"""Registered models load in a fresh process, by name and alias, and behind `mlflow models serve`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import mlflow.pyfunc
import pandas as pd
import pytest
from builders import AGENT, VOCABULARY, make_model, make_task
from mlflow.exceptions import MlflowException
from mlflow.models import get_model_info
from ports import free_port

from components.config import Config, TrackingConfig
from components.errors import ExperienceModelError
from components.experience.decoding.prediction_batch import Query
from components.experience.model import save_prompt_form
from components.language.backbone import save_model
from components.policy.policy import Policy
from components.tracking.mlflow_adapter.tracker import Tracker
from components.tracking.pyfunc.served_models import served_experience_model, served_policy
from components.tracking.stage_store.hashes import tree_hash

ROOT = Path(__file__).parents[2]
TASK = make_task()
HISTORY = [{"action": "go to desk 1", "state": "At desk 1: mug 1. Holding nothing."}]
EPISODE = {"task": TASK.instruction, "initial_state": TASK.initial_state}
CONFIG = Config.model_validate(
    {"rl": {"dream": {"max_new_tokens": 12}}, "experience_model": {"max_new_tokens": 40, "temperature": 0.0}}
)
FACTS = {"environment": "alfworld", "run": "r1"}
POLICY_URI, EXPERIENCE_URI = "models:/dreamgym-policy@champion", "models:/dreamgym-experience-model/1"


@pytest.fixture(scope="module")
def root(tmp_path_factory, learnt):
    """A store with a policy (the champion) and an experience model that memorised two episodes."""
    place = tmp_path_factory.mktemp("clone")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        tracker = Tracker(TrackingConfig(), place)
    Policy(make_model(scale=3.0), VOCABULARY).save(place / "policy")
    save_model(learnt.model, VOCABULARY, place / "experience")
    save_prompt_form(place / "experience", CONFIG.experience_model)
    run = tracker.start_run("retrain")
    example = [EPISODE | {"history": []}, EPISODE | {"history": HISTORY}]
    start = time.monotonic()
    version = tracker.register_model(
        run, "policy", place / "policy", served=served_policy(CONFIG, place / "policy", example, FACTS)
    )
    assert time.monotonic() - start < 20, "nothing is resolved or fetched"
    tracker.set_alias("policy", "champion", version)
    experience_rows = [row | {"action": "look"} for row in example]
    served = served_experience_model(CONFIG, place / "experience", experience_rows, FACTS)
    tracker.register_model(run, "experience-model", place / "experience", served=served)
    return place


@pytest.fixture(scope="module")
def uri(root):
    return f"sqlite:///{root}/mlflow/mlflow.db"


@pytest.fixture
def load(uri, monkeypatch):
    monkeypatch.setattr("mlflow.tracking._tracking_service.utils._tracking_uri", uri)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return mlflow.pyfunc.load_model


def expected_reply(root: Path, rows: list[dict]) -> list[tuple[str, str]]:
    """The policy's own greedy replies to the prompts of a rollout."""
    policy = Policy.load(root / "policy")
    prompts = {}
    for number, row in enumerate(rows):
        prompts[number] = AGENT.opening(TASK) + AGENT.ask(TASK)
        for step in row["history"]:
            shown = AGENT.observation(step["state"]) + AGENT.ask(TASK)
            prompts[number] += AGENT.reply("", step["action"]) + shown
    session = policy.engine(0).open(len(rows))
    completions = session.generate(prompts, stop=AGENT.stop, max_new_tokens=12, temperature=0.0)
    return [AGENT.parse(completions[number].tokens) for number in prompts]


SCRIPT = """
import json, sys, mlflow
model = mlflow.pyfunc.load_model(sys.argv[1])
params = json.loads(sys.argv[2])
print("ANSWER " + model.predict(model.input_example, params=params).to_json(orient="records"))
"""


def predict_in_a_fresh_process(uri: str, model: str, params: dict, cwd: Path) -> list[dict]:
    on_path = os.pathsep.join(
        (str(Path(sys.executable).parent), os.environ["PATH"])
    )  # MLflow starts `uvicorn` by name
    environment = {**os.environ, "PATH": on_path, "PYTHONPATH": str(ROOT), "MLFLOW_TRACKING_URI": uri}
    command = [sys.executable, "-c", SCRIPT, model, json.dumps(params)]
    done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.partition("ANSWER ")[2])


def test_a_fresh_process_loads_the_champion_by_its_alias_and_acts_as_the_policy_does(root, uri, tmp_path):
    predictions = predict_in_a_fresh_process(uri, POLICY_URI, {"temperature": 0.0}, tmp_path)
    rows = [EPISODE | {"history": []}, EPISODE | {"history": HISTORY}]
    assert [(row["thought"], row["action"]) for row in predictions] == expected_reply(root, rows)


def test_the_experience_model_answers_as_in_a_dream_and_depends_on_history(load, learnt):
    """Its two episodes have the same action in the same state; only the first step differs."""
    at_desk, at_fridge = "At desk 1: mug 1. Holding nothing.", "At fridge 1: closed. Holding nothing."
    looked = "Looked around in the room. Holding nothing."
    rows = [
        EPISODE
        | {
            "action": "look",
            "history": [{"action": action, "state": state}, {"action": "look", "state": looked}],
        }
        for action, state in (("go to desk 1", at_desk), ("go to fridge 1", at_fridge))
    ]
    predictions = load(EXPERIENCE_URI).predict(rows)
    assert list(predictions["next_state"]) == [at_desk, "At fridge 1: open, egg 1. Holding nothing."]
    assert (
        list(predictions["reward"]) == [0.0, 0.0]
        and not predictions["done"].any()
        and predictions["answered"].all()
    )
    batch = learnt.begin([TASK])
    batch.advance({0: ("go to desk 1", at_desk)})
    batch.advance({0: ("look", looked)})
    direct = batch.predict({0: Query(looked, "look")})[0]
    assert predictions["reasoning"][0] == direct.reasoning


def test_an_unanswered_step_differs_from_a_failure(root, uri, tmp_path, load):
    tracker = Tracker(TrackingConfig(uri=uri), root)
    weights = root / "untrained"
    save_model(make_model(), VOCABULARY, weights)
    rows = [EPISODE | {"history": [], "action": "look"}]
    version = tracker.register_model(
        tracker.start_run("r"),
        "untrained",
        weights,
        served=served_experience_model(CONFIG, weights, rows, FACTS),
    )
    (row,) = load(f"models:/dreamgym-untrained/{version}").predict(rows).to_dict("records")
    assert row == {
        "reasoning": "",
        "next_state": TASK.initial_state,
        "reward": 0.0,
        "done": True,
        "answered": False,
    }


def test_the_page_has_signature_example_description_and_prompt_format(root, uri, load):
    info = get_model_info(POLICY_URI)
    assert [column.name for column in info.signature.inputs.inputs] == ["task", "initial_state", "history"]
    assert [column.name for column in info.signature.outputs.inputs] == ["thought", "action"]
    assert {param.name: param.default for param in info.signature.params.params} == {
        "temperature": 1.0,
        "seed": 0,
        "max_new_tokens": 12,
    }
    assert len(load(POLICY_URI).input_example) == 2
    assert "<turn>" in info.metadata["prompt_format"] and "At desk 1" in info.metadata["prompt_example"]
    client = Tracker(TrackingConfig(uri=uri), root).client
    version = client.get_model_version("dreamgym-policy", "1")
    assert "**Prompt format**" in version.description and "- environment: alfworld" in version.description
    assert client.get_registered_model("dreamgym-policy").description.startswith("A policy")


def test_a_moved_copy_loads_its_own_files(root, tmp_path, load, monkeypatch):
    place = tmp_path / "é 100% #1 +x"  # MLflow itself decodes a plain path: `%41` in one would be its `A`
    shutil.copytree(root, place)
    with monkeypatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI")
        moved = Tracker(TrackingConfig(), place)
    monkeypatch.setattr("mlflow.tracking._tracking_service.utils._tracking_uri", moved.uri)
    (weights,) = place.glob("mlflow/artifacts/models/*/artifacts/weights/experience.json")
    weights.write_text('{"history": false}')  # so that the copy alone refuses to be loaded
    with pytest.raises(ExperienceModelError, match="trained with history=false"):
        load(EXPERIENCE_URI)
    assert load(POLICY_URI).metadata.signature is not None


def test_the_downloaded_files_are_the_registered_ones(root, uri, tmp_path):
    tracker = Tracker(TrackingConfig(uri=uri), root)
    assert tree_hash(tracker.download("policy", "1", tmp_path / "policy")) == tree_hash(root / "policy")
    assert not list(root.glob(".registering-*"))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"task": None}, "task"),
        ({"task": " "}, "Row 0: `task` is ' '. Expected a text such as 'put a hot mug in desk'"),
        (
            {"history": [{"action": "look", "state": ""}]},
            "Row 0, history 0: `state` is ''. Expected an object such as",
        ),
        ({"history": [{"action": "look"}]}, "state"),
        ({"history": "look"}, "history"),
        (
            {"history": [{"action": "look", "state": "At desk 1: mug 1. " * 900}]},
            "The model reads at most 4,095: shorten the history",
        ),
    ],
)
def test_unreadable_input_is_refused_with_the_expected_form(load, change, expected):
    with pytest.raises(MlflowException) as refused:
        load(POLICY_URI).predict(pd.DataFrame([EPISODE | {"history": HISTORY} | change]))
    assert expected in str(refused.value), refused.value


def test_an_empty_history_may_be_left_out(load):
    model, params = load(POLICY_URI), {"temperature": 0.0}
    without, empty = (
        model.predict(pd.DataFrame([row]), params=params) for row in (EPISODE, EPISODE | {"history": []})
    )
    assert without.equals(empty)


def test_a_server_answers_a_post_and_refuses_unreadable_input(root, uri, tmp_path):
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "models",
        "serve",
        "-m",
        POLICY_URI,
        "--env-manager",
        "local",
        "-p",
        str(port),
    ]
    on_path = os.pathsep.join(
        (str(Path(sys.executable).parent), os.environ["PATH"])
    )  # MLflow starts `uvicorn` by name
    environment = {**os.environ, "PATH": on_path, "PYTHONPATH": str(ROOT), "MLFLOW_TRACKING_URI": uri}
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(
            command, env=environment, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True
        )
    try:
        rows = [EPISODE | {"history": HISTORY}]
        code, answer = post(port, {"dataframe_records": rows, "params": {"temperature": 0.0}}, server)
        assert code == 200, (answer, (tmp_path / "log").read_text())
        assert [(row["thought"], row["action"]) for row in answer["predictions"]] == expected_reply(
            root, rows
        )
        code, answer = post(
            port, {"dataframe_records": [EPISODE | {"history": [{"action": "look", "state": ""}]}]}, server
        )
        assert code == 400 and "Row 0, history 0: `state` is ''" in json.dumps(answer)
    finally:
        os.killpg(server.pid, 15)
        server.wait(30)


def post(port: int, body: dict, server: subprocess.Popen) -> tuple[int, dict]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/invocations",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    for _ in range(1200):
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)
        except OSError:
            assert server.poll() is None, f"the server ended with code {server.returncode}"
            time.sleep(0.1)
    raise TimeoutError("no answer")
