"""Success rate of a language model behind an endpoint on held-out real games: zero-shot, nothing trained.

    dreamgym evaluate --policy endpoint endpoint.url=http://localhost:8000/v1 endpoint.model=NAME

Its tokens are counted as the endpoint counts them. Games, system turn and observations are those of our own
policies in the format `chat`.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from prefect import flow, get_run_logger

from components.config import Config
from components.evaluation.metrics.intervals import Estimate, exact_value, proportion
from components.policy.endpoint_player import EndpointEpisode
from components.records import TEST, VALIDATION
from components.tracking.held_out_ledger import note_held_out_read
from components.trajectories.dvc.snapshots import data_hash
from flows.dead_flow_runs import end_dead_runs
from flows.jobs.score import Score, Scores
from flows.run.games.endpoint_games import ENDPOINT, open_chat, play_endpoint_games
from flows.run.games.policy_games import family_rates, held_out_tasks
from flows.run.games.validation_games import validation_games
from flows.run.pipeline_run import Run


@flow(name="score-endpoint", validate_parameters=False)
def score_endpoint(config: Config, root: Path, split: str = VALIDATION) -> Scores:
    """Play each held-out game once with the model at `endpoint`, and record the result in MLflow.

    Raises:
        EndpointError: the endpoint would refuse every request, or does not answer.
        EnvironmentFailure: an episode broke in each of several tries (`retry.TRIES`).
        DataError: the tasks or data.dvc are missing.
    """
    version = data_hash(root)
    run = Run(config, root)
    end_dead_runs(root.resolve(), run.tracker)
    test = run.data.tasks(TEST)
    tasks = held_out_tasks(test, config.evaluation.tasks) if split == TEST else validation_games(run)
    name = config.endpoint.model
    readings = note_held_out_read(root, test, "evaluate", name, len(tasks)) if split == TEST else 0
    get_run_logger().info("%s plays %d %s games", name, len(tasks), split)
    with closing(open_chat(config)) as chat:
        episodes, interactions = play_endpoint_games(config, chat, tasks)
        metrics = endpoint_metrics(episodes, config.evaluation.confidence)
        costs = {f"evaluate/{key}": exact_value(value) for key, value in chat.usage.costs().items()}
    won = {episode.trajectory.task.id: episode.trajectory.success for episode in episodes}
    metrics |= costs | {
        "evaluate/real_interactions": exact_value(interactions),
        f"evaluate/{split}_games": exact_value(len(tasks)),
    }
    families = family_rates(won, tasks, config.evaluation.confidence)
    metrics |= {f"evaluate/success_rate/{family}": rate for family, rate in families.items()}
    tags = {"dreamgym.policy": name, "dvc.hash": version, "dreamgym.evaluated_on": f"{split} games"}
    sections = {"environment", "evaluation", "endpoint"}
    parent = run.tracker.start_run(f"evaluate {name}", tags, config.model_dump(mode="json", include=sections))
    run.tracker.log_estimates(parent, {key: dict(value.to_json()) for key, value in metrics.items()})
    run.tracker.finish(parent)
    score = Score(Path(name), metrics["evaluate/success_rate"], families)
    shares = {f"evaluate/{key}": metrics[f"evaluate/{key}"] for key in ("malformed_replies", "cut_replies")}
    endpoint = {key.removeprefix("evaluate/"): value for key, value in (costs | shares).items()}
    return Scores({ENDPOINT: score}, split, interactions, parent, readings, endpoint)


def endpoint_metrics(episodes: list[EndpointEpisode], confidence: float) -> dict[str, Estimate]:
    """Return success, and how often replies held no action or were cut."""
    replies = sum(len(episode.thoughts) for episode in episodes)
    won = sum(episode.trajectory.success for episode in episodes)
    return {
        "evaluate/success_rate": proportion(won, len(episodes), confidence),
        "evaluate/malformed_replies": proportion(sum(e.malformed for e in episodes), max(1, replies)),
        "evaluate/cut_replies": proportion(sum(e.cut for e in episodes), max(1, replies)),
    }
