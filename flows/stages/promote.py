"""Step 11: promote the refined policy if it passes the gate against the champion."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from prefect import flow, get_run_logger

from components.errors import EnvironmentFailure
from components.evaluation.metrics.intervals import Estimate
from components.evaluation.promotion.gate import Decision
from components.evaluation.promotion.promotion_batches import PlayedGames, decide_in_batches
from components.records import Task
from components.tracking.mlflow_adapter.tracker import Tracker
from components.tracking.stage_store.hashes import text_hash
from components.trajectories.store import read_tasks
from flows.run.games.policy_games import play_games
from flows.run.games.validation_games import validation_games
from flows.run.models.model_registration import register, register_experience_model
from flows.run.pipeline_run import Run
from flows.run.stage import RUN_NAME

PROMOTED_AT = "dreamgym.promoted_at"
"""Tag of a version: when it last became the champion, UTC, ISO 8601."""


@flow(name="promote", flow_run_name=RUN_NAME, validate_parameters=False)
def promote_challenger(run: Run) -> Decision:
    """Register both models; make the refined policy the champion if it passes the gate on the same games."""
    with run.limited("promote"):
        decision = _promote(run)
    get_run_logger().info("promotion: %s", decision.reason)
    return decision


def _promote(run: Run) -> Decision:
    tracker = run.tracker
    refined = run.results["sim_to_real"]
    evaluated = run.results["evaluate"]
    tasks = read_tasks(evaluated.outputs["tasks"])
    version = tracker.alias("policy", "champion")
    champion, is_champion = _champion(run, version, refined.key)
    won = {"challenger": json.loads(evaluated.outputs["refined"].read_text())}
    policies = {"challenger": refined.outputs["policy"]}
    if champion:
        policies["champion"] = champion
        won |= _play_for_gate(run, {"champion": champion}, tasks)
    decision, run.manifest.evaluation.batches = decide_in_batches(
        _match(won, tasks),
        lambda number: _further_games(run, policies, number),
        run.config.promotion,
        run.config.evaluation.confidence,
        agreement=_agreement_and_minimum(run),
        is_champion=is_champion,
    )
    tags = {
        "dreamgym.run_id": run.manifest.run_id,
        "dreamgym.stage_key": refined.key,
        "dreamgym.promoted": str(decision.promoted),
    }
    policy = register(run, "policy", "sim_to_real", "policy", tags)
    register_experience_model(run, tags)
    if decision.promoted:
        tracker.set_alias("policy", "champion", policy.version)
        tracker.tag_version(
            "policy", policy.version, {PROMOTED_AT: datetime.now(UTC).isoformat(timespec="microseconds")}
        )
        policy.alias = "champion"
    run.manifest.decision = decision.to_json()
    tracker.set_tags(
        run.parent,
        {
            "dreamgym.decision": "promoted" if decision.promoted else "refused",
            "dreamgym.reason": decision.reason,
        },
    )
    return decision


def _agreement_and_minimum(run: Run) -> tuple[Estimate, float]:
    """Return the trained policy's rollout agreement, with the gate's bounds, and the required minimum."""
    agreement = run.results["check_dreamed"].metrics["fidelity/rollout_agreement_bounds/dreamed"]
    return Estimate.from_json(agreement), run.config.fidelity.min_rollout_agreement


def _champion(run: Run, version: str | None, key: str) -> tuple[Path | None, bool]:
    """Return the directory of the champion to compare with, and whether the challenger is the champion.

    Args:
        version: of the champion; None: there is none.
        key: of the challenger's stage.
    """
    if version is None:
        return None, False
    if run.tracker.version("policy", version)["tags"].get("dreamgym.stage_key") == key:
        return None, True
    return download_champion(run.tracker, run.root, version), False


def _play_for_gate(run: Run, policies: dict[str, Path], tasks: list[Task]) -> dict[str, dict[str, bool]]:
    """Play games for the gate; return policy -> task id -> success. The steps count as check interactions."""
    games = play_games(run, policies, tasks)
    run.manifest.costs.check_interactions += games.steps
    run.manifest.costs.replayed_episodes += games.restarts
    return games.won


def _match(won: dict[str, dict[str, bool]], tasks: list[Task]) -> PlayedGames:
    return PlayedGames(won["challenger"], won.get("champion"), {task.id: task.family for task in tasks})


def _further_games(run: Run, policies: dict[str, Path], number: int) -> PlayedGames | None:
    """Play batch `number` of the validation games with all `policies`; None if there are no further tasks."""
    log = get_run_logger()
    try:
        tasks = validation_games(run, number)
    except EnvironmentFailure as failure:
        log.warning("promotion: undecided, and there are no further validation games: %s", failure)
        return None
    log.info(
        "promotion: undecided; batch %d of at most %d is played", number + 1, run.config.promotion.max_batches
    )
    return _match(_play_for_gate(run, policies, tasks), tasks)


def download_champion(tracker: Tracker, root: Path, version: str) -> Path:
    """Download a version from MLflow and return its directory."""
    return tracker.download("policy", version, champion_directory(tracker, root, version))


def champion_directory(tracker: Tracker, root: Path, version: str) -> Path:
    """Return the directory that a version is downloaded to.

    Each store and experiment counts versions from 1, so each has a directory of its own.
    """
    store = text_hash(f"{tracker.uri} {tracker.model_name('policy')}")[:12]
    return root / ".dreamgym" / "champion" / f"{store}-{version}"
