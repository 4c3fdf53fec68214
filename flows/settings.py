"""Settings that Prefect, MLflow and the others read from the process when they are imported: set once, before
any of them is.

Nothing here replaces what the user has set. Importing this module is quick; it imports none of the libraries
it is about.
"""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

from components.child_processes import watch_over_children

MLFLOW_PORT = 5000
"""Where `dreamgym ui` shows MLflow, unless it is told another port; a run's report in Prefect links there if
its store is a local one.
"""
DEFAULTS = {
    # An ephemeral server's first start, with a new database, takes longer than Prefect's 20 s.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    # A run says every half minute that it lives; one that stopped saying so is found
    # (flows/deployment/automations.py).
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    # Nobody is told what runs here.
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
    # Half a dozen worker processes for judges and scorers, which nothing here uses.
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    # Nothing is downloaded unless the user says so: a backbone by hub name wants HF_HUB_OFFLINE=0.
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # Threads of torch that wait for each other soon go to sleep: beside another job they would take its core,
    # and wait for it.
    "GOMP_SPINCOUNT": "1000",
}


def prepare(root: Path) -> None:
    """Set the defaults that the user has not set, and keep Prefect's database with the repository unless
    another was chosen.

    From here on no child of this process outlives it.

    Raises:
        DataError: the directory for that database cannot be made.
    """
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    if (root / ".git").exists():
        _usable_home(root)
    watch_over_children()
    if not prefect_is_configured():
        home = (root / ".dreamgym" / "prefect").absolute()
        if (root / ".git").exists():  # elsewhere no flow is started
            _make(home)
        os.environ.setdefault("PREFECT_HOME", str(home))
        os.environ.setdefault("PREFECT_RESULTS_LOCAL_STORAGE_PATH", str(home / "storage"))
    elif named := os.environ.get("PREFECT_HOME"):
        _make(Path(named))


def _usable_home(root: Path) -> None:
    from flows.home import replace_unusable_home

    try:
        done = replace_unusable_home(root)
    except OSError as error:
        from components.files import cannot_write

        raise cannot_write(root / ".dreamgym" / "home", error) from error
    if done:
        print(done, file=sys.stderr)


def _make(home: Path) -> None:
    """Prefect makes its directory, but not the ones above it, and then fails after two minutes."""
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        from components.files import cannot_write

        raise cannot_write(home, error) from error


def prefect_is_configured() -> bool:
    """True if the user has said where Prefect is: by the environment, or by the active profile of
    `~/.prefect`.
    """
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
