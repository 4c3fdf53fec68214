"""Chat models behind MLflow's `predict`: the prompts of rollouts and dreams, from a saved directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders import make_task
from foreign import CHATML, make_checkpoint

from components.config import Config, ExperienceModelConfig, TrackingConfig
from components.experience.formats.choose import world_format
from components.experience.formats.world_format import Answer
from components.experience.model import save_prompt_form
from components.language.backbone import load_backbone, save_model
from components.policy.policy import Policy
from components.tracking.mlflow_adapter.tracker import Tracker
from components.tracking.pyfunc import experience_pyfunc, policy_pyfunc
from components.tracking.pyfunc.pyfunc_rows import read_rows
from components.tracking.pyfunc.served_models import served_policy

ROOT = Path(__file__).parents[2]
TASK = make_task()
HISTORY = [{"action": "go to desk 1", "state": "At desk 1: mug 1.", "thought": "find mug"}]
ROW = {"task": TASK.instruction, "initial_state": TASK.initial_state, "history": HISTORY}
FORM = ExperienceModelConfig(reasoning=False, recall=0, max_new_tokens=24, resamples=0)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    base = make_checkpoint(folder / "base", "llama", template=CHATML, max_position_embeddings=2048)
    model, vocabulary = load_backbone(base, system="A house.")
    save_model(model, vocabulary, folder / "saved")
    save_prompt_form(folder / "saved", FORM)
    return folder / "saved"


def test_a_chat_policy_reads_what_a_rollout_reads_and_acts(saved):
    policy = Policy.load(saved)
    text = policy.text
    (row,) = read_rows([ROW])
    expected = text.opening(TASK) + text.ask(TASK) + text.reply("find mug", "go to desk 1")
    expected += text.observation("At desk 1: mug 1.") + text.ask(TASK)
    assert policy_pyfunc.prompt(text, row) == expected
    assert policy.vocabulary.decode(expected).startswith("<|im_start|>system\nA house.<|im_end|>")
    served = policy_pyfunc._load_pyfunc(str(saved), {"max_new_tokens": 8})
    answers = served.predict([ROW, {**ROW, "history": []}])
    assert list(answers.columns) == ["thought", "action"] and len(answers) == 2


def test_a_chat_experience_model_reads_what_a_dream_reads_and_answers(saved):
    served = experience_pyfunc._load_pyfunc(str(saved), {"experience_model": FORM.model_dump(mode="json")})
    (row,) = read_rows([{**ROW, "action": "take mug 1"}])
    text = world_format(served.model.vocabulary, FORM)
    states = [TASK.initial_state, "At desk 1: mug 1."]
    expected = text.growth(TASK, states[:1], "go to desk 1", Answer("", states[1], 0.0, False))
    expected += text.question(TASK, states, "take mug 1")
    assert experience_pyfunc.prompt(text, row) == expected
    (answer,) = served.predict([{**ROW, "action": "take mug 1"}]).to_dict("records")
    assert set(answer) == {"reasoning", "next_state", "reward", "done", "answered"}


def test_a_fresh_process_loads_a_registered_chat_policy_and_acts_as_it_does_here(
    saved, tmp_path, monkeypatch
):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    tracker = Tracker(TrackingConfig(), tmp_path)
    config = Config.model_validate({"rl": {"dream": {"max_new_tokens": 8}}})
    served = served_policy(config, saved, [ROW], {"environment": "alfworld", "run": "r1"})
    version = tracker.register_model(tracker.start_run("retrain"), "policy", saved, served=served)
    program = (
        "import json, sys, mlflow\n"
        "model = mlflow.pyfunc.load_model(sys.argv[1])\n"
        "found = model.predict(json.loads(sys.argv[2]), params={'temperature': 0.0})\n"
        "print('ANSWER ' + json.dumps(found.to_dict('records')))"
    )
    command = [sys.executable, "-c", program, f"models:/dreamgym-policy/{version}", json.dumps([ROW])]
    uri = f"sqlite:///{tmp_path}/mlflow/mlflow.db"
    done = subprocess.run(
        command,
        env={**os.environ, "MLFLOW_TRACKING_URI": uri, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    here = policy_pyfunc._load_pyfunc(str(saved), {"max_new_tokens": 8})
    expected = here.predict([ROW], {"temperature": 0.0}).to_dict("records")
    assert json.loads(done.stdout.partition("ANSWER ")[2]) == expected
