"""Stages 7 and 8: success on held-out real games, and the promotion gate."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from prefect import flow, get_run_logger

from components.config import EvaluationConfig
from components.environments import make_adapter
from components.errors import DataError
from components.evaluation.intervals import Estimate, exact, paired_difference, proportion
from components.evaluation.promotion import Decision, decide
from components.policy.policy import Policy
from components.policy.rollout import play_whole
from components.records import Task
from components.tracking.hashes import file_hash, text_hash
from components.tracking.mlflow_store import Tracker
from components.tracking.stages import StageResult
from components.trajectories.store import read_tasks
from flows.registration import register
from flows.synthetic_rl import SNAPSHOTS
from flows.threads import decoding
from flows.workspace import OF_RUN, Outcome, Workspace

POLICIES = {"cloned": "clone", "dreamed": "synthetic_rl", "refined": "sim_to_real"}
CODE = ["flows.evaluate"]
ROWS = 64
PROMOTED_AT = "dreamgym.promoted_at"
"""Tag of a version: when it last became the champion, UTC, ISO 8601."""


@flow(name="evaluate", flow_run_name=OF_RUN, validate_parameters=False)
def evaluate_policies(run: Workspace) -> StageResult:
    """Each policy plays the same held-out real games once."""
    inputs = {name: run.results[stage].output_hashes["policy"] for name, stage in POLICIES.items()}
    inputs["tasks"] = file_hash(run.data.tasks("test"))
    config = run.slice("environment", "evaluation") | {"max_new_tokens": run.config.synthetic_rl.max_new_tokens} | run.computing()
    return run.stage("evaluate", lambda work: _evaluate(run, work), inputs=inputs, config=config, code=CODE)


@flow(name="evaluate-policy", flow_run_name=OF_RUN, validate_parameters=False)
def evaluate_policy(run: Workspace, stage: str) -> StageResult:
    """The policy that `stage` made plays the held-out real games once: `evaluate/success_rate`, as a study compares its methods."""
    inputs = {"policy": run.results[stage].output_hashes["policy"], "tasks": file_hash(run.data.tasks("test"))}
    config = run.slice("environment", "evaluation") | {"max_new_tokens": run.config.synthetic_rl.max_new_tokens} | run.computing()
    return run.stage("evaluate_policy", lambda work: _evaluate_one(run, work, stage), inputs=inputs, config=config, code=CODE)


def _evaluate_one(run: Workspace, work: Path, stage: str) -> Outcome:
    settings = run.config.evaluation
    tasks = held_out_tasks(run.data.tasks("test"), settings.tasks)
    games = play_games(run, {"policy": run.results[stage].outputs["policy"]}, tasks)
    (work / "games.json").write_text(json.dumps(games.won["policy"], indent=1))
    return Outcome({"games": "games.json"}, _success(games.won["policy"], tasks, "evaluate", settings), costs=games.costs)


@flow(name="evaluate-snapshots", flow_run_name=OF_RUN, validate_parameters=False)
def evaluate_snapshots(run: Workspace, stage: str) -> StageResult:
    """Each policy that `stage` kept on its way plays the held-out games as `evaluate_policy` has them played: its learning curve."""
    inputs = {"policies": run.results[stage].output_hashes[SNAPSHOTS], "tasks": file_hash(run.data.tasks("test"))}
    config = run.slice("environment", "evaluation") | {"max_new_tokens": run.config.synthetic_rl.max_new_tokens} | run.computing()
    return run.stage(f"snapshots_{stage}", lambda work: _evaluate_snapshots(run, work, stage), inputs=inputs, config=config, code=CODE)


def _evaluate_snapshots(run: Workspace, work: Path, stage: str) -> Outcome:
    tasks = held_out_tasks(run.data.tasks("test"), run.config.evaluation.tasks)
    policies = {directory.name: directory for directory in sorted(run.results[stage].outputs[SNAPSHOTS].iterdir())}
    games = play_games(run, policies, tasks)
    (work / "snapshots.json").write_text(json.dumps(games.won, indent=1))
    rates = [sum(won.values()) / len(tasks) for won in games.won.values()]
    return Outcome({"games": "snapshots.json"}, {}, {f"{stage}/held_out_success": rates}, costs=games.costs)


def _success(won: dict[str, bool], tasks: list[Task], prefix: str, settings: EvaluationConfig) -> dict[str, Estimate]:
    """The success rate on all tasks and on those of each family."""
    rates = {f"{prefix}/success_rate": proportion(sum(won.values()), len(tasks), settings.confidence)}
    for family in sorted({task.family for task in tasks}):
        of_family = [won[task.id] for task in tasks if task.family == family]
        rates[f"{prefix}/success_rate/{family}"] = proportion(sum(of_family), len(of_family), settings.confidence)
    return rates


def _evaluate(run: Workspace, work: Path) -> Outcome:
    settings = run.config.evaluation
    tasks = held_out_tasks(run.data.tasks("test"), settings.tasks)
    played = play_games(run, {name: run.results[stage].outputs["policy"] for name, stage in POLICIES.items()}, tasks)
    outcome, won = Outcome({}, costs=played.costs), played.won
    for name in POLICIES:
        outcome.metrics |= _success(won[name], tasks, f"evaluate/{name}", settings)
        (work / f"{name}.json").write_text(json.dumps(won[name], indent=1))
        outcome.outputs[name] = f"{name}.json"
    for later, earlier in (("dreamed", "cloned"), ("refined", "dreamed")):
        games = [task.id for task in tasks]
        gain = paired_difference([won[later][g] for g in games], [won[earlier][g] for g in games], settings.confidence)
        outcome.metrics[f"evaluate/{later}_minus_{earlier}"] = gain
    outcome.metrics["evaluate/real_interactions"] = exact(played.steps)
    return outcome


def held_out_tasks(path: Path, count: int) -> list[Task]:
    """The first `count` held-out tasks.

    Raises:
        DataError: there are fewer.
    """
    tasks = read_tasks(path)
    if len(tasks) < count:
        raise DataError(f"evaluation.tasks is {count}.", f"{path} lists {len(tasks)} held-out tasks.", "Lower evaluation.tasks.")
    return tasks[:count]


@dataclass(frozen=True)
class Games:
    """Real games of policies: for each, task id -> won; the real steps of all, and how many episodes infrastructure made begin again."""

    won: dict[str, dict[str, bool]]
    steps: int
    replayed: int

    @property
    def costs(self) -> dict[str, int]:
        """What they cost, as a stage counts it."""
        return {"check_interactions": self.steps, "replayed_episodes": self.replayed}


def play_games(run: Workspace, policies: dict[str, Path], tasks: list[Task], max_new_tokens: int | None = None) -> Games:
    """All tasks played by each policy. Args: max_new_tokens: of a reply; None: as in RL."""
    config, settings, length = run.config, run.config.evaluation, max_new_tokens or run.config.synthetic_rl.max_new_tokens
    world = make_adapter(config.environment).open()
    won: dict[str, dict[str, bool]] = {name: {} for name in policies}
    replayed = 0
    try:
        with decoding():
            for name, directory in policies.items():
                policy = Policy.load(directory, max_new_tokens=length, compute=run.compute)
                for start in range(0, len(tasks), ROWS):
                    part = tasks[start : start + ROWS]
                    played = play_whole(
                        policy, world, part, max_steps=config.environment.max_steps, temperature=settings.temperature, seed=config.seed
                    )
                    replayed += sum(rollout.tries - 1 for rollout in played)
                    won[name] |= {task.id: rollout.trajectory.success for task, rollout in zip(part, played, strict=True)}
        return Games(won, world.interactions, replayed)
    finally:
        world.close()


@flow(name="promote", flow_run_name=OF_RUN, validate_parameters=False)
def promote_challenger(run: Workspace) -> Decision:
    """Register both models; the refined policy becomes the champion if it passes the gate on the same games."""
    with run.limited("promote"):
        decision = _promote(run)
    get_run_logger().info("promotion: %s", decision.reason)
    return decision


def _promote(run: Workspace) -> Decision:
    tracker = run.tracker
    refined, evaluated = run.results["sim_to_real"], run.results["evaluate"]
    challenger = json.loads(evaluated.outputs["refined"].read_text())
    version = tracker.alias("policy", "champion")
    champion = _champion_games(run, version, challenger, refined.key)
    families = {task.id: task.family for task in read_tasks(run.data.tasks("test"))}
    agreement = _agreement(run)
    confidence = run.config.evaluation.confidence
    decision = decide(challenger, champion, run.config.promotion, confidence, families=families, agreement=agreement)
    tags = {"dreamgym.run_id": run.manifest.run_id, "dreamgym.stage_key": refined.key, "dreamgym.promoted": str(decision.promoted)}
    policy = register(run, "policy", "sim_to_real", "policy", tags)
    register(run, "experience-model", "experience_model", "model", tags)
    if decision.promoted:
        tracker.set_alias("policy", "champion", policy.version)
        tracker.tag_version("policy", policy.version, {PROMOTED_AT: datetime.now(UTC).isoformat(timespec="microseconds")})
        policy.alias = "champion"
    run.manifest.decision = decision.to_json()
    tracker.set_tags(run.parent, {"dreamgym.decision": "promoted" if decision.promoted else "refused", "dreamgym.reason": decision.reason})
    return decision


def _agreement(run: Workspace) -> tuple[Estimate, float]:
    """How the dream stood to reality for the policy that it had trained, and the floor of that."""
    found = run.results["check_dreamed"].metrics["fidelity/rollout_agreement/dreamed"]
    return Estimate.from_json(found), run.config.fidelity.min_rollout_agreement


def _champion_games(run: Workspace, version: str | None, challenger: dict[str, bool], key: str) -> dict[str, bool] | None:
    """How the champion plays the same games: None if there is no champion yet, the challenger's own games if it is the champion."""
    if version is None:
        return None
    if run.tracker.version("policy", version)["tags"].get("dreamgym.stage_key") == key:
        return challenger
    directory = download_champion(run.tracker, run.root, version)
    tasks = [task for task in read_tasks(run.data.tasks("test")) if task.id in challenger]
    games = play_games(run, {"champion": directory}, tasks)
    run.manifest.costs.check_interactions += games.steps
    run.manifest.costs.replayed_episodes += games.replayed
    return games.won["champion"]


def download_champion(tracker: Tracker, root: Path, version: str) -> Path:
    """The directory with the champion's files."""
    return tracker.download("policy", version, champion_directory(tracker, root, version))


def champion_directory(tracker: Tracker, root: Path, version: str) -> Path:
    """Where a version is downloaded to; each store and experiment counts versions from 1, so each has a place of its own."""
    place = text_hash(f"{tracker.uri} {tracker.model_name('policy')}")[:12]
    return root / ".dreamgym" / "champion" / f"{place}-{version}"
