"""Plays real games with the language model behind an endpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

from components.config import Config
from components.environments.protocol import concurrent_rows
from components.environments.retry import play_whole
from components.errors import ConfigError
from components.language.endpoint.chat_completions import Chat
from components.policy.endpoint_player import EndpointEpisode, play_with_endpoint
from components.records import Task
from flows.run.games.policy_games import ROWS
from flows.run.live_adapter import live_adapter
from flows.run.training.system_turns import policy_system

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


def open_chat(config: Config) -> Chat:
    """Open the endpoint for free text; the caller closes it."""
    return Chat(config.endpoint.model_copy(update={"json_mode": False}))


def play_endpoint_games(
    config: Config,
    chat: Chat,
    tasks: Sequence[Task],
    on_played: Callable[[Sequence[EndpointEpisode]], None] | None = None,
) -> tuple[list[EndpointEpisode], int]:
    """Play each task once in the real environment.

    Args:
        on_played: called after each batch with its episodes, the broken ones included.

    Returns:
        (one episode per task, in order; number of real steps)

    Raises:
        EndpointError: the endpoint would refuse every request, or does not answer.
        EnvironmentFailure: an episode broke in each of several tries (`retry.TRIES`).
    """
    system = policy_system(config)
    with closing(live_adapter(config).open()) as world:
        rows = concurrent_rows(world, ROWS)

        def play(places: list[int], _: int) -> tuple[dict[int, EndpointEpisode], dict[int, str]]:
            played: list[EndpointEpisode] = []
            for start in range(0, len(places), rows):
                batch = [tasks[place] for place in places[start : start + rows]]
                episodes = play_with_endpoint(
                    chat, world, batch, system=system, max_steps=config.environment.max_steps
                )
                played += episodes
                if on_played is not None:
                    on_played(episodes)
            by_place = dict(zip(places, played, strict=True))
            failures = {place: episode.failure for place, episode in by_place.items() if episode.failure}
            return {p: episode for p, episode in by_place.items() if p not in failures}, failures

        names = {place: task.id for place, task in enumerate(tasks)}
        expected = "An episode that was not played is neither a success nor a failure."
        whole = play_whole(names, play, "episodes", expected)
        return list(whole.values()), world.interactions
