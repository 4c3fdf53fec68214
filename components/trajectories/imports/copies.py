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

from components.trajectories.imports.logged_episode import LoggedEpisode, LoggedStep, Skipped, shortened

SHORTER_COPY = "a copy, or the beginning of a longer episode"
PART = "a part of a longer episode with the same id"
MIDDLE = "a call that begins in the middle of its conversation"
CONTRADICTION = "a copy with the opposite outcome; the outcome is unknown"
_Place = tuple[int, int]
"""Number of an episode in the log, and number of a step in it."""


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
    longest_first = sorted(episodes.items(), key=lambda entry: _length(entry[1]), reverse=True)
    for number, episode in longest_first:
        hashes = _hashes_of_beginnings(episode)
        owner = _owner(episode, hashes[-1], owners, kept, one_id)
        if owner is None:
            for beginning in hashes:
                owners.setdefault((beginning, episode.success), number)
            kept[number] = episode
            continue
        are_calls |= _ends_open(episode) and len(kept[owner].steps) > len(episode.steps)
        kept[owner] = _with_thoughts_of(kept[owner], episode)
        reason = SHORTER_COPY
        if one_id and _contradict(kept[owner], episode):
            kept[owner] = replace(kept[owner], success=None)
            reason = CONTRADICTION
        skipped.append(Skipped(reason, episode.place))
    return kept, are_calls


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


def _with_thoughts_of(episode: LoggedEpisode, copy: LoggedEpisode, start: int = 0) -> LoggedEpisode:
    """The episode with the thoughts that only a copy of its steps from `start` on has."""
    steps = list(episode.steps)
    for number, step in enumerate(copy.steps, start):
        if step.thought and not steps[number].thought:
            steps[number] = replace(steps[number], thought=step.thought)
    return replace(episode, steps=tuple(steps))


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


def _ends_open(episode: LoggedEpisode) -> bool:
    """Whether the log ends with the agent's action, as that of a call does."""
    return episode.steps[-1].observation is None


def _without_windows(
    episodes: Mapping[int, LoggedEpisode], skipped: list[Skipped], are_calls: bool
) -> dict[int, LoggedEpisode]:
    """Return the episodes of one id that do not begin inside another one of them."""
    if len(episodes) < 2:
        return dict(episodes)
    origins = _origins(episodes, are_calls)
    kept = {number: episode for number, episode in episodes.items() if number not in origins}
    for number, (origin, start) in sorted(origins.items()):
        window = episodes[number]
        is_part = _is_part(window, episodes[origin], start)
        skipped.append(Skipped(PART if is_part else MIDDLE, window.place, shortened(window.id)))
        if origin in kept:
            longer = kept[origin]
            kept[origin] = (
                _with_thoughts_of(longer, window, start) if is_part else replace(longer, success=None)
            )
    return kept


def _origins(episodes: Mapping[int, LoggedEpisode], are_calls: bool) -> dict[int, _Place]:
    """Return, for each window, the episode and the step that it begins at.

    Args: are_calls: they are logged calls, so windows may begin with the first message.

    The last ones come first, so that of two episodes that could each go on from the other the first stays.
    """
    places = _places_by_opening(episodes, are_calls)
    origins: dict[int, _Place] = {}
    for number in sorted(episodes, reverse=True):
        window = episodes[number]
        overlap = None
        for origin, start in (place for key in _openings(window) for place in places.get(key, ())):
            other = episodes[origin]
            if not _begins_inside(window, other, start) or _goes_back_to(number, origin, origins):
                continue
            overlap = overlap or (origin, start)
            if _is_part(window, other, start):
                overlap = (origin, start)
                break
        if overlap is not None:
            origins[number] = overlap
    return origins


def _places_by_opening(
    episodes: Mapping[int, LoggedEpisode], are_calls: bool
) -> dict[tuple[str, ...], list[_Place]]:
    """Return the places inside the episodes by the openings that a window from there would have."""
    places: dict[tuple[str, ...], list[_Place]] = {}
    for number, episode in episodes.items():
        for start in range(1, len(episode.steps)):
            state = episode.steps[start - 1].observation or ""
            keys = _openings(replace(episode, steps=episode.steps[start:]), state)
            for key in keys if are_calls else keys[:1]:
                places.setdefault(key, []).append((number, start))
    return places


def _openings(window: LoggedEpisode, state: str = "") -> list[tuple[str, ...]]:
    """Return how a window may begin: with the last state and an action, or with the first message of its
    conversation and two actions. Args: state: before its first action, if not the first observation.
    """
    last_paragraph = (state or window.first_observation).rpartition("\n\n")[2]
    keys: list[tuple[str, ...]] = [(last_paragraph, window.steps[0].action)]
    if len(window.steps) > 1:
        keys.append((window.first_observation, window.steps[0].action, window.steps[1].action))
    return keys


def _begins_inside(window: LoggedEpisode, other: LoggedEpisode, start: int) -> bool:
    """Whether `window` is `other` from the step `start` on, as far as both go."""
    rest = other.steps[start:]
    if window is other or (other.is_over and len(window.steps) > len(rest)):
        return False
    if window.instruction not in (window.first_observation, other.instruction):
        return False
    if not all(map(_agree, window.steps, rest)):
        return False
    if window.first_observation == other.first_observation:
        return _ends_open(window) and min(len(window.steps), len(rest)) >= max(2, len(window.steps) - 1)
    state = other.steps[start - 1].observation
    return window.first_observation in (state, f"{other.first_observation}\n\n{state}")


def _agree(step: LoggedStep, other: LoggedStep) -> bool:
    """Whether both steps are one: an observation is missing where a call ends with its action."""
    is_open = step.observation is None or other.observation is None
    return step.action == other.action and (is_open or step.observation == other.observation)


def _is_part(window: LoggedEpisode, other: LoggedEpisode, start: int) -> bool:
    """Whether all of `window`, which begins at the step `start` of `other`, is in `other`."""
    end = start + len(window.steps)
    if end > len(other.steps):
        return False
    return window.steps[-1].observation is None or other.steps[end - 1].observation is not None


def _goes_back_to(number: int, origin: int, origins: Mapping[int, _Place]) -> bool:
    """Whether the episode `origin` is itself a window that leads back to `number`."""
    while origin != number and origin in origins:
        origin, _ = origins[origin]
    return origin == number
