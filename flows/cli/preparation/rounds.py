"""Prepares `next-round`, which goes on with a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.command import check_machine, load_settings, print_status

if TYPE_CHECKING:
    from components.config import Config


def prepare_next_round(
    run: str, config: Path | None, overrides: list[str] | None, root: Path | None
) -> tuple[Config, Path]:
    """Return the config and the repository of the round after `run`, with both checked.

    The config is that of the run if none is named.

    Raises:
        DataError: there is no such run, it has not finished or met no reality, or its stages are gone.
    """
    _, workspace = load_settings(None, [], root)
    from components.tracking.runs import find_run
    from flows.checks.config_checks import check_settings
    from flows.checks.preflight import ensure_data, require_repository
    from flows.past_runs.past_rounds import past_round

    require_repository(workspace)
    check_machine(workspace)
    past_round(workspace, run)
    file = config or find_run(workspace / "runs", run) / "config.json"
    settings, workspace = load_settings(file, overrides, root)
    ensure_data(workspace, settings, print_status, backbone=not settings.backbone.path)
    check_settings(workspace, settings, file)
    print_status("Starting (the libraries take some seconds to load) ...")
    return settings, workspace
