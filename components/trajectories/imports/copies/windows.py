"""Finds logged calls that begin in the middle of their conversation, among episodes of one id.

A window begins at a step of another episode: either all of it is a part of that episode, or that episode ends
inside the window. Both are looked up by hashes, since a long conversation has many windows that begin alike:
time grows with the number of steps, not with the number of pairs of episodes. Each match is then compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from components.trajectories.imports.logged_episode import LoggedEpisode, LoggedStep

Place = tuple[int, int]
"""Number of an episode in the log, and number of a step in it."""
_AFTER_STATE, _WITH_FIRST_STATE, _WITH_FIRST_MESSAGE = range(3)
"""How a window begins: with the state before its first action; with the first message of its conversation,
which ends as that state does; with the first message alone, as only windows of logged calls do."""
_Match = tuple[bool, int, int]
"""Whether a window has the first message alone, the position of the other episode, and a step of it."""
_Test = Callable[[_Match], bool]
_PRIME = (1 << 61) - 1
_BASE = 1_000_003


def find_origins(episodes: Mapping[int, LoggedEpisode], are_calls: bool) -> dict[int, Place]:
    """Return, for each window, the episode and the step that it begins at.

    The last windows come first, so that of two episodes that could each go on from the other the first stays.
    An episode that has all of the window comes before one that ends inside it, then the first in `episodes`.

    Args:
        episodes: number in the log -> episode; all have the same id, and none is the beginning of another.
        are_calls: they are logged calls, so windows may begin with the first message.
    """
    numbers = list(episodes)
    places = _Places(list(episodes.values()), are_calls)
    origins: dict[int, Place] = {}
    roots = {number: number for number in numbers}
    for position, number in sorted(enumerate(numbers), key=lambda entry: entry[1], reverse=True):
        window = episodes[number]

        def is_origin(match: _Match, window: LoggedEpisode = window, number: int = number) -> bool:
            _, other, start = match
            goes_back = _root(numbers[other], roots) == number
            return not goes_back and begins_inside(window, episodes[numbers[other]], start)

        match = places.first_with_all(position, is_origin) or places.first_with_beginning(position, is_origin)
        if match:
            _, other, start = match
            origins[number] = numbers[other], start
            roots[number] = numbers[other]
    return origins


def begins_inside(window: LoggedEpisode, other: LoggedEpisode, start: int) -> bool:
    """Return whether `window` is `other` from the step `start` on, as far as both go."""
    length = min(len(window.steps), len(other.steps) - start)
    if window is other or (other.is_over and len(window.steps) > length):
        return False
    if window.instruction not in (window.first_observation, other.instruction):
        return False
    if not all(map(_agree, window.steps, other.steps[start : start + length])):
        return False
    if window.first_observation == other.first_observation:
        return ends_open(window) and length >= max(2, len(window.steps) - 1)
    state = other.steps[start - 1].observation
    return window.first_observation in (state, f"{other.first_observation}\n\n{state}")


def is_part(window: LoggedEpisode, other: LoggedEpisode, start: int) -> bool:
    """Return whether all of `window`, which begins at the step `start` of `other`, is in `other`."""
    end = start + len(window.steps)
    if end > len(other.steps):
        return False
    return window.steps[-1].observation is None or other.steps[end - 1].observation is not None


def ends_open(episode: LoggedEpisode) -> bool:
    """Return whether the log ends with the agent's action, as that of a call does."""
    return episode.steps[-1].observation is None


def _agree(step: LoggedStep, other: LoggedStep) -> bool:
    """Whether both steps are one: an observation is missing where a call ends with its action."""
    is_open = step.observation is None or other.observation is None
    return step.action == other.action and (is_open or step.observation == other.observation)


def _root(number: int, roots: dict[int, int]) -> int:
    """The episode that `number` leads back to; paths become shorter on the way."""
    while roots[number] != number:
        roots[number] = roots[roots[number]]
        number = roots[number]
    return number


