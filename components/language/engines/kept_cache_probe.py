"""A test of an unknown architecture: does the kept cache compute the same numbers as plain forward passes?"""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from components.errors import ConfigError
from components.language.engines.kept_cache_session import KeptCacheSession
from components.language.sampled_ids import without_unknown
from components.language.transformers_setup import attention_of

PROBE_TOLERANCE = 1e-3
"""Nats by which our computation may differ from the model's own, in fp32."""
PROBE_TOLERANCE_BF16 = 0.1
"""The same in bf16."""
OTHER_ARCHITECTURE = "Use a backbone of another architecture, for example Llama, Qwen or Mistral."


def probe_kept_cache(model: PreTrainedModel) -> None:
    """Compare a session with rows of different lengths with plain forward passes.

    Raises:
        ConfigError: the log-probabilities differ, or the architecture cannot run on the kept cache.
    """
    texts = {0: [1, 2, 3, 4, 5], 1: [3, 1]}
    name = model.config.model_type
    tolerance = PROBE_TOLERANCE if model.dtype == torch.float32 else PROBE_TOLERANCE_BF16
    try:
        session = KeptCacheSession(model, 2, 16, seed=0)
        session.append({0: texts[0][:2]})
        kept = session.generate({0: texts[0][2:], 1: texts[1]}, stop=set(), max_new_tokens=1, temperature=0.0)
        # Eager attention includes everything that the architecture adds to attention. A difference shows what
        # our attention function leaves out.
        with torch.inference_mode(), attention_of(model, "eager"):
            for row, tokens in texts.items():
                plain = model(input_ids=torch.tensor([tokens], device=model.device)).logits[0, -1].float()
                plain = without_unknown(model, plain).log_softmax(-1)
                gap = abs(float(plain[kept[row].tokens[0]]) - kept[row].logprobs[0])
                if not gap < tolerance:
                    raise ConfigError(
                        f"With a kept cache {name} is off by {gap:.2g} nats.",
                        "Expected the same numbers as without.",
                        OTHER_ARCHITECTURE,
                    )
    except (TypeError, AttributeError, RuntimeError, IndexError, KeyError, ValueError) as error:
        raise ConfigError(
            f"The architecture {name} cannot use the kept cache: {str(error).rstrip('.')}.",
            "Expected attention that the kept cache computes alike.",
            OTHER_ARCHITECTURE,
        ) from error
