"""The `dreamgym` command: messages and exit codes. Real files, a real git repository, real sockets."""

import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from builders import make_task, make_transition
from typer.testing import CliRunner

from components.errors import (
    NOT_REPRODUCED,
    PROMOTION_REFUSED,
    ROWS_SET_ASIDE,
    ConfigError,
    DataError,
    FidelityGateClosed,
)
from components.trajectories.dvc import repository_state as dvc_state
from components.trajectories.store import DataLayout, write_tasks, write_transitions
from flows.checks import preflight
from flows.cli import app as cli
from flows.cli import command
from flows.settings import DEFAULTS, prefect_is_configured, prepare

ROOT = Path(__file__).parents[3]
DREAMGYM = [sys.executable, "-m", "flows.cli"]


@pytest.fixture
def run(quiet_process):
    """Run a command line in this process; its settings are restored at the end."""
    return lambda *arguments: CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


@pytest.fixture
def repository(tmp_path):
    """An empty git repository with one commit."""
    place = tmp_path / "repository"
    place.mkdir()
    identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    subprocess.run(["git", "init", "-q", str(place)], check=True)
    subprocess.run(
        ["git", "-C", str(place), *identity, "commit", "-q", "--allow-empty", "-m", "first"], check=True
    )
    return place


@pytest.mark.parametrize("arguments", [[], ["retrain"], ["collect"]])
def test_help_is_quick(arguments):
    """Measured in CPU seconds, so that other processes do not count."""
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [*DREAMGYM, *arguments, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 1.5
    assert "dreamgym" in done.stdout


def test_help_loads_no_heavy_library():
    code = (
        "import sys, flows.cli.app; print([m for m in ('torch', 'prefect', 'mlflow', 'pandas', 'pydantic') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "verb",
    [
        "retrain",
        "collect",
        "validate",
        "evaluate",
        "play",
        "bench",
        "fidelity",
        "pretrain",
        "index",
        "ui",
        "doctor",
        "config",
    ],
)
def test_every_verb_shows_an_example(run, verb):
    done = run(verb, "--help")
    assert done.exit_code == 0
    assert f"dreamgym {verb}" in done.output and "--config" in done.output


@pytest.mark.parametrize("verb", ["retrain", "validate", "ui"])
def test_unknown_key_names_the_nearest(run, verb):
    done = run(verb, "rl.dream.interations=3")
    assert done.exit_code == ConfigError.exit_code == 2
    assert "Did you mean rl.dream.iterations?" in done.output
    assert "Traceback" not in done.output


def test_option_without_effect_is_refused(run):
    done = run("retrain", "retrieval.k=0", "retrieval.dimensions=64")
    assert done.exit_code == 2
    assert "dimensions has no effect with k: 0" in done.output


def test_missing_config_file(run):
    done = run("retrain", "--config", "configs/quik.yaml")
    assert done.exit_code == 2
    assert "There is no config file configs/quik.yaml" in done.output


@pytest.mark.parametrize("verb", ["retrain", "collect", "pretrain"])
def test_no_git_repository(run, tmp_path, verb):
    done = run(verb, "--root", tmp_path)
    assert done.exit_code == DataError.exit_code == 1
    assert "is not the top of a git repository" in done.output and "git init" in done.output
    assert not (tmp_path / "data").exists()


def test_repository_without_a_commit(run, tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    done = run("collect", "--root", tmp_path)
    assert done.exit_code == 1
    assert "has no commit" in done.output


@pytest.mark.parametrize("verb", ["retrain", "collect", "pretrain", "evaluate"])
def test_a_full_disk_is_named_before_anything_starts(run, repository, monkeypatch, verb):
    monkeypatch.setenv("PREFECT_HOME", "/proc")
    done = run(verb, "--root", repository)
    assert done.exit_code == 1
    assert "The disk is full: 0 bytes are free in /proc" in done.output


@pytest.mark.parametrize(
    "verb",
    [
        "retrain",
        "collect",
        "pretrain",
        "evaluate",
        "fidelity",
        "ablate fidelity",
        "study",
        "reproduce",
        "data save",
        "data pull",
    ],
)
def test_a_damaged_lock_of_dvc_is_named_before_anything_starts(run, repository, monkeypatch, verb):
    monkeypatch.setattr(dvc_state, "LOCK_WRITE_SECONDS", 0.05)
    lock = repository / ".dvc" / "tmp" / "rwlock"
    lock.parent.mkdir(parents=True)
    lock.write_text("{")
    done = run(*verb.split(), "--root", repository)
    assert done.exit_code == 1
    assert f"{lock} (1 bytes) is damaged" in done.output and f"rm -f {lock}" in done.output


@pytest.mark.parametrize("verb", ["collect", "pretrain", "evaluate", "validate", "index", "bench dream"])
def test_a_tmpdir_that_is_not_there_is_named_before_anything_starts(run, repository, monkeypatch, verb):
    monkeypatch.setenv("TMPDIR", str(repository / "gone"))
    done = run(*verb.split(), "--root", repository)
    assert done.exit_code == 1
    assert "gone, which is no directory" in done.output and "export TMPDIR=DIRECTORY" in done.output


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (["collect", "--json", "/proc/none/collected.json"], "/proc"),
        (["pretrain", "--to", "/proc/none/backbone"], "/proc"),
        (["study", "--figures", "/proc/figures"], "/proc"),
        (["ablate", "fidelity", "--figure", "/proc/bars.svg"], "/proc"),
    ],
)
def test_an_output_that_cannot_be_written_is_named_before_anything_starts(
    run, repository, monkeypatch, arguments, place
):
    monkeypatch.setattr(
        "flows.checks.config_checks.check_settings", lambda *given, **options: None
    )  # no data here
    monkeypatch.setattr("flows.checks.preflight.ensure_data", lambda *given, **options: None)
    monkeypatch.setattr("flows.checks.preflight.complete_data", lambda *given: pytest.fail("work began"))
    done = run(*arguments, "--root", repository)
    assert done.exit_code == 1
    assert f"{place} cannot be written" in done.output


