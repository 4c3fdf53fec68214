"""Finds logged episodes that are copies of others, or windows of a longer conversation.

- An episode that occurs again, or is the beginning of a longer one, counts once: a log of calls has the whole
  conversation in each call. Thoughts do not count there, since later calls may leave them out; the one
  episode gets them from its copies. An episode that the world has ended is no beginning of another one.
- An episode with its own id and a known outcome is no copy of one that has another outcome.
- Equal episodes with the same id and contradicting outcomes are one episode with an unknown outcome.
- A call with a sliding window holds the middle of its conversation. Of episodes with the same id, one that is
  part of another one is a copy. One that begins inside another one and goes on after it is left out: its
  first state is no task's. The outcome of the episode that it goes on from is unknown, since it is no end.
  A window may keep the first message and so begin as its conversation does, but so does a second attempt at
  the task. It counts as a window only in a log of calls, and if at most its last step is new.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from components.trajectories.imports.copies.windows import ends_open, find_origins, is_part
from components.trajectories.imports.logged_episode import LoggedEpisode, Skipped, shortened

SHORTER_COPY = "a copy, or the beginning of a longer episode"
PART = "a part of a longer episode with the same id"
MIDDLE = "a call that begins in the middle of its conversation"
CONTRADICTION = "a copy with the opposite outcome; the outcome is unknown"


def without_copies(episodes: Sequence[LoggedEpisode]) -> tuple[list[LoggedEpisode], list[Skipped]]:
    """Return the episodes that are no copies and no windows, in their order, and what was left out."""
    skipped: list[Skipped] = []
    kept = dict(enumerate(episodes))
    for numbers in _numbers_of_one_id(episodes):
        group = {number: kept.pop(number) for number in numbers}
        group, are_calls = _without_beginnings(group, skipped, one_id=True)
        kept |= _without_windows(group, skipped, are_calls)
    kept, _ = _without_beginnings(kept, skipped, one_id=False)
    return [episode for _, episode in sorted(kept.items())], skipped


def _numbers_of_one_id(episodes: Sequence[LoggedEpisode]) -> Iterable[list[int]]:
    """Return the numbers of the episodes of each id that occurs more than once."""
    by_id: dict[str, list[int]] = {}
    for number, episode in enumerate(episodes):
        if episode.id:
            by_id.setdefault(episode.id, []).append(number)
    return (numbers for numbers in by_id.values() if len(numbers) > 1)


def _without_beginnings(
    episodes: Mapping[int, LoggedEpisode], skipped: list[Skipped], *, one_id: bool
) -> tuple[dict[int, LoggedEpisode], bool]:
    """Return the episodes that are not the beginning of another one, and whether they are logged calls.

    In a log of calls, a beginning ends with an action that a longer call goes on from.

    Args: one_id: all have the same id.
    """
    are_calls = False
    owners: dict[tuple[bytes, bool | None], int] = {}
    kept: dict[int, LoggedEpisode] = {}
    thoughts: dict[int, dict[int, str]] = {}
    longest_first = sorted(episodes.items(), key=lambda entry: _length(entry[1]), reverse=True)
    for number, episode in longest_first:
        hashes = _hashes_of_beginnings(episode)
        owner = _owner(episode, hashes[-1], owners, kept, one_id)
        if owner is None:
            for beginning in hashes:
                owners.setdefault((beginning, episode.success), number)
            kept[number] = episode
            continue
        are_calls |= ends_open(episode) and len(kept[owner].steps) > len(episode.steps)
        _add_thoughts(thoughts.setdefault(owner, {}), episode)
        reason = SHORTER_COPY
        if one_id and _contradict(kept[owner], episode):
            kept[owner] = replace(kept[owner], success=None)
            reason = CONTRADICTION
        skipped.append(Skipped(reason, episode.place))
    return _with_thoughts(kept, thoughts), are_calls


def _owner(
    episode: LoggedEpisode,
    whole: bytes,
    owners: Mapping[tuple[bytes, bool | None], int],
    kept: Mapping[int, LoggedEpisode],
    one_id: bool,
) -> int | None:
    """The number of the episode that `episode`, of hash `whole`, is a copy of; None if it is no copy."""
    if episode.success is not None and (owner := owners.get((whole, episode.success))) is not None:
        return owner
    candidates = [owners[key] for key in ((whole, True), (whole, False), (whole, None)) if key in owners]
    if episode.success is not None and not one_id:  # its known outcome differs from that of each candidate
        own_length = _length(episode)[:-1]
        is_longer = [number for number in candidates if _length(kept[number])[:-1] > own_length]
        candidates = [] if episode.id else is_longer
    return max(candidates, key=lambda number: _length(kept[number]), default=None)


def _contradict(episode: LoggedEpisode, copy: LoggedEpisode) -> bool:
    """Whether both have all steps in common and tell different outcomes."""
    is_equal = _length(episode)[:2] == _length(copy)[:2]
    return is_equal and None not in (episode.success, copy.success) and episode.success != copy.success


def _add_thoughts(thoughts: dict[int, str], copy: LoggedEpisode, start: int = 0) -> None:
    """Add the thoughts of a copy, which begins at the step `start`, at steps for which there is none yet."""
    for number, step in enumerate(copy.steps, start):
        if step.thought:
            thoughts.setdefault(number, step.thought)


def _with_thoughts(
    episodes: dict[int, LoggedEpisode], thoughts: Mapping[int, Mapping[int, str]]
) -> dict[int, LoggedEpisode]:
    """Return the episodes with the thoughts of their copies at steps without one.

    Args: thoughts: number of an episode -> number of a step -> thought.
    """
    for number, of_copies in thoughts.items():
        steps = list(episodes[number].steps)
        for place, thought in of_copies.items():
            if not steps[place].thought:
                steps[place] = replace(steps[place], thought=thought)
        episodes[number] = replace(episodes[number], steps=tuple(steps))
    return episodes


def _length(episode: LoggedEpisode) -> tuple[int, bool, bool, bool]:
    """What makes an episode longer than its copies: steps, a last observation, an end, a known outcome."""
    has_last = episode.steps[-1].observation is not None
    return len(episode.steps), has_last, episode.is_over, episode.success is not None


def _hashes_of_beginnings(episode: LoggedEpisode) -> list[bytes]:
    """A hash of the episode up to each action and each observation; the last one is of all of it.

    The last one of an episode that is over says so: it equals no beginning.
    """
    digest = hashlib.sha256(repr((episode.instruction, episode.first_observation)).encode(errors="replace"))
    hashes = []
    for step in episode.steps:
        digest.update(repr(step.action).encode(errors="replace"))
        hashes.append(digest.digest())
        if step.observation is not None:
            digest.update(repr(step.observation).encode(errors="replace"))
            hashes.append(digest.digest())
    if not episode.is_over:
        return hashes
    digest.update(b"over")
    return [*hashes, digest.digest()]


def _without_windows(
    episodes: Mapping[int, LoggedEpisode], skipped: list[Skipped], are_calls: bool
) -> dict[int, LoggedEpisode]:
    """Return the episodes of one id that do not begin inside another one of them."""
    if len(episodes) < 2:
        return dict(episodes)
    origins = find_origins(episodes, are_calls)
    kept = {number: episode for number, episode in episodes.items() if number not in origins}
    thoughts: dict[int, dict[int, str]] = {}
    for number, (origin, start) in sorted(origins.items()):
        window = episodes[number]
        has_all = is_part(window, episodes[origin], start)
        skipped.append(Skipped(PART if has_all else MIDDLE, window.place, shortened(window.id)))
        if origin in kept and has_all:
            _add_thoughts(thoughts.setdefault(origin, {}), window, start)
        elif origin in kept:
            kept[origin] = replace(kept[origin], success=None)
    return _with_thoughts(kept, thoughts)
