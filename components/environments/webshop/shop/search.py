"""The shop's search engine: BM25 as Lucene computes it, over text cut and stemmed as Lucene's English
analyser does.

By bm25s: of the libraries on PyPI it is maintained (rank-bm25 is not, since 2022) and needs only numpy
(tantivy stores its index on disk in a schema of its own). The original asks Lucene through Pyserini, whose k1
and b are these.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

import bm25s
import numpy as np
import snowballstemmer

logging.getLogger("bm25s").setLevel(logging.WARNING)  # it tells at DEBUG of every index that it builds
K1, B = 0.9, 0.4
FOUND = 50
"""Most products that a search finds."""
_WORD = re.compile(r"\w+")
_STOP_TEXT = """
a an and are as at be but by for if in into is it no not of on or such that the their then there these they
this to was will with
"""
_STOP = frozenset(_STOP_TEXT.split())


class SearchEngine:
    """Ranks texts by BM25; equal scores in the order of the texts. Answers are kept, so that asking again
    costs nothing.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._stem = snowballstemmer.stemmer("porter").stemWord
        self._stems: dict[str, str] = {}
        self._known: dict[tuple[str, ...], list[int]] = {}
        self._index = bm25s.BM25(k1=K1, b=B, method="lucene")
        self._index.index([self.terms(text) for text in texts], show_progress=False)

    def terms(self, text: str) -> list[str]:
        """What of `text` is compared: the stems of its words, without stop words. Up to two letters stay as
        they are, as with Lucene.
        """
        words = [word for word in _WORD.findall(text.lower()) if word not in _STOP]
        for word in words:
            if word not in self._stems:
                self._stems[word] = self._stem(word) if len(word) > 2 else word
        return [self._stems[word] for word in words]

    def __call__(self, query: str) -> list[int]:
        """The numbers of at most FOUND texts that share a term with `query`, the best first."""
        terms = tuple(self.terms(query))
        if terms not in self._known:
            if len(self._known) >= 50_000:
                self._known.clear()
            self._known[terms] = self._search(list(terms))
        return self._known[terms]

    def _search(self, terms: list[str]) -> list[int]:
        known = [term for term in terms if term in self._index.vocab_dict]
        if not known:
            return []
        scores = self._index.get_scores(known)
        order = np.argsort(-scores, kind="stable")[:FOUND]
        return [int(place) for place in order if scores[place] > 0]