class _Places:
    """The places at which some of the episodes begin inside others, by hashes of their texts.

    Args: episodes: they are named by their position here.
    """

    def __init__(self, episodes: list[LoggedEpisode], are_calls: bool) -> None:
        longest = max(len(episode.steps) for episode in episodes)
        self._powers = [1]
        for _ in range(2 * longest):
            self._powers.append(self._powers[-1] * _BASE % _PRIME)
        self._episodes = episodes
        self._hashes = [_beginning_hashes(episode) for episode in episodes]
        self._with_all: dict[int, list[_Match]] = {}
        """Hash of a whole window -> the places that have all of it."""
        self._endings: dict[int, list[_Match]] = {}
        """Hash of the end of an episode -> the places that it begins at."""
        lengths: dict[int, set[int]] = {}
        for position, window in enumerate(episodes):
            text = self._hashes[position]
            for opening in _openings(window):
                lengths.setdefault(opening, set()).add(len(text) - 1)
                self._with_all[hash((opening, text[-1]))] = []
        for position, episode in enumerate(episodes):
            for start in range(1, len(episode.steps)):
                for kind, opening in _openings_inside(episode, start, are_calls):
                    if opening in lengths:
                        match = kind == _WITH_FIRST_MESSAGE, position, start
                        self._add(opening, match, lengths[opening])

    def _add(self, opening: int, match: _Match, lengths: Iterable[int]) -> None:
        _, position, start = match
        size = len(self._hashes[position]) - 1 - 2 * start
        for length in lengths:
            if length <= size and (key := hash((opening, self._part(match, length)))) in self._with_all:
                self._with_all[key].append(match)
        ending = hash((opening, self._episodes[position].is_over, self._part(match, size)))
        self._endings.setdefault(ending, []).append(match)

    def _part(self, match: _Match, length: int) -> int:
        """Hash of `length` texts from a place on."""
        _, position, start = match
        text = self._hashes[position]
        return (text[2 * start + length] - text[2 * start] * self._powers[length]) % _PRIME

    def first_with_all(self, position: int, is_origin: _Test) -> _Match | None:
        """The first match that has all of a window."""
        whole = self._hashes[position][-1]
        openings = _openings(self._episodes[position])
        return _first((self._with_all[hash((opening, whole))] for opening in openings), is_origin)

    def first_with_beginning(self, position: int, is_origin: _Test) -> _Match | None:
        """The first match that ends inside a window."""
        window, text = self._episodes[position], self._hashes[position]
        size = len(text) - 1
        after_state, *with_first = _openings(window)
        least = 2 * max(2, len(window.steps) - 1) - 1
        keys = [hash((after_state, False, text[length])) for length in range(1, size)]
        keys += [hash((one, False, text[length])) for one in with_first for length in range(least, size)]
        if not ends_open(window):  # an episode that the world has ended may lack its last observation
            keys.append(hash((after_state, True, text[size - 1])))
        return _first((self._endings.get(key, []) for key in keys), is_origin)


def _first(lists: Iterable[list[_Match]], is_origin: _Test) -> _Match | None:
    """The first of all matches that pass the test; each list is in order."""
    firsts = (next(filter(is_origin, matches), None) for matches in lists)
    return min((match for match in firsts if match), default=None)


def _beginning_hashes(episode: LoggedEpisode) -> list[int]:
    """Hashes of the first 0, 1, 2, ... texts of an episode: actions and observations by turns."""
    hashes = [0]
    texts = [text for step in episode.steps for text in (step.action, step.observation)]
    for text in texts[:-1] if ends_open(episode) else texts:
        hashes.append((hashes[-1] * _BASE + hash(text)) % _PRIME)
    return hashes


def _openings(window: LoggedEpisode) -> list[int]:
    """Hashes of the ways in which a window may begin, by their kind."""
    is_task = window.instruction != window.first_observation
    fields = window.first_observation, window.instruction if is_task else None, window.steps[0].action
    can_keep_first = ends_open(window) and len(window.steps) > 1
    kinds = (_AFTER_STATE, _WITH_FIRST_STATE, _WITH_FIRST_MESSAGE) if can_keep_first else (_AFTER_STATE,)
    return [hash((kind, *fields)) for kind in kinds]


def _openings_inside(other: LoggedEpisode, start: int, are_calls: bool) -> Iterator[tuple[int, int]]:
    """(kind, hash) of each way in which a window from the step `start` on would begin."""
    first, action = other.first_observation, other.steps[start].action
    state = other.steps[start - 1].observation or ""
    paragraph = _last_paragraph(state or first)
    ways = [
        (_AFTER_STATE, text)
        for text in (state, f"{first}\n\n{state}")
        if text != first and _last_paragraph(text) == paragraph
    ]
    if _last_paragraph(first) == paragraph:
        ways.append((_WITH_FIRST_STATE, first))
    elif are_calls:
        ways.append((_WITH_FIRST_MESSAGE, first))
    for kind, text in ways:
        for instruction in (None, other.instruction):
            yield kind, hash((kind, text, instruction, action))


def _last_paragraph(text: str) -> str:
    return text.rpartition("\n\n")[2]
