"""The contract of every adapter and its real environment (`components/environments/protocol.py`).

A new adapter is tested by adding its settings to ADAPTERS.
"""

from __future__ import annotations

import pickle
import shutil
from collections import Counter
from dataclasses import replace
from typing import get_args

import pytest

from components.config.worlds.environment_config import EnvironmentConfig
from components.environments import make_adapter
from components.environments.browser.engine.chromium import NAMES as CHROMIUM
from components.environments.capabilities import Adapter
from components.environments.protocol import Environment, Forkable
from components.environments.text_world.plain_adapter import PlainAdapter
from components.environments.validation_split import batch_seed, draw_validation_tasks, opening, splits_of
from components.errors import EnvironmentFailure
from components.records import Trajectory, Transition

ADAPTERS = {
    "alfworld": EnvironmentConfig(name="alfworld", workers=1),
    "webshop": EnvironmentConfig(name="webshop", webshop={"catalogue": "generated", "products": 600}),
    "browser": EnvironmentConfig(name="browser", workers=2),
    "mixed": EnvironmentConfig(
        name="mixed",
        worlds=["alfworld", "webshop"],
        workers=1,
        webshop={"catalogue": "generated", "products": 600},
    ),
}
NAMES = get_args(EnvironmentConfig.model_fields["name"].annotation)
LIMIT = 40


@pytest.fixture(scope="module", params=ADAPTERS)
def subject(request):
    """(adapter, its real environment, four training tasks)."""
    if request.param == "browser" and not any(map(shutil.which, CHROMIUM)):
        pytest.skip("there is no Chromium on this machine")
    adapter = make_adapter(ADAPTERS[request.param])
    environment = adapter.open()
    yield adapter, environment, adapter.tasks("train", 4, 5)
    environment.close()


def play(adapter, environment, tasks, name, limit=LIMIT, seed=0):
    """Return the trajectories of the tasks under a behaviour policy, and the infos of each step."""
    environment.reset(tasks)
    actors = [adapter.behaviour(name, task, seed) for task in tasks]
    played, infos = [Trajectory(task) for task in tasks], [[] for _ in tasks]
    admissible, alive = list(environment.admissible), set(range(len(tasks)))
    for step in range(limit):
        if not alive:
            break
        actions = [
            actors[row](played[row], admissible[row])[1] if row in alive else None
            for row in range(len(tasks))
        ]
        for row, answer in enumerate(environment.step(actions)):
            assert (answer is None) == (row not in alive)
            if answer is None:
                continue
            transition = Transition(
                tasks[row].id,
                f"e{row}",
                step,
                played[row].states[-1],
                actions[row],
                answer.state,
                answer.reward,
                answer.done,
            )
            played[row] = played[row].with_step(transition)
            admissible[row] = answer.info["admissible"]
            infos[row].append(answer.info)
            if answer.done:
                alive.discard(row)
    return played, infos


@pytest.fixture(scope="module")
def expert(subject):
    """The expert's episodes of the four tasks."""
    return play(*subject, "expert")[0]


def test_it_answers_to_the_protocol(subject):
    adapter, environment, _ = subject
    assert isinstance(adapter, Adapter) and isinstance(environment, Environment)
    assert adapter.name in NAMES and environment.interactions >= 0
    assert isinstance(adapter.notice, str)


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_tasks_are_distinct_named_by_split_and_repeatable(subject, split):
    adapter, *_ = subject
    if split not in splits_of(adapter):
        with pytest.raises(EnvironmentFailure, match=f"no split '{split}'"):
            adapter.tasks(split, 9, 1)
        return
    first = adapter.tasks(split, 9, 1)
    assert first == adapter.tasks(split, 9, 1) != adapter.tasks(split, 9, 2)
    assert len({task.id for task in first}) == 9
    assert {(task.split, task.environment, task.generated) for task in first} == {
        (split, adapter.name, False)
    }
    assert all(task.instruction and task.initial_state for task in first)
    assert pickle.loads(pickle.dumps(first)) == first


def test_splits_share_no_task(subject):
    adapter, *_ = subject
    count = 12 if adapter.name == "browser" else 60  # a page is opened for each
    assert not {t.id for t in adapter.tasks("train", count, 0)} & {
        t.id for t in adapter.tasks("test", count, 0)
    }
    with pytest.raises(EnvironmentFailure, match=f"no split 'tset'.*{splits_of(adapter)[-2]} or test"):
        adapter.tasks("tset", 1, 0)


