"""Prepares `retrain --logs`, which imports the logs, and `refine`, which goes on in a live world."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.errors import ConfigError
from flows.cli.command import (
    check_machine,
    default_config,
    fit_to_recorded_world,
    load_settings,
    print_status,
)
from flows.printing.output import Output

if TYPE_CHECKING:
    from components.config import Config
    from flows.jobs.import_logs import ImportOptions

LOGS_CONFIG = Path("configs", "logs.yaml")


def prepare_run_on_logs(
    page: Output,
    logs: Sequence[Path],
    options: ImportOptions,
    config: Path | None,
    overrides: list[str] | None,
    root: Path | None,
) -> tuple[Config, Path]:
    """Import `logs` and return the config and the repository of a run on them, with its settings checked.

    The config is configs/logs.yaml if none is named.

    Raises:
        ConfigError: the config is of a world that can be played, or does not fit the logs.
        DataError: a log cannot be read or has too little.
    """
    file = config or default_config(LOGS_CONFIG, root)
    settings, workspace = load_settings(file, overrides, root)
    from flows.checks.preflight import complete_data, ensure_data, require_repository
    from flows.cli.tables.import_table import print_imported
    from flows.jobs.import_logs import WORLD, import_logs

    if settings.environment.name != WORLD:
        raise ConfigError(
            f"--logs with environment.name={settings.environment.name}.",
            f"Expected {WORLD}: a log does not say how a live world starts its tasks.",
            f"Leave --config out, name {LOGS_CONFIG}, or set environment.name={WORLD}.",
        )
    require_repository(workspace)
    check_machine(workspace)
    from flows.checks.config_checks import check_settings, require_backbone, require_device

    require_device(settings)
    require_backbone(settings)  # a missing model is said before minutes of reading
    complete_data(workspace, print_status)
    data = import_logs(logs, settings, workspace, options, print_status)
    print_imported(page, data, is_last=False)
    settings = settings.without_unused_endpoint()  # which a judge of outcomes may have been asked at
    ensure_data(workspace, settings, print_status, backbone=not settings.backbone.path)
    settings, fitted = fit_to_recorded_world(settings, workspace, overrides)
    page.put(fitted=fitted)
    check_settings(workspace, settings, file)
    print_status("Starting (the libraries take some seconds to load) ...")
    return settings, workspace


def prepare_refinement(
    run: str, config: Path | None, overrides: list[str] | None, root: Path | None
) -> tuple[Config, Path]:
    """Return the config and the repository of a refinement of `run` in a live world, with both checked.

    The config is that of the run if none is named.

    Raises:
        ConfigError: the config is of a world that cannot be played.
        DataError: there is no such run on logs, or the live world has no recorded tasks.
    """
    _, workspace = load_settings(None, [], root)
    from flows.jobs.import_logs import WORLD
    from flows.past_runs.run_on_logs import find_run_on_logs, stages_on_logs

    file = config or find_run_on_logs(workspace, run) / "config.json"
    settings, workspace = load_settings(file, overrides, root)
    from flows.checks.config_checks import check_settings
    from flows.checks.data_checks import require_training_tasks
    from flows.checks.preflight import ensure_data, require_repository

    require_repository(workspace)
    check_machine(workspace)
    stages_on_logs(workspace, run)
    if settings.environment.name == WORLD:
        raise ConfigError(
            f"environment.name is {WORLD}.",
            "Expected a world that can be played.",
            f"Name it: dreamgym refine {run} environment.name=openenv environment.openenv.url=URL",
        )
    if not config:
        settings = _of_the_live_world(settings, overrides)
    ensure_data(workspace, settings, print_status, backbone=False)
    check_settings(workspace, settings, file, training=False)
    require_training_tasks(workspace, settings)
    print_status("Starting (the libraries take some seconds to load) ...")
    return settings, workspace


def _of_the_live_world(settings: Config, overrides: list[str] | None) -> Config:
    """Return a run's config with a champion and validation games of the live world's own."""
    from components.config import with_values

    values: dict[str, Any] = {"promotion.draw": None}
    if not any(text.startswith("tracking.experiment=") for text in overrides or []):
        values["tracking.experiment"] = f"{settings.tracking.experiment}-{settings.environment.name}"
        print_status(
            f"Champion and runs of the live world: tracking.experiment={values['tracking.experiment']}"
        )
    return with_values(settings, values)
