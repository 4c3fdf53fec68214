"""What a schedule runs: flows whose parameters are plain values, so that a deployment can carry them (see prefect.yaml).

    prefect work-pool create dreamgym --type process
    prefect --no-prompt deploy --all
    prefect worker start --pool dreamgym
"""

from __future__ import annotations

from pathlib import Path

from flows.settings import prepare

prepare(Path.cwd())

from prefect import flow, get_run_logger  # noqa: E402  (the settings above are read at this import)

from components.config import load_config  # noqa: E402


@flow(name="retrain-from-file")
def retrain_from_file(config_file: str = "configs/quick.yaml", overrides: list[str] | None = None) -> str:
    """Retrain with a config file of the repository and `key=value` overrides; the run's id.

    A refused promotion is a normal outcome: the flow completes. Any other failure fails it.
    """
    from flows.preflight import check_settings, ensure_data, require_repository
    from flows.retrain import retrain

    root, log = Path.cwd(), get_run_logger()
    config = load_config(root / config_file, overrides or [])
    require_repository(root)
    ensure_data(root, log.info, backbone=not config.backbone.path)
    check_settings(root, config, Path(config_file))
    finished = retrain(config, root)
    log.info("run %s: %s", finished.directory.name, finished.decision.reason)
    return finished.directory.name
