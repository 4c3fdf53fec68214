"""Windows among many calls of one conversation: origins as by comparing all pairs, in linear time."""

from __future__ import annotations

import random
import time

import pytest

from components.trajectories.imports.copies.episode_copies import MIDDLE, without_copies
from components.trajectories.imports.copies.windows import begins_inside, find_origins, is_part
from components.trajectories.imports.logged_episode import LoggedEpisode, LoggedStep


def make_window(steps, start, end, first, *, task="", is_open=True, is_over=False):
    """The steps from `start` up to `end`; an open one ends with its action."""
    own = list(steps[start:end])
    if is_open:
        own[-1] = LoggedStep("", own[-1].action, None)
    return LoggedEpisode("a", f"{start}-{end}", "", task or first, first, tuple(own), None, is_over)


def random_windows(rng):
    """Windows of one conversation with few different texts, so that many begin alike."""
    states = ["hall", "garden", "first", "room\n\nhall", ""][: rng.randint(1, 5)]
    steps = [LoggedStep("", rng.choice("NS"), rng.choice(states)) for _ in range(12)]
    windows = []
    for _ in range(rng.randint(2, 12)):
        start = rng.randrange(11)
        state = steps[start - 1].observation if start else "first"
        windows.append(
            make_window(
                steps,
                start,
                rng.randint(start + 1, 12),
                rng.choice([state, f"first\n\n{state}", "first"]),
                task=rng.choice(["", "find the exit"]),
                is_open=rng.random() < 0.6,
                is_over=rng.random() < 0.2,
            )
        )
    return dict(rng.sample(list(enumerate(windows)), len(windows)))


def origins_by_pairs(episodes, are_calls):
    origins = {}

    def rank(window, other, start):
        last_text = other.steps[start - 1].observation or other.first_observation
        is_state = last_text.rpartition("\n\n")[2] == window.first_observation.rpartition("\n\n")[2]
        keeps_first = are_calls and window.first_observation == other.first_observation
        return 0 if is_state else 1 if keeps_first else None

    def leads_to(number, origin):
        while origin != number and origin in origins:
            origin, _ = origins[origin]
        return origin == number

    for number in sorted(episodes, reverse=True):
        window = episodes[number]
        matches = [
            (not is_part(window, other, start), rank(window, other, start), position, (origin, start))
            for position, (origin, other) in enumerate(episodes.items())
            for start in range(1, len(other.steps))
            if begins_inside(window, other, start) and rank(window, other, start) is not None
        ]
        if matches := [match for match in matches if not leads_to(number, match[-1][0])]:
            origins[number] = min(matches)[-1]
    return origins


@pytest.mark.parametrize("are_calls", [False, True])
def test_origins_are_those_of_comparing_all_pairs(are_calls):
    found = 0
    for seed in range(400):
        windows = random_windows(random.Random(seed))
        origins = find_origins(windows, are_calls)
        assert origins == origins_by_pairs(windows, are_calls), seed
        found += len(origins)
    assert found > 400


def seconds_for_calls(count):
    """CPU seconds for the calls of one conversation with a window of 10 steps, in a world of 20 states."""
    rng = random.Random(0)
    steps = [LoggedStep("", rng.choice("NSEW"), f"room {rng.randrange(20)}") for _ in range(count + 10)]
    calls = [make_window(steps, 0, 10, "the beginning")]
    calls += [make_window(steps, n, n + 10, str(steps[n - 1].observation)) for n in range(1, count)]
    began = time.process_time()
    kept, skipped = without_copies(calls)
    assert len(kept) == 1 and {entry.reason for entry in skipped} == {MIDDLE}
    return time.process_time() - began


def test_time_grows_with_the_number_of_calls_not_with_its_square():
    """Ten times as many calls take 12 times as long on an idle machine; a square would be 100 times."""
    few, many = (min(seconds_for_calls(count) for _ in range(3)) for count in (1_000, 10_000))
    assert many < 40 * few
