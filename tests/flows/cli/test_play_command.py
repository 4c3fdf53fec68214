"""`dreamgym play` as a command: its arguments, its JSON, and the model and task that it chooses."""

from __future__ import annotations

import json

import pytest
from builders import VOCABULARY, make_model
from typer.testing import CliRunner

from components.errors import ConfigError, DataError
from components.language.backbone import save_model
from components.tracking.find_model import find_model
from components.trajectories.store import DataLayout, read_tasks, write_tasks, write_transitions
from flows.cli import app as cli
from flows.cli.play.play_session import find_task, read_actions
from flows.cli.play.player import pick_task


@pytest.fixture
def repository(tmp_path, tasks, played):
    """The data of a repository, and an untrained model as a finished stage of it."""
    layout = DataLayout.of(tmp_path, "alfworld")
    for name, part in (("train", tasks[:6]), ("fidelity", tasks[6:9]), ("test", tasks[9:])):
        write_tasks(layout.tasks(name), part)
    mine = {task.id for task in tasks[:6]}
    steps = [step for episode in played["expert"] for step in episode.steps]
    write_transitions(layout.trajectories("train"), [step for step in steps if step.task_id in mine])
    write_transitions(layout.trajectories("fidelity"), steps[-5:])
    stage = tmp_path / ".dreamgym" / "stages" / "experience_model-0123456789ab"
    save_model(make_model(), VOCABULARY, stage / "model")
    (stage / "stage.json").write_text("{}")
    return tmp_path


@pytest.fixture
def run(quiet_process, repository):
    fixed = ["--root", str(repository), "evaluation.tasks=1", "experience_model.max_new_tokens=8"]
    return lambda *arguments, **more: CliRunner().invoke(
        cli.app, ["play", *map(str, arguments), *fixed], **more
    )


def test_a_model_that_answers_nothing_readable_ends_the_episode_and_says_so(run, repository):
    actions, transcript = repository / "actions.txt", repository / "seen.svg"
    actions.write_text("# the first\nlook\n:why\nlook\n")
    done = run("--actions", actions, "--transcript", transcript, "--task", "2", "--split", "test")
    assert done.exit_code == 0, done.output
    assert "task 2 of 3 (test)" in done.output and "step 1> look" in done.output
    plain = " ".join(done.output.replace("│", "").split())
    assert "The dream has no answer: every try was unreadable or contradicted the episode so far." in plain
    assert "The episode ends without an answer" in done.output and "reward 0, no answer" in done.output
    assert "must be those that it was trained with" in plain
    assert "1 action came after the end" in done.output
    assert transcript.read_text().startswith("<svg") and "dreamgym" in transcript.read_text()


def test_piped_actions_are_played_without_a_prompt(run):
    done = run(input="look\n:history\n")
    assert done.exit_code == 0 and "task 1 of 3 (fidelity)" in done.output
    assert done.output.count("step 1> ") == 1 and "no answer" in done.output


def test_json_alone_is_on_stdout_with_the_task_and_each_step(run, repository, tasks):
    """The interactive text goes to stderr."""
    actions = repository / "actions.txt"
    actions.write_text("look\n:restart\ngo to desk 1\n")
    done = run("--actions", actions, "--json=-", "--task", "2", "--split", "test")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    written = read_tasks(DataLayout.of(repository, "alfworld").tasks("test"))[1]
    assert found["task"] == {
        name: getattr(written, name) for name in ("id", "split", "instruction", "initial_state")
    }
    (step,) = found["steps"]
    assert (step["state"], step["action"]) == (written.initial_state, "go to desk 1")
    assert (step["reward"], step["done"], step["answered"], step["real"]) == (
        0.0,
        True,
        False,
        None,
    ) and found["end"] == "no answer"
    assert [episode["steps"][0]["action"] for episode in found["earlier_episodes"]] == ["look"]
    assert "task 2 of 3 (test)" in done.stderr and "experience_model-0123456789ab" in found["model"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (
            ["--actions", "missing.txt"],
            1,
            "The action file missing.txt cannot be read: there is no such file.",
        ),
        (["--model", "nowhere"], 1, "nowhere holds no experience model: there is no such directory."),
        (["--task", "4"], 2, "There is no task number 4: expected 1 to 3."),
        (["--task", "alfworld/nothing"], 2, "Did you mean alfworld/"),
        (["--split", "valid"], 2, "There is no split 'valid'. Expected one of fidelity, test, train."),
        (["--transcript", "seen.pdf"], 2, "The transcript seen.pdf ends in '.pdf'. Expected one of .txt"),
        (["--transcript", "no/such/place.txt"], 1, "there is no directory no/such"),
        (["environment.max_step=3"], 2, "Did you mean environment.max_steps?"),
    ],
)
def test_a_wrong_argument_is_reported(run, monkeypatch, tmp_path, arguments, code, words):
    monkeypatch.chdir(tmp_path)
    done = run(*arguments)
    assert done.exit_code == code and words in done.output, done.output
    assert "Traceback" not in done.output


def test_missing_data_is_named(run, repository):
    (repository / "data" / "alfworld" / "tasks" / "fidelity.parquet").unlink()
    done = run()
    assert (
        done.exit_code == 1
        and "data/alfworld/tasks/fidelity.parquet" in done.output
        and "data.dvc" in done.output
    )


def test_the_newest_finished_stage_is_played(repository):
    stages = repository / ".dreamgym" / "stages"
    first = stages / "experience_model-0123456789ab"
    for name in (
        "experience_model-ffffffffffff.partial",
        "experience_model-aaaaaaaaaaaa.damaged-1",
        "synthetic_rl-222222222222",
    ):
        (stages / name / "model").mkdir(parents=True)
        (stages / name / "model" / "model.safetensors").touch()
        (stages / name / "stage.json").touch()
    assert find_model(repository, None, "alfworld") == first / "model"
    with pytest.raises(DataError, match=f"Type --model {first / 'model'}"):
        find_model(repository, first, "alfworld")
    (first / "stage.json").write_text('{"details": {"environment": "browser"}}')
    assert find_model(repository, None, "browser") == first / "model"
    with pytest.raises(
        DataError, match=r"no finished experience model of alfworld under .* \(there is one of browser\)"
    ):
        find_model(repository, None, "alfworld")
    (first / "stage.json").unlink()
    with pytest.raises(DataError, match="Type `dreamgym retrain` first"):
        find_model(repository, None, "alfworld")


def test_a_task_of_another_split_is_found_there(repository, tasks):
    layout = DataLayout.of(repository, "alfworld")
    assert (
        find_task(layout, "train", "")[0] == tasks[0]
        and find_task(layout, "train", tasks[3].id)[0] == tasks[3]
    )
    with pytest.raises(ConfigError, match=f"--split test --task {tasks[10].id}"):
        find_task(layout, "train", tasks[10].id)
    assert pick_task(tasks, tasks[4].id.split("/")[-1]) == tasks[4], "the last part of an id will do"
    assert "tasks have 'alfworld' in their id. Did you mean" in pick_task(tasks, "alfworld")


def test_an_action_file_is_text(tmp_path):
    path = tmp_path / "actions.txt"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="cannot be read"):
        read_actions(path)
