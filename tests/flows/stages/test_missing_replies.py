"""The gate before RL says so if it closed because an endpoint did not reply."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from components.config import Config
from components.errors import FidelityGateClosed
from components.tracking.stage_store.stage_result import StageResult
from flows.run.training.experience_training import MISSING_REPLIES
from flows.stages.experience_model import require_fidelity

RUN = SimpleNamespace(config=Config())
RATES = {
    "fidelity/next_state_exact/determined": 1.0,
    "fidelity/reward_precision": 1.0,
    "fidelity/unparsable_rate": 0.5,
}


def result(**details):
    metrics = {name: {"value": value, "n": 10, "low": 0.0, "high": 1.0} for name, value in RATES.items()}
    return StageResult("experience_model", "0" * 64, Path(), metrics, {}, {}, 1.0, details)


def test_the_first_refusal_is_part_of_the_message():
    words = "The endpoint did not reply to 5 dreamed steps. The first: m refuses. HTTP 400: 'too long'."
    with pytest.raises(FidelityGateClosed, match="unparsable_rate is 0.500.*HTTP 400: 'too long'.*Mend what"):
        require_fidelity(RUN, result(**{MISSING_REPLIES: words}))


def test_without_one_the_gate_gives_its_own_advice():
    with pytest.raises(FidelityGateClosed, match="unparsable_rate is 0.500.*Collect more near misses"):
        require_fidelity(RUN, result())
