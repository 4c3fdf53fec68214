"""Options that say how logs are read, of `dreamgym import` and of `dreamgym retrain --logs`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

_PANEL = "How logs are read"

LogForm = Annotated[
    Literal["openai", "otel", "datasets", "steps", "transitions"],
    typer.Option(
        "--as",
        help="What the records are: lists of messages in JSON Lines, OpenTelemetry spans in JSON, a "
        "Hugging Face dataset on disk, steps of Gymnasium or OpenEnv in JSON Lines, or a directory of "
        "this project's own tables of transitions.",
        rich_help_panel=_PANEL,
    ),
]
LogOutcome = Annotated[
    str,
    typer.Option(
        "--outcome",
        help="field:PATH, last:PATTERN (found in the last observation: success), judge (the model at "
        "endpoint is asked where the usual fields tell nothing) or unknown. Default: the usual fields, "
        "such as success, reward or metadata.success.",
        rich_help_panel=_PANEL,
    ),
]
LeastSuccess = Annotated[
    float, typer.Option("--success", help="Least number that is a success.", rich_help_panel=_PANEL)
]
HeldOutShare = Annotated[
    float,
    typer.Option(
        "--held-out",
        min=0.0,
        max=0.45,
        help="Share of tasks for fidelity, and again for tests.",
        rich_help_panel=_PANEL,
    ),
]
LogBehaviour = Annotated[
    Literal["expert", "noisy", "near_miss", "random", "policy"],
    typer.Option("--behaviour", help="Who acted, where the log does not say it.", rich_help_panel=_PANEL),
]
CutTexts = Annotated[
    bool,
    typer.Option(
        "--cut",
        help="Cut texts that are too long; default: leave their episodes out.",
        rich_help_panel=_PANEL,
    ),
]
