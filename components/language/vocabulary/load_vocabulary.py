"""Load the vocabulary of a model's directory, in the format that its card names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from components.config import TextFormat
from components.errors import DataError
from components.files import read_text
from components.language.vocabulary.chat_vocabulary import ChatVocabulary
from components.language.vocabulary.compact_vocabulary import CompactVocabulary
from components.language.vocabulary.markers import MARKERS
from components.language.vocabulary.vocabulary import CARD_FILE, Vocabulary, require_fast


def load_vocabulary(
    directory: Path | str, text_format: TextFormat = "auto", *, system: str = ""
) -> Vocabulary:
    """The vocabulary saved in `directory`, or the tokenizer of any Hugging Face model.

    Args:
        directory: of the files, or the name of a model on the hub.
        text_format: "auto" is the format in the model's card; without a card, chat if the tokenizer has a
            chat template, else compact.
        system: text of the system turn, for a model whose card has none.

    Raises:
        DataError: there is no tokenizer, it cannot be read, the card names another format, or an earlier
            version trained the model with markers inside its chat template.
        ConfigError: the chat template cannot be used.
    """
    path = Path(directory)
    if (
        path.is_dir()
        and not (path / "tokenizer.json").is_file()
        and not (path / "tokenizer_config.json").is_file()
    ):
        raise DataError(
            f"{path} holds no tokenizer.json.",
            "Expected a tokenizer's files.",
            "Make the backbone: dreamgym pretrain.",
        )
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(str(directory), trust_remote_code=False)
    except Exception as error:  # the tokenizers library raises bare exceptions
        raise DataError(
            f"The tokenizer in {directory} cannot be loaded: {error}",
            "Expected a directory with tokenizer.json.",
            "Check backbone.path, or make the backbone: dreamgym pretrain.",
        ) from error
    card = read_card(path)
    trained = card.get("format")
    if trained and text_format not in ("auto", trained):
        raise DataError(
            f"The model in {directory} has the format {trained}; the config asks for {text_format}.",
            "Expected the same format.",
            f"Set backbone.format={trained}, or name the model that it was made from.",
        )
    require_fast(tokenizer)
    if not card and tokenizer.chat_template and tokenizer.get_vocab().keys() >= set(map(str, MARKERS)):
        raise DataError(
            f"The model in {directory} is of an earlier version, with markers inside its chat template.",
            "Expected one of the formats compact and chat.",
            "Train it again from the model that it was made from.",
        )
    chosen = trained or ("chat" if text_format == "auto" and tokenizer.chat_template else text_format)
    if chosen == "chat":
        return ChatVocabulary(tokenizer, str(card.get("system") or system))
    return CompactVocabulary(tokenizer)


def read_card(directory: Path) -> dict[str, Any]:
    """What the model's card says; empty if there is none.

    Raises:
        DataError: the card is no JSON object, or names an unknown format.
    """
    path = directory / CARD_FILE
    if not path.is_file():
        return {}
    try:
        card = json.loads(read_text(path))
    except ValueError as error:
        raise _unreadable_card(path, str(error)) from error
    if not isinstance(card, dict) or card.get("format") not in ("compact", "chat"):
        raise _unreadable_card(path, f"it holds {card!r}")
    return card


def _unreadable_card(path: Path, reason: str) -> DataError:
    return DataError(
        f"{path} cannot be used: {reason}.",
        'Expected a JSON object with "format": "compact" or "chat".',
        "Restore the file from where the model came from.",
    )
