"""The index on disk with a real Chroma: built, completed, rebuilt; dreamed transitions are not stored."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from test_replay_buffer import ask, make_log

from components.config import RetrievalConfig
from components.experience.retrieval import stored_index
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.experience.retrieval.vector_index import ChromaIndex
from components.records import SYNTHETIC

CONFIG = RetrievalConfig(k=3, index="chroma", dimensions=64)
LOG = make_log(30)


def opening_message(place, log=LOG, config=CONFIG, **options):
    """Open and close a buffer; its message."""
    buffer = ReplayBuffer(config, log, stored=place, **options)
    message = buffer.opening_message
    assert buffer._index.size == buffer.steps
    buffer.close()
    return message


def files(place):
    return {
        path.relative_to(place).as_posix(): path.read_bytes()
        for path in (place / "stored").rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    place = tmp_path_factory.mktemp("index")
    assert "built from the log" in opening_message(place) and len(files(place)) > 4
    return place


@pytest.fixture
def place(built, tmp_path):
    return shutil.copytree(built, tmp_path / "index")


def test_a_missing_index_is_built_and_then_up_to_date(tmp_path):
    steps = len({(t.state, t.action) for t in LOG})
    assert f"built from the log with {steps} steps: there was none" in opening_message(tmp_path / "index")
    files_before = files(tmp_path / "index")
    assert f"up to date with {steps} steps (" in opening_message(tmp_path / "index")
    assert files(tmp_path / "index") == files_before
    assert sorted(path.name for path in (tmp_path / "index").iterdir()) == ["lock", "stored"]


def test_the_answers_are_those_of_exact_search(place):
    stored, exact = (
        ReplayBuffer(CONFIG, LOG, stored=place),
        ReplayBuffer(RetrievalConfig(k=3, dimensions=64), LOG),
    )
    assert ask(stored, LOG) == ask(exact, LOG)
    demonstrations, total = stored.count_found_neighbours([(t.state, t.action) for t in LOG])
    assert demonstrations == total == 3 * len(LOG)
    stored.close()


def test_an_older_index_is_completed(place):
    more = [*LOG, *make_log(20, prefix="x", seed=4)]
    more += [
        t
        for n in range(3)
        for t in make_log(1, prefix=f"far{n}")
        if (t.state, t.action) not in {(s.state, s.action) for s in more}
    ]
    new = make_log(1, prefix="new")
    new = [t.__class__(**{**t.__dict__, "state": f"{t.state} Fog {n}."}) for n, t in enumerate(new)]
    there, steps = (len({(t.state, t.action) for t in log}) for log in (LOG, [*more, *new]))
    assert f"older than the log, so {steps - there} steps were added to its {there}" in opening_message(
        place, [*more, *new]
    )
    assert f"up to date with {steps} steps (" in opening_message(place, [*more, *new])
    buffer, exact = (
        ReplayBuffer(CONFIG, [*more, *new], stored=place),
        ReplayBuffer(RetrievalConfig(k=3, dimensions=64), [*more, *new]),
    )
    assert ask(buffer, [*more, *new]) == ask(exact, [*more, *new])
    buffer.close()


def test_the_first_part_of_a_log_uses_the_index_of_the_whole(place):
    files_before, first = files(place), LOG[:60]
    there, steps = (len({(t.state, t.action) for t in log}) for log in (LOG, first))
    assert (
        f"up to date with {steps} steps; {there - steps} more in it are not of this log and left out"
        in opening_message(place, first)
    )
    buffer, exact = (
        ReplayBuffer(CONFIG, first, stored=place),
        ReplayBuffer(RetrievalConfig(k=3, dimensions=64), first),
    )
    assert ask(buffer, LOG) == ask(exact, LOG)
    buffer.close()
    assert files(place) == files_before


def change_card(place, **values):
    card = place / "stored" / "card.json"
    card.write_text(json.dumps(json.loads(card.read_text()) | values))


def test_another_encoder_rebuilds_the_index(place):
    message = opening_message(place, config=RetrievalConfig(k=3, index="chroma", dimensions=32))
    assert (
        "rebuilt from the log with" in message
        and "with the encoder hashing-64-numbers-0.5, this run has hashing-32-numbers-0.5" in message
    )


def test_another_action_weight_rebuilds_the_index(place):
    change_card(place, action_weight=0.2)
    message = opening_message(place)
    assert "rebuilt" in message and "the action weight 0.2, this run has 0.7" in message


def test_another_version_of_chroma_rebuilds_the_index(place):
    change_card(place, chroma="0.4.1")
    assert (
        "rebuilt" in (message := opening_message(place)) and "with the Chroma 0.4.1, this run has" in message
    )


def test_another_log_rebuilds_the_index(place):
    message = opening_message(place, [LOG[0], *make_log(9, prefix="other", seed=3)])
    assert "rebuilt" in message and "of another log, whose step" in message
    assert "up to date" in opening_message(place, [LOG[0], *make_log(9, prefix="other", seed=3)])


def test_the_rebuild_option_rebuilds_the_index(place):
    assert "rebuilt" in (message := opening_message(place, rebuild=True)) and "as asked" in message


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGES = {
    "a card that is no JSON": lambda stored: (stored / "card.json").write_text("{"),
    "a card of other keys": lambda stored: (stored / "card.json").write_text('{"color": 3}'),
    "no card": lambda stored: (stored / "card.json").unlink(),
    "no list of steps": lambda stored: (stored / "steps.npy").unlink(),
    "half a list of steps": lambda stored: truncate(stored / "steps.npy"),
    "half a database": lambda stored: truncate(stored / "chroma" / "chroma.sqlite3"),
    "no database": lambda stored: (stored / "chroma" / "chroma.sqlite3").unlink(),
    "no graph": lambda stored: [
        shutil.rmtree(path) for path in (stored / "chroma").iterdir() if path.is_dir()
    ],
    "a file in its place": lambda stored: (shutil.rmtree(stored), stored.write_text("x")),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_is_rebuilt_without_losing_transitions(place, damage):
    DAMAGES[damage](place / "stored")
    buffer = ReplayBuffer(CONFIG, LOG, stored=place)
    assert "built from the log" in buffer.opening_message
    assert ask(buffer, LOG) == ask(ReplayBuffer(RetrievalConfig(k=3, dimensions=64), LOG), LOG) and len(
        buffer
    ) == len(LOG)
    buffer.close()
    assert "up to date" in opening_message(place)


def test_an_interrupted_build_leaves_the_old_index_and_no_other_files(place, monkeypatch):
    files_before = files(place)

    def interrupted(self, vectors):  # simulates Ctrl-C at a fixed moment
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ChromaIndex, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            opening_message(place, rebuild=True)
    assert files(place) == files_before and sorted(path.name for path in place.iterdir()) == [
        "lock",
        "stored",
    ]
    assert "up to date" in opening_message(place)


def test_dreamed_transitions_are_not_stored(place):
    files_before = files(place)
    before = set(Path(tempfile.gettempdir()).glob("dreamgym-index-*"))
    dreamed = make_log(20, source=SYNTHETIC, prefix="d", seed=7)
    buffer, exact = (
        ReplayBuffer(CONFIG, LOG, stored=place),
        ReplayBuffer(RetrievalConfig(k=3, dimensions=64), LOG),
    )
    for start in range(0, len(dreamed), 25):
        for one in (buffer, exact):
            one.add(dreamed[start : start + 25])
    assert ask(buffer, [*LOG, *dreamed]) == ask(exact, [*LOG, *dreamed])
    assert any(demo.source == SYNTHETIC for demonstrations in ask(buffer, dreamed) for demo in demonstrations)
    assert files(place) == files_before
    buffer.close()
    assert set(Path(tempfile.gettempdir()).glob("dreamgym-index-*")) == before
    assert files(place) == files_before and "up to date" in opening_message(place)


def test_beyond_the_capacity_a_stored_index_answers_like_an_exact_one(place):
    dreamed = make_log(40, source=SYNTHETIC, prefix="d", seed=7)
    room = 15
    full = {"k": 3, "dimensions": 64, "capacity": ReplayBuffer(RetrievalConfig(), LOG).held + room}
    buffer, exact = (
        ReplayBuffer(RetrievalConfig(index="chroma", **full), LOG, stored=place),
        ReplayBuffer(RetrievalConfig(**full), LOG),
    )
    for start in range(0, len(dreamed), 24):
        for one in (buffer, exact):
            one.add(dreamed[start : start + 24])
    assert buffer.held == exact.held == full["capacity"] and buffer._index.size == buffer.steps
    assert ask(buffer, [*LOG, *dreamed]) == ask(exact, [*LOG, *dreamed])
    buffer.close()


OPEN_WHEN_TOLD = """
import pickle, sys, time
from pathlib import Path
from components.config import RetrievalConfig
from components.experience.retrieval.replay_buffer import ReplayBuffer

