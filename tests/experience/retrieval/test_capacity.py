"""What the index holds is a function of the log alone, in whatever parts the log was added."""

from __future__ import annotations

from dataclasses import replace

from builders import make_transition
from hypothesis import given, settings
from hypothesis import strategies as st

from components.config import RetrievalConfig
from components.experience.retrieval.capacity import select_held
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.records import REAL, SYNTHETIC, VARIED, origin

STEPS = st.tuples(
    st.integers(0, 3), st.integers(0, 2), st.integers(0, 1), st.sampled_from([REAL, SYNTHETIC, SYNTHETIC])
)


def log_of(entries):
    """Episodes of five steps; every second one is of a task varied from the task of the first."""
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
def test_the_parts_a_log_is_added_in_do_not_change_content_or_answers(entries, cuts, capacity, opened):
    log, config = log_of(entries), RetrievalConfig(k=3, dimensions=16, capacity=capacity)
    parts = parts_of(log, cuts)
    whole = ReplayBuffer(config, log)
    grown = ReplayBuffer(config, parts[0]) if opened else ReplayBuffer(config)
    for part in parts[1:] if opened else parts:
        grown.add(part)
    assert content(grown) == content(whole)
    assert answers(grown) == answers(whole)
    assert sorted(number for followers in whole._followers for number in followers) == select_held(
        log, capacity
    )


def by_trying(log, capacity):
    """The rule applied literally: leave out the oldest synthetic transitions until the rest fits.

    Of equal transitions, two of two tasks count.
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
        held_numbers = sorted(number for firsts in copies.values() for number in list(firsts.values())[:2])
        if len(held_numbers) <= capacity:
            break
    return held_numbers


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=60), st.integers(1, 40))
def test_real_transitions_stay_with_the_newest_synthetic_ones_that_fit(entries, capacity):
    log = log_of(entries)
    held_numbers = select_held(log, capacity)
    assert held_numbers == by_trying(log, capacity)
    real = [n for n, transition in enumerate(log) if transition.source == REAL]
    assert {real[place] for place in select_held([log[n] for n in real], 1)} <= set(held_numbers)


def of_other_tasks(log):
    return [replace(transition, task_id=f"t{n}") for n, transition in enumerate(log)]


def test_two_equal_transitions_of_two_tasks_are_held_real_ones_first():
    log = of_other_tasks(log_of([(0, 0, 0, SYNTHETIC)] * 3 + [(0, 0, 0, REAL)] + [(0, 0, 0, SYNTHETIC)] * 2))
    assert select_held(log[:3], 100) == [0, 1]
    assert select_held(log, 100) == [0, 3]
    more = [*log, *log_of([(0, 0, 0, REAL)] * 3)]
    assert select_held(of_other_tasks(more), 100) == [3, 6]
    assert select_held(log_of([(0, 0, 0, REAL)] * 10), 100) == [0], "all are of one task"


def test_beyond_the_capacity_a_recently_repeated_step_stays():
    log = of_other_tasks(
        log_of([(0, 0, 0, SYNTHETIC), (1, 0, 0, SYNTHETIC), (2, 0, 0, SYNTHETIC), (0, 0, 0, SYNTHETIC)])
    )
    assert select_held(log, 4) == [0, 1, 2, 3] and select_held(log, 2) == [2, 3]


def test_a_buffer_full_of_real_transitions_warns_once(caplog):
    real = log_of([(s, a, 0, REAL) for s in range(4) for a in range(3)])
    buffer = ReplayBuffer(RetrievalConfig(k=1, capacity=5), real[:4])
    assert not caplog.records
    for part in (real[4:8], real[8:], log_of([(9, 9, 1, SYNTHETIC)])):
        buffer.add(part)
    assert buffer.held == 12 and len(buffer) == 13
    (message,) = [record.getMessage() for record in caplog.records]
    assert (
        message
        == "The buffer holds 8 real transitions, more than retrieval.capacity=5: they all stay, and no "
        "synthetic one is held."
    )
