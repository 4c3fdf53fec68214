"""The adapter on MiniWoB's pages in a real Chromium: splits, coherence, repetition, forks and failures."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from dataclasses import replace

import pytest
from builders import make_task
from real_browser import settings

from components.config import load_config
from components.config.worlds.environment_config import EnvironmentConfig
from components.environments import make_adapter
from components.environments.browser.environment import BrowserEnvironment
from components.environments.browser.states import read_state
from components.environments.browser.task_lists import EXPERT_TYPES, split_of_page, split_of_task
from components.environments.protocol import Forkable
from components.environments.step_cost import replay
from components.errors import ConfigError, EnvironmentFailure
from components.policy.early_experience import explore
from flows.checks import doctor


def test_every_fourth_type_is_for_the_test_split_alone(adapter, tasks):
    assert [task.family for task in tasks] == [
        "click-button",
        "click-tab-2",
        "login-user",
        "choose-list",
        "click-checkboxes",
        "enter-text",
    ]
    test = adapter.tasks("test", 4, 0)
    assert [task.family for task in test] == ["click-button", "focus-text-2", "click-tab-2", "enter-text-2"]
    assert [adapter.unseen(task) for task in (*tasks, *test)] == [False] * 7 + [True, False, True]
    seeds = [int(task.id.rsplit("/", 1)[1]) % 2 for task in (*tasks, *test)]
    assert seeds == [0] * 6 + [1] * 4


def test_a_type_with_too_few_pages_is_named():
    few = make_adapter(
        load_config(None, ["environment.name=browser", "environment.browser.types=[click-test]"]).environment
    )
    with pytest.raises(
        EnvironmentFailure, match=r"click-test has too few different pages.*environment\.browser\.types"
    ):
        few.tasks("train", 2, 0)


def test_no_page_of_one_split_is_shown_in_the_other():
    """focus-text-2 has three pages in all, and both splits ask for it."""
    poor = make_adapter(
        load_config(
            None, ["environment.name=browser", "environment.browser.types=[focus-text-2,click-test-2]"]
        ).environment
    )
    pages_by_split = {}
    for split in ("train", "test"):
        with contextlib.suppress(EnvironmentFailure):
            for seed in range(3):
                pages_by_split.setdefault(split, set()).update(
                    (task.family, task.instruction, task.initial_state) for task in poor.tasks(split, 1, seed)
                )
    assert (
        pages_by_split["train"]
        and pages_by_split["test"]
        and not pages_by_split["train"] & pages_by_split["test"]
    )
    pages = [f"{n}" for n in range(3000)]
    assert 0.28 < sum(split_of_page(page) == "test" for page in pages) / len(pages) < 0.38


def test_a_page_keeps_its_split_when_quotes_are_written_differently():
    """Otherwise a backbone would have read what is now held out."""
    tasks = [
        make_task(instruction=f'Click on the " n{n} " button.', family="click-button") for n in range(60)
    ]
    display_name = [replace(task, instruction=f'Click on the "n{n}" button.') for n, task in enumerate(tasks)]
    assert [split_of_task(task) for task in tasks] == [split_of_task(task) for task in display_name] and len(
        {split_of_task(task) for task in tasks}
    ) == 2


def test_the_default_types_are_at_least_twelve_and_named_once():
    assert len(set(EXPERT_TYPES)) == len(EXPERT_TYPES) >= 12


def test_an_unknown_type_is_refused():
    wrong = make_adapter(
        load_config(None, ["environment.name=browser", "environment.browser.types=[click-tset]"]).environment
    )
    with pytest.raises(EnvironmentFailure, match=r"no task 'miniwob\.click-tset'.*miniwob\.click-test"):
        wrong.tasks("train", 1, 0)
    types = "environment.browser.types=[click-button,click-tset]"
    rung = doctor.run_check(
        doctor.check_browser, load_config(None, ["environment.name=browser", types]), None
    )
    assert rung.state == "wrong" and "names click-tset, and MiniWoB has no such type" in rung.found
    assert rung.expected.startswith("Expected one such as click-test")


def test_a_type_may_be_named_only_once():
    """Every fourth type is for the test split alone. A type named twice would be in both splits."""
    with pytest.raises(ConfigError, match="types names click-button more than once"):
        load_config(
            None,
            [
                "environment.name=browser",
                "environment.browser.types=[click-button,click-link,choose-list,click-button]",
            ],
        )


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["environment.name=browser", "environment.games=official"],
            "games has no effect with name: browser",
        ),
        (["environment.name=browser", "environment.objects=3"], "objects has no effect with name: browser"),
        (["environment.browser.elements=5"], "browser has no effect with name: alfworld"),
        (
            [
                "environment.name=browser",
                "environment.browser.benchmark=webarena",
                "environment.browser.types=[x]",
            ],
            "types has no effect with benchmark: webarena",
        ),
        (
            ["environment.name=browser", "environment.browser.pages=5"],
            r"Unknown key environment\.browser\.pages",
        ),
    ],
)
def test_options_without_effect_are_refused(overrides, words):
    with pytest.raises(ConfigError, match=words):
        load_config(None, overrides)


def test_the_data_identity_names_no_machine_and_no_other_adapter():
    assert set(EnvironmentConfig().decisive()) == {
        "name",
        "games",
        "receptacles",
        "objects",
        "max_steps",
        "seed",
    }
    config = load_config(
        None, ["environment.name=browser", "environment.browser.executable=/x", "environment.workers=9"]
    ).environment
    assert config.decisive() == {
        **{"name": "browser", "max_steps": 20, "seed": 0},
        "browser": {"benchmark": "miniwob", "types": [], "elements": 10},
    }


def test_real_states_are_readable_and_never_contradict(adapter, episodes):
    for episode in episodes:
        for step in episode.steps:
            history = episode.up_to(step.step)
            assert read_state(step.next_state).readable, step.next_state
            assert adapter.contradiction(history, step.next_state) == "", (
                step.state,
                step.action,
                step.next_state,
            )
            assert step.reasoning
            if step.reward:
                assert step.reasoning.endswith("done") and not step.reasoning.endswith("not done")
            elif step.done:
                assert step.reasoning.endswith("lost")
            if not adapter.well_formed(step.action):
                assert adapter.refused(step.next_state)


def test_behaviours_win_lose_and_are_cut_off(episodes):
    ends = Counter(
        (e.steps[0].behaviour, "won" if e.success else "lost" if e.steps[-1].done else "cut off")
        for e in episodes
    )
    assert ends[("expert", "won")] == 6
    assert any(ends[(name, "lost")] for name in ("noisy", "near_miss", "random"))
    refused = sum(read_state(step.next_state).failure != "" for e in episodes for step in e.steps)
    assert refused > 10 and all(0 < len(step.next_state) < 1500 for e in episodes for step in e.steps)


def test_a_probe_returns_real_next_states_and_the_row_stays(adapter, tasks):
    login = next(task for task in tasks if task.family == "login-user")
    environment = adapter.open(budget=12)
    try:
        assert isinstance(environment, Forkable)
        environment.reset([login])
        user, password, send = read_state(login.initial_state).ids
        first = environment.step([f"fill [{user}] ann"])[0]
        ((typed, sent),) = environment.probe([[f"fill [{password}] b", f"click [{send}]"]])
        assert environment.interactions == 1 + 2 * 2
        assert (
            (sent.done, sent.reward) == (True, 0.0)
            and "Username = ann" in typed.state
            and "Password = b" in typed.state
        )
        assert environment.step([f"fill [{password}] b"])[0].state == typed.state
        assert environment.step(["click [99]"])[0].state.startswith("Failed") and first.state != typed.state
        with pytest.raises(EnvironmentFailure, match="12"):
            environment.probe([["click [1]"] * 9])
    finally:
        environment.close()


def test_early_experience_explores_alternatives_to_the_expert(adapter, episodes):
    expert = [episode for episode in episodes if episode.steps[0].behaviour == "expert"][2:4]
    environment = adapter.open()
    try:
        alternatives = explore(environment, expert, 2, 0)
        assert len(alternatives) == 2 and all(
            one.alternatives and one.alternatives[0] for one in alternatives
        )
    finally:
        environment.close()


def test_browsergyms_own_environment_gives_the_same_states(adapter, episodes):
    """It starts a chat window and waits: two browsers per episode, so the test plays one episode."""
    episode = next(e for e in episodes if e.task.family == "login-user" and e.steps[0].behaviour == "expert")
    environment = adapter.open(workers=1, stock=True)
    try:
        assert replay(environment, episode).steps == len(episode.steps)
    finally:
        environment.close()


def test_a_dead_browser_is_an_infrastructure_failure_and_the_run_continues(adapter, tasks):
    environment = adapter.open(workers=1)
    try:
        environment.reset(tasks[:2])
        from test_browser_pool import chromium_of, folders

        chromium_of(folders(environment.browsers)[0]).kill()
        answers = environment.step([f"click [{read_state(task.initial_state).ids[0]}]" for task in tasks[:2]])
        assert all(answer.done and answer.reward == 0 and answer.info["failed"] for answer in answers)
        assert [answer.state for answer in answers] == [task.initial_state for task in tasks[:2]]
        assert environment.reset(tasks[:2]) == [task.initial_state for task in tasks[:2]]
        assert "failed" not in environment.step(["click [99]", None])[0].info
    finally:
        environment.close()


def test_a_row_whose_page_does_not_open_is_over_at_its_first_step(tasks, monkeypatch):
    monkeypatch.delenv("WA_MAP", raising=False)
    environment = BrowserEnvironment(settings(page_seconds=3.0))
    broken = replace(tasks[0], spec='{"task": "webarena.70", "seed": 0}')
    try:
        assert environment.reset([broken, tasks[1]]) == [broken.initial_state, tasks[1].initial_state]
        answers = environment.step(["click [1]", "click [99]"])
        assert (
            "webarena cannot be played" in answers[0].info["failed"]
            and answers[0].done
            and "failed" not in answers[1].info
        )
        moved = replace(tasks[0], initial_state="[13] button: elsewhere")
        environment.reset([moved, tasks[1]])
        answers = environment.step(["click [13]", "click [99]"])
        assert (
            f"{moved.id} began with" in answers[0].info["failed"]
            and answers[0].done
            and "failed" not in answers[1].info
        )
        with pytest.raises(
            EnvironmentFailure,
            match=r"No page is the one recorded.*Expected '\[13\] button: elsewhere'.*Another Chromium",
        ):
            environment.reset([moved, moved])
        with pytest.raises(EnvironmentFailure, match=r"No page opens.*doctor"):
            environment.reset([broken, broken])
        for task, why in (
            (moved, r"not as recorded. Another Chromium.*dreamgym collect"),
            (broken, "webarena cannot be played"),
        ):
            environment.reset([task])
            assert re.search(why, environment.step(["click [13]"])[0].info["failed"]), (
                "one row is no sign of more than itself"
            )
        with pytest.raises(EnvironmentFailure, match="has the spec"):
            environment.reset([replace(broken, spec="nonsense")])
        with pytest.raises(EnvironmentFailure, match="has the spec"):
            environment.reset([replace(broken, spec='{"task": "openended", "url": "file:///etc/hostname"}')])
    finally:
        environment.close()


def test_a_dreamed_episode_is_replayed_in_its_own_world(adapter, episodes):
    assert adapter.embody(episodes[0]) == episodes[0].task
    made_up = replace(episodes[0], task=replace(episodes[0].task, parent="x"))
    with pytest.raises(EnvironmentFailure, match="was generated: no page judges it"):
        adapter.embody(made_up)
