"""Judgements come back from their table as they were."""

from __future__ import annotations

import pandas as pd
import pytest
from test_fidelity import MIXED

from components.errors import DataError
from components.evaluation.metrics.judgements import read_judgements, write_judgements
from components.trajectories.store import write_frame


def test_judgements_come_back_as_they_were(tmp_path):
    path = tmp_path / "judgements.parquet"
    write_judgements(path, MIXED)
    assert read_judgements(path) == MIXED
    first = path.read_bytes()
    write_judgements(path, MIXED)
    assert path.read_bytes() == first


def test_another_table_is_refused(tmp_path):
    path = tmp_path / "other.parquet"
    write_frame(path, pd.DataFrame({"claims": [1]}))
    with pytest.raises(DataError, match="other columns: changed, contradicted"):
        read_judgements(path)
