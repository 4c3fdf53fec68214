"""`dreamgym index` builds, updates and rebuilds the index, and a run's buffers use it."""

from __future__ import annotations

import json
import shutil

import pytest
from builders import make_transition
from typer.testing import CliRunner

from components.config import load_config
from components.errors import ExperienceModelError
from components.evaluation.metrics.retrieval_recall import recall_estimate, recall_metrics
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.language.backbone import save_model
from components.records import REAL, SYNTHETIC
from components.trajectories.recording import collect, plan
from components.trajectories.replay_log import append_transitions
from components.trajectories.store import (
    DataLayout,
    held_out,
    read_tasks,
    read_transitions,
    trajectories,
    write_tasks,
    write_transitions,
)
from flows.cli import app as cli
from flows.jobs.collect import choose_tasks
from flows.jobs.index import index_log, whole_log
from flows.run.run_data import index_directories
from flows.run.run_dream import dream_with

CHROMA = ["retrieval.index=chroma", "retrieval.dimensions=64", "retrieval.k=2"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, adapter):
    """Tasks and trajectories of the real engine as `dreamgym collect` chooses and writes them, only fewer."""
    root = tmp_path_factory.mktemp("recorded")
    few = [
        "data.train_tasks=8",
        "data.fidelity_tasks=3",
        "data.fidelity_worlds=0",
        "evaluation.tasks=2",
        "environment.workers=1",
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flows.jobs.collect.TEST_TASKS", 2)  # the list of held-out games takes longest
        tasks, layout = choose_tasks.fn(load_config(None, few)), DataLayout.of(root, "alfworld")
    for name, chosen in tasks.items():
        write_tasks(layout.tasks(name), chosen)
        if name != "test":
            played = collect(adapter, plan(chosen, {"expert": 1, "noisy": 1, "random": 1}, 0), 12, rows=32)
            write_transitions(
                layout.trajectories(name), [step for episode in played for step in episode.steps]
            )
    return root


@pytest.fixture
def root(recorded, tmp_path):
    return shutil.copytree(recorded, tmp_path / "root")


def dream(root, count, shard):
    layout = DataLayout.of(root, "alfworld")
    known, tasks = read_transitions(layout.trajectories("train")), read_tasks(layout.tasks("train"))
    steps = [
        make_transition(0, f"{shard}-{n}", tasks[0].id, state=f"{known[n].state} Fog.", source=SYNTHETIC)
        for n in range(count)
    ]
    append_transitions(DataLayout.of(root, "alfworld").replay, steps, shard)


def test_the_index_follows_the_log(root):
    config = load_config(None, CHROMA)
    first = index_log(config, root)
    assert (
        "built from the log" in first.done
        and first.transitions == len(whole_log(DataLayout.of(root, "alfworld"))[0]) > 150
    )
    assert 0 < first.steps <= first.held <= first.transitions and first.dreamed == 0
    assert first.recall.n > 40 and first.recall.value > 0.95 and first.size_bytes > 100_000
    assert "up to date" in index_log(config, root).done
    dream(root, 20, "synthetic-1")
    later = index_log(config, root)
    assert f"older than the log, so {later.steps - first.steps} steps were added" in later.done
    assert later.transitions == first.transitions + 20 and later.dreamed == 20
    assert "rebuilt from the log" in index_log(config, root, rebuild=True).done
    assert (
        "hashing-64-numbers-0.5, this run has hashing-32-numbers-0.5"
        in index_log(load_config(None, [*CHROMA[:1], *CHROMA[2:], "retrieval.dimensions=32"]), root).done
    )


def test_a_run_opens_the_part_that_is_real_and_leaves_the_index_as_it_is(root):
    config, layout = load_config(None, CHROMA), DataLayout.of(root, "alfworld")
    dream(root, 20, "synthetic-1")
    index_log(config, root)
    card = (root / ".dreamgym" / "index" / "stored" / "card.json").read_text()
    known = read_transitions(layout.trajectories("train"))
    buffer = ReplayBuffer(config.retrieval, known, hidden=held_out(layout), **index_directories(root))
    assert "up to date" in buffer.opening_message and "left out" in buffer.opening_message
    buffer.add([make_transition(0, "now", known[0].task_id, state="A dream.", source=SYNTHETIC)])
    fogged = [(f"{step.state} Fog.", step.action) for step in known[:20]]
    found = buffer.retrieve([*fogged, ("A dream.", "go to shelf 1")], [""] * 21)
    assert {demo.source for row in found[:20] for demo in row} == {REAL} and found[20][0].state == "A dream."
    buffer.close()
    assert (root / ".dreamgym" / "index" / "stored" / "card.json").read_text() == card
    assert json.loads(card)["encoder"] == "hashing-64-numbers-0.5"


def test_a_resumed_dream_adds_its_own_dreamed_transitions(root):
    from builders import VOCABULARY, make_model

    save_model(make_model(), VOCABULARY, root / "model")
    known = read_transitions(DataLayout.of(root, "alfworld").trajectories("train"))
    dreamed = [make_transition(0, "now", known[0].task_id, state="A dream.", source=SYNTHETIC)]
    config = load_config(None, CHROMA)
    opening_message = dream_with(
        root / "model", config, known, dreamed, held_out(DataLayout.of(root, "alfworld")), root
    )
    assert opening_message._buffer.retrieve([("A dream.", dreamed[0].action)], [""])[0][0] == dreamed[0]
    opening_message._buffer.close()
    steps = len({(step.state, step.action) for step in known})
    assert json.loads((root / ".dreamgym" / "index" / "stored" / "card.json").read_text())["steps"] == steps


@pytest.mark.parametrize("index", ["exact", "chroma"])
def test_no_held_out_transition_and_none_of_the_same_task_is_retrieved(root, index):
    """For every step of the fidelity set and of the training set, with the real split of tasks."""
    layout, config = (
        DataLayout.of(root, "alfworld"),
        load_config(None, [f"retrieval.index={index}", "retrieval.k=4"]),
    )
    hidden, trained = held_out(layout), {task.id for task in read_tasks(layout.tasks("train"))}
    train, fidelity = (read_transitions(layout.trajectories(name)) for name in ("train", "fidelity"))
    assert {step.task_id for step in fidelity} <= hidden and not trained & hidden
    buffer = ReplayBuffer(config.retrieval, train, hidden=hidden, **index_directories(root))
    for queries in (fidelity, train):
        found = buffer.retrieve(
            [(step.state, step.action) for step in queries], [step.task_id for step in queries]
        )
        for query, demonstrations in zip(queries, found, strict=True):
            assert len(demonstrations) == 4
            assert all(demo.task_id in trained and demo.task_id not in hidden for demo in demonstrations)
            assert all(demo.task_id != query.task_id for demo in demonstrations)
    with pytest.raises(ExperienceModelError, match="belongs to a held-out task"):
        buffer.add(fidelity[:1])
    buffer.close()
    with pytest.raises(ExperienceModelError, match="belongs to a held-out task"):
        ReplayBuffer(config.retrieval, [*train, fidelity[0]], hidden=hidden, **index_directories(root))


def test_without_the_guard_the_own_task_would_be_the_nearest(root):
    """The test above can fail: without a task to exclude, most training steps retrieve themselves."""
    train = read_transitions(DataLayout.of(root, "alfworld").trajectories("train"))
    buffer = ReplayBuffer(load_config().retrieval, train)
    found = buffer.retrieve([(step.state, step.action) for step in train], [""] * len(train))
    assert (
        sum(row[0].task_id == step.task_id for row, step in zip(found, train, strict=True)) > len(train) / 2
    )


def test_recall_is_a_metric_where_the_index_is_approximate(root):
    layout = DataLayout.of(root, "alfworld")
    train, episodes = (
        read_transitions(layout.trajectories("train")),
        trajectories(read_tasks(layout.tasks("fidelity")), read_transitions(layout.trajectories("fidelity"))),
    )
    exact, near = (
        ReplayBuffer(load_config(None, [f"retrieval.index={index}"]).retrieval, train)
        for index in ("exact", "chroma")
    )
    assert recall_metrics(exact, episodes) == {} and recall_estimate(exact, episodes).value == 1
    estimate = recall_metrics(near, episodes)["retrieval/recall"]
    assert (
        estimate.n == sum(len(episode.steps) for episode in episodes) and estimate.low < estimate.value <= 1
    )
    assert estimate.value > 0.95
    near.close()


@pytest.fixture
def run(quiet_process, root):
    return lambda *arguments: CliRunner().invoke(cli.app, ["index", "--root", str(root), *arguments])


def test_the_command_prints_what_it_did_and_its_figures(run):
    done = run("--rebuild", *CHROMA)
    assert done.exit_code == 0, done.output
    for words in (
        "rebuilt from the log",
        "as asked",
        "transitions in the log",
        "different steps",
        "hashing-64",
        "recall@2",
        "MB",
    ):
        assert words in done.output
    assert (
        "Nothing to build: with retrieval.index=exact" in (done := run()).output and "recall@1" in done.output
    )


def test_without_retrieval_there_is_no_index(run):
    done = run("retrieval.k=0")
    assert (
        done.exit_code == 2 and "retrieval.k is 0: nothing is retrieved, so there is no index" in done.output
    )


def test_a_missing_encoder_is_one_paragraph(run):
    done = run("retrieval.encoder=path", "retrieval.encoder_path=models/typo")
    assert (
        done.exit_code == 1
        and "'models/typo': there is no such directory" in done.output
        and "Traceback" not in done.output
    )
