"""An ablation's seeds on a Ray cluster of this machine have the cells of one process."""

import json
import shutil

import pytest
from small_job import make_clone, run

pytest.importorskip("ray", reason="Ray is an extra: make install RAY=1")
ABLATION = ("ablate", "fidelity", "--seeds=0", "--variants=full", "--sizes=", "--json=found.json")
OF_THE_RUN = ("run_id", "commit")


def ablate(clone, *options):
    """Return the metrics and the cells of the ablation, without what names the run."""
    code, output, _ = run(clone, *options, verb=(*ABLATION, "--cells=cells"))
    assert code == 0, output
    cells = {file.name: json.loads(file.read_text()) for file in (clone / "cells").glob("*.json")}
    own = {
        name: {key: value for key, value in cell.items() if key not in OF_THE_RUN}
        for name, cell in cells.items()
    }
    return json.loads((clone / "found.json").read_text()), own


def test_cells_are_those_of_one_process(tmp_path):
    """The worker makes the cell again, from the stages that one process left."""
    clone = make_clone(tmp_path / "clone")
    here = ablate(clone)
    assert set(here[0]) == {"full"} and len(here[1]) == 1
    shutil.rmtree(clone / "cells")
    assert ablate(clone, "cluster=local") == here
