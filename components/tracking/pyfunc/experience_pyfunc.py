"""The experience model as an MLflow model: (task, initial state, history, action) -> (reasoning, next state,
reward, done).

    mlflow.pyfunc.load_model("models:/dreamgym-experience-model/1").predict(rows)

It answers as inside a dream, with three differences:
1. It reads the demonstrations that the caller gives, and retrieves none.
2. No adapter checks its answers.
3. Hidden state that the history leaves open is the likeliest one, not a sampled one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.models import ModelSignature
from mlflow.types import ColSpec, DataType, Schema, TensorSpec
from mlflow.types.schema import Array, Object, Property

from components.config import ExperienceModelConfig
from components.errors import DataError
from components.experience.decoding.prediction_batch import Query
from components.experience.formats.world_format import Answer, WorldFormat
from components.experience.model import ExperienceModel
from components.language.compute import Compute
from components.records import Transition
from components.tracking.pyfunc.pyfunc_rows import Row, columns, items, parameters, part, read_rows, refusal

MAX_BATCH_ROWS = 32
"""Largest number of rows predicted in one batch."""
DEMONSTRATION = (
    'Expected an object such as {"state": "At desk 1: mug 1.", "action": "take mug 1", '
    '"next_state": "Took mug 1."}.'
)
_DEMONSTRATION_KEYS = ("state", "action", "next_state")


def signature() -> ModelSignature:
    """Columns of the input and output, and the parameters."""
    demonstrations = Array(Object([Property(name, DataType.string) for name in _DEMONSTRATION_KEYS]))
    inputs: list[ColSpec | TensorSpec] = [
        *columns(with_thoughts=False),
        ColSpec(DataType.string, "action"),
        ColSpec(demonstrations, "demonstrations", required=False),
        ColSpec(DataType.string, "premise", required=False),
    ]
    outputs: list[ColSpec | TensorSpec] = [
        *(ColSpec(DataType.string, name) for name in ("reasoning", "next_state")),
        ColSpec(DataType.double, "reward"),
        *(ColSpec(DataType.boolean, name) for name in ("done", "answered")),
    ]
    return ModelSignature(Schema(inputs), Schema(outputs), parameters(seed=0))


def prompt(text: WorldFormat, row: Row, *, history: bool = True) -> list[int]:
    """Token ids of a row that the experience model reads before it answers."""
    action, premise = str(row.values["action"]), _premise(row)
    tokens = text.opening(row.task, premise)
    past = row.history if history else ()
    for number, step in enumerate(past):
        answer = Answer("", step.state, 0.0, False)
        tokens += text.growth(row.task, row.states[: number + 1], step.action, answer, premise)
    states = row.states if history else row.states[-1:]
    return tokens + text.question(row.task, states, action, _demonstrations(row), premise)


class ExperienceModelService:
    """An experience model behind MLflow's `predict`."""

    def __init__(self, model: ExperienceModel) -> None:
        self.model = model

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """One prediction per row, with the columns `reasoning`, `next_state`, `reward`, `done`, `answered`.

        `answered` is False if no sampled answer could be parsed. Such a row keeps its state, has reward 0 and
        ends its episode, as in a dream.

        Raises:
            MlflowException: a row cannot be read, or is longer than the model's longest sequence.
        """
        rows = read_rows(model_input)
        seed = int((params or {}).get("seed", 0))
        for row in rows:
            row.text("action", "go to desk 1")
        answers = [
            answer
            for start in range(0, len(rows), MAX_BATCH_ROWS)
            for answer in self._predict(rows[start : start + MAX_BATCH_ROWS], seed)
        ]
        return pd.DataFrame(answers, columns=["reasoning", "next_state", "reward", "done", "answered"])

    def _predict(self, rows: list[Row], seed: int) -> list[tuple[str, str, float, bool, bool]]:
        batch = self.model.begin([row.task for row in rows], [_premise(row) for row in rows], seed=seed)
        for number, row in enumerate(rows):
            for step in row.history:
                batch.advance({number: (step.action, step.state)})
        queries = {
            number: Query(row.states[-1], str(row.values["action"]), _demonstrations(row))
            for number, row in enumerate(rows)
        }
        try:
            answers = batch.predict(queries)
        except DataError as error:
            raise refusal(error.found, "Shorten the history, or give fewer demonstrations.") from None
        return [
            (answer.reasoning, answer.state, answer.reward, answer.done, True)
            if answer
            else ("", row.states[-1], 0.0, True, False)
            for row, answer in ((rows[number], answers[number]) for number in range(len(rows)))
        ]


def _premise(row: Row) -> str:
    """The hidden state that the episode assumes; empty if the column has no text."""
    value = row.values.get("premise")
    return value if isinstance(value, str) else ""


def _demonstrations(row: Row) -> list[Transition]:
    """The caller's demonstrations, the most similar first."""
    entries = items(row.values.get("demonstrations"), row.number, "demonstrations", DEMONSTRATION)
    texts = [
        [part(entry, key, name, DEMONSTRATION) for key in _DEMONSTRATION_KEYS] for name, entry in entries
    ]
    return [
        Transition("", "", 0, state, action, next_state, 0.0, False) for state, action, next_state in texts
    ]


def _load_pyfunc(path: str, model_config: Mapping[str, Any] | None = None) -> ExperienceModelService:
    """Load the model; MLflow calls this function by its name.

    Args:
        path: directory of the weights.
        model_config: `experience_model` (the config's section) and `device` (default cpu).
    """
    settings = dict(model_config or {})
    config = ExperienceModelConfig.model_validate(settings.get("experience_model", {}))
    compute = Compute(str(settings.get("device", "cpu")))
    return ExperienceModelService(ExperienceModel.load(Path(path), config, compute=compute))
