"""Many sessions over one dream, with real threads and a model whose answers are fixed."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from components.config import RetrievalConfig
from components.errors import DataError, ExperienceModelError
from components.experience.dream import Dream
from components.experience.model import ExperienceModel
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.serving.shared_dream import SharedDream


@pytest.fixture
def make(learnt):
    """Makes shared dreams; all are closed at the end."""
    created = []

    def maker(rows, contradiction=None, **options):
        created.append(
            SharedDream(Dream(learnt, ReplayBuffer(RetrievalConfig(k=0)), contradiction), rows, **options)
        )
        return created[-1]

    yield maker
    for shared in created:
        shared.close()


def play(shared, episode, pause=0.0):
    """Play the recorded episode in a row of its own; the dreamed states."""
    row = shared.acquire_row()
    states = [shared.begin(row, episode.task, 1)]
    for step in episode.steps:
        time.sleep(pause)
        states.append(shared.step(row, step.action).state)
    shared.release_row(row)
    return states


def test_episodes_that_begin_at_different_times_are_independent(make, lessons):
    """Their third steps have the same state and action; only the dreamed history distinguishes them."""
    shared = make(3)
    with ThreadPoolExecutor(3) as sessions:
        rounds = [lessons[number % 2] for number in range(18)]
        played = list(
            sessions.map(
                lambda numbered: play(shared, numbered[1], 0.003 * (numbered[0] % 4)), enumerate(rounds)
            )
        )
    assert played == [episode.states for episode in rounds]
    assert shared.steps == sum(len(episode.steps) for episode in rounds)


def test_simultaneous_requests_form_one_batch(make, lessons):
    shared = make(6, gather_seconds=5.0)
    rows = [shared.acquire_row() for _ in range(6)]
    with ThreadPoolExecutor(6) as sessions:
        list(sessions.map(lambda row: shared.begin(row, lessons[0].task, 1), rows))
        for step in lessons[0].steps:
            answers = list(sessions.map(lambda row, action=step.action: shared.step(row, action), rows))
            assert {(a.state, a.reward, a.done) for a in answers} == {
                (step.next_state, step.reward, step.done)
            }
    assert (shared.batches, shared.steps) == (4, 24), "a batch is complete when every row has a request"


def test_an_idle_row_does_not_delay_other_rows(make, lessons):
    shared = make(2, gather_seconds=0.01)
    idle, busy = shared.acquire_row(), shared.acquire_row()
    shared.begin(idle, lessons[1].task, 1)
    shared.begin(busy, lessons[0].task, 1)
    began = time.monotonic()
    for step in lessons[0].steps:
        assert shared.step(busy, step.action).state == step.next_state
    assert time.monotonic() - began < 30
    assert shared.step(idle, lessons[1].steps[0].action).state == lessons[1].steps[0].next_state


def test_a_session_waits_for_the_row_of_a_leaving_session(make):
    """OpenEnv admits the next session before it closes the leaving one, so its row may not be free yet."""
    shared = make(1, leaving_seconds=30.0)
    row = shared.acquire_row()
    with ThreadPoolExecutor(1) as sessions:
        coming = sessions.submit(shared.acquire_row)
        time.sleep(0.1)
        assert not coming.done()
        shared.release_row(row)
        assert coming.result(timeout=5) == row
        refused = sessions.submit(shared.acquire_row)
        time.sleep(0.1)
        shared.close()
        with pytest.raises(ExperienceModelError):
            refused.result(timeout=5)


def test_released_rows_are_used_again(make, lessons):
    shared = make(1, leaving_seconds=0.1)
    for episode in (*lessons, lessons[0]):
        assert play(shared, episode) == episode.states
    row = shared.acquire_row()
    with pytest.raises(ExperienceModelError, match="All 1 places in the dream are taken"):
        shared.acquire_row()
    shared.begin(row, lessons[0].task, 1)
    shared.begin(row, lessons[1].task, 1)
    assert shared.step(row, lessons[1].steps[0].action).state == lessons[1].steps[0].next_state, (
        "a new episode replaces the old one"
    )


def test_a_row_reused_within_a_batch_takes_no_step_of_its_last_session(make, lessons):
    """A session may end while its step waits, and the next one may begin in its row in the same batch."""
    shared = make(2, gather_seconds=1.0)
    row, _ = shared.acquire_row(), shared.acquire_row()
    shared.begin(row, lessons[0].task, 1)
    with ThreadPoolExecutor(1) as sessions:
        late = sessions.submit(shared.step, row, lessons[0].steps[0].action)
        time.sleep(0.1)
        shared.release_row(row)
        assert shared.acquire_row() == row
        shared.begin(row, lessons[1].task, 1)
        assert late.result().state == lessons[0].steps[0].next_state
    assert [shared.step(row, step.action).state for step in lessons[1].steps] == lessons[1].states[1:]


def test_an_episode_that_is_too_long_ends_alone(make, lessons):
    shared = make(2, gather_seconds=0.5)
    rows = [shared.acquire_row(), shared.acquire_row()]
    for row in rows:
        shared.begin(row, lessons[0].task, 1)
    with ThreadPoolExecutor(2) as sessions:
        long = sessions.submit(shared.step, rows[0], "go " * 3000)
        right = sessions.submit(shared.step, rows[1], lessons[0].steps[0].action)
        with pytest.raises(DataError, match="The model takes 4096"):
            long.result()
        assert right.result().state == lessons[0].steps[0].next_state
    assert shared.step(rows[1], lessons[0].steps[1].action).state == lessons[0].steps[1].next_state


def test_a_bug_is_raised_in_its_session_and_the_dream_goes_on(make, lessons):
    broken = threading.Event()
    broken.set()

    def contradiction(episode, state):
        if broken.is_set():
            raise RuntimeError("a bug")
        return ""

    shared = make(2, contradiction)
    row, other = shared.acquire_row(), shared.acquire_row()
    shared.begin(row, lessons[0].task, 1)
    shared.begin(other, lessons[1].task, 1)
    with pytest.raises(RuntimeError, match="a bug"):
        shared.step(row, "go to desk 1")
    broken.clear()
    for step in lessons[1].steps:
        assert shared.step(other, step.action).state == step.next_state
    shared.begin(row, lessons[0].task, 1)
    assert shared.step(row, lessons[0].steps[0].action).state == lessons[0].steps[0].next_state


def test_closing_answers_earlier_requests_and_refuses_later_ones(make, lessons):
    entered, left = threading.Event(), threading.Event()

    @contextmanager
    def around():
        entered.set()
        yield
        left.set()

    shared = make(1, around=around)
    row = shared.acquire_row()
    shared.begin(row, lessons[0].task, 1)
    assert entered.is_set() and not left.is_set()
    shared.close()
    shared.close()
    assert left.is_set()
    with pytest.raises(ExperienceModelError, match="shutting down"):
        shared.step(row, "look")


def test_undetermined_steps_are_decided_by_the_episode_of_each_row(learnt, lessons):
    calls = []
    imagining = ExperienceModel(
        learnt.model, learnt.vocabulary, learnt.config.model_copy(update={"temperature": 1.0})
    )
    dream = Dream(
        imagining,
        ReplayBuffer(RetrievalConfig(k=0)),
        revealing=lambda episode, action, state: calls.append((len(episode.steps), action, state)),
    )
    shared = SharedDream(dream, 2)
    rows = [shared.acquire_row(), shared.acquire_row()]
    for row, episode in zip(rows, lessons, strict=True):
        shared.begin(row, episode.task, 1)
        shared.step(row, episode.steps[0].action)
    shared.close()
    assert calls == [(0, episode.steps[0].action, episode.steps[0].next_state) for episode in lessons]


def test_the_seed_decides_the_premise(learnt, lessons):
    calls = []
    dream = Dream(
        learnt, ReplayBuffer(RetrievalConfig(k=0)), None, lambda task, premise: calls.append(premise) or "no"
    )
    shared = SharedDream(dream, 2)
    rows = [shared.acquire_row(), shared.acquire_row()]
    for row, seed in ((rows[0], 7), (rows[1], 7), (rows[0], 2**70 + 1)):
        shared.begin(row, lessons[0].task, seed)
    shared.close()
    first, second, third = calls[:8], calls[8:16], calls[16:]
    assert first == second and len(third) == 8
