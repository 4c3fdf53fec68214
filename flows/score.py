"""Success of one policy on held-out real games: any directory of a policy, or the registered champion.

    dreamgym evaluate --policy champion evaluation.tasks=100

The games are those that every run is evaluated on, so choosing among policies by this number makes it worthless as a result.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prefect import flow, get_run_logger

from components.config import Config
from components.errors import DataError, TrackingError
from components.evaluation.intervals import Estimate, exact, proportion
from components.tracking.mlflow_store import Tracker
from components.trajectories.snapshots import data_hash
from flows.evaluate import download_champion, held_out_tasks, play_games
from flows.workspace import Workspace

CHAMPION = "champion"


@dataclass(frozen=True)
class Score:
    """Success rate in all and by family of tasks, the real steps it cost, and the MLflow run that holds it."""

    policy: Path
    success: Estimate
    families: dict[str, Estimate]
    interactions: int
    mlflow_run_id: str


@flow(name="score", validate_parameters=False)
def score_policy(config: Config, root: Path, policy: str) -> Score:
    """Find the policy, play each game once, record the result in MLflow.

    Raises:
        TrackingError: there is no champion.
        DataError: the directory holds no policy, or the tasks or data.dvc are missing.
    """
    version = data_hash(root)
    run = Workspace(config, root)
    directory = find_policy(run.tracker, root, policy)
    tasks = held_out_tasks(run.data.tasks("test"), config.evaluation.tasks)
    get_run_logger().info("%s plays %d held-out games", directory, len(tasks))
    games = play_games(run, {policy: directory}, tasks)
    won = games.won[policy]
    level = config.evaluation.confidence
    families: dict[str, Estimate] = {}
    for family in sorted({task.family for task in tasks}):
        of_family = [won[task.id] for task in tasks if task.family == family]
        families[family] = proportion(sum(of_family), len(of_family), level)
    success = proportion(sum(won.values()), len(tasks), level)
    tags = {"dreamgym.policy": str(directory), "dvc.hash": version}
    parent = run.tracker.start_run(f"evaluate {policy}", tags, config.model_dump(mode="json", include={"environment", "evaluation"}))
    metrics = {"evaluate/success_rate": success, "evaluate/real_interactions": exact(games.steps)}
    metrics["evaluate/replayed_episodes"] = exact(games.replayed)
    metrics |= {f"evaluate/success_rate/{family}": estimate for family, estimate in families.items()}
    run.tracker.log_estimates(parent, {name: dict(estimate.to_json()) for name, estimate in metrics.items()})
    run.tracker.finish(parent)
    return Score(directory, success, families, games.steps, parent)


def find_policy(tracker: Tracker, root: Path, policy: str) -> Path:
    """The directory of `policy`: a path, or `champion`, which is copied from the registry.

    Raises:
        TrackingError: there is no champion.
        DataError: there is no such directory, or it holds no weights.
    """
    if policy != CHAMPION:
        directory = Path(policy)
        if not any(directory.glob("*.safetensors")):
            found = f"{directory} holds no policy: {'no *.safetensors in it' if directory.is_dir() else 'there is no such directory'}."
            next_step = "Name one such as .dreamgym/stages/sim_to_real-*/policy, or type `dreamgym evaluate --policy champion`."
            raise DataError(found, next_step=next_step)
        return directory
    version = tracker.alias("policy", CHAMPION)
    if version is None:
        found = f"No version of {tracker.model_name('policy')} has the alias champion in {tracker.uri}."
        raise TrackingError(found, next_step="Type `dreamgym retrain` until a policy is promoted, or name a directory with --policy.")
    return download_champion(tracker, root, version)
