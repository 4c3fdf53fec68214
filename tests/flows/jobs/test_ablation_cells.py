"""The cells of an ablation on disk: a cell read back has the same metrics, and another cell is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from builders import make_transition

from components.config import load_config
from components.errors import DataError
from components.evaluation.metrics.open_loop import OpenLoopEpisode
from components.evaluation.study.ablation_results import apply_variant, pooled_metrics
from components.experience.step_judgements import Judgement
from flows.jobs.studies.ablation_cells import Cell, read_cell, write_cell
from flows.jobs.studies.cell_origin import origin_of

ROOT = Path(__file__).parents[3]
JUDGEMENTS = [
    Judgement(
        make_transition(task=f"t{number}", behaviour=behaviour, reward=float(number == 1)),
        "A dreamed state.",
        True,
        number != 2,
        3,
        3 - number,
        3,
        number,
        False,
        number,
        number == 0,
        number == 1,
        False,
        False,
        float(number == 1),
        1.0,
        "A thought.",
        1,
        True,
        0,
    )
    for behaviour in ("noisy", "cloned")
    for number in range(3)
]
ORIGIN = {"config": load_config(None, []).model_dump(mode="json"), "data": "d", "models": {}}
CELL = Cell(
    ORIGIN,
    "run",
    "commit",
    JUDGEMENTS,
    [OpenLoopEpisode("cloned", "t0", True, True, True, (True, False, True, True, True))],
)


def test_a_cell_has_the_same_metrics_without_its_texts(tmp_path):
    write_cell(tmp_path, "full-0", CELL)
    found = read_cell(tmp_path, "full-0", ORIGIN)
    assert found is not None and (found.run_id, found.commit, found.rehearsals) == (
        "run",
        "commit",
        CELL.rehearsals,
    )
    assert pooled_metrics(found.judgements, found.rehearsals) == pooled_metrics(
        CELL.judgements, CELL.rehearsals
    )
    assert not any(judgement.predicted or judgement.transition.next_state for judgement in found.judgements)
    assert read_cell(tmp_path, "full-1", ORIGIN) is None


def test_another_cell_is_refused(tmp_path):
    write_cell(tmp_path, "full-0", CELL)
    with pytest.raises(DataError, match=r"something else: data \(d, not e\).*rm "):
        read_cell(tmp_path, "full-0", ORIGIN | {"data": "e"})
    table = tmp_path / "full-0.parquet"
    table.write_bytes(table.read_bytes()[:-1])
    with pytest.raises(DataError, match="missing or not the table of full-0.json"):
        read_cell(tmp_path, "full-0", ORIGIN)
    (tmp_path / "full-0.json").write_text("{}")
    with pytest.raises(DataError, match="no cell of an ablation.*dreamgym ablate"):
        read_cell(tmp_path, "full-0", ORIGIN)


def test_an_origin_distinguishes_seeds_variants_and_models_but_not_threads_or_paths(tmp_path):
    shutil.copy(ROOT / "data.dvc", tmp_path)
    shutil.copytree(ROOT / ".dvc", tmp_path / ".dvc", ignore=shutil.ignore_patterns("cache", "tmp"))
    for name in ("start", "same", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{ }" if name == "other" else "{}")

    def origin(seed: int, *overrides: str, **changed: object) -> dict[str, object]:
        return origin_of(
            apply_variant(
                load_config(None, list(overrides)), {"experience_model": changed} if changed else {}, seed
            ),
            tmp_path,
        )

    assert origin(0) == origin(0, "threads=1", "stage_timeout_minutes=5", "environment.workers=1")
    assert origin(0, path="start") == origin(0, path="same")
    told = [
        origin(0),
        origin(1),
        origin(0, reasoning=False),
        origin(0, path="start"),
        origin(0, path="other"),
    ]
    assert all(one != other for place, one in enumerate(told) for other in told[:place])
