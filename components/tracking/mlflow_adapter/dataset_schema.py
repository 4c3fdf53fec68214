"""Schema and size of a Parquet file, as MLflow's page of a data set shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_TYPES = (
    (pa.types.is_boolean, "boolean"),
    (lambda kind: pa.types.is_integer(kind) and kind.bit_width <= 32, "integer"),
    (pa.types.is_integer, "long"),
    (pa.types.is_float32, "float"),
    (pa.types.is_floating, "double"),
    (pa.types.is_timestamp, "datetime"),
    (pa.types.is_binary, "binary"),
)
"""Arrow's types and MLflow's names for them; all others are shown as text."""


def describe_parquet(path: Path) -> tuple[str, str]:
    """(schema, profile) of a Parquet file as MLflow's JSON; empty texts where there is no such file. Only its
    footer is read.
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
        rows = file.metadata.num_rows
    return json.dumps({"mlflow_colspec": columns}), json.dumps(
        {"num_rows": rows, "num_elements": rows * len(columns)}
    )


def _mlflow_type(kind: pa.DataType) -> str:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return next((name for is_kind, name in _TYPES if is_kind(kind)), "string")
