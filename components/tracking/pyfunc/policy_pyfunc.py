"""The policy as an MLflow model: (task, initial state, history) -> (thought, action).

    mlflow.pyfunc.load_model("models:/dreamgym-policy@champion").predict(rows)

MLflow loads the weights through `_load_pyfunc`. The prompt is that of the rollouts
(`components/policy/formats/`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.models import ModelSignature
from mlflow.types import ColSpec, DataType, Schema

from components.language.compute import Compute
from components.policy.formats.agent_format import AgentFormat
from components.policy.policy import Policy
from components.tracking.pyfunc.pyfunc_rows import Row, columns, parameters, read_rows, refusal

MAX_BATCH_ROWS = 64
"""Largest number of rows answered in one batch."""


def signature(temperature: float, max_new_tokens: int) -> ModelSignature:
    """Columns of the input and output, and the parameters with these defaults."""
    outputs = Schema([ColSpec(DataType.string, "thought"), ColSpec(DataType.string, "action")])
    settings = parameters(temperature=float(temperature), seed=0, max_new_tokens=max_new_tokens)
    return ModelSignature(Schema(columns(with_thoughts=True)), outputs, settings)


def prompt(text: AgentFormat, row: Row) -> list[int]:
    """Token ids that the policy reads of an unfinished episode."""
    tokens = text.opening(row.task) + text.ask(row.task)
    for step in row.history:
        tokens += text.reply(step.thought, step.action) + text.observation(step.state) + text.ask(row.task)
    return tokens


class PolicyModel:
    """A policy behind MLflow's `predict`."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """One thought and one action per row.

        Args:
            params: `temperature` (0 is greedy), `seed` and `max_new_tokens`.

        Raises:
            MlflowException: a row cannot be read, or is longer than the model's longest sequence.
        """
        rows = read_rows(model_input)
        settings = {"temperature": 0.0, "seed": 0} | dict(params or {})
        replies = [
            answer
            for start in range(0, len(rows), MAX_BATCH_ROWS)
            for answer in self._act(rows[start : start + MAX_BATCH_ROWS], settings)
        ]
        return pd.DataFrame(replies, columns=["thought", "action"])

    def _act(self, rows: list[Row], settings: Mapping[str, Any]) -> list[tuple[str, str]]:
        text = self.policy.text
        prompts = {number: prompt(text, row) for number, row in enumerate(rows)}
        session = self.policy.engine(int(settings["seed"])).open(len(rows))
        for number, tokens in prompts.items():
            if len(tokens) >= session.longest:
                problem = f"Row {rows[number].number} has {len(tokens):,} tokens."
                raise refusal(
                    problem, f"The model reads at most {session.longest - 1:,}: shorten the history."
                )
        completions = session.generate(
            prompts,
            stop=text.stop,
            max_new_tokens=int(settings.get("max_new_tokens", self.policy.max_new_tokens)),
            temperature=float(settings["temperature"]),
        )
        return [text.parse(completions[number].tokens) for number in prompts]


def _load_pyfunc(path: str, model_config: Mapping[str, Any] | None = None) -> PolicyModel:
    """Load the model; MLflow calls this function by its name.

    Args:
        path: directory of the weights.
        model_config: `max_new_tokens` (default 32) and `device` (default cpu).
    """
    settings: dict[str, Any] = {"max_new_tokens": 32, "device": "cpu"} | dict(model_config or {})
    compute = Compute(str(settings["device"]))
    return PolicyModel(
        Policy.load(Path(path), max_new_tokens=int(settings["max_new_tokens"]), compute=compute)
    )
