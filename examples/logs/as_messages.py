"""Writes recorded training episodes as a log of message lists, one JSON line an episode.

    python examples/logs/as_messages.py data/alfworld > agent.jsonl
    dreamgym retrain --logs agent.jsonl

It shows the form that `dreamgym import` reads. Who acted and what the world's adapter knows is not written.
"""

import json
import sys
from pathlib import Path

from components.records import Trajectory
from components.trajectories.store import DataLayout, iter_episodes, read_tasks


def messages_of(episode: Trajectory) -> list[dict[str, str]]:
    """Return the episode as a conversation: the first state, then replies and what the world answered."""
    messages = [{"role": "user", "content": episode.task.initial_state}]
    for step in episode.steps:
        reply = (
            f"Thought: {step.thought}\nAction: {step.action}" if step.thought else f"Action: {step.action}"
        )
        messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": step.next_state}]
    return messages


def main(directory: str) -> None:
    """Print each episode of `directory`/trajectories/train.parquet."""
    layout = DataLayout(Path(directory))
    for episode in iter_episodes(read_tasks(layout.tasks("train")), layout.trajectories("train")):
        record = {
            "id": episode.steps[0].episode_id,
            "task": episode.task.instruction,
            "messages": messages_of(episode),
            "success": episode.success,
        }
        print(json.dumps(record, ensure_ascii=False))


if __name__ == "__main__":
    main(sys.argv[1])
