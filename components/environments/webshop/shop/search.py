"""The shop's search engine: BM25 with the formula and the English text analysis of Lucene.

It uses bm25s, which needs only numpy. Of the other libraries on PyPI, rank-bm25 has not been maintained since
2022. Tantivy stores its index on disk in a schema of its own. The original asks Lucene through Pyserini,
whose k1 and b are used here.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

import bm25s
import numpy as np
import snowballstemmer

logging.getLogger("bm25s").setLevel(logging.WARNING)  # it logs every index that it builds at DEBUG
K1 = 0.9
B = 0.4
MAX_RESULTS = 50
"""Most products that a search finds."""
_WORD = re.compile(r"\w+")
_STOP_TEXT = """
a an and are as at be but by for if in into is it no not of on or such that the their then there these they
this to was will with
"""
_STOP = frozenset(_STOP_TEXT.split())


class SearchEngine:
    """Ranks texts by BM25; equal scores in the order of the texts.

    Answers are cached, so a repeated query costs nothing.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._stem = snowballstemmer.stemmer("porter").stemWord
        self._stems: dict[str, str] = {}
        self._answers: dict[tuple[str, ...], list[int]] = {}
        self._index = bm25s.BM25(k1=K1, b=B, method="lucene")
        self._index.index([self.terms(text) for text in texts], show_progress=False)

    def terms(self, text: str) -> list[str]:
        """Return the terms of `text` that are compared: the stems of its words, without stop words.

        Words of up to two letters stay as they are, as with Lucene.
        """
        words = [word for word in _WORD.findall(text.lower()) if word not in _STOP]
        for word in words:
            if word not in self._stems:
                self._stems[word] = self._stem(word) if len(word) > 2 else word
        return [self._stems[word] for word in words]

    def __call__(self, query: str) -> list[int]:
        """Return the numbers of at most MAX_RESULTS texts that share a term with `query`, the best first."""
        terms = tuple(self.terms(query))
        if terms not in self._answers:
            if len(self._answers) >= 50_000:
                self._answers.clear()
            self._answers[terms] = self._search(list(terms))
        return self._answers[terms]

    def _search(self, terms: list[str]) -> list[int]:
        indexed_terms = [term for term in terms if term in self._index.vocab_dict]
        if not indexed_terms:
            return []
        scores = self._index.get_scores(indexed_terms)
        order = np.argsort(-scores, kind="stable")[:MAX_RESULTS]
        return [int(place) for place in order if scores[place] > 0]
