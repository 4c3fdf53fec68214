"""Encoders phi(state, action) for retrieval (section 4.1.1 leaves the choice open: "an arbitrary semantic
encoder").

Hashed n-grams are here and the default; models are in `components/experience/retrieval/sentence_encoder.py`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from components.config import RetrievalConfig
from components.experience.retrieval.sentence_encoder import (
    SentenceEncoder,
    identity_of,
    minilm_folder,
    require_encoder,
)

_WORD = re.compile(r"\w+|[^\w\s]")
_DIGIT = re.compile(r"\d")
NUMBER_WEIGHT = 0.5
"""What a gram with a digit counts: that a fridge takes no pen is known from any pen and any fridge, whatever
their numbers.
"""


class Encoder(Protocol):
    """Texts to unit vectors. `identity` names what they depend on: an index or a cache made with another is
    of no use.
    """

    name: str
    identity: str
    dimensions: int

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors [n, dimensions], float32, of length one."""
        ...


def encode_steps(encoder: Encoder, steps: Sequence[tuple[str, str]], action_weight: float) -> np.ndarray:
    """phi(s, a) of (state, action) pairs: unit vectors [n, 2 * dimensions], float32.

    State and action are encoded apart and set side by side, so that the cosine of two steps is the weighted
    mean of the cosines of their actions and of their states. As one text, the long state would drown the few
    words that decide what happens.
    """
    actions = encoder([action for _, action in steps]) * np.float32(np.sqrt(action_weight))
    states = encoder([state for state, _ in steps]) * np.float32(np.sqrt(1 - action_weight))
    return np.concatenate([actions, states], axis=1)


class HashingEncoder:
    """Hashed word uni- and bigrams with signs, those with a digit at half weight, to length one: needs no
    model, same on every machine.
    """

    def __init__(self, dimensions: int = 256) -> None:
        self.dimensions = dimensions
        self.name = f"hashing-{dimensions}"
        self.identity = f"{self.name}-numbers-{NUMBER_WEIGHT}"
        self._places: dict[str, tuple[int, float]] = {}
        self._vectors: dict[str, np.ndarray] = {}

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """See `Encoder`; vectors are cached by text."""
        return (
            np.stack([self._vector(text) for text in texts])
            if texts
            else np.zeros((0, self.dimensions), np.float32)
        )

    def _vector(self, text: str) -> np.ndarray:
        if text not in self._vectors:
            if len(self._vectors) > 200_000:
                self._vectors.clear()
            words = _WORD.findall(text.lower())
            vector = np.zeros(self.dimensions, np.float32)
            for gram in [*words, *(f"{a} {b}" for a, b in zip(words, words[1:], strict=False))]:
                place, weight = self._place(gram)
                vector[place] += weight
            self._vectors[text] = vector / (float(np.linalg.norm(vector)) or 1.0)
        return self._vectors[text]

    def _place(self, gram: str) -> tuple[int, float]:
        if gram not in self._places:
            number = int.from_bytes(hashlib.blake2b(gram.encode(), digest_size=8).digest(), "little")
            weight = NUMBER_WEIGHT if _DIGIT.search(gram) else 1.0
            self._places[gram] = (number // 2 % self.dimensions, weight if number % 2 else -weight)
        return self._places[gram]


def make_encoder(config: RetrievalConfig, embeddings: Path | None = None) -> Encoder:
    """The encoder that the config names; `embeddings` is the directory where the slow ones keep theirs from
    run to run.

    Raises:
        ExperienceModelError: it is not installed, or the directory that `encoder_path` names holds no
            encoder.
    """
    if config.encoder == "hashing":
        return HashingEncoder(config.dimensions)
    return SentenceEncoder(config.encoder, encoder_folder(config), embeddings)


def encoder_identity(config: RetrievalConfig) -> str:
    """What the vectors depend on: the name and, of a model, its weights; equal identities give equal vectors.
    Raises as `make_encoder`.
    """
    if config.encoder == "hashing":
        return HashingEncoder(config.dimensions).identity
    return identity_of(config.encoder, encoder_folder(config))


def encoder_folder(config: RetrievalConfig) -> Path:
    """The directory of a sentence encoder, looked at but not loaded. Raises as `make_encoder`."""
    folder = minilm_folder() if config.encoder == "minilm" else Path(config.encoder_path)
    require_encoder(folder)
    return folder
