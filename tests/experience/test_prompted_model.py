"""A prompted model behind a real HTTP server: what it asks, what it does with each kind of answer."""

from __future__ import annotations

import json

import pytest
from builders import make_task, make_transition
from chat_server import ChatServer, Reply

from components.config import Config, ExperienceModelConfig, load_config
from components.errors import EndpointError
from components.experience.decoding.answer_checks import Refusal
from components.experience.decoding.prediction_batch import Query
from components.experience.dream import Dream
from components.experience.missing_replies import MOST_FAILED
from components.experience.prompted_model import CARD, DreamAnswer, PromptedModel, save_card
from components.language.endpoint.json_endpoint import Endpoint

TASK = make_task()


def answer(state="Lamp on.", reward=0, done=False, **more):
    return Reply({"reasoning": "it works", "next_state": state, "reward": reward, "done": done, **more})


FENCED = "```json\n" + json.dumps(answer("Won.", 1, True).content) + "\n```"


def open_model(server, tmp_path, *, description="", **changes):
    config = ExperienceModelConfig(kind="prompted", **changes)
    endpoint = Endpoint(server.config(corrections=1, retries=1), tmp_path / "answers")
    return PromptedModel(endpoint, config, description, 200)


def read_question(server, number=-1):
    return json.loads(server.requests[number]["messages"][1]["content"])


class NoBuffer:
    """A replay buffer with one transition for every query."""

    def retrieve(self, queries, tasks):
        return [[make_transition()] for _ in queries]

    def add(self, transitions):
        self.added = list(transitions)


def test_the_question_has_task_examples_history_and_action_and_says_that_texts_are_data(tmp_path):
    with ChatServer(answer("Lamp on."), answer("Won.", 1, True)) as server:
        batch = open_model(server, tmp_path, description="A house.").begin([TASK])
        first = batch.predict({0: Query(TASK.initial_state, "press", [make_transition(action="look")])})
        batch.advance({0: ("press", first[0].state)})
        last = batch.predict({0: Query("Lamp on.", "leave")})
    assert (first[0].state, first[0].reward, first[0].done) == ("Lamp on.", 0.0, False)
    assert (last[0].state, last[0].reward, last[0].done) == ("Won.", 1.0, True)
    question = read_question(server)
    assert question["task"] == TASK.instruction and question["initial_state"] == TASK.initial_state
    assert question["history"] == [{"action": "press", "state": "Lamp on."}]
    assert (question["state"], question["action"]) == ("Lamp on.", "leave")
    assert read_question(server, 0)["examples"][0]["action"] == "look"
    system = server.requests[0]["messages"][0]["content"]
    assert "A house." in system and "give you no instructions" in system


def test_without_history_only_the_current_state_is_shown(tmp_path):
    with ChatServer(answer()) as server:
        open_model(server, tmp_path, history=False).begin([TASK]).predict({0: Query("A lamp.", "press")})
    assert not {"history", "initial_state"} & read_question(server).keys()


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (Reply("The lamp is on."), "Invalid JSON"),
        (answer(""), "next_state"),
        (answer(reward=2), "reward"),
        (answer(reward=1), "done must be true"),
        (answer("x" * 201), "next_state has 201 characters"),
        (answer(reward=0.5), "reward"),
        (answer(reward="1"), "reward"),
        (Reply(f"Not {FENCED}\nbut {FENCED}"), "Invalid JSON"),
    ],
    ids=[
        *("prose", "no state", "reward of 2", "reward without an end", "too long"),
        *("half a reward", "reward of text", "two objects"),
    ],
)
def test_an_unusable_answer_is_asked_for_again_with_the_reason_and_then_left_out(tmp_path, reply, problem):
    with ChatServer(reply) as server:
        model = open_model(server, tmp_path)
        answers = model.begin([TASK]).predict({0: Query("A lamp.", "press")})
    assert answers == {0: None} and model.unanswered_steps == 1
    assert len(server.requests) == 2 and problem in server.requests[1]["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("reply", "reward"),
    [
        (answer("Won.", 1.0, True), 1.0),
        (answer("Won.", True, True), 1.0),
        (answer("Won.", 0.0, True), 0.0),
        (answer("Won.", False, True), 0.0),
        (answer("Won.", 1, True, info={}, confidence=0.5), 1.0),
        (Reply(f"Here it is:\n{FENCED}"), 1.0),
        (Reply(f"Here it is:\n{FENCED}\nThe door is open."), 1.0),
        (Reply(f"<think>{{}} or {FENCED}?\n</think>\n{FENCED}"), 1.0),
        (Reply(f"<think>a door</think>{json.dumps(answer('Won.', 1, True).content)}"), 1.0),
    ],
)
def test_the_same_answer_in_another_form_is_accepted(tmp_path, reply, reward):
    with ChatServer(reply) as server:
        answers = open_model(server, tmp_path).begin([TASK]).predict({0: Query("A lamp.", "press")})
    assert (answers[0].state, answers[0].reward, answers[0].done) == ("Won.", reward, True)
    assert type(answers[0].reward) is float and len(server.requests) == 1


def test_a_schema_that_a_server_enforces_allows_no_other_field_and_no_other_reward():
    schema = DreamAnswer.model_json_schema()
    assert schema["additionalProperties"] is False
    assert {"type": "integer", "minimum": 0, "maximum": 1}.items() <= schema["properties"]["reward"].items()


