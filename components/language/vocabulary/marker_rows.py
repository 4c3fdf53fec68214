"""Rows of the embeddings and the output head for markers that a downloaded model has never seen.

Such a model has no row for a marker, or a spare row that was never trained. Spare rows are often zeros, the
same for all markers, so that no prompt could tell two markers apart. Each marker gets its own row: the mean
of the model's rows plus noise with their spread. The noise depends on the marker alone, so that every load
gives the same rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from components.errors import DataError
from components.language.vocabulary.compact_vocabulary import CompactVocabulary
from components.language.vocabulary.markers import MARKERS
from components.language.vocabulary.vocabulary import Vocabulary

MOST_ROWS = 10_000
"""About how many rows give mean and spread; all rows of a vocabulary of 150,000 would be gigabytes."""
LEAST_SPREAD = 1e-3
"""Standard deviation of the noise if the model's own rows are all alike."""


def require_rows(model: Any, vocabulary: Vocabulary, path: object) -> None:
    """Raise DataError if the tokenizer, without added markers, has more ids than the model has embeddings."""
    rows = model.get_input_embeddings().weight.shape[0]
    if vocabulary.rows_before > rows:
        raise too_few_rows(vocabulary, rows, path)


def fit_rows(model: Any, vocabulary: CompactVocabulary) -> None:
    """Grow the embeddings of `model` to the ids of `vocabulary`, and give every marker its own row.

    Args: model: changed in place.
    """
    rows = model.get_input_embeddings().weight.shape[0]
    if len(vocabulary) > rows:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model.resize_token_embeddings(len(vocabulary), mean_resizing=False)
    embeddings = model.get_input_embeddings()
    head = model.get_output_embeddings()
    untrained = sorted({*vocabulary.added, *_identical_marker_rows(embeddings.weight.data, vocabulary)})
    if not untrained:
        return
    trained = [index for index in vocabulary.ids if index < rows and index not in untrained]
    layers = [embeddings] if head is None or head.weight is embeddings.weight else [embeddings, head]
    for layer in layers:
        _draw_rows(layer.weight.data, untrained, trained, vocabulary)
    if (bias := getattr(head, "bias", None)) is not None:
        bias.data[untrained] = bias.data[_spread_sample(trained)].mean()


def too_few_rows(vocabulary: Vocabulary, rows: int, path: object) -> DataError:
    """The error for a tokenizer with more ids than its model has embeddings."""
    return DataError(
        f"The tokenizer in {path} has {vocabulary.rows_before} ids, the model {rows} embeddings.",
        "Expected a tokenizer and weights of the same model.",
        "Put both from the same dreamgym pretrain (or download) into one directory.",
    )


def _identical_marker_rows(weight: Tensor, vocabulary: CompactVocabulary) -> list[int]:
    """The ids of markers whose row equals that of another marker in every bit."""
    ids = [vocabulary.marker_id(marker) for marker in MARKERS]
    rows = weight[ids]
    return [index for place, index in enumerate(ids) if int((rows == rows[place]).all(-1).sum()) > 1]


def _draw_rows(
    weight: Tensor, untrained: list[int], trained: list[int], vocabulary: CompactVocabulary
) -> None:
    """Overwrite the rows `untrained` of `weight`, from the statistics of the rows `trained`."""
    trained_rows = weight[_spread_sample(trained)]
    mean = trained_rows.mean(0)
    spread = trained_rows.std(0, correction=0).clamp(min=LEAST_SPREAD)
    seeds = {vocabulary.marker_id(marker): place for place, marker in enumerate(MARKERS)}
    for index in untrained:
        generator = torch.Generator().manual_seed(seeds[index])
        weight[index] = mean + spread * torch.randn(weight.shape[1], generator=generator, dtype=weight.dtype)


def _spread_sample(trained: list[int]) -> list[int]:
    """About `MOST_ROWS` of the ids `trained`, evenly spread."""
    return trained[:: max(1, len(trained) // MOST_ROWS)]
