"""The vLLMs that this process uses: one a model, and reused for the next model of its kind.

Starting one in the process takes seconds to a minute, handing it new weights a second or two. A run uses two
at once, for the policy and for the experience model.
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from components.language.adapters import without_adapters
from components.language.compute import Compute
from components.language.engines.vllm.vllm_engine import ModelHost, Role
from components.language.engines.vllm.weights import signature_of


@dataclass
class _Entry:
    host: ModelHost
    owner: weakref.ref[Any]


_ENTRIES: list[_Entry] = []


def host_for(model: Any, compute: Compute, engine: str, ids: Sequence[int], role: Role) -> ModelHost:
    """A vLLM with the present weights of `model`.

    It stays that model's until the model is deleted. Then another model of the same signature gets it.

    Args:
        engine: `vllm` or `vllm-server`.
        ids: the ids that the tokenizer knows.
        role: which of the run's two models it is; servers may be for one of them alone.

    Raises:
        ConfigError: vLLM is missing, or cannot hold the model.
        TrainingError: the weights did not arrive.
    """
    owner = without_adapters(model)
    signature = signature_of(model, compute) + (role if engine == "vllm-server" else "")
    entry = next((entry for entry in _ENTRIES if entry.owner() is owner), None)
    if entry is not None and entry.host.signature != signature:
        _close(entry)
        entry = None
    unused = [each for each in _ENTRIES if each.owner() is None]
    entry = entry or next((each for each in unused if each.host.signature == signature), None)
    if entry is None:
        for each in unused:
            _close(each)
        entry = _Entry(_open(model, compute, engine, ids, role), weakref.ref(owner))
        _ENTRIES.append(entry)
    entry.owner = weakref.ref(owner)
    entry.host.take_weights(model)
    return entry.host


def _open(model: Any, compute: Compute, engine: str, ids: Sequence[int], role: Role) -> ModelHost:
    if engine == "vllm-server":
        from components.language.engines.vllm.served_model import ServedModel

        return ServedModel(model, compute, ids, role)
    from components.language.engines.vllm.resident_model import ResidentModel

    return ResidentModel(model, compute, ids)


@atexit.register
def close_all() -> None:
    """Close every vLLM of this process."""
    for entry in list(_ENTRIES):
        _close(entry)


def _close(entry: _Entry) -> None:
    _ENTRIES.remove(entry)
    entry.host.close()
