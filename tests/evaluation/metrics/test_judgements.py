"""Judgements written to a Parquet table are read back unchanged."""

from __future__ import annotations

import pandas as pd
import pytest
from test_fidelity import MIXED

from components.errors import DataError
from components.evaluation.metrics.judgements import read_judgements, write_judgements
from components.trajectories.parquet_file import write_frame


def test_judgements_are_read_back_unchanged(tmp_path):
    path = tmp_path / "judgements.parquet"
    write_judgements(path, MIXED)
    assert read_judgements(path) == MIXED
    first = path.read_bytes()
    write_judgements(path, MIXED)
    assert path.read_bytes() == first


def test_a_table_with_different_columns_is_refused(tmp_path):
    path = tmp_path / "other.parquet"
    write_frame(path, pd.DataFrame({"claims": [1]}))
    with pytest.raises(DataError, match="different columns: changed, contradicted"):
        read_judgements(path)
