"""Pretraining: its corpus leaves out held-out tasks; examples, exercises, card and curves are as stated."""

import json
import re

import pytest
from builders import VOCABULARY
from name_lists import EPISODES
from prefect.logging import disable_run_logger

from components.config import Config, load_config
from components.environments import make_adapter
from components.errors import ConfigError, DataError
from components.language.backbone import load_backbone
from components.tracking.mlflow_adapter.tracker import Tracker
from components.trajectories.store import DataLayout, write_tasks, write_transitions
from flows.jobs.pretrain_run import pretraining_run
from flows.jobs.pretraining.corpus import BEHAVIOURS, SEED_OFFSET, choose_tasks, play_corpus, world_identity
from flows.jobs.pretraining.logged_corpus import read_logged_corpus
from flows.jobs.pretraining.phase_exercises import exercises_before_text, rehearsal_in_text
from flows.jobs.pretraining.phase_training import train_phase
from flows.jobs.pretraining.text_examples import AGENT_REPEATS, agent_example, agent_examples, render_examples


def test_held_out_tasks_are_in_no_corpus(tmp_path):
    config = load_config(
        None, ["pretrain.tasks=3", "pretrain.sizes=[8]", "environment.workers=1", "pretrain.max_steps=4"]
    )
    tasks = make_adapter(config.environment).tasks("train", 3, config.pretrain.seed + SEED_OFFSET)
    with disable_run_logger():
        episodes = play_corpus.fn(config, tmp_path, {tasks[1].id})
        assert {episode.task.id for episode in episodes} == {tasks[0].id, tasks[2].id}
        assert len(episodes) == 2 * sum(BEHAVIOURS.values())
        written = (tmp_path / "transitions.parquet").stat().st_mtime_ns
        assert play_corpus.fn(config, tmp_path, {tasks[1].id}) == episodes
        assert (tmp_path / "transitions.parquet").stat().st_mtime_ns == written
        assert {episode.task.id for episode in play_corpus.fn(config, tmp_path, set())} == {
            task.id for task in tasks
        }


