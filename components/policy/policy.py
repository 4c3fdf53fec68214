"""The policy: a causal LM that writes a thought and an action. It never shares weights with the experience
model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from components.config import TextFormat
from components.language.adapters import without_adapters
from components.language.backbone import load_backbone, save_model
from components.language.compute import Compute
from components.language.engines.crossed_engines import OTHER_STREAM, CrossedEngines
from components.language.engines.engine_protocol import Engine
from components.language.engines.open_engine import choose_engine, open_engine
from components.language.vocabulary.vocabulary import Vocabulary
from components.policy.formats.choose import agent_format


class RolloutsInterrupted(Exception):
    """Raised in the thread that plays, after `Policy.is_interrupted` was set in another one."""


class Policy:
    """A model with its vocabulary.

    Attributes:
        text: its prompts and replies.
        tokens: number of tokens that it has generated.
        max_new_tokens: maximum length of a reply, in tokens.
        compute: device and precision of training and decoding.
        is_interrupted: set it from another thread to end the rollouts that it plays.
        score_elsewhere: scores rollouts in place of `model` (`Learner.score`); None: `model` does.
        partner: another policy of the same vocabulary that writes some of the replies; None: none does.
        partner_share: probability that it writes a reply.
    """

    def __init__(
        self, model: Any, vocabulary: Vocabulary, *, max_new_tokens: int = 32, compute: Compute = Compute()
    ) -> None:
        self.model = model
        self.vocabulary = vocabulary
        self.text = agent_format(vocabulary)
        self.max_new_tokens = max_new_tokens
        self.compute = compute
        self.tokens = 0
        self.is_interrupted = False
        self.score_elsewhere: Callable[..., Any] | None = None
        self.partner: Policy | None = None
        self.partner_share = 0.0
        self._pinned_engine: Engine | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy in another process needs: it plays, and does not train."""
        return self.__dict__ | {"score_elsewhere": None}

    @classmethod
    def load(
        cls,
        directory: Path,
        *,
        max_new_tokens: int = 32,
        compute: Compute = Compute(),
        text_format: TextFormat = "auto",
        system: str = "",
    ) -> Policy:
        """Return the policy saved in `directory`, on the device of `compute`.

        `directory` may also hold a backbone, which is then the initial policy.

        Args:
            text_format: see `load_vocabulary`.
            system: text of the system turn, for a chat model whose card has none.
        """
        model, vocabulary = load_backbone(directory, compute.device, text_format=text_format, system=system)
        return cls(model, vocabulary, max_new_tokens=max_new_tokens, compute=compute)

    def frozen_copy(self) -> Policy:
        """Return a copy whose weights are separate and not trained."""
        model = copy.deepcopy(self.model).requires_grad_(False)
        return Policy(model, self.vocabulary, max_new_tokens=self.max_new_tokens, compute=self.compute)

    def with_same_model(self) -> Policy:
        """Return a policy that plays and scores with this one's model."""
        return Policy(self.model, self.vocabulary, max_new_tokens=self.max_new_tokens, compute=self.compute)

    def with_partner(self, partner: Policy, share: float) -> Policy:
        """Return a policy that plays with this one's model, in a share of its replies with `partner`'s."""
        policy = self.with_same_model()
        policy.partner, policy.partner_share = partner, share
        return policy

    def pinned(self) -> Policy:
        """Return a policy that plays with the present weights, whatever happens to this one's afterwards.

        An engine that holds a copy of the weights plays with it. It must not be given others meanwhile.
        """
        engine = self.engine(0)
        if not engine.is_concurrent:
            return self.frozen_copy()
        policy = self.with_same_model()
        policy._pinned_engine = engine
        return policy

    def save(self, directory: Path) -> None:
        """Write weights (safetensors) and vocabulary to `directory` atomically."""
        save_model(self.model, self.vocabulary, directory)

    @property
    def samples_exactly(self) -> bool:
        """Whether the sampler computes with the trainer's own arithmetic."""
        return self.compute.precision == "fp32" and self.engine_name == "kept-cache"

    @property
    def engine_name(self) -> str:
        """The engine that this model is decoded with on this machine; `auto` is resolved."""
        return choose_engine(without_adapters(self.model).num_parameters(), self.compute)[0]

    def engine(self, seed: int) -> Engine:
        """Return an engine over the present weights, with the random stream `seed`."""
        if self._pinned_engine is not None:
            return self._pinned_engine.with_seed(seed)
        engine = open_engine(self.model, self.vocabulary, self.compute, seed, "policy")
        if self.partner is None:
            return engine
        return CrossedEngines(engine, self.partner.engine(seed + OTHER_STREAM), self.partner_share, seed)
