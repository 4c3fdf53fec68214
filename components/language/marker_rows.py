"""Rows of the embeddings and of the output for the markers that a model from elsewhere has never seen.

Such a model has no row for a marker, or a spare one that was never trained: often zeros, the same for all
markers, which no prompt could tell apart then. Each marker gets a row of its own: the mean of the model's
rows and noise as wide as their spread. The noise hangs on the marker alone, so that every load gives the same
rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from components.errors import DataError
from components.language.markers import MARKERS
from components.language.tokenizer import Vocabulary

MOST_ROWS = 10_000
"""Rows that mean and spread are taken from; of a vocabulary of 150,000 all would be gigabytes."""
LEAST_SPREAD = 1e-3
"""Standard deviation of the noise where the model's own rows are all alike."""


def fit_rows(model: Any, vocabulary: Vocabulary, path: object) -> None:
    """Grow the embeddings of `model`, read from `path`, to the ids of `vocabulary`, and give markers without
    a row of their own one.

    Raises:
        DataError: the tokenizer had more ids than the model has embeddings before any marker was added.
    """
    rows = model.get_input_embeddings().weight.shape[0]
    if vocabulary.rows_before > rows:
        raise too_few_rows(vocabulary, rows, path)
    if len(vocabulary) > rows:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model.resize_token_embeddings(len(vocabulary), mean_resizing=False)
    embeddings, head = model.get_input_embeddings(), model.get_output_embeddings()
    untrained = sorted({*vocabulary.added, *_alike(embeddings.weight.data, vocabulary)})
    if not untrained:
        return
    trained = [index for index in vocabulary.ids if index < rows and index not in untrained]
    ends = [embeddings] if head is None or head.weight is embeddings.weight else [embeddings, head]
    for end in ends:
        _draw_rows(end.weight.data, untrained, trained, vocabulary)
    if (bias := getattr(head, "bias", None)) is not None:
        bias.data[untrained] = bias.data[_some(trained)].mean()


def too_few_rows(vocabulary: Vocabulary, rows: int, path: object) -> DataError:
    """What to say of a tokenizer with more ids than its model has embeddings."""
    return DataError(
        f"The tokenizer in {path} has {vocabulary.rows_before} ids, the model {rows} embeddings.",
        "Expected a tokenizer and weights of the same model.",
        "Put both from the same dreamgym pretrain (or download) into one directory.",
    )


def _alike(weight: Tensor, vocabulary: Vocabulary) -> list[int]:
    """The ids of markers whose row is that of another marker, to the bit."""
    ids = [vocabulary.marker_id(marker) for marker in MARKERS]
    rows = weight[ids]
    return [index for place, index in enumerate(ids) if int((rows == rows[place]).all(-1).sum()) > 1]


def _draw_rows(weight: Tensor, untrained: list[int], trained: list[int], vocabulary: Vocabulary) -> None:
    known = weight[_some(trained)]
    mean, spread = known.mean(0), known.std(0, correction=0).clamp(min=LEAST_SPREAD)
    places = {vocabulary.marker_id(marker): place for place, marker in enumerate(MARKERS)}
    for index in untrained:
        generator = torch.Generator().manual_seed(places[index])
        weight[index] = mean + spread * torch.randn(weight.shape[1], generator=generator, dtype=weight.dtype)


def _some(trained: list[int]) -> list[int]:
    return trained[:: max(1, len(trained) // MOST_ROWS)]
