"""What transfer between worlds came to, as Markdown: the games that policies win, the states that experience
models tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from components.evaluation.metrics.intervals import Estimate

Found = Mapping[str, Mapping[str, Estimate]]


def transfer_table(found: Found) -> str:
    """Two tables with a row for each world that is played and a column for each that was trained in; 95 %
    intervals or as configured.
    """
    policies = _table(found, "held-out games of", "policy trained in", _won)
    models = _table(found, "held-out steps of", "experience model of", _told)
    return f"{policies}\n\n{models}"


def _table(found: Found, rows: str, columns: str, cell: Callable[[Mapping[str, Estimate], str], str]) -> str:
    lines = [[rows, *(f"{columns} {source}" for source in found)], ["---"] * (1 + len(found))]
    lines += [[world, *(cell(own, source) for source in found)] for world, own in found.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _won(own: Mapping[str, Estimate], source: str) -> str:
    dreamed, cloned = (own[f"transfer/{source}/success_rate/{name}"] for name in ("dreamed", "cloned"))
    return f"{_rate(dreamed)}, its clone {cloned.value:.3f}, n={dreamed.n}"


def _told(own: Mapping[str, Estimate], source: str) -> str:
    exact, silent = own[f"transfer/{source}/next_state_exact"], own[f"transfer/{source}/unparsable_rate"]
    return f"{_rate(exact)}, no answer {silent.value:.3f}, n={exact.n}"


def _rate(found: Estimate) -> str:
    return f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f})"