def test_validation_games_share_no_id_and_no_opening_with_recorded_games(subject):
    """Drawn against a list as `dreamgym collect` records it, and again for a second batch; half in worlds
    never trained in.
    """
    adapter, *_ = subject
    shipped = adapter.name in ("alfworld", "webshop", "browser")
    count = (
        60 if adapter.name in ("alfworld", "webshop") else 8
    )  # a page is opened for each; the tests' own worlds are small
    recorded = [*adapter.tasks("train", count, 0), *adapter.tasks("test", count, 0)]
    first = draw_validation_tasks(adapter, count, batch_seed(0, 0), recorded)
    second = draw_validation_tasks(adapter, count, batch_seed(0, 1), [*recorded, *first])
    games = [*first, *second]
    assert len(first) == len(second) == count and {task.split for task in games} == {"validation"}
    assert len({task.id for task in [*recorded, *games]}) == len(recorded) + len(games)
    openings = {opening(task) for task in recorded}
    if shipped:  # the games of the tests' own worlds open alike
        assert not openings & {opening(task) for task in games}
        assert count / 4 <= sum(map(adapter.unseen, first)) <= 3 * count / 4
    assert first == draw_validation_tasks(adapter, count, batch_seed(0, 0), recorded)
    other = draw_validation_tasks(adapter, count, batch_seed(1, 0), recorded)
    assert {task.id for task in other} != {task.id for task in first}, "another draw has other games"
    assert adapter.open().reset(first[:2]) == [task.initial_state for task in first[:2]], "they can be played"


def test_reset_returns_the_initial_state_of_each_task(subject):
    _, environment, tasks = subject
    assert environment.reset(tasks) == [task.initial_state for task in tasks]
    assert environment.reset(tasks[2:]) == [task.initial_state for task in tasks[2:]]


def test_the_expert_earns_one_reward_at_the_end(expert):
    for episode in expert:
        assert episode.success and episode.steps[-1].done
        assert [step.reward for step in episode.steps[:-1]] == [0.0] * (len(episode.steps) - 1)
        assert not any(step.done for step in episode.steps[:-1])


def test_replayed_actions_lead_to_the_same_states(subject, expert):
    adapter, environment, tasks = subject
    again, _ = play(adapter, environment, tasks[::-1], "expert")
    assert [[replace(step, episode_id="") for step in e.steps] for e in again[::-1]] == [
        [replace(step, episode_id="") for step in e.steps] for e in expert
    ]


def test_interactions_count_the_rows_that_were_stepped(subject):
    _, environment, tasks = subject
    environment.reset(tasks)
    before = environment.interactions
    answers = environment.step([None, "?", None, "?"])
    assert [answer is None for answer in answers] == [True, False, True, False]
    assert environment.interactions == before + 2
    assert environment.step([None] * 4) == [None] * 4 and environment.interactions == before + 2


@pytest.mark.parametrize(
    "action", ["?", "", "fly to the moon", "<success>", "<end> <state>", "\n", "x" * 2000, "ünïcödé"]
)
def test_an_impossible_or_malformed_action_is_answered_with_a_state(subject, action):
    _, environment, tasks = subject
    environment.reset(tasks[:1])
    (answer,) = environment.step([action])
    assert (answer.reward, answer.done) == (0.0, False) and answer.state and "failed" not in answer.info


def test_the_budget_refuses_a_batch_before_it_is_exceeded(subject):
    adapter, _, tasks = subject
    environment = adapter.open(budget=3)
    try:
        environment.reset(tasks[:2])
        environment.step(["?", "?"])
        with pytest.raises(
            EnvironmentFailure,
            match="2 real interactions are spent and 2 more .* budget is 3.*rl.real.budget",
        ):
            environment.step(["?", "?"])
        assert environment.interactions == 2
        assert environment.step([None, "?"])[1] is not None and environment.interactions == 3
        with pytest.raises(EnvironmentFailure, match="3 real interactions are spent and 1 more"):
            environment.step(["?", None])
    finally:
        environment.close()
        environment.close()


def test_a_generated_task_has_no_real_world(subject):
    _, environment, tasks = subject
    generated = replace(tasks[0], id="made-up", parent=tasks[0].id)
    with pytest.raises(EnvironmentFailure, match="made-up was generated: it has no real world"):
        environment.reset([tasks[1], generated])


@pytest.mark.parametrize("name", ["expert", "noisy", "near_miss", "random"])
def test_behaviours_depend_on_the_seed_alone(subject, name):
    adapter, environment, tasks = subject
    first, _ = play(adapter, environment, tasks[:2], name, 8)
    assert play(adapter, environment, tasks[:2], name, 8)[0] == first
    if name != "expert":
        assert play(adapter, environment, tasks[:2], name, 8, seed=1)[0] != first


def test_an_unknown_behaviour_is_refused(subject):
    adapter, _, tasks = subject
    with pytest.raises(
        EnvironmentFailure, match="no behaviour policy 'expret'.*expert, noisy, near_miss, random"
    ):
        adapter.behaviour("expret", tasks[0], 0)


def test_every_step_has_reasoning(subject, expert):
    adapter, *_ = subject
    for episode in expert:
        for step in episode.steps:
            before = episode.up_to(step.step)
            assert adapter.reason(before, step.action, step.next_state, step.reward)


