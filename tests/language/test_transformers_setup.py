"""The process-wide changes to transformers: attention functions are registered, other versions refused."""

from __future__ import annotations

import pytest
import transformers
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from components.language import transformers_setup
from components.language.kernels.cache_attention import KEPT, kept_attention
from components.language.kernels.tree_attention import TREE, tree_attention


def test_both_attention_functions_are_registered():
    assert ALL_ATTENTION_FUNCTIONS[KEPT] is kept_attention
    assert ALL_ATTENTION_FUNCTIONS[TREE] is tree_attention


@pytest.mark.parametrize("version", ["4.57.1", "6.0.0"])
def test_another_major_version_is_refused(version, monkeypatch):
    monkeypatch.setattr(transformers, "__version__", version)
    with pytest.raises(ImportError, match=f"transformers {version} is installed. Expected version 5"):
        transformers_setup._require_supported_version()
