"""What the index holds is a function of the log alone: whatever the parts it came in, content and answers are
the same.
"""

from __future__ import annotations

from dataclasses import replace

from builders import make_transition
from hypothesis import given, settings
from hypothesis import strategies as st

from components.config import RetrievalConfig
from components.experience.retrieval.capacity import held
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.records import REAL, SYNTHETIC, VARIED, origin

STEPS = st.tuples(
    st.integers(0, 3), st.integers(0, 2), st.integers(0, 1), st.sampled_from([REAL, SYNTHETIC, SYNTHETIC])
)


def log_of(entries):
    """Two episodes of five steps a task, the second one of a task varied from it."""
    tasks = [f"t{n // 10}" + f"{VARIED}x" * (n // 5 % 2) for n in range(len(entries))]
    return [
        make_transition(
            n % 5,
            f"e{n // 5}",
            tasks[n],
            state=f"At shelf {s}.",
            action=f"look at mug {a}",
            next_state=f"Seen {f}.",
            source=source,
        )
        for n, (s, a, f, source) in enumerate(entries)
    ]


def parts_of(log, cuts):
    ends = [0, *sorted(cut % (len(log) + 1) for cut in cuts), len(log)]
    return [log[start:end] for start, end in zip(ends, ends[1:], strict=False)]


def content(buffer):
    return list(buffer._number_of), buffer._followers


def answers(buffer):
    queries = [(f"At shelf {s}.", f"look at mug {a}") for s in range(5) for a in range(4)]
    return buffer.retrieve(queries, [f"t{n % 4}" for n in range(len(queries))])


@settings(max_examples=150, deadline=None)
@given(
    st.lists(STEPS, max_size=60), st.lists(st.integers(0, 60), max_size=12), st.integers(1, 40), st.booleans()
)
def test_the_same_log_in_any_parts_gives_the_same_content_and_answers(entries, cuts, capacity, opened):
    log, config = log_of(entries), RetrievalConfig(k=3, dimensions=16, capacity=capacity)
    parts = parts_of(log, cuts)
    whole = ReplayBuffer(config, log)
    grown = ReplayBuffer(config, parts[0]) if opened else ReplayBuffer(config)
    for part in parts[1:] if opened else parts:
        grown.add(part)
    assert content(grown) == content(whole)
    assert answers(grown) == answers(whole)
    assert sorted(number for followers in whole._followers for number in followers) == held(log, capacity)


def by_trying(log, capacity):
    """The rule word by word: leave out one more of the oldest synthetic ones until the rest, two copies of
    two tasks each, fits.
    """
    real = [n for n, t in enumerate(log) if t.source == REAL]
    dreamed = [n for n, t in enumerate(log) if t.source == SYNTHETIC]
    for start in range(len(dreamed) + 1):
        copies = {}
        for number in real + dreamed[start:]:
            step = log[number]
            copies.setdefault((step.state, step.action, step.next_state), {}).setdefault(
                origin(step.task_id), number
            )
        kept = sorted(number for firsts in copies.values() for number in list(firsts.values())[:2])
        if len(kept) <= capacity:
            break
    return kept


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=60), st.integers(1, 40))
def test_real_ones_stay_and_the_newest_synthetic_ones_that_fit(entries, capacity):
    log = log_of(entries)
    kept = held(log, capacity)
    assert kept == by_trying(log, capacity)
    real = [n for n, transition in enumerate(log) if transition.source == REAL]
    assert {real[place] for place in held([log[n] for n in real], 1)} <= set(kept)


def of_other_tasks(log):
    return [replace(transition, task_id=f"t{n}") for n, transition in enumerate(log)]


def test_of_equal_transitions_two_of_two_tasks_are_held_and_real_ones_come_first():
    log = of_other_tasks(log_of([(0, 0, 0, SYNTHETIC)] * 3 + [(0, 0, 0, REAL)] + [(0, 0, 0, SYNTHETIC)] * 2))
    assert held(log[:3], 100) == [0, 1]
    assert held(log, 100) == [0, 3]
    more = [*log, *log_of([(0, 0, 0, REAL)] * 3)]
    assert held(of_other_tasks(more), 100) == [3, 6]
    assert held(log_of([(0, 0, 0, REAL)] * 10), 100) == [0], "all of one room"


def test_past_the_capacity_a_step_seen_again_lately_stays():
    log = of_other_tasks(
        log_of([(0, 0, 0, SYNTHETIC), (1, 0, 0, SYNTHETIC), (2, 0, 0, SYNTHETIC), (0, 0, 0, SYNTHETIC)])
    )
    assert held(log, 4) == [0, 1, 2, 3] and held(log, 2) == [2, 3]


def test_a_buffer_that_real_ones_fill_says_so_once(caplog):
    real = log_of([(s, a, 0, REAL) for s in range(4) for a in range(3)])
    buffer = ReplayBuffer(RetrievalConfig(k=1, capacity=5), real[:4])
    assert not caplog.records
    for part in (real[4:8], real[8:], log_of([(9, 9, 1, SYNTHETIC)])):
        buffer.add(part)
    assert buffer.held == 12 and len(buffer) == 13
    (said,) = [record.getMessage() for record in caplog.records]
    assert (
        said == "The buffer holds 8 real transitions, more than retrieval.capacity=5: they all stay, and no "
        "synthetic one is held."
    )