def test_a_state_asserts_facts_that_do_not_contradict_themselves(subject, expert):
    adapter, *_ = subject
    for episode in expert:
        for count in range(len(episode.steps) + 1):
            facts = adapter.facts(episode.up_to(count))
            assert facts and not any(adapter.contradicts(fact, facts) for fact in facts)


def test_a_step_to_a_known_place_reveals_nothing(subject, expert):
    adapter, *_ = subject
    counts = Counter()
    for episode in expert:
        for step in episode.steps:
            history = episode.up_to(step.step)
            reveals = adapter.revealing(history, step.action, step.next_state)
            counts[reveals] += 1
            after = episode.up_to(step.step + 1)
            assert not adapter.revealing(after, step.action, step.next_state)
    assert counts[True] and counts[False]


def test_an_embodied_episode_replays_to_the_same_states(subject, expert):
    adapter, environment, _ = subject
    bodies = [adapter.embody(episode) for episode in expert]
    assert environment.reset(bodies) == [episode.task.initial_state for episode in expert]
    for step in range(max(len(e.steps) for e in expert)):
        live = [step < len(e.steps) for e in expert]
        answers = environment.step(
            [e.steps[step].action if on else None for e, on in zip(expert, live, strict=True)]
        )
        for episode, answer, on in zip(expert, answers, live, strict=True):
            if on:
                expected = episode.steps[step]
                assert (answer.state, answer.reward, answer.done) == (
                    expected.next_state,
                    expected.reward,
                    expected.done,
                )


def test_real_tasks_are_feasible_and_nonsense_is_not(subject):
    adapter, _, tasks = subject
    assert [adapter.feasible(task) for task in tasks] == [""] * 4
    assert adapter.feasible(replace(tasks[0], instruction="be happy"))


@pytest.fixture(scope="module")
def erring(subject):
    """Short episodes of those that err, of the four tasks, with the premise that each turned out to have."""
    adapter, environment, tasks = subject
    played = [
        episode
        for name in ("noisy", "near_miss", "random")
        for episode in play(adapter, environment, tasks, name, 12)[0]
    ]
    return [replace(episode, premise=adapter.premise(episode)) for episode in played]


def test_no_real_state_is_objected_to(subject, expert, erring):
    adapter, *_ = subject
    for episode in [*expert, *erring, *(replace(e, premise=adapter.premise(e)) for e in expert)]:
        for step in episode.steps:
            assert adapter.contradiction(episode.up_to(step.step), step.next_state) == "", (
                step.state,
                step.action,
                step.next_state,
            )


def test_no_premise_of_a_real_episode_is_objected_to(subject, expert):
    adapter, *_ = subject
    for episode in expert:
        premise = adapter.premise(episode)
        assert not premise or adapter.objection(episode.task, premise) == ""
    assert adapter.objection(expert[0].task, "en between the tabs to find"), "what is no premise is believed"


def test_progress_is_1_for_a_success_alone(subject, expert, erring):
    adapter, *_ = subject
    for episode in [*expert, *erring]:
        assert adapter.progress(episode) == 1.0 if episode.success else 0.0 <= adapter.progress(episode) < 1.0
        assert 0.0 <= adapter.progress(episode.up_to(0)) < 1.0


def test_only_test_tasks_play_in_unseen_worlds(subject):
    adapter, *_ = subject
    if isinstance(adapter, PlainAdapter):
        pytest.skip("nobody can tell which of its worlds are strange")
    assert not any(map(adapter.unseen, adapter.tasks("train", 16, 0)))
    assert 0 < sum(map(adapter.unseen, adapter.tasks("test", 16, 0))) < 16


def test_a_malformed_action_is_refused(subject, expert):
    adapter, environment, tasks = subject
    environment.reset(tasks[:1])
    assert adapter.refused(environment.step(["?"])[0].state) and not adapter.well_formed("?")
    assert all(
        adapter.well_formed(step.action) and not adapter.refused(step.next_state)
        for e in expert
        for step in e.steps
    )


def test_a_reflection_contains_the_thought_and_the_alternatives(subject, expert):
    adapter, *_ = subject
    for episode in expert:
        for step in episode.steps[:3]:
            before = episode.up_to(step.step)
            reflection = adapter.reflect(before, [("?", before.states[-1])], "look here first")
            assert "look here first" in reflection and reflection != "look here first"


def test_a_probe_leaves_the_row_where_it_is_and_is_counted(subject, expert):
    _, environment, tasks = subject
    if not isinstance(environment, Forkable):
        pytest.skip("this environment cannot be forked")
    environment.reset(tasks[:1])
    before, first = environment.interactions, expert[0].steps[0]
    alternatives = environment.probe([[first.action, "?", first.action]])[0]
    assert [step.state for step in alternatives[::2]] == [
        first.next_state
    ] * 2 and environment.interactions == before + 3
    assert environment.step([first.action])[0].state == first.next_state