config, log, place = pickle.loads(sys.stdin.buffer.read())
import chromadb
for turn in (1, 2):
    print("ready", flush=True)
    while not (place.parent / f"go-{turn}").exists():
        time.sleep(0.001)
    buffer = ReplayBuffer(config, log, stored=place)
    found = buffer.retrieve([(t.state, t.action) for t in log], [t.task_id for t in log])
    ids = [[demo.episode_id for demo in demos] for demos in found]
    print(buffer.opening_message, ids, sep="|", flush=True)
    buffer.close()
"""


@pytest.mark.parametrize("state", ["missing", "damaged"])
def test_only_one_of_several_simultaneous_openers_builds_the_index(place, state):
    """With threads: the lock belongs to an open file, so it separates threads as it does processes."""
    if state == "missing":
        shutil.rmtree(place)
    else:
        truncate(place / "stored" / "steps.npy")
    barrier = threading.Barrier(3)

    def run(_):
        barrier.wait()
        buffer = ReplayBuffer(CONFIG, LOG, stored=place)
        demonstrations = ask(buffer, LOG)
        buffer.close()
        return buffer.opening_message, demonstrations

    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(run, range(3)))
    assert sorted("built from the log" in message for message, _ in answers) == [False, False, True]
    assert sorted("up to date" in message for message, _ in answers) == [False, True, True]
    assert answers[0][1] == answers[1][1] == answers[2][1]


@pytest.mark.slow
def test_several_processes_may_open_the_index_at_once(place):
    """First with a missing index, then with a damaged one: one process builds it, the others wait for it."""
    shutil.rmtree(place)
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN_WHEN_TOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(3)
    ]
    for run in runs:
        run.stdin.write(pickle.dumps((CONFIG, LOG, place)))
        run.stdin.close()
    for turn in (1, 2):
        assert [run.stdout.readline() for run in runs] == [b"ready\n"] * 3
        if turn == 2:
            truncate(place / "stored" / "steps.npy")
        (place.parent / f"go-{turn}").touch()
        answers = [run.stdout.readline().decode().split("|") for run in runs]
        assert sum("built from the log" in words for words, _ in answers) == 1
        assert sum("up to date" in words for words, _ in answers) == 2
        assert len({demonstrations for _, demonstrations in answers}) == 1
    assert [run.wait(60) for run in runs] == [0, 0, 0]
    for run in runs:
        run.stdout.close()


def test_the_stored_size_is_the_size_of_the_files(place):
    assert stored_index.stored_size_bytes(place) == sum(map(len, files(place).values())) > 0
    assert stored_index.stored_size_bytes(place / "nowhere") == 0


def test_exact_search_stores_nothing(tmp_path):
    buffer = ReplayBuffer(RetrievalConfig(k=3, dimensions=64), LOG, stored=tmp_path / "index")
    assert not buffer.opening_message and not (tmp_path / "index").exists()
