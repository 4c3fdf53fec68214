"""Guesses of what rows write next, from what followed the same few tokens before in this session.

The model checks a whole guess in one pass (speculative decoding, Leviathan et al. 2023, with n-grams in place of a draft model):
under greedy decoding the tokens are the very ones that it would have written one by one, in fewer passes. Answers of a dream
follow a few forms, so about half of their tokens can be guessed. Two contexts meeting in one place of the tables only spoil a guess.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int64]

ORDERS = (4, 2)  # tokens of context; the longest that is known decides
MOST = 4  # tokens a guess
LEAST_TRUST = 0.4  # that a whole guess is right, below which it ends
_PLACES = 1 << 17
_FACTORS = np.array([1_000_003, 7_368_787, 2_654_435_761, 40_503], dtype=np.int64)


class Drafts:
    """For each context the likeliest follower, and how far it has proved right (0 to 1, halved towards either end each time)."""

    def __init__(self) -> None:
        self._follower = np.full((len(ORDERS), _PLACES), -1, dtype=np.int64)
        self._trust = np.zeros((len(ORDERS), _PLACES), dtype=np.float32)

    def learn(self, contexts: Tokens, tokens: Tokens) -> None:
        """Token `tokens[i]` has followed `contexts[i]`, int64 [n, 4]."""
        for table, order in enumerate(ORDERS):
            places = _places(contexts, order)
            followers, trust = self._follower[table], self._trust[table]
            right = followers[places] == tokens
            changed = np.where(right, 0.5 + 0.5 * trust[places], 0.5 * trust[places])
            lost = ~right & (changed < 0.3)
            followers[places[lost]] = tokens[lost]
            trust[places] = np.where(lost, 0.5, changed)

    def guess(self, contexts: Tokens, most: Tokens) -> tuple[Tokens, Tokens]:
        """Of each context int64 [n, 4] the tokens [n, MOST] that may follow, and how many of them are guessed [n], at most `most` [n]."""
        guessed, counts = np.zeros((len(contexts), MOST), dtype=np.int64), np.zeros(len(contexts), dtype=np.int64)
        trust = np.ones(len(contexts), dtype=np.float32)
        for number in range(MOST):
            long, short = (_places(contexts, order) for order in ORDERS)
            known = self._follower[0, long] >= 0
            follower = np.where(known, self._follower[0, long], self._follower[1, short])
            trust = trust * np.where(known, self._trust[0, long], self._trust[1, short])
            trust[(follower < 0) | (number >= most)] = 0.0
            going_on = trust >= LEAST_TRUST
            if not going_on.any():
                break
            counts += going_on
            guessed[:, number] = follower
            contexts = followed(contexts, follower)
        return guessed, counts


def followed(contexts: Tokens, tokens: Tokens) -> Tokens:
    """The contexts [n, 4] after one more token each [n]."""
    return np.concatenate((contexts[:, 1:], tokens[:, None]), axis=1)


def _places(contexts: Tokens, order: int) -> Tokens:
    mixed = (contexts[:, -order:] + 1) @ _FACTORS[:order]
    return (mixed ^ (mixed >> 17)) & (_PLACES - 1)
