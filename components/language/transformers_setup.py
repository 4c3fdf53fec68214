"""Every process-wide change that this project makes to transformers, made when this module is imported.

Two attention functions are registered:
- `kept` (`kernels/cache_attention.py`): generation on the kept cache. The stock functions copy the keys and
  values for every query head, at every token.
- `tree` (`kernels/tree_attention.py`): training on a trunk with branches. The stock functions compute a dense
  mask, most of which is hidden.

Progress bars are turned off: a stage loads many small models, and each would print one. So is a warning that
peft causes at each model with adapters.

Written for transformers 5.23. The registry `AttentionInterface`, the signature of an attention function and
`config._attn_implementation` may change in version 6, so the import fails there.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import transformers
from transformers import AttentionInterface, PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import logging as transformers_logging

from components.language.kernels.cache_attention import KEPT, kept_attention
from components.language.kernels.tree_attention import TREE, tree_attention

SUPPORTED_MAJOR_VERSION = 5


def _require_supported_version() -> None:
    """Raise ImportError if transformers has another major version than the one this was written for."""
    if int(transformers.__version__.split(".")[0]) != SUPPORTED_MAJOR_VERSION:
        raise ImportError(
            f"transformers {transformers.__version__} is installed. Expected version "
            f"{SUPPORTED_MAJOR_VERSION}: its attention registry is extended here. "
            'Type: pip install "transformers>=5.23,<6"'
        )


def _register_attention_functions() -> None:
    """Register both attention functions. Raises ImportError if the registry does not list them afterwards."""
    AttentionInterface.register(KEPT, kept_attention)
    AttentionInterface.register(TREE, tree_attention)
    missing_names = [name for name in (KEPT, TREE) if name not in ALL_ATTENTION_FUNCTIONS]
    if missing_names:
        raise ImportError(
            f"transformers {transformers.__version__} does not list the attention functions {missing_names}. "
            'Expected its registry to take them. Type: pip install "transformers>=5.23,<6"'
        )


_require_supported_version()
_register_attention_functions()
transformers_logging.disable_progress_bar()
warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)


@contextmanager
def attention_of(model: PreTrainedModel, name: str) -> Iterator[None]:
    """Make `model` use the attention function `name` within the block, then restore its own."""
    before = model.config._attn_implementation
    model.config._attn_implementation = name
    try:
        yield
    finally:
        model.config._attn_implementation = before
