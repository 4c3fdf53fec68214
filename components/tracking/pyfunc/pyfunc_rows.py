"""Read the rows of a pyfunc model's input as tasks and histories, for the policy and the experience model.

A row is one unfinished episode: `task` (the instruction), `initial_state`, and `history`, a list of past
steps with the oldest first: `[{"action": "go to desk 1", "state": "At desk 1: mug 1."}, ...]`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, TensorSpec
from mlflow.types.schema import Array, Object, Property

from components.records import Task

STEP = (
    'Expected an object such as {"action": "go to desk 1", "state": "At desk 1: mug 1."} for each step, '
    "the oldest first."
)


@dataclass(frozen=True)
class Step:
    """One past step: the action, the state after it, and the policy's thought (empty if unknown)."""

    action: str
    state: str
    thought: str = ""


@dataclass(frozen=True)
class Row:
    """One unfinished episode. `values` holds all columns of the row."""

    number: int
    task: Task
    history: tuple[Step, ...]
    values: Mapping[str, Any]

    @property
    def states(self) -> list[str]:
        """The initial state, then the state after each step."""
        return [self.task.initial_state, *(step.state for step in self.history)]

    def text(self, column: str, example: str) -> str:
        """The text in `column`.

        Raises:
            MlflowException: there is no text; the message gives `example`.
        """
        return _text(self.values.get(column), self.number, column, example)


def columns(with_thoughts: bool) -> list[ColSpec | TensorSpec]:
    """The columns that both models read."""
    properties = [Property("action", DataType.string), Property("state", DataType.string)]
    if with_thoughts:
        properties.append(Property("thought", DataType.string, required=False))
    return [
        ColSpec(DataType.string, "task"),
        ColSpec(DataType.string, "initial_state"),
        ColSpec(Array(Object(properties)), "history", required=False),
    ]


def parameters(**defaults: float | int) -> ParamSchema:
    """Parameters that a call may set, with these defaults."""
    types = {int: DataType.long, float: DataType.double}
    return ParamSchema([ParamSpec(name, types[type(value)], value) for name, value in defaults.items()])


def read_rows(model_input: Any) -> list[Row]:
    """The rows of a data frame, of a list of objects, or of one object.

    Raises:
        MlflowException: a value is missing or has another type; the message names the row and the expected
            value.
    """
    if isinstance(model_input, Mapping):
        model_input = [model_input]
    records = model_input.to_dict("records") if isinstance(model_input, pd.DataFrame) else model_input
    if (
        not isinstance(records, Sequence)
        or isinstance(records, str)
        or not all(isinstance(record, Mapping) for record in records)
    ):
        raise refusal(
            f"The input is a {type(model_input).__name__}.",
            "Expected rows with the columns task, initial_state and history.",
        )
    return [_row(number, record) for number, record in enumerate(records)]


def refusal(problem: str, expected: str) -> MlflowException:
    """The error for an unusable input. A server answers it with the HTTP status 400."""
    return MlflowException.invalid_parameter_value(f"{problem} {expected}")


def items(value: Any, number: int, column: str, expected: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(name for messages, object) of each entry of a list column; nothing if the column is empty.

    Raises:
        MlflowException: the value is not a list, or an entry is not an object.
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return
    entries = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(entries, list | tuple):
        raise refusal(f"Row {number}: `{column}` is {_shorten(value)}.", expected)
    for place, entry in enumerate(entries):
        name = f"Row {number}, {column} {place}"
        if not isinstance(entry, Mapping):
            raise refusal(f"{name} is {_shorten(entry)}.", expected)
        yield name, entry


def part(entry: Mapping[str, Any], key: str, name: str, expected: str) -> str:
    """The text at `key` of an entry.

    Raises:
        MlflowException: there is no text.
    """
    value = entry.get(key)
    if not isinstance(value, str) or not value.strip():
        raise refusal(f"{name}: `{key}` is {_shorten(value)}.", expected)
    return value


def _row(number: int, record: Mapping[str, Any]) -> Row:
    task = _text(record.get("task"), number, "task", "put a hot mug in desk")
    state = _text(
        record.get("initial_state"), number, "initial_state", "Room: desk 1, fridge 1. Holding nothing."
    )
    steps = tuple(
        Step(
            part(entry, "action", name, STEP),
            part(entry, "state", name, STEP),
            str(entry.get("thought") or ""),
        )
        for name, entry in items(record.get("history"), number, "history", STEP)
    )
    return Row(number, Task("", "", "", task, state), steps, record)


def _text(value: Any, number: int, column: str, example: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise refusal(
            f"Row {number}: `{column}` is {_shorten(value)}.", f"Expected a text such as {example!r}."
        )
    return value


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:99] + "…"
