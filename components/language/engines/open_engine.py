"""Which engine generates for a model, and why."""

from __future__ import annotations

import functools
import logging
from typing import Any

from components.language.adapters import without_adapters
from components.language.compute import Compute
from components.language.engines.engine_protocol import Engine
from components.language.engines.kept_cache import KeptCacheEngine
from components.language.engines.vllm.library import installed_version
from components.language.engines.vllm.vllm_engine import Role, VllmEngine
from components.language.vocabulary.vocabulary import Vocabulary

_LOG = logging.getLogger(__name__)
FEWEST_WEIGHTS = 20_000_000
"""From this size on, `engine: auto` takes vLLM on a GPU."""


def open_engine(
    model: Any, vocabulary: Vocabulary, compute: Compute, seed: int, role: Role = "experience-model"
) -> Engine:
    """An engine over the present weights of `model`, with the random stream `seed`.

    `role` says which of the run's two models it is: vLLM servers may be for one of them alone.

    Raises:
        ConfigError: the engine is missing, or cannot hold the model.
        TrainingError: the weights did not arrive in vLLM.
    """
    weight_count = without_adapters(model).num_parameters()
    name, reason = choose_engine(weight_count, compute)
    _say_once(f"{weight_count:,} weights generate with {name}: {reason}")
    if name == "kept-cache":
        return KeptCacheEngine(compute.for_decoding(model), vocabulary, seed=seed)
    from components.language.engines.vllm.model_hosts import host_for

    host = host_for(model, compute, name, vocabulary.ids, role)
    return VllmEngine(host, without_adapters(model).config, seed=seed)


@functools.cache
def _say_once(text: str) -> None:
    _LOG.info("%s.", text)


def engine_identity(compute: Compute) -> str:
    """What of the engine changes a stage's numbers; "" for the kept cache."""
    if compute.engine == "vllm-server":
        return compute.engine
    installed = installed_version()
    may_be_vllm = compute.engine == "vllm" or (compute.engine == "auto" and compute.device == "cuda")
    return " ".join(installed) if installed and may_be_vllm else ""


def choose_engine(weight_count: int, compute: Compute) -> tuple[str, str]:
    """The engine for a model of this many weights, and the reason in words."""
    if compute.engine != "auto":
        return compute.engine, "engine is set"
    if compute.device == "cpu":
        return "kept-cache", "the default on a CPU"
    if weight_count < FEWEST_WEIGHTS:
        return "kept-cache", f"the model has fewer than {FEWEST_WEIGHTS // 1_000_000} million weights"
    if installed_version() is None:
        return "kept-cache", "vLLM is not installed (make install VLLM=1)"
    return "vllm", f"a GPU, and a model of {weight_count / 1e6:.0f} million weights"
