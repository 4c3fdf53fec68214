"""Schema and size of a Parquet file, in the JSON that MLflow's page of a data set shows."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_MLFLOW_TYPES = (
    (pa.types.is_boolean, "boolean"),
    (lambda arrow_type: pa.types.is_integer(arrow_type) and arrow_type.bit_width <= 32, "integer"),
    (pa.types.is_integer, "long"),
    (pa.types.is_float32, "float"),
    (pa.types.is_floating, "double"),
    (pa.types.is_timestamp, "datetime"),
    (pa.types.is_binary, "binary"),
)
"""Tests for Arrow's types and MLflow's names for them. All other types are shown as text."""


def describe_parquet(path: Path) -> tuple[str, str]:
    """(schema, profile) of a Parquet file as MLflow's JSON, or two empty texts if there is no such file.

    Only the file's footer is read.
    """
    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowInvalid):
        return "", ""
    with file:
        columns = [
            {"type": _mlflow_type(field.type), "name": field.name, "required": True}
            for field in file.schema_arrow
        ]
        row_count = file.metadata.num_rows
    schema = json.dumps({"mlflow_colspec": columns})
    profile = json.dumps({"num_rows": row_count, "num_elements": row_count * len(columns)})
    return schema, profile


def _mlflow_type(arrow_type: pa.DataType) -> str:
    if pa.types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    return next((name for matches, name in _MLFLOW_TYPES if matches(arrow_type)), "string")
