"""Draw the figures of the studies, under docs/images, from the cells under docs/results.

    python docs/scripts/make_figures.py                  # all
    python docs/scripts/make_figures.py --into FOLDER    # in FOLDER, docs/images stays

`dreamgym study --figures` draws the same of its own cells, and more than a page shows.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2])]

import fidelity_transfer  # noqa: E402
from result_files import ROOT, read_cells  # noqa: E402

from components.evaluation.study.study_figures import draw_study  # noqa: E402
from components.evaluation.study.study_results import summarise  # noqa: E402
from flows.jobs.studies.method import BASE  # noqa: E402
from flows.jobs.studies.study_methods import CONTROLS, bases_against  # noqa: E402

IMAGES = ROOT / "docs" / "images"
STUDIES = {
    "study": (".", ("curves", "interactions", "cost", "ablations", "curriculum", "transfer")),
    "study-weak": ("weak", ("success", "curves")),
}
"""Folder of cells -> folder of its figures under docs/images, and the figures that pages show."""


def draw(images: Path = IMAGES) -> list[Path]:
    """Draw each figure, and return their paths. Args: images: folder in place of docs/images."""
    drawn = []
    for name, (folder, shown) in STUDIES.items():
        cells = read_cells(name)
        metrics = summarise(cells, BASE, bases_against(BASE), controls=CONTROLS)
        with tempfile.TemporaryDirectory() as scratch:
            made = {path.name: path for path in draw_study(metrics, cells, BASE, Path(scratch))}
            for figure in shown:
                target = images / folder / f"study-{figure}.png"
                target.parent.mkdir(parents=True, exist_ok=True)
                drawn.append(Path(shutil.copyfile(made[target.name], target)))
    drawn.append(fidelity_transfer.draw(images))
    return drawn


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--into", type=Path, default=IMAGES, metavar="FOLDER", help="in place of docs/images")
    for path in draw(parser.parse_args().into):
        print(path)