def test_a_users_environment_is_played_again_if_its_module_or_demonstrations_change(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_solutions.jsonl").write_text("")
    identities = []
    for text in ("SIZE = 1", "SIZE = 2"):
        (tmp_path / "a_world_that_changes.py").write_text(text)
        options = ["environment.name=gymnasium", "environment.gymnasium.factory=a_world_that_changes:make"]
        world = load_config(
            None, [*options, "environment.text.demonstrations=my_solutions.jsonl"]
        ).environment
        identities.append(world_identity(world))
    (tmp_path / "my_solutions.jsonl").write_text('{"task": "gymnasium/2", "actions": ["look"]}\n')
    identities.append(world_identity(world))
    first, second, third = identities
    assert first["code"] != second["code"] == third["code"]
    assert second["demonstrations"] != third["demonstrations"]


def test_an_agents_example_imitates_steps_that_changed_something(adapter, tasks, played):
    """A refused action has no loss; the action after it has."""
    episode = next(
        e for e in played["noisy"] if any(s.next_state.startswith("Nothing happens") for s in e.steps)
    )
    example = agent_example(adapter, VOCABULARY, episode)
    replies = example.segments[2::3]
    assert len(replies) == len(episode.steps)
    for step, reply in zip(episode.steps, replies, strict=True):
        is_refused = step.next_state.startswith(("Nothing happens", "Looked around"))
        assert not (is_refused and any(reply.loss))
        assert all(reply.loss) or not any(reply.loss)
    assert any(not any(reply.loss) for reply in replies) and any(all(reply.loss) for reply in replies)


def test_pretraining_games_have_all_configured_sizes():
    config = load_config(None, ["pretrain.tasks=5", "pretrain.sizes=[8, 16]"])
    tasks = choose_tasks(config)
    rooms = [task.initial_state.count(",") + 1 for task in tasks]
    assert len(tasks) == 5 and len({task.id for task in tasks}) == 5
    assert max(rooms[:3]) <= 8 < max(rooms[3:]) <= 16


def phase(**settings):
    """Overrides for a recipe of one phase."""
    return [f"pretrain.phases=[{json.dumps(settings)}]"]


def test_a_backbone_can_be_trained_on_the_exercises_alone(tmp_path):
    small = phase(copy_tokens=300, compare_tokens=300, edit_tokens=300, tokens=0)
    shape = ["backbone.hidden=16", "backbone.layers=1", "backbone.heads=2", "backbone.key_value_heads=1"]
    config = load_config(None, [*small, *shape, "threads=1"])
    (tmp_path / "work").mkdir()
    with disable_run_logger():
        curve_names = set()
        backbone = train_phase.fn(
            config,
            VOCABULARY,
            [],
            tmp_path / "work",
            tmp_path / "model",
            log_curves=lambda step, values: curve_names.update(values),
        )
    exercises = ("copying", "comparing-words", "comparing-lists", "editing")
    curves = ("loss", "learning_rate")
    assert curve_names == {f"pretrain/{name}/{curve}" for name in exercises for curve in curves}
    card = json.loads((backbone / "card.json").read_text())
    assert (
        card["tokens_trained"] == 0
        and card["examples"] == 0
        and card["pretrain"]["phases"][0]["edit_tokens"] == 300
    )
    skills = [
        "copying",
        "copying repeats",
        "comparing 1",
        "comparing 10",
        "comparing 20",
        "editing",
        "recalling",
        "numbers",
    ]
    assert set(card["able_after"]) == {"exercises", "text"} and list(card["able_after"]["text"]) == skills
    assert set(card["able_after"]["text"].values()) == {0.0}, "one step teaches none of them"
    assert len(load_backbone(backbone)[1]) == len(VOCABULARY)
    assert list((tmp_path / "work").iterdir()) == []


def test_the_exercises_are_rehearsed_among_the_text():
    config = load_config(None, phase(rehearsal=0.2))
    mixed = rehearsal_in_text(config, VOCABULARY, 100_000)
    assert 20_000 <= sum(map(len, mixed)) <= 22_000
    assert rehearsal_in_text(load_config(None, phase(rehearsal=0)), VOCABULARY, 100_000) == []
    small = load_config(None, phase(copy_tokens=0, compare_tokens=9000, edit_tokens=9000))
    first = [
        example.segments[0].tokens
        for examples in exercises_before_text(small, VOCABULARY).values()
        for example in examples
    ]
    assert first and not [example for example in mixed if example.segments[0].tokens in first]


def test_later_exercises_rehearse_the_earlier_ones():
    tokens = {"copy_tokens": 4000, "compare_tokens": 8000, "edit_tokens": 4000}
    config = load_config(None, phase(**tokens, exercise_rehearsal=0.5))
    alone = exercises_before_text(load_config(None, phase(**tokens)), VOCABULARY)
    mixed = exercises_before_text(config, VOCABULARY)
    assert mixed["copying"] == alone["copying"]
    for name in ("comparing-words", "comparing-lists", "editing"):
        own = len(alone[name])
        assert mixed[name][:own] == alone[name]
        again = sum(map(len, mixed[name][own:]))
        assert 0.4 < again / sum(map(len, alone[name])) < 1.2, (
            name
        )  # whole examples, so a little more than half at this size
    first_tokens = {tuple(example.segments[0].tokens) for examples in alone.values() for example in examples}
    rehearsed = [example for name in mixed for example in mixed[name][len(alone[name]) :]]
    assert not [example for example in rehearsed if tuple(example.segments[0].tokens) in first_tokens]


def test_no_copy_of_an_episode_gets_its_own_step_as_demonstration(tmp_path):
    """The recorded episode would reveal the next state."""
    config = load_config(None, ["environment.name=browser", *phase(hindsight=2), "retrieval.k=1"])
    examples = render_examples.fn(config, VOCABULARY, EPISODES, tmp_path)
    texts = [VOCABULARY.decode(segment.tokens) for example in examples for segment in example.segments]
    prompts = [text.replace(" ", "").partition("<turn>") for text in texts if "<demo>" in text]
    pairs = [
        (re.findall(r"select\[13\](\w+)<", before), re.findall(r"select\[13\](\w+)<", after))
        for before, _, after in prompts
    ]
    assert len([pair for pair in pairs if all(pair)]) >= 3 * len(EPISODES)
    assert not [pair for pair in pairs if all(pair) and pair[0] == pair[1]]


def test_a_pretraining_is_a_run_in_mlflow_with_its_curves(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    work = tmp_path / "work"
    with pytest.raises(KeyboardInterrupt), pretraining_run(Config(), tmp_path, work) as log_curves:
        log_curves(0, {"pretrain/loss": 3.0})
        log_curves(1, {"pretrain/loss": 2.0})
        raise KeyboardInterrupt
    with pretraining_run(Config(), tmp_path, work) as log_curves:
        log_curves(1, {"pretrain/loss": 2.5})
    tracker = Tracker(Config().tracking, tmp_path)
    second, first = tracker.client.search_runs(
        [tracker.experiment_id], order_by=["attributes.start_time DESC"]
    )
    assert (first.info.status, second.info.status) == ("FAILED", "FINISHED")
    curves = [tracker.client.get_metric_history(run.info.run_id, "pretrain/loss") for run in (first, second)]
    assert [[(m.step, m.value) for m in curve] for curve in curves] == [
        [(0, 3.0), (1, 2.0)],
        [(0, 3.0), (1, 2.5)],
    ]
    assert curves[0][0].timestamp == curves[1][0].timestamp, "the time at which it was measured"
    assert not list(work.iterdir())


def test_from_logs_it_reads_the_recorded_episodes_and_imitates_every_action_of_them(tmp_path, played, tasks):
    layout = DataLayout.of(tmp_path, "alfworld")
    episodes = [*played["noisy"], *played["random"]]
    write_tasks(layout.tasks("train"), tasks)
    write_transitions(layout.trajectories("train"), [step for episode in episodes for step in episode.steps])
    assert read_logged_corpus(layout, tmp_path / "work") == episodes
    settings = (tmp_path / "work" / "settings.json").read_text()

    assert read_logged_corpus(layout, tmp_path / "some", ["random"]) == played["random"]
    assert (tmp_path / "some" / "settings.json").read_text() != settings
    with pytest.raises(DataError, match="no episode of expert"):
        read_logged_corpus(layout, tmp_path / "some", ["expert"])

    config = load_config(None, ["pretrain.corpus=logs"])
    example_count = len(render_examples.fn(config, VOCABULARY, episodes, tmp_path))
    with_loss = [
        all(all(reply.loss) for reply in example.segments[2::3])
        for example in agent_examples(config, VOCABULARY, episodes)
    ]
    assert len(with_loss) == len(episodes) and all(with_loss), "one of each, and nothing left out of its loss"
    without_agent = render_examples.fn(config, VOCABULARY, [], tmp_path)
    assert without_agent == [] and example_count >= (1 + AGENT_REPEATS) * len(episodes)

    write_transitions(
        layout.trajectories("train"), [step for episode in episodes[1:] for step in episode.steps]
    )
    read_logged_corpus(layout, tmp_path / "work")
    assert (tmp_path / "work" / "settings.json").read_text() != settings, "other logs, another backbone"


def test_from_logs_no_option_of_played_games_has_an_effect():
    with pytest.raises(ConfigError, match="tasks has no effect with corpus: logs"):
        load_config(None, ["pretrain.corpus=logs", "pretrain.tasks=5"])


def test_text_that_is_too_long_is_refused_before_the_exercises(tmp_path, played):
    shape = ["backbone.hidden=16", "backbone.layers=1", "backbone.heads=2", "backbone.key_value_heads=1"]
    config = load_config(None, [*shape, "backbone.max_positions=64", "pretrain.corpus=logs"])
    examples = agent_examples(config, VOCABULARY, played["noisy"])
    (tmp_path / "work").mkdir()
    with disable_run_logger(), pytest.raises(DataError, match=r"The model takes 64\..*max_positions"):
        train_phase.fn(config, VOCABULARY, examples, tmp_path / "work", tmp_path / "model")
    assert list((tmp_path / "work").iterdir()) == [], "no exercise was trained"
