"""A cache of language-model answers on disk: no question is paid for twice, by another run or after a crash.

    <root>/<first two digits>/<sha256 of the question>.json

The file's name is the hash of everything that decides the answer: model, version of the prompt, messages,
sampling settings. A question that differs in any of them is a new one. Neither the name nor the file contains
the address or the key of the endpoint.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.errors import DataError


def fingerprint(question: Mapping[str, Any]) -> str:
    """sha256 (hex) of `question`, a mapping of JSON values; the order of its keys does not matter."""
    return hashlib.sha256(json.dumps(question, sort_keys=True, allow_nan=False).encode()).hexdigest()


class AnswerCache:
    """Texts of answers in files under `root`.

    Each file is written in one step, so that processes and threads may share the cache.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def get(self, key: str) -> str | None:
        """The answer to the question with this fingerprint; None if it is missing or its file is damaged."""
        try:
            content = json.loads(self._path(key).read_text(encoding="utf-8"))["content"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return content if isinstance(content, str) else None

    def put(self, key: str, content: str, **notes: str | int) -> None:
        """Store an answer.

        Args:
            key: fingerprint of the question.
            content: text of the answer.
            notes: further fields, for people who read the file.

        Raises:
            DataError: the disk refuses.
        """
        path = self._path(key)
        temporary = path.with_name(f".{key}.{secrets.token_hex(4)}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("w", encoding="utf-8") as file:
                json.dump({**notes, "content": content}, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError as error:
            raise DataError(
                f"The answer {path} cannot be written: {error.strerror or error}. Those written before are "
                "kept.",
                next_step="Free some space or change the permissions, then type the same command again: "
                "kept answers are not asked for again.",
            ) from error
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()

    def _path(self, key: str) -> Path:
        return self.root / key[:2] / f"{key}.json"
