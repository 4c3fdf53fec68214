"""What `dreamgym index` prints: what was built, and how well the index finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.printing.formats import duration, interval, share
from flows.printing.output import Output
from flows.printing.table import Column, Table

if TYPE_CHECKING:
    from flows.jobs.index import IndexReport


def print_index(page: Output, index: IndexReport, k: int) -> None:
    """Print what was done with the index, its size and its recall.

    Args:
        k: number of neighbours that a query retrieves (`retrieval.k`).
    """
    page.text(index.done)
    recall = index.recall.to_json()
    transitions = (
        f"{index.transitions:,} ({index.dreamed:,} dreamed), {index.held:,} of them can be retrieved"
    )
    rows = [
        ["transitions in the log", transitions],
        ["different steps", f"{index.steps:,}"],
        ["encoder", index.encoder],
        [
            f"recall@{k} against exact search",
            f"{share(recall)} ({interval(recall)}, n={index.recall.n:,} neighbours)",
        ],
        ["size on disk", f"{index.size_bytes / 1e6:.1f} MB"],
        ["time", duration(index.seconds)],
    ]
    page.table("", Table("", [Column("figure"), Column("value", prose=True)], rows, frame=False))
    values = {name: value for name, value in vars(index).items() if name != "recall"}
    page.put(**values, k=k, recall=recall)