def test_no_data_and_no_pointer(run, repository):
    done = run("retrain", "--root", repository)
    assert done.exit_code == 1
    assert "Not there yet: data/alfworld/tasks/train.parquet" in done.output
    assert "data.dvc" in done.output and "dreamgym collect" in done.output


def test_damaged_parquet_stops_validate(run, repository):
    for name in (
        "tasks/train",
        "tasks/fidelity",
        "tasks/test",
        "trajectories/train",
        "trajectories/fidelity",
    ):
        path = repository / "data" / "alfworld" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"PAR1 and then nothing that is Parquet")
    done = run("validate", "--root", repository)
    assert done.exit_code == 1
    assert "train.parquet" in done.output and "damaged or no Parquet file" in done.output
    assert "dvc pull" in done.output


def test_the_exit_code_of_validate_says_whether_rows_were_set_aside(run, repository):
    layout = DataLayout.of(repository, "alfworld")
    for name, task in (("train", "t0"), ("fidelity", "f0"), ("test", "x0")):
        write_tasks(layout.tasks(name), [make_task(id=task, initial_state=make_transition().state)])
    for name, task in (("train", "t0"), ("fidelity", "f0")):
        write_transitions(
            layout.trajectories(name),
            [make_transition(0, f"e{n}", task, behaviour="expert") for n in range(3)],
        )
    done = run("validate", "--root", repository)
    assert done.exit_code == 0, done.output
    assert (
        "train: 3 rows, 3 valid" in done.output
        and "kept   A reward is 0.0 or 1.0. (reward_value)" in done.output
    )
    steps = [make_transition(0, f"e{n}", "t0", reward=0.5 * (n == 1), done=True) for n in range(3)]
    write_transitions(layout.trajectories("train"), steps)
    done = run("validate", "--root", repository, "data.quarantine_share=1")
    assert done.exit_code == ROWS_SET_ASIDE == 6
    assert "episode e1 step 0: reward_value (reward: '0.5'): A reward is 0.0 or 1.0" in done.output
    assert (
        "alfworld train trajectories, data in no version"
        in (repository / ".dreamgym/validate/train/data_docs/index.html").read_text()
    )
    assert "6: some were" in run("validate", "--help").output


@pytest.mark.parametrize(("option", "name"), [("--mlflow-port", "MLflow"), ("--prefect-port", "Prefect")])
def test_port_in_use(run, repository, option, name):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        free = {"--mlflow-port": "--prefect-port", "--prefect-port": "--mlflow-port"}[option]
        done = run("ui", "--root", repository, option, port, free, _free_port())
    assert done.exit_code == 1
    assert f"Port {port} is in use; {name} needs it" in done.output
    assert f"dreamgym ui {option} {port + 1}" in done.output


