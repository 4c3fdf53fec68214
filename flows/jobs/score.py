"""Success rates of policies on held-out real games: a run's three, any directory, or the champion.

    dreamgym evaluate --policy champion evaluation.tasks=100
    dreamgym evaluate --run latest --split test

The test split is read on demand only, and each reading is recorded in its ledger: a result on it is biased
once policies are chosen by it. Validation games are those that a run with the same config is evaluated on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from prefect import flow, get_run_logger

from components.config import Config
from components.errors import DataError, TrackingError
from components.evaluation.metrics.intervals import Estimate, exact_value, proportion
from components.records import TEST, VALIDATION, Task
from components.tracking.held_out_ledger import note_held_out_read
from components.tracking.manifest import Manifest
from components.tracking.mlflow_adapter.tracker import Tracker
from components.tracking.runs import find_run
from components.trajectories.dvc.snapshots import data_hash
from flows.dead_flow_runs import end_dead_runs
from flows.run.games.policy_games import Games, family_rates, held_out_tasks, play_games
from flows.run.games.validation_games import validation_games
from flows.run.pipeline_run import Run
from flows.stages.evaluate import POLICIES
from flows.stages.promote import download_champion

CHAMPION = "champion"


@dataclass(frozen=True)
class Score:
    """Success rate of a policy on all games and on those of each task family; `policy` is its directory."""

    policy: Path
    success: Estimate
    families: dict[str, Estimate]


@dataclass(frozen=True)
class Scores:
    """The result of an evaluation.

    Args:
        policies: name -> score.
        interactions: real steps of all games.
        readings: how often the test games have been read so far; 0 for validation games.
        endpoint: of a model behind an endpoint: its requests and tokens, and shares of replies without an
            action (`malformed_replies`) and cut at the limit (`cut_replies`).
    """

    policies: dict[str, Score]
    split: str
    interactions: int
    mlflow_run_id: str
    readings: int
    endpoint: dict[str, Estimate] = field(default_factory=dict)


@flow(name="score", validate_parameters=False)
def score_policies(
    config: Config, root: Path, policy: str, split: str = VALIDATION, of_run: str = ""
) -> Scores:
    """Play each held-out game once with each policy, and record the result in MLflow.

    Args:
        policy: `champion` or a directory.
        of_run: id of a run, whose three policies play instead; empty: none.

    Raises:
        TrackingError: there is no champion.
        DataError: the directory holds no policy, the run's stages are gone, or the tasks or data.dvc are
            missing.
    """
    version = data_hash(root)
    run = Run(config, root)
    end_dead_runs(root.resolve(), run.tracker)
    directories = policies_of(run, of_run) if of_run else {policy: find_policy(run.tracker, root, policy)}
    name = f"run {of_run}" if of_run else policy
    test = run.data.tasks(TEST)
    tasks = held_out_tasks(test, config.evaluation.tasks) if split == TEST else validation_games(run)
    readings = note_held_out_read(root, test, "evaluate", name, len(tasks)) if split == TEST else 0
    get_run_logger().info("%s plays %d %s games", name, len(tasks), split)
    games = play_games(run, directories, tasks)
    scores = {
        policy_name: score_of(directories[policy_name], won, tasks, config.evaluation.confidence)
        for policy_name, won in games.won.items()
    }
    metrics = _score_metrics(scores, games, split, len(tasks), by_policy=bool(of_run))
    tags = {
        "dreamgym.policy": ", ".join(map(str, directories.values())),
        "dvc.hash": version,
        "dreamgym.evaluated_on": f"{split} games",
    }
    parent = run.tracker.start_run(
        f"evaluate {name}", tags, config.model_dump(mode="json", include={"environment", "evaluation"})
    )
    run.tracker.log_estimates(parent, {name: dict(estimate.to_json()) for name, estimate in metrics.items()})
    run.tracker.finish(parent)
    return Scores(scores, split, games.steps, parent, readings)


def _score_metrics(
    scores: dict[str, Score], games: Games, split: str, game_count: int, *, by_policy: bool
) -> dict[str, Estimate]:
    """Return the metrics of an evaluation; with `by_policy` their names contain that of the policy."""
    metrics = {
        "evaluate/real_interactions": exact_value(games.steps),
        "evaluate/replayed_episodes": exact_value(games.restarts),
        f"evaluate/{split}_games": exact_value(game_count),
    }
    for policy, score in scores.items():
        prefix = f"evaluate/{policy}" if by_policy else "evaluate"
        metrics[f"{prefix}/success_rate"] = score.success
        metrics |= {f"{prefix}/success_rate/{family}": rate for family, rate in score.families.items()}
    return metrics


def score_of(directory: Path, won: dict[str, bool], tasks: list[Task], confidence: float) -> Score:
    """Return the success of the policy in `directory` on all tasks and by family.

    Args:
        won: task id -> success.
    """
    success = proportion(sum(won.values()), len(tasks), confidence)
    return Score(directory, success, family_rates(won, tasks, confidence))


def policies_of(run: Run, name: str) -> dict[str, Path]:
    """Return the directories of the cloned, dreamed and refined policy of a finished run.

    A run on logs alone has no refined one, and its policies may play in any world.

    Raises:
        DataError: there is no such run, it is of another environment, or a stage of it is missing.
    """
    manifest = Manifest.load(find_run(run.root / "runs", name))
    environment = manifest.config.get("environment", {}).get("name", "alfworld")
    keys = {stage.name: stage.key for stage in manifest.stages}
    is_on_logs = "evaluate_on_logs" in keys
    if environment != run.config.environment.name and not is_on_logs:
        problem = (
            f"Run {manifest.run_id} is of the environment {environment}, this config of "
            f"{run.config.environment.name}."
        )
        raise DataError(
            problem,
            "Expected the same one.",
            f"Give the run's config: --config runs/{manifest.run_id}/config.json",
        )
    policies: dict[str, Path] = {}
    for policy, stage in POLICIES.items():
        if is_on_logs and stage not in keys:
            continue
        result = run.store.find(stage, keys[stage]) if stage in keys else None
        if result is None:
            problem = (
                f"The stage {stage} of run {manifest.run_id} is not in {run.root / '.dreamgym' / 'stages'}."
            )
            raise DataError(
                problem,
                "Expected its policy.",
                f"Repeat the run: dreamgym reproduce {manifest.run_id}, or name another run.",
            )
        policies[policy] = result.outputs["policy"]
    return policies


def find_policy(tracker: Tracker, root: Path, policy: str) -> Path:
    """Return the directory of `policy`: a path, or `champion`, which is downloaded from MLflow.

    Raises:
        TrackingError: there is no champion.
        DataError: there is no such directory, or it holds no weights.
    """
    if policy != CHAMPION:
        directory = Path(policy)
        if not any(directory.glob("*.safetensors")):
            problem = (
                f"{directory} holds no policy: "
                f"{'no *.safetensors in it' if directory.is_dir() else 'there is no such directory'}."
            )
            next_step = (
                "Name one such as .dreamgym/stages/sim_to_real-*/policy, or type `dreamgym evaluate "
                "--policy champion`."
            )
            raise DataError(problem, next_step=next_step)
        return directory
    version = tracker.alias("policy", CHAMPION)
    if version is None:
        problem = f"No version of {tracker.model_name('policy')} has the alias champion in {tracker.uri}."
        raise TrackingError(
            problem,
            next_step="Type `dreamgym retrain` until a policy is promoted, or name a directory with "
            "--policy.",
        )
    return download_champion(tracker, root, version)
