"""The cells of an ablation on disk: what comes back counts the same, and what is not the cell asked for is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from builders import make_transition

from components.config import load_config
from components.errors import DataError
from components.evaluation.ablation import pooled, varied
from components.evaluation.open_loop import Rehearsal
from components.experience.fidelity import Judgement
from flows.ablation_cells import Cell, read_cell, write_cell
from flows.study_cells import cell_key

JUDGEMENTS = [
    Judgement(
        make_transition(task=f"t{number}", behaviour=behaviour, reward=float(number == 1)), "A dreamed state.", True, number != 2,
        3, 3 - number, 3, number, False, number, number == 0, number == 1, False, False, float(number == 1), 1.0, "A thought.", 1, True, 0,
    )
    for behaviour in ("noisy", "cloned")
    for number in range(3)
]  # fmt: skip
CELL = Cell("key", "run", "commit", JUDGEMENTS, [Rehearsal("cloned", "t0", True, True, True, (True, False, True, True, True))])


def test_a_cell_counts_the_same_without_its_texts(tmp_path):
    write_cell(tmp_path, "full-0", CELL)
    found = read_cell(tmp_path, "full-0", "key")
    assert found is not None and (found.run_id, found.commit, found.rehearsals) == ("run", "commit", CELL.rehearsals)
    assert pooled(found.judgements, found.rehearsals) == pooled(CELL.judgements, CELL.rehearsals)
    assert not any(judgement.predicted or judgement.transition.next_state for judgement in found.judgements)
    assert read_cell(tmp_path, "full-1", "key") is None


def test_another_cell_is_refused(tmp_path):
    write_cell(tmp_path, "full-0", CELL)
    with pytest.raises(DataError, match="another config or other data .key key.*rm "):
        read_cell(tmp_path, "full-0", "other")
    table = tmp_path / "full-0.parquet"
    table.write_bytes(table.read_bytes()[:-1])
    with pytest.raises(DataError, match="missing or not the table of full-0.json"):
        read_cell(tmp_path, "full-0", "key")
    (tmp_path / "full-0.json").write_text("{}")
    with pytest.raises(DataError, match="no cell of an ablation.*dreamgym ablate"):
        read_cell(tmp_path, "full-0", "key")


def test_a_key_tells_variants_seeds_and_models_apart_but_not_threads(tmp_path):
    model, config = tmp_path / "start", load_config(None, ["threads=1"])
    model.mkdir()
    (model / "config.json").write_text("{}")
    shutil.copy(Path(__file__).parents[2] / "data.dvc", tmp_path)
    started = varied(config, {"experience_model": {"path": "start"}}, 0)
    keys = [cell_key(varied(config, {}, seed), name, tmp_path) for name, seed in (("full", 0), ("full", 1), ("no-history", 0))]
    keys.append(cell_key(started, "full", tmp_path))
    (model / "config.json").write_text("{ }")
    keys.append(cell_key(started, "full", tmp_path))
    assert len(set(keys)) == 5
    assert cell_key(varied(load_config(None, ["threads=2"]), {}, 0), "full", tmp_path) == keys[0]
