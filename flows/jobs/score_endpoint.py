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
from components.environments import make_adapter
from components.environments.retry import play_whole
from components.errors import ConfigError
from components.evaluation.metrics.intervals import Estimate, exact_value, proportion
from components.language.endpoint.chat_completions import Chat
from components.policy.endpoint_player import EndpointEpisode, play_with_endpoint
from components.records import TEST, VALIDATION, Task
from components.tracking.held_out_ledger import note_held_out_read
from components.trajectories.dvc.snapshots import data_hash
from flows.dead_flow_runs import end_dead_runs
from flows.jobs.score import Score, Scores
from flows.run.pipeline_run import Run
from flows.run.policy_games import ROWS, family_rates, held_out_tasks
from flows.run.system_turns import policy_system
from flows.run.validation_games import validation_games

ENDPOINT = "endpoint"
"""Name of the policy that is the model at `endpoint`."""


def require_endpoint(config: Config) -> None:
    """Raise ConfigError if the config names no endpoint."""
    if not (config.endpoint.url and config.endpoint.model):
        raise ConfigError(
            "The policy is the model at an endpoint, and endpoint.url or endpoint.model is empty.",
            "Expected the address of an OpenAI-compatible server and the name of a model there.",
            "Add endpoint.url=http://localhost:8000/v1 endpoint.model=NAME.",
        )


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
    with closing(Chat(config.endpoint.model_copy(update={"json_mode": False}))) as chat:
        episodes, interactions = _play(config, chat, tasks)
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
    return Scores({ENDPOINT: score}, split, interactions, parent, readings)


def _play(config: Config, chat: Chat, tasks: list[Task]) -> tuple[list[EndpointEpisode], int]:
    """Return the episodes and the number of real steps."""
    with closing(make_adapter(config.environment).open()) as world:

        def play(places: list[int], _: int) -> tuple[dict[int, EndpointEpisode], dict[int, str]]:
            played: list[EndpointEpisode] = []
            for start in range(0, len(places), ROWS):
                batch = [tasks[place] for place in places[start : start + ROWS]]
                max_steps = config.environment.max_steps
                played += play_with_endpoint(
                    chat, world, batch, system=policy_system(config), max_steps=max_steps
                )
            by_place = dict(zip(places, played, strict=True))
            failures = {place: episode.failure for place, episode in by_place.items() if episode.failure}
            return {p: episode for p, episode in by_place.items() if p not in failures}, failures

        names = {place: task.id for place, task in enumerate(tasks)}
        expected = "An episode that was not played is neither a success nor a failure."
        episodes = list(play_whole(names, play, "episodes", expected).values())
        return episodes, world.interactions


def endpoint_metrics(episodes: list[EndpointEpisode], confidence: float) -> dict[str, Estimate]:
    """Return success, and how often replies held no action or were cut."""
    replies = sum(len(episode.thoughts) for episode in episodes)
    won = sum(episode.trajectory.success for episode in episodes)
    return {
        "evaluate/success_rate": proportion(won, len(episodes), confidence),
        "evaluate/malformed_replies": proportion(sum(e.malformed for e in episodes), max(1, replies)),
        "evaluate/cut_replies": proportion(sum(e.cut for e in episodes), max(1, replies)),
    }
