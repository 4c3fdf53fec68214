"""Encoders phi(state, action) for retrieval (section 4.1.1: "an arbitrary semantic encoder").

The default is hashed n-grams, in this module. Models are in
`components/experience/retrieval/sentence_encoder.py`.
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
"""Weight of a gram with a digit: whether a fridge takes a pen does not depend on their numbers."""
MAX_CACHED_VECTORS = 200_000


class Encoder(Protocol):
    """Texts -> unit vectors.

    `identity` names all that the vectors depend on: an index or a cache of another identity cannot be used.
    `depends_on_call` is True if the last bits of a vector depend on the other texts of the call.
    """

    name: str
    identity: str
    dimensions: int
    depends_on_call: bool

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors [n, dimensions], float32, of length one."""
        ...


def encode_steps(encoder: Encoder, steps: Sequence[tuple[str, str]], action_weight: float) -> np.ndarray:
    """phi(s, a) of (state, action) pairs: unit vectors [n, 2 * dimensions], float32.

    State and action are encoded separately and concatenated. So the cosine of two steps is the weighted mean
    of the cosines of their actions and of their states. In one text, the long state would outweigh the few
    words that decide what happens.

    Args: action_weight: weight of the action's cosine, from 0 to 1.
    """
    vectors = np.empty((len(steps), 2 * encoder.dimensions), np.float32)
    actions, states = np.split(vectors, 2, axis=1)
    np.multiply(encoder([action for _, action in steps]), np.float32(np.sqrt(action_weight)), out=actions)
    np.multiply(encoder([state for state, _ in steps]), np.float32(np.sqrt(1 - action_weight)), out=states)
    return vectors


class HashingEncoder:
    """Signed hashes of word uni- and bigrams, normalised to length one; grams with a digit count half.

    It needs no model, and its vectors are the same on every machine.
    """

    depends_on_call = False

    def __init__(self, dimensions: int = 256) -> None:
        self.dimensions = dimensions
        self.name = f"hashing-{dimensions}"
        self.identity = f"{self.name}-numbers-{NUMBER_WEIGHT}"
        self._places: dict[str, tuple[int, float]] = {}
        """Gram -> its dimension and signed weight."""
        self._vectors: dict[str, np.ndarray] = {}

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """See `Encoder`. Vectors are cached by text."""
        vectors = np.empty((len(texts), self.dimensions), np.float32)
        for place, text in enumerate(texts):
            vectors[place] = self._vector(text)
        return vectors

    def _vector(self, text: str) -> np.ndarray:
        if text not in self._vectors:
            if len(self._vectors) > MAX_CACHED_VECTORS:
                self._vectors.clear()
            words = _WORD.findall(text.lower())
            vector = np.zeros(self.dimensions, np.float32)
            for gram in [*words, *(f"{a} {b}" for a, b in zip(words, words[1:], strict=False))]:
                place, weight = self._gram_place(gram)
                vector[place] += weight
            self._vectors[text] = vector / (float(np.linalg.norm(vector)) or 1.0)
        return self._vectors[text]

    def _gram_place(self, gram: str) -> tuple[int, float]:
        if gram not in self._places:
            number = int.from_bytes(hashlib.blake2b(gram.encode(), digest_size=8).digest(), "little")
            weight = NUMBER_WEIGHT if _DIGIT.search(gram) else 1.0
            self._places[gram] = (number // 2 % self.dimensions, weight if number % 2 else -weight)
        return self._places[gram]


def make_encoder(config: RetrievalConfig, embeddings: Path | None = None) -> Encoder:
    """The encoder that the config names.

    Args: embeddings: directory where slow encoders cache their vectors across runs; None: memory alone.

    Raises:
        ExperienceModelError: the encoder is not installed, or the directory `encoder_path` holds no encoder.
    """
    if config.encoder == "hashing":
        return HashingEncoder(config.dimensions)
    return SentenceEncoder(config.encoder, encoder_folder(config), embeddings)


def encoder_identity(config: RetrievalConfig) -> str:
    """What the vectors depend on: the name of the encoder and, for a model, its weights.

    Equal identities give equal vectors. Raises as `make_encoder`.
    """
    if config.encoder == "hashing":
        return HashingEncoder(config.dimensions).identity
    return identity_of(config.encoder, encoder_folder(config))


def encoder_folder(config: RetrievalConfig) -> Path:
    """The directory of a sentence encoder, which is checked but not loaded. Raises as `make_encoder`."""
    folder = minilm_folder() if config.encoder == "minilm" else Path(config.encoder_path)
    require_encoder(folder)
    return folder
