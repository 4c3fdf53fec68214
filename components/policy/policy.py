"""The policy: a causal LM that writes a thought and an action; its weights are never shared with the
experience model.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from components.config import ChatTemplate
from components.language.backbone import load_backbone, save_model
from components.language.compute import Compute
from components.language.engines.kept_cache import KeptCacheEngine
from components.language.tokenizer import Vocabulary


class Policy:
    """A model with its vocabulary; `tokens` counts what it has generated."""

    def __init__(
        self, model: Any, vocabulary: Vocabulary, *, max_new_tokens: int = 32, compute: Compute = Compute()
    ) -> None:
        self.model, self.vocabulary, self.max_new_tokens, self.compute = (
            model,
            vocabulary,
            max_new_tokens,
            compute,
        )
        self.tokens = 0

    @classmethod
    def load(
        cls,
        directory: Path,
        *,
        max_new_tokens: int = 32,
        compute: Compute = Compute(),
        chat_template: ChatTemplate = "auto",
    ) -> Policy:
        """The policy saved in `directory` (also: a backbone, as the start of one), on the device of
        `compute`.
        """
        model, vocabulary = load_backbone(directory, compute.device, chat_template=chat_template)
        return cls(model, vocabulary, max_new_tokens=max_new_tokens, compute=compute)

    def frozen_copy(self) -> Policy:
        """A copy with weights of its own, which are not trained."""
        model = copy.deepcopy(self.model).requires_grad_(False)
        return Policy(model, self.vocabulary, max_new_tokens=self.max_new_tokens, compute=self.compute)

    def save(self, directory: Path) -> None:
        """Write weights (safetensors) and vocabulary, atomically."""
        save_model(self.model, self.vocabulary, directory)

    def engine(self, seed: int) -> KeptCacheEngine:
        """An engine over the weights as they are now, with the random stream `seed`."""
        return KeptCacheEngine(self.compute.for_decoding(self.model), self.vocabulary, seed=seed)
