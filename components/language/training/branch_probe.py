"""A test of an unknown architecture: does training on branches give the same numbers as plain sequences?"""

from __future__ import annotations

import torch
from peft import PeftModel
from transformers import PreTrainedModel

from components.errors import ConfigError
from components.language.adapters import without_adapters
from components.language.engines.kept_cache_probe import OTHER_ARCHITECTURE, PROBE_TOLERANCE
from components.language.evaluation_mode import evaluating
from components.language.sampled_ids import without_unknown
from components.language.training.examples import Example, Segment, collate
from components.language.training.token_scores import token_logprobs
from components.language.transformers_setup import attention_of


def probe_branches(model: PreTrainedModel | PeftModel) -> None:
    """Compare a trunk with one branch with the two plain sequences that it stands for.

    Raises:
        ConfigError: the log-probabilities differ, for example because the architecture takes no mask or no
            positions from its caller.
    """
    inner = without_adapters(model)
    name = inner.config.model_type
    segments = [
        Segment([1, 2, 3], [False] * 3),
        Segment([4, 5], [False, True], branch=True),
        Segment([6, 7], [False, True]),
    ]
    sequences = torch.tensor([[1, 2, 3, 4, 5], [1, 2, 3, 6, 7]], device=inner.device)
    try:
        with evaluating(inner):
            branched = token_logprobs(inner, collate([Example(segments)], 0).to(inner.device)).logprobs
            # Eager attention includes everything that the architecture adds to attention. A difference shows
            # what our attention function leaves out.
            with attention_of(inner, "eager"):
                plain = inner(input_ids=sequences, use_cache=False).logits[:, -2].float()
            plain = without_unknown(inner, plain).log_softmax(-1)
        gap = float((plain.gather(1, sequences[:, -1:])[:, 0] - branched).abs().max())
        if not gap < PROBE_TOLERANCE:
            raise ConfigError(
                f"With branches {name} is off by {gap:.2g} nats.",
                "Expected the same numbers as without.",
                OTHER_ARCHITECTURE,
            )
    except (TypeError, AttributeError, RuntimeError, IndexError, KeyError, ValueError) as error:
        raise ConfigError(
            f"The architecture {name} cannot be trained on branches: {error}", next_step=OTHER_ARCHITECTURE
        ) from error
