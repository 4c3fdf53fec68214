"""Tables of the transfer between environments as Markdown: games won and next states predicted."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from components.evaluation.metrics.intervals import Estimate

Metrics = Mapping[str, Estimate]
"""The `transfer/*` metrics of one environment."""


def transfer_table(metrics: Mapping[str, Metrics]) -> str:
    """Return two tables: one row per evaluated environment and one column per training environment.

    The first is about policies, the second about experience models. The intervals are those of the metrics.

    Args:
        metrics: evaluated environment -> its metrics.
    """
    policies = _table(metrics, "held-out games of", "policy trained in", _policy_cell)
    models = _table(metrics, "held-out steps of", "experience model of", _model_cell)
    return f"{policies}\n\n{models}"


def _table(
    metrics: Mapping[str, Metrics],
    row_title: str,
    column_title: str,
    format_cell: Callable[[Metrics, str], str],
) -> str:
    lines = [[row_title, *(f"{column_title} {source}" for source in metrics)], ["---"] * (1 + len(metrics))]
    lines += [
        [world, *(format_cell(world_metrics, source) for source in metrics)]
        for world, world_metrics in metrics.items()
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _policy_cell(metrics: Metrics, source: str) -> str:
    dreamed, cloned = (metrics[f"transfer/{source}/success_rate/{name}"] for name in ("dreamed", "cloned"))
    return f"{_format_rate(dreamed)}, clone {cloned.value:.3f}, n={dreamed.n}"


def _model_cell(metrics: Metrics, source: str) -> str:
    exact = metrics[f"transfer/{source}/next_state_exact"]
    unparsable = metrics[f"transfer/{source}/unparsable_rate"]
    return f"{_format_rate(exact)}, unparsable {unparsable.value:.3f}, n={exact.n}"


def _format_rate(estimate: Estimate) -> str:
    return f"{estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"