def test_one_port_for_two_servers_is_refused(run, repository):
    port = _free_port()
    done = run("ui", "--root", repository, "--mlflow-port", port, "--prefect-port", port)
    assert done.exit_code == 2
    assert f"MLflow and Prefect are both given the port {port}" in done.output


def test_debug_shows_the_traceback(run, tmp_path):
    done = run("collect", "--root", tmp_path, "--debug")
    assert isinstance(done.exception, DataError)


def test_resolved_config_is_read_back(run, tmp_path):
    assert "dreamgym config seed=3 > mine.json" in run("config", "--help").output, (
        "a folder such as runs/ may not be there yet"
    )
    path = tmp_path / "mine.json"
    path.write_text(run("config", "seed=7", "rl.real.budget=12000").stdout)
    done = run("config", "--config", path)
    assert done.exit_code == 0
    assert done.stdout == path.read_text()
    assert '"budget": 12000' in done.stdout


def test_settings_of_the_user_are_kept(monkeypatch, repository, tmp_path):
    for name in [*DEFAULTS, "PREFECT_HOME", "PREFECT_API_URL", "PREFECT_RESULTS_LOCAL_STORAGE_PATH"]:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HOME", str(tmp_path))
    prepare(repository)
    assert os.environ["HF_HUB_OFFLINE"] == "0" and os.environ["DO_NOT_TRACK"] == "1"
    home = Path(os.environ["PREFECT_HOME"])
    assert home == repository / ".dreamgym" / "prefect" and home.is_dir()


def test_a_prefect_profile_with_a_server_is_used(monkeypatch, tmp_path):
    monkeypatch.delenv("PREFECT_HOME", raising=False)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".prefect").mkdir()
    profiles = tmp_path / ".prefect" / "profiles.toml"
    profiles.write_text(
        'active = "mine"\n[profiles.mine]\nPREFECT_API_URL = "http://127.0.0.1:4200/api"\n[profiles.other]\n'
    )
    assert prefect_is_configured()
    profiles.write_text(profiles.read_text().replace('"mine"', '"other"'))
    assert not prefect_is_configured()


@pytest.mark.parametrize(
    ("verb", "resumes"), [("retrain", True), ("pretrain", True), ("collect", True), ("evaluate", False)]
)
def test_only_a_verb_that_resumes_says_so_when_it_is_interrupted(run, repository, monkeypatch, verb, resumes):
    def interrupted(root):  # stands in for Ctrl-C, whose moment no test can choose
        raise KeyboardInterrupt

    monkeypatch.setattr(preflight, "require_disk_space", interrupted)
    done = run(verb, "--root", repository)
    assert done.exit_code == command.INTERRUPTED
    assert "Interrupted." in done.output
    assert ("the same command goes on from there" in done.output) == resumes


def test_exit_codes_differ():
    own = {PROMOTION_REFUSED, NOT_REPRODUCED, ROWS_SET_ASIDE, command.INTERRUPTED}
    assert len({0, DataError.exit_code, ConfigError.exit_code, FidelityGateClosed.exit_code, *own}) == 8


def test_a_failure_inside_a_flow_is_one_paragraph(repository):
    """A real flow with an expected failure on an ephemeral Prefect server: no traceback, its exit code."""
    code = """
import sys
from pathlib import Path
from flows.cli.app import app, main
from flows.cli.command import prepare_flow_logs, report_failures
from flows.settings import prepare
prepare(Path(sys.argv[1]))
from prefect import flow
from components.errors import FidelityGateClosed

@flow
def inner():
    raise FidelityGateClosed("reward_precision is 0.4", "Expected 0.8.", "Collect more near misses.")

@flow
def outer():
    inner()

@app.command()
def fails():
    with report_failures(False):
        prepare_flow_logs(False)
        outer()

sys.argv[1:] = ["fails"]
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(repository)], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == FidelityGateClosed.exit_code == 3, done.stderr[-2000:]
    assert (
        "FidelityGateClosed: reward_precision is 0.4 Expected 0.8. Next: Collect more near misses."
        in done.stderr
    )
    assert "Traceback" not in done.stderr + done.stdout


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
