"""Environment variables that Prefect, MLflow and other libraries read when they are imported.

`prepare` sets them before the first import. It never replaces what the user has set. Importing this module is
quick: it imports none of these libraries.
"""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

from components.child_processes import watch_over_children

MLFLOW_PORT = 5000
"""Default port of MLflow in `dreamgym ui`. A run's report in Prefect links there if its store is local."""
DEFAULTS = {
    # An ephemeral server's first start, with a new database, takes longer than Prefect's 20 s.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    # A run sends a heartbeat every 30 s, and one without heartbeats is marked as crashed
    # (flows/deployment/automations.py).
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    # No usage data is sent.
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "GX_ANALYTICS_ENABLED": "false",
    "DVC_NO_ANALYTICS": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    # It would start half a dozen worker processes for judges and scorers, which are not used here.
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    # Nothing is downloaded unless the user allows it: a backbone by hub name needs HF_HUB_OFFLINE=0.
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # Torch threads that wait for each other sleep soon, so that they take no core from another job.
    "GOMP_SPINCOUNT": "1000",
}


def prepare(root: Path) -> None:
    """Set the variables that the user has not set; keep Prefect's database in `.dreamgym/prefect` by default.

    From here on, child processes end with this process.

    Raises:
        DataError: the directory of that database cannot be created.
    """
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    if (root / ".git").exists():
        _replace_unusable_home(root)
    watch_over_children()
    if not prefect_is_configured():
        home = (root / ".dreamgym" / "prefect").absolute()
        if (root / ".git").exists():  # elsewhere no flow is started
            _create_prefect_home(home)
        os.environ.setdefault("PREFECT_HOME", str(home))
        os.environ.setdefault("PREFECT_RESULTS_LOCAL_STORAGE_PATH", str(home / "storage"))
    elif configured_home := os.environ.get("PREFECT_HOME"):
        _create_prefect_home(Path(configured_home))


def _replace_unusable_home(root: Path) -> None:
    from flows.home import replace_unusable_home

    try:
        message = replace_unusable_home(root)
    except OSError as error:
        from components.files import cannot_write

        raise cannot_write(root / ".dreamgym" / "home", error) from error
    if message:
        print(message, file=sys.stderr)


def _create_prefect_home(home: Path) -> None:
    """Create Prefect's directory with its parents: without the parents Prefect fails after two minutes."""
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        from components.files import cannot_write

        raise cannot_write(home, error) from error


def prefect_is_configured() -> bool:
    """Return True if a Prefect server is configured by environment or by the profile in `~/.prefect`."""
    if (
        os.environ.get("PREFECT_API_URL")
        or os.environ.get("PREFECT_HOME")
        or os.environ.get("PREFECT_PROFILES_PATH")
    ):
        return True
    try:
        profiles = tomllib.loads((Path.home() / ".prefect" / "profiles.toml").read_text(encoding="utf-8"))
        return "PREFECT_API_URL" in profiles["profiles"][profiles["active"]]
    except (OSError, RuntimeError, ValueError, KeyError, TypeError):
        return False
