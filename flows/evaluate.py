"""Stages 7 and 8: success on real validation games, and the promotion gate.

The main job never reads the test split. `evaluate_policy` and `evaluate_snapshots`, which studies use, read
it and say so in its ledger.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from prefect import flow, get_run_logger

from components.config import EvaluationConfig
from components.environments import make_adapter
from components.errors import DataError, EnvironmentFailure
from components.evaluation.intervals import Estimate, exact, paired_difference, proportion
from components.evaluation.promotion import Decision
from components.evaluation.promotion_batches import Match, decide_in_batches
from components.policy.policy import Policy
from components.policy.rollout import play_whole
from components.records import Task
from components.tracking.hashes import file_hash, text_hash
from components.tracking.mlflow_store import Tracker
from components.tracking.stages import StageResult
from components.trajectories.store import read_tasks
from flows.held_out_ledger import note_held_out_read
from flows.registration import register
from flows.synthetic_rl import SNAPSHOTS
from flows.threads import decoding
from flows.validation_games import validation_file, validation_games
from flows.workspace import OF_RUN, Outcome, Workspace

POLICIES = {"cloned": "clone", "dreamed": "synthetic_rl", "refined": "sim_to_real"}
CODE = ["flows.evaluate"]
ROWS = 64
PROMOTED_AT = "dreamgym.promoted_at"
"""Tag of a version: when it last became the champion, UTC, ISO 8601."""


@flow(name="evaluate", flow_run_name=OF_RUN, validate_parameters=False)
def evaluate_policies(run: Workspace) -> StageResult:
    """Each policy plays the same validation games once."""
    inputs = {name: run.results[stage].output_hashes["policy"] for name, stage in POLICIES.items()}
    inputs["tasks"] = file_hash(validation_file(run))
    config = (
        run.slice("environment", "evaluation")
        | {"max_new_tokens": run.config.synthetic_rl.max_new_tokens}
        | run.computing()
    )
    return run.stage("evaluate", lambda work: _evaluate(run, work), inputs=inputs, config=config, code=CODE)


@flow(name="evaluate-policy", flow_run_name=OF_RUN, validate_parameters=False)
def evaluate_policy(run: Workspace, stage: str) -> StageResult:
    """The policy that `stage` made plays the test games once: `evaluate/success_rate`, as a study compares
    its methods.
    """
    inputs = {
        "policy": run.results[stage].output_hashes["policy"],
        "tasks": file_hash(run.data.tasks("test")),
    }
    config = (
        run.slice("environment", "evaluation")
        | {"max_new_tokens": run.config.synthetic_rl.max_new_tokens}
        | run.computing()
    )
    return run.stage(
        "evaluate_policy",
        lambda work: _evaluate_one(run, work, stage),
        inputs=inputs,
        config=config,
        code=CODE,
    )


def _evaluate_one(run: Workspace, work: Path, stage: str) -> Outcome:
    settings = run.config.evaluation
    tasks = held_out_tasks(run.data.tasks("test"), settings.tasks)
    _note_read(run, f"study, {stage}")
    games = play_games(run, {"policy": run.results[stage].outputs["policy"]}, tasks)
    (work / "games.json").write_text(json.dumps(games.won["policy"], indent=1))
    return Outcome(
        {"games": "games.json"},
        success_rates(games.won["policy"], tasks, "evaluate", settings),
        costs=games.costs,
    )


@flow(name="evaluate-snapshots", flow_run_name=OF_RUN, validate_parameters=False)
def evaluate_snapshots(run: Workspace, stage: str) -> StageResult:
    """Each policy that `stage` kept on its way plays the test games as `evaluate_policy` has them played: its
    learning curve.
    """
    inputs = {
        "policies": run.results[stage].output_hashes[SNAPSHOTS],
        "tasks": file_hash(run.data.tasks("test")),
    }
    config = (
        run.slice("environment", "evaluation")
        | {"max_new_tokens": run.config.synthetic_rl.max_new_tokens}
        | run.computing()
    )
    return run.stage(
        f"snapshots_{stage}",
        lambda work: _evaluate_snapshots(run, work, stage),
        inputs=inputs,
        config=config,
        code=CODE,
    )


def _evaluate_snapshots(run: Workspace, work: Path, stage: str) -> Outcome:
    tasks = held_out_tasks(run.data.tasks("test"), run.config.evaluation.tasks)
    _note_read(run, f"study, learning curve of {stage}")
    policies = {
        directory.name: directory for directory in sorted(run.results[stage].outputs[SNAPSHOTS].iterdir())
    }
    games = play_games(run, policies, tasks)
    (work / "snapshots.json").write_text(json.dumps(games.won, indent=1))
    rates = [sum(won.values()) / len(tasks) for won in games.won.values()]
    return Outcome({"games": "snapshots.json"}, {}, {f"{stage}/held_out_success": rates}, costs=games.costs)


def _note_read(run: Workspace, job: str) -> None:
    note_held_out_read(
        run.root, run.data.tasks("test"), job, run.manifest.run_id, run.config.evaluation.tasks
    )


def success_rates(
    won: dict[str, bool], tasks: list[Task], prefix: str, settings: EvaluationConfig
) -> dict[str, Estimate]:
    """The success rate on all tasks and on those of each family; a task may have none."""
    rates = {f"{prefix}/success_rate": proportion(sum(won.values()), len(tasks), settings.confidence)}
    by_family = family_rates(won, tasks, settings.confidence)
    return rates | {f"{prefix}/success_rate/{family}": rate for family, rate in by_family.items()}


def family_rates(won: dict[str, bool], tasks: list[Task], confidence: float) -> dict[str, Estimate]:
    """Family -> success rate on its tasks. Args: won: task id -> success. Tasks without a family are left
    out.
    """
    rates: dict[str, Estimate] = {}
    for family in sorted({task.family for task in tasks if task.family}):
        of_family = [won[task.id] for task in tasks if task.family == family]
        rates[family] = proportion(sum(of_family), len(of_family), confidence)
    return rates


def _evaluate(run: Workspace, work: Path) -> Outcome:
    settings, games_file = run.config.evaluation, validation_file(run)
    tasks = read_tasks(games_file)
    shutil.copyfile(games_file, work / "tasks.parquet")
    played = play_games(
        run, {name: run.results[stage].outputs["policy"] for name, stage in POLICIES.items()}, tasks
    )
    outcome, won = Outcome({"tasks": "tasks.parquet"}, costs=played.costs), played.won
    for name in POLICIES:
        outcome.metrics |= success_rates(won[name], tasks, f"evaluate/{name}", settings)
        (work / f"{name}.json").write_text(json.dumps(won[name], indent=1))
        outcome.outputs[name] = f"{name}.json"
    for later, earlier in (("dreamed", "cloned"), ("refined", "dreamed")):
        games = [task.id for task in tasks]
        gain = paired_difference(
            [won[later][g] for g in games], [won[earlier][g] for g in games], settings.confidence
        )
        outcome.metrics[f"evaluate/{later}_minus_{earlier}"] = gain
    outcome.metrics["evaluate/validation_games"] = exact(len(tasks))
    outcome.metrics["evaluate/real_interactions"] = exact(played.steps)
    return outcome


def held_out_tasks(path: Path, count: int) -> list[Task]:
    """The first `count` tasks of the test split.

    Raises:
        DataError: there are fewer.
    """
    tasks = read_tasks(path)
    if len(tasks) < count:
        raise DataError(
            f"evaluation.tasks is {count}.",
            f"{path} lists {len(tasks)} held-out tasks.",
            "Lower evaluation.tasks.",
        )
    return tasks[:count]


@dataclass(frozen=True)
class Games:
    """Real games of policies: for each, task id -> won; the real steps of all, and how many episodes
    infrastructure made begin again.
    """

    won: dict[str, dict[str, bool]]
    steps: int
    replayed: int

    @property
    def costs(self) -> dict[str, int]:
        """What they cost, as a stage counts it."""
        return {"check_interactions": self.steps, "replayed_episodes": self.replayed}


def play_games(
    run: Workspace, policies: dict[str, Path], tasks: list[Task], max_new_tokens: int | None = None
) -> Games:
    """All tasks played by each policy. Args: max_new_tokens: of a reply; None: as in RL."""
    config, settings, length = (
        run.config,
        run.config.evaluation,
        max_new_tokens or run.config.synthetic_rl.max_new_tokens,
    )
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
                        policy,
                        world,
                        part,
                        max_steps=config.environment.max_steps,
                        temperature=settings.temperature,
                        seed=config.seed,
                    )
                    replayed += sum(rollout.tries - 1 for rollout in played)
                    won[name] |= {
                        task.id: rollout.trajectory.success
                        for task, rollout in zip(part, played, strict=True)
                    }
        return Games(won, world.interactions, replayed)
    finally:
        world.close()


@flow(name="promote", flow_run_name=OF_RUN, validate_parameters=False)
def promote_challenger(run: Workspace) -> Decision:
    """Register both models; the refined policy becomes the champion if it passes the gate on the same
    games.
    """
    with run.limited("promote"):
        decision = _promote(run)
    get_run_logger().info("promotion: %s", decision.reason)
    return decision


def _promote(run: Workspace) -> Decision:
    tracker = run.tracker
    refined, evaluated = run.results["sim_to_real"], run.results["evaluate"]
    tasks = read_tasks(evaluated.outputs["tasks"])
    version = tracker.alias("policy", "champion")
    champion, is_champion = _champion(run, version, refined.key)
    won = {"challenger": json.loads(evaluated.outputs["refined"].read_text())}
    won |= _played(run, {"champion": champion}, tasks) if champion else {}
    policies = {"challenger": refined.outputs["policy"]} | ({"champion": champion} if champion else {})
    decision, run.manifest.evaluation.batches = decide_in_batches(
        _match(won, tasks),
        lambda number: _further_games(run, policies, number),
        run.config.promotion,
        run.config.evaluation.confidence,
        agreement=_agreement(run),
        is_champion=is_champion,
    )
    tags = {
        "dreamgym.run_id": run.manifest.run_id,
        "dreamgym.stage_key": refined.key,
        "dreamgym.promoted": str(decision.promoted),
    }
    policy = register(run, "policy", "sim_to_real", "policy", tags)
    register(run, "experience-model", "experience_model", "model", tags)
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


def _agreement(run: Workspace) -> tuple[Estimate, float]:
    """How the dream stood to reality for the policy that it had trained, with the gate's bounds, and the
    floor of that.
    """
    found = run.results["check_dreamed"].metrics["fidelity/rollout_agreement_bounds/dreamed"]
    return Estimate.from_json(found), run.config.fidelity.min_rollout_agreement


def _champion(run: Workspace, version: str | None, key: str) -> tuple[Path | None, bool]:
    """The champion's files, None if there is none to compare with; and whether the challenger, of the stage
    `key`, is the champion.
    """
    if version is None:
        return None, False
    if run.tracker.version("policy", version)["tags"].get("dreamgym.stage_key") == key:
        return None, True
    return download_champion(run.tracker, run.root, version), False


def _played(run: Workspace, policies: dict[str, Path], tasks: list[Task]) -> dict[str, dict[str, bool]]:
    """Outcomes of games that the gate has played beside the stages; their real steps are check
    interactions.
    """
    games = play_games(run, policies, tasks)
    run.manifest.costs.check_interactions += games.steps
    run.manifest.costs.replayed_episodes += games.replayed
    return games.won


def _match(won: dict[str, dict[str, bool]], tasks: list[Task]) -> Match:
    return Match(won["challenger"], won.get("champion"), {task.id: task.family for task in tasks})


def _further_games(run: Workspace, policies: dict[str, Path], number: int) -> Match | None:
    """Batch `number` of the validation games, played by all of `policies`; None where the world has no
    further tasks.
    """
    log = get_run_logger()
    try:
        tasks = validation_games(run, number)
    except EnvironmentFailure as failure:
        log.warning("promotion: undecided, and there are no further validation games: %s", failure)
        return None
    log.info(
        "promotion: undecided; batch %d of at most %d is played", number + 1, run.config.promotion.max_batches
    )
    return _match(_played(run, policies, tasks), tasks)


def download_champion(tracker: Tracker, root: Path, version: str) -> Path:
    """The directory with the champion's files."""
    return tracker.download("policy", version, champion_directory(tracker, root, version))


def champion_directory(tracker: Tracker, root: Path, version: str) -> Path:
    """Where a version is downloaded to; each store and experiment counts versions from 1, so each has a place
    of its own.
    """
    place = text_hash(f"{tracker.uri} {tracker.model_name('policy')}")[:12]
    return root / ".dreamgym" / "champion" / f"{place}-{version}"
