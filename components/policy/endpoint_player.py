"""Plays episodes with any language model behind an OpenAI-compatible endpoint, in the format `chat`.

The model gets the same system turn and observations as a policy of ours (`formats/chat_agent.py`). Its
replies stay in the conversation as they came. A reply without an action is sent to the world as one that it
refuses. Nothing is trained: the endpoint gives text, not token ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from components.config.endpoint_config import EndpointConfig
from components.environments.protocol import NO_ACTION, RealEnvironment, Step
from components.language.endpoint.chat_completions import Chat, UnansweredError
from components.policy.formats.chat_agent import first_message, observation_message, parse_reply
from components.records import REAL, Task, Trajectory, Transition

Message = dict[str, str]


@dataclass
class EndpointEpisode:
    """One episode of an endpoint's model.

    Attributes:
        trajectory: the transitions.
        messages: the conversation: system, user and assistant turns.
        thoughts: one per reply.
        malformed: replies without an action.
        cut: replies that ended at the limit of tokens.
        failure: why the episode ended early: the world broke, or the endpoint gave no answer; else "".
    """

    trajectory: Trajectory
    messages: list[Message]
    thoughts: list[str] = field(default_factory=list)
    malformed: int = 0
    cut: int = 0
    failure: str = ""
    done: bool = False


def play_with_endpoint(
    chat: Chat, world: RealEnvironment, tasks: Sequence[Task], *, system: str, max_steps: int
) -> list[EndpointEpisode]:
    """Play each task once, all at the same time; `chat.config.concurrency` requests are made at once.

    Args:
        system: text of the system turn.
        max_steps: step limit of an episode.

    Raises:
        EndpointError: the endpoint would refuse every request, or does not answer the very first one. That is
            made alone: otherwise an endpoint that is down would be retried for each task.
    """
    states = world.reset(tasks)
    shown = world.admissible if chat.config.admissible else [()] * len(tasks)
    episodes = [
        EndpointEpisode(Trajectory(task), _opening(system, task, state, actions))
        for task, state, actions in zip(tasks, states, shown, strict=True)
    ]
    with ThreadPoolExecutor(chat.config.concurrency) as pool:
        for number in range(max_steps):
            open_rows = [row for row, episode in enumerate(episodes) if not episode.done]
            if not open_rows:
                break
            actions: dict[int, str | None] = {0: _ask(chat, episodes[0])} if number == 0 else {}
            rest = [row for row in open_rows if row not in actions]
            replies = pool.map(lambda row: _reply(chat, episodes[row]), rest)
            actions |= dict(zip(rest, replies, strict=True))
            steps = world.step([actions.get(row) for row in range(len(tasks))])
            for row, action in actions.items():
                step = steps[row]
                if action is not None and step is not None:
                    _record(episodes[row], action, step, chat.config)
    return episodes


def episode_id(task: Task) -> str:
    """Return the id of a task's episode."""
    return f"endpoint/{task.id}"


def _opening(system: str, task: Task, state: str, admissible: Sequence[str]) -> list[Message]:
    first = {"role": "user", "content": first_message(task.instruction, state, admissible)}
    return [{"role": "system", "content": system}, first] if system else [first]


def _reply(chat: Chat, episode: EndpointEpisode) -> str | None:
    """`_ask`; None, and the episode is over, if this conversation gets no answer."""
    try:
        return _ask(chat, episode)
    except UnansweredError as error:
        episode.failure, episode.done = str(error), True
        return None


def _ask(chat: Chat, episode: EndpointEpisode) -> str:
    """Ask for the next reply and return its action. Raises UnansweredError if there is no answer."""
    reply = chat.reply(episode.messages)
    text = reply.text.encode(errors="replace").decode()  # JSON can spell half a surrogate, a file cannot
    thought, action = parse_reply(text)
    episode.messages.append({"role": "assistant", "content": text})
    episode.thoughts.append(thought)
    episode.cut += reply.cut
    episode.malformed += not action
    return action or NO_ACTION


def _record(episode: EndpointEpisode, action: str, step: Step, config: EndpointConfig) -> None:
    """Add one step to the episode, and show the model its state."""
    if "failed" in step.info:
        episode.failure, episode.done = str(step.info["failed"]) or "no reason given", True
        return
    history = episode.trajectory
    transition = Transition(
        task_id=history.task.id,
        episode_id=episode_id(history.task),
        step=len(history.steps),
        state=history.states[-1],
        action=action,
        next_state=step.state,
        reward=step.reward,
        done=step.done,
        reasoning="",
        source=REAL,
        behaviour="policy",
        policy_version=config.model,
        thought=episode.thoughts[-1],
    )
    episode.trajectory = history.with_step(transition)
    admissible = step.info.get("admissible", ()) if config.admissible else ()
    message = observation_message(step.state, admissible)
    episode.messages.append({"role": "user", "content": message})
    episode.done = step.done