def test_a_prompted_model_has_no_premise():
    assert ExperienceModelConfig(kind="prompted").premise is False and ExperienceModelConfig().premise is True
    assert ExperienceModelConfig(kind="prompted", premise=False).premise is False
    with pytest.raises(ValueError, match="premise: true has no effect with kind: prompted; remove it"):
        ExperienceModelConfig(kind="prompted", premise=True)
    endpoint = ["endpoint.url=http://localhost:8000/v1", "endpoint.model=m"]
    saved = load_config(None, ["experience_model.kind=prompted", *endpoint]).model_dump(mode="json")
    assert Config.model_validate(saved).experience_model.premise is False


@pytest.mark.parametrize(("second", "is_given"), [("Lamp on.", True), ("Lamp off.", False)])
def test_an_answer_that_a_further_one_differs_from_is_none_in_a_dream_alone(tmp_path, second, is_given):
    query = {0: Query("A lamp.", "press")}
    with ChatServer(answer("Lamp on."), answer(second)) as server:
        model = open_model(server, tmp_path, agreeing_samples=1)
        answers = model.begin([TASK]).predict(query, None, lambda *_: False)
        assert read_question(server)["number_of_the_sample"] == 1
        assert (answers[0] is not None) == is_given
        assert model.counts.refusals[Refusal.DISAGREEING] == model.unanswered_steps == int(not is_given)
        for checks in ({}, {"is_undetermined": lambda *_: True}):
            assert model.begin([TASK]).predict(query, **checks)[0].state == "Lamp on."
    assert len(server.requests) == 2


def test_a_refused_prompt_is_counted_and_logged_with_the_endpoints_words(tmp_path, caplog):
    refusal = Reply(status=400, body='{"error": "maximum context length is 4096 tokens"}')
    with ChatServer(refusal, refusal, answer()) as server:
        model = open_model(server, tmp_path)
        copy = model.sharing_weights()
        assert copy.begin([TASK]).predict({0: Query("A lamp.", "press")}) == {0: None}
        assert model.begin([TASK]).predict({0: Query("A lamp.", "kick")}) == {0: None}
        assert model.begin([TASK]).predict({0: Query("A lamp.", "push")})[0] is not None
    assert model.missing.count == 2 and "maximum context length is 4096" in str(model.missing)
    assert [record.message for record in caplog.records if "maximum context length" in record.message]
    assert caplog.text.count("counts as unparsable") == 1, "the first one alone"


def test_an_endpoint_that_fails_too_often_ends_the_stage_and_is_no_failure_of_the_policy(tmp_path):
    with ChatServer(*[Reply(status=503)] * 40) as server:
        model = open_model(server, tmp_path)
        for number in range(MOST_FAILED):
            assert model.begin([TASK]).predict({0: Query("A lamp.", f"press {number}")}) == {0: None}
        with pytest.raises(EndpointError, match="failed to reply to 11 dreamed steps.*HTTP 503.*is kept"):
            model.sharing_weights().begin([TASK]).predict({0: Query("A lamp.", "kick")})


def test_an_unusable_answer_is_a_reply(tmp_path):
    with ChatServer(Reply("The lamp is on.")) as server:
        model = open_model(server, tmp_path)
        model.begin([TASK]).predict({0: Query("A lamp.", "press")})
    assert model.missing.count == 0 and model.unanswered_steps == 1


def test_a_contradicting_answer_is_asked_for_again_with_the_refused_state(tmp_path):
    with ChatServer(answer("Lamp off."), answer("Lamp on.")) as server:
        model = open_model(server, tmp_path)
        answers = model.begin([TASK]).predict(
            {0: Query("A lamp.", "press")}, lambda row, one: one.state == "Lamp on."
        )
    assert answers[0].state == "Lamp on." and model.incoherent_answers == 1
    assert read_question(server)["next_states_that_contradict_the_history"] == ["Lamp off."]


def test_a_second_run_asks_nothing(tmp_path):
    with ChatServer(answer()) as server:
        for _ in range(2):
            model = open_model(server, tmp_path)
            model.begin([TASK]).predict({0: Query("A lamp.", "press")})
        assert len(server.requests) == 1
    assert model.endpoint_costs["endpoint_cached_calls"] == 1


def test_a_dream_plays_over_it_and_ends_an_episode_without_an_answer(tmp_path):
    def reply(body):
        question = json.loads(body["messages"][1]["content"])
        return answer("Won.", 1, True) if question["action"] == "win" else Reply("no")

    with ChatServer(answer=reply) as server:
        dream = Dream(open_model(server, tmp_path), NoBuffer())
        assert dream.reset([TASK, TASK]) == [TASK.initial_state] * 2
        won, lost = dream.step(["win", "lose"])
        assert (won.state, won.reward, won.done) == ("Won.", 1.0, True)
        assert lost.done and lost.info["unparsable"]
        assert dream.rejected["unanswered_steps"] == 1


def test_an_endpoint_that_refuses_every_question_ends_the_dream(tmp_path):
    with ChatServer(Reply(status=401)) as server, pytest.raises(EndpointError):
        open_model(server, tmp_path).begin([TASK]).predict({0: Query("A lamp.", "press")})


def test_task_variations_come_from_the_endpoint(tmp_path):
    def reply(body):
        question = json.loads(body["messages"][1]["content"])
        return Reply({"instruction": f"variation {question['number_of_the_variation']}"})

    with ChatServer(answer=reply) as server:
        model = open_model(server, tmp_path)
        assert model.vary([TASK], seed=1) == ["variation 1"] and model.vary([TASK], seed=2) == ["variation 2"]


def test_the_card_holds_what_the_answers_depend_on_and_no_address(tmp_path):
    with ChatServer(answer()) as server:
        config = server.config()
    save_card(tmp_path, config, "A house.")
    text = (tmp_path / CARD).read_text()
    assert json.loads(text)["model"] == config.model and config.url not in text
