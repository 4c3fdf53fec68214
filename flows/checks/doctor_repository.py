"""Checks of `dreamgym doctor` on the repository and the stores: git, DVC, data, backbone, MLflow, Prefect."""

from __future__ import annotations

from pathlib import Path

from components.config import Config
from components.errors import DreamGymError
from flows.checks.check_result import CheckResult, doubt, failed_check, ok, wrong
from flows.checks.config_checks import require_backbone
from flows.checks.preflight import has_identity, missing_data, not_in_snapshot, require_repository


def check_git(_config: Config, root: Path) -> CheckResult:
    """Check that `root` is a git repository with a commit, and that git has an identity."""
    identity_is_set = has_identity(root)  # asked first: require_repository sets one
    require_repository(root)
    if not identity_is_set:
        return doubt(
            "git has no user.name and user.email: the commits of runs will have the author dreamgym.",
            "Expected your name and address.",
            "Type: git config --global user.name NAME && git config --global user.email ADDRESS",
        )
    return ok(f"{root} is a git repository with a commit.")


def check_files(_config: Config, root: Path) -> CheckResult:
    """Check that a run can write its directories and temporary files, and that DVC and git are not locked.

    data.dvc must have no merge conflict.
    """
    from flows.checks.machine import OUTPUT_DIRECTORIES, require_machine

    require_machine(root)
    directories = ", ".join(OUTPUT_DIRECTORIES)
    return ok(f"{directories} and temporary files can be written. No lock file is left over.")


def check_remote(_config: Config, root: Path) -> CheckResult:
    """Check that DVC has a remote that new versions of the data are pushed to."""
    from components.trajectories.dvc.dvc_cache import dvc_config, remote_to_push_to
    from components.trajectories.dvc.repository_state import hidden_default_remote

    remote = remote_to_push_to(root)
    if setting := hidden_default_remote(root):
        return doubt(
            f"{setting} sets core.remote = local, as earlier versions of this project wrote it.",
            "Expected no such line: it hides the default that `dvc remote add -d NAME URL` sets.",
            "Type: dvc config --local --unset core.remote",
        )
    if remote not in dvc_config(root).get("remote", {}):
        return doubt(
            f"DVC knows no remote {remote}, so new versions of data/ stay in the cache of this clone.",
            "Expected a remote to push to.",
            "Type `git checkout .dvc/config`, or: dvc remote add -d NAME URL",
        )
    return ok(f"New versions of data/ are pushed to the remote {remote}.")


def check_data(config: Config, root: Path) -> CheckResult:
    """Check that data.dvc exists, that its version is in data/, and that every file has its hash."""
    from components.trajectories.dvc.snapshots import data_hash, data_parts, drift, missing_files, verify

    data_parts(root)  # an unreadable data.dvc is reported first
    missing = missing_data(root, config, backbone=not config.backbone.path)
    if missing and not missing_files(root):
        return failed_check(not_in_snapshot(missing))
    if missing:
        return wrong(
            f"Missing: {', '.join(missing)}.",
            "Expected all files of the version that data.dvc names.",
            "Type: dreamgym data pull (dreamgym retrain and dreamgym collect pull by themselves)",
        )
    differences = drift(root)
    if (differences.changed or differences.added) and not differences.unsaved:
        return doubt(
            "data/ holds another version than the one that data.dvc names. Both are in DVC's cache.",
            "Expected the version that data.dvc names.",
            "Type `dreamgym data pull`, or nothing: the next run brings data/ to the version of data.dvc.",
        )
    try:
        verify(root)
    except DreamGymError as error:
        return failed_check(error)
    return ok(f"data/ is the version {data_hash(root)}. Every file has its hash.")


def check_backbone(config: Config, root: Path) -> CheckResult:
    """Check that every stage can use the models that both sides start from, and that episodes fit in them."""
    from components.trajectories.store import DataLayout
    from flows.checks.model_checks import check_models

    require_backbone(config)
    models = check_models(root, config)
    if models is None:
        missing = DataLayout.of(root, config.environment.name).backbone
        return wrong(
            f"There is no directory {missing}.",
            "Expected the backbone that both models start from.",
            "Type `dreamgym data pull`, make one with `dreamgym pretrain`, or set backbone.path=DIRECTORY.",
        )
    summaries = [models.policy.summary + _engine_text(config, models.policy.weights)]
    if config.experience_model.path:
        experience = models.experience
        summaries.append(f"experience model: {experience.summary}{_engine_text(config, experience.weights)}")
    if models.doubts:
        return doubt(
            f"{'; '.join([*summaries, *models.doubts])}.",
            "Expected whole dreams to fit.",
            "Lower environment.max_steps, or name a model that reads more tokens (backbone.path, "
            "experience_model.path).",
        )
    return ok(f"{'; '.join(summaries)}.")


def _engine_text(config: Config, weights: int) -> str:
    """The engine of a model of this many weights and the reason, in words."""
    from components.language.compute import compute_of
    from components.language.engines.open_engine import choose_engine

    name, reason = choose_engine(weights, compute_of(config))
    return f", generates with {name}" + ("" if reason == "engine is set" else f" ({reason})")


def check_mlflow(config: Config, root: Path) -> CheckResult:
    """Check that the MLflow store of runs and models opens."""
    from components.tracking.mlflow_adapter.mlflow_uri import without_password
    from components.tracking.mlflow_adapter.tracker import Tracker

    return ok(f"The store of runs and models opens: {without_password(Tracker(config.tracking, root).uri)}")


def check_prefect(_config: Config, _root: Path) -> CheckResult:
    """Check that a Prefect server answers: the configured one, or an ephemeral one started for the check."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        failure = client.api_healthcheck()
        if failure is not None:
            return wrong(
                f"The Prefect server at {client.api_url} does not answer: {failure}.",
                "Expected an answer.",
                "Start that server, or type `unset PREFECT_API_URL`: a run then starts a server of its own.",
            )
        return ok(f"The server at {client.api_url} answers ({client.server_type.value}).")
