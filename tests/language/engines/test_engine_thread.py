"""Rows of several threads in one vLLM: none waits for another; a repeated run computes the same batches."""

import random
import threading
import time

import pytest
from vllm_models import NEEDS_VLLM, VOCABULARY, make_model, make_prompts, require_numbers_of

from components.config import VllmConfig
from components.errors import TrainingError
from components.language.compute import Compute
from components.language.engines.open_engine import open_engine
from components.language.engines.players import run_players
from components.language.engines.vllm.engine_thread import engine_thread

pytestmark = NEEDS_VLLM
COMPUTE = Compute(engine="vllm", vllm=VllmConfig(cache_gb=0.1, rows=16))


@pytest.fixture(scope="module")
def engine():
    return open_engine(make_model(scale=1.0), VOCABULARY, COMPUTE, 0)


def generate(session, prompt, count):
    return session.generate({0: prompt}, stop=set(), max_new_tokens=count, temperature=1.0)[0]


def test_a_row_goes_on_as_soon_as_it_is_complete(engine):
    """Three short replies one after the other are complete before the long one beside them."""
    ends = []
    long_reply, short_replies = engine.open(1), engine.open(1)

    def write(session, name, lengths):
        for length in lengths:
            generate(session, [20], length)
            ends.append(name)

    before = engine_thread().steps
    run_players([lambda: write(long_reply, "long", [60]), lambda: write(short_replies, "short", [3] * 4)], 2)
    assert ends == ["short"] * 4 + ["long"]
    assert engine_thread().steps - before <= 62, "they were computed together"


def test_two_vllms_are_advanced_in_turn(engine):
    other = open_engine(make_model(seed=9), VOCABULARY, COMPUTE, 0)
    sessions = [each.with_seed(4).open(1) for each in (engine, other)]
    expected = [generate(session, [21], 9).tokens for session in sessions]
    sessions = [each.with_seed(4).open(1) for each in (engine, other)]
    before = engine_thread().rounds
    found = run_players([lambda s=session: generate(s, [21], 9).tokens for session in sessions], 2)
    assert found == expected
    assert engine_thread().rounds - before == 9, "in the same rounds"


def play_with_pauses(engine, pauses):
    """Twelve jobs in five threads: the rows of each step, and what was generated."""
    thread = engine_thread()
    prompts = make_prompts(12)
    sessions = [engine.with_seed(7).open(1)] + [engine.with_seed(8 + row).open(1) for row in range(11)]
    batches = []
    step_all = type(thread)._step_all

    def recording(self):
        batches.append(sorted((id(batch.llm), batch.order) for batch, _ in self._running.values()))
        return step_all(self)

    def job(row):
        written = []
        for turn in range(4):
            time.sleep(pauses.random() * 0.02)
            written.append(generate(sessions[row], prompts[row], 1 + (row * 7 + turn * 3) % 11))
        time.sleep(pauses.random() * 0.05)  # the thread comes late for its next job
        return written

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(thread), "_step_all", recording)
        written = run_players([lambda row=row: job(row) for row in range(12)], 5)
    return batches, written


def test_batches_do_not_depend_on_the_speed_of_the_threads(engine):
    first, second = (play_with_pauses(engine, random.Random(seed)) for seed in (1, 2))
    assert first == second
    assert max(len(batch) for batch in first[0]) == 5
    assert {order for batch in first[0] for _, order in batch} == set(range(12))


def test_the_numbers_are_those_of_transformers_in_a_batch_that_changes(engine):
    model = make_model(scale=1.0)
    own = open_engine(model, VOCABULARY, COMPUTE, 0)
    run_players([lambda seed=seed: require_numbers_of(model, own.with_seed(seed)) for seed in range(4)], 4)


def test_an_error_of_one_job_is_raised_once_the_others_under_way_are_done(engine):
    done = []

    def fail():
        raise ValueError("no such room")

    def write(session):
        generate(session, [20], 20)
        done.append(session)

    sessions = [engine.open(1) for _ in range(3)]
    jobs = [lambda: write(sessions[0]), fail, lambda: write(sessions[1]), lambda: write(sessions[2])]
    with pytest.raises(ValueError, match="no such room"):
        run_players(jobs, 2)
    assert done == [sessions[0]], "no other job begins"
    assert generate(sessions[2], [20], 3).tokens, "the engine goes on"


def test_a_failure_of_vllm_reaches_every_row_that_was_computed(engine, monkeypatch):
    own = open_engine(make_model(seed=5), VOCABULARY, COMPUTE, 0)
    sessions = [own.open(1) for _ in range(3)]
    failures = []

    def write(session):
        try:
            generate(session, [20], 5)
        except TrainingError as error:
            failures.append(str(error))

    def lost():
        raise RuntimeError("CUDA error: device lost")

    with monkeypatch.context() as patch:
        patch.setattr(own.host.llm.llm_engine, "step", lost)
        run_players([lambda s=session: write(s) for session in sessions], 3)
    assert len(failures) == 3 and all("device lost" in failure for failure in failures)
    assert generate(engine.open(1), [20], 3).tokens, "the other vLLM goes on"
    assert generate(own.open(1), [20], 3).tokens, "nothing of the failed requests is left"


@pytest.mark.parametrize("pause", [0.0, 0.1])
def test_a_player_thinks_during_exactly_one_round(engine, monkeypatch, pause):
    """It does not hold up that round, and its next request does not join it, even if it is ready at once."""
    thread = engine_thread()
    long_reply, two_replies = engine.open(1), engine.open(1)
    batches = []
    step_all = type(thread)._step_all

    def recording(self):
        batches.append(sorted(batch.order for batch, _ in self._running.values()))
        step_all(self)

    def write_two():
        generate(two_replies, [20], 1)
        time.sleep(pause)
        generate(two_replies, [20], 1)

    with monkeypatch.context() as patch:
        patch.setattr(type(thread), "_step_all", recording)
        run_players([lambda: generate(long_reply, [20], 6), write_two], 2)
    assert batches == [[0, 1], [0], [0, 1], [0], [0], [0]]


def test_players_that_never_started_block_nobody(engine, monkeypatch):
    start = threading.Thread.start

    def fail_for_the_third(self):
        if self.name.startswith("player") and len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(self)
        start(self)

    started = []
    sessions = [engine.open(1) for _ in range(4)]
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail_for_the_third)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            run_players([lambda s=session: generate(s, [20], 3) for session in sessions], 4)
    for thread in started:
        thread.join(timeout=30)
    assert generate(engine.open(1), [20], 3).tokens


def test_an_interrupted_caller_leaves_nothing_behind(engine, monkeypatch):
    """Ctrl-C reaches the main thread while it waits for a long reply."""

    def interrupt(self, timeout=None):
        raise KeyboardInterrupt

    session = engine.open(1)
    with monkeypatch.context() as patch:
        patch.setattr("components.language.engines.vllm.engine_thread.Future.result", interrupt)
        with pytest.raises(KeyboardInterrupt):
            generate(session, [20], 100)
    steps = engine_thread().steps
    generate(engine.open(1), [20], 2)
    assert engine_thread().steps - steps <= 4 and not engine_thread()._running
