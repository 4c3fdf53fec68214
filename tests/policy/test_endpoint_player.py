"""Any model behind an endpoint plays: a real server of a real model, and what models answer in practice."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest
from builders import ROOM, make_task
from chat_server import ChatServer, Reply
from foreign import CHATML, make_checkpoint

from components.environments.protocol import NO_ACTION, Step
from components.errors import EndpointError
from components.language.endpoint.chat_completions import Chat
from components.policy.endpoint_player import play_with_endpoint

TASKS = [make_task(n, instruction=f"put a mug in desk {n}") for n in range(3)]


class Desk:
    """A world whose task is won by `move mug 1 to desk 1`; row `broken` fails."""

    interactions = 0

    def __init__(self, broken=None):
        self.broken = broken

    def reset(self, tasks):
        return [task.initial_state for task in tasks]

    def step(self, actions):
        return [None if action is None else self.answer(row, action) for row, action in enumerate(actions)]

    def answer(self, row, action):
        self.interactions += 1
        if row == self.broken:
            return Step("", 0.0, True, {"failed": "the engine is gone"})
        if action == "move mug 1 to desk 1":
            return Step("Moved mug 1.", 1.0, True)
        return Step("Nothing happens." if action == NO_ACTION else "Took mug 1.", 0.0, False)

    def close(self):
        pass


def play(server, world, **options):
    with closing(Chat(server.config(json_mode=False, **options))) as chat:
        return play_with_endpoint(chat, world, TASKS, system="A house.", max_steps=4), chat.usage


def test_a_model_that_replies_in_the_form_wins():
    def answer(body):
        taken = any("Took mug 1." in message["content"] for message in body["messages"])
        action = "move mug 1 to desk 1" if taken else "take mug 1"
        return Reply(f"Thought: next\nAction: {action}")

    with ChatServer(answer=answer) as server:
        episodes, usage = play(server, Desk())
        first = server.requests[0]["messages"]
    assert all(episode.trajectory.success and len(episode.trajectory.steps) == 2 for episode in episodes)
    assert [message["role"] for message in first] == ["system", "user"]
    assert first[1]["content"].startswith("Task: put a mug in desk") and ROOM in first[1]["content"]
    assert (usage.calls, usage.prompt_tokens, usage.completion_tokens) == (6, 66, 18)
    roles = [message["role"] for message in episodes[0].messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    assert episodes[0].messages[2]["content"] == "Thought: next\nAction: take mug 1", "as it came"
    assert {step.behaviour for step in episodes[0].trajectory.steps} == {"policy"}


def test_the_admissible_actions_are_listed_on_demand():
    class Listing(Desk):
        admissible = [["look", "take mug 1"]] * 3

        def answer(self, row, action):
            return replace(super().answer(row, action), info={"admissible": ["go to\ndesk 1"]})

    with ChatServer(Reply("Action: take mug 1")) as server:
        episodes, _ = play(server, Listing(), admissible=True)
        silent, _ = play(server, Listing())
    first, later = (episodes[0].messages[place]["content"] for place in (1, 3))
    assert first.endswith("\nAdmissible actions: look; take mug 1")
    assert later == "Observation: Took mug 1.\nAdmissible actions: go to\n desk 1"
    assert not any("Admissible" in message["content"] for message in silent[0].messages)


def test_a_reply_with_half_a_surrogate_can_be_recorded():
    with ChatServer(Reply("Thought: \ud83d\nAction: take \udc00 mug 1")) as server:
        episodes, _ = play(server, Desk())
    step = episodes[0].trajectory.steps[0]
    assert (step.thought, step.action) == ("?", "take ? mug 1")


def test_prose_instead_of_an_action_is_refused_by_the_world_and_counted():
    with ChatServer(Reply("Sure! First, I would walk to the desk.")) as server:
        episodes, _ = play(server, Desk())
    for episode in episodes:
        assert episode.malformed == 4 and not episode.trajectory.success
        assert [step.action for step in episode.trajectory.steps] == [NO_ACTION] * 4
        assert episode.messages[-1]["content"] == "Observation: Nothing happens."


def test_a_cut_reply_is_counted():
    with ChatServer(Reply("Thought: I think that", finish="length")) as server:
        episodes, _ = play(server, Desk())
    assert episodes[0].cut == 4


def test_a_conversation_that_the_endpoint_refuses_ends_alone():
    def answer(body):
        if "desk 1" in body["messages"][1]["content"].split("\n")[0]:
            return Reply(status=400, body="too long")
        return Reply("Action: move mug 1 to desk 1")

    with ChatServer(answer=answer) as server:
        episodes, _ = play(server, Desk(broken=2))
    assert episodes[0].trajectory.success and not episodes[0].failure
    assert "too long" in episodes[1].failure and not episodes[1].trajectory.steps
    assert episodes[2].failure == "the engine is gone"


def test_an_endpoint_that_is_down_is_an_error_and_no_lost_game():
    with ChatServer(Reply(status=503, body="starting")) as server:
        with pytest.raises(EndpointError, match="gave no answer in 3 tries.*HTTP 503"):
            play(server, Desk())
        assert len(server.requests) == 3, "the first request alone, and its retries"


def test_a_wrong_key_ends_the_evaluation():
    with ChatServer(Reply(status=401, body="no")) as server, pytest.raises(EndpointError, match="HTTP 401"):
        play(server, Desk())


@pytest.mark.services
def test_a_model_behind_transformers_own_server_plays(tmp_path):
    from ports import free_port
    from transformers.cli.serve import Serve

    from components.config import EndpointConfig

    base = make_checkpoint(
        tmp_path / "base",
        "llama",
        template=CHATML.replace("{{ strftime_now('%d %b %Y') }}", ""),
        max_position_embeddings=4096,
    )
    port = free_port()
    server = Serve(force_model=str(base), host="127.0.0.1", port=port, device="cpu", non_blocking=True)
    try:
        config = EndpointConfig(
            url=f"http://127.0.0.1:{port}/v1", model=str(base), json_mode=False, max_tokens=16, retries=2
        )
        with closing(Chat(config)) as chat:
            episodes = play_with_endpoint(chat, Desk(), TASKS, system="A house.", max_steps=2)
    finally:
        server.kill_server()
    assert not any(episode.failure for episode in episodes)
    assert all(len(episode.thoughts) == 2 for episode in episodes)
    assert chat.usage.calls == 6 and 0 < chat.usage.completion_tokens <= 6 * 16
