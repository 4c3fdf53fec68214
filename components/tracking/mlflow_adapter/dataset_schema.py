"""Schema and size of a Parquet table, in the JSON that MLflow's page of a data set shows."""

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
    """(schema, profile) of a Parquet table as MLflow's JSON, or two empty texts if there is no such table.

    Only the footers of its files are read.
    """
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    try:
        schemas = [pq.read_schema(file) for file in files[:1]]
        row_count = sum(pq.read_metadata(file).num_rows for file in files)
    except (OSError, pa.ArrowInvalid):
        return "", ""
    columns = [
        {"type": _mlflow_type(field.type), "name": field.name, "required": True}
        for schema in schemas
        for field in schema
    ]
    schema = json.dumps({"mlflow_colspec": columns})
    profile = json.dumps({"num_rows": row_count, "num_elements": row_count * len(columns)})
    return schema, profile


def _mlflow_type(arrow_type: pa.DataType) -> str:
    if pa.types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    return next((name for matches, name in _MLFLOW_TYPES if matches(arrow_type)), "string")
