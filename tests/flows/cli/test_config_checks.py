"""A config that does not fit the recorded data, the backbone or the machine is refused before a start."""

from __future__ import annotations

import json

import pytest
import torch
from builders import VOCABULARY, make_model, make_task, make_transition

from components.cluster import ray_workers
from components.config import load_config
from components.errors import ConfigError, DataError
from components.files import write_json
from components.language.backbone import save_model
from components.trajectories.store import DataLayout, write_tasks, write_transitions
from flows.checks.config_checks import check_settings
from flows.checks.reward_checks import require_progress
from flows.jobs.collect import recorded_settings
from flows.jobs.studies.cell_origin import origin_of, require_origin
from flows.run.pipeline_run import Run
from flows.run.run_data import experience_model_backbone, policy_backbone


@pytest.fixture
def recorded(tmp_path):
    (tmp_path / "data" / "alfworld").mkdir(parents=True)
    write_json(tmp_path / "data" / "alfworld" / "settings.json", recorded_settings(load_config()))
    return tmp_path


def test_the_same_settings_pass_and_so_do_those_of_play(recorded):
    check_settings(recorded, load_config())
    check_settings(
        recorded,
        load_config(None, ["environment.max_steps=30", "environment.workers=1", "data.quarantine_share=0.5"]),
    )


@pytest.mark.parametrize(
    "override", ["environment.receptacles=20", "data.train_tasks=10", "data.seed=3", "environment.seed=1"]
)
def test_other_games_or_episodes_are_refused_with_both_values(recorded, override):
    name, asked = override.split("=")
    there = getattr(getattr(load_config(), name.split(".")[0]), name.split(".")[1])
    with pytest.raises(
        ConfigError,
        match=rf"recorded with {name}={there}; this config asks for {name}={asked}.*dreamgym collect",
    ):
        check_settings(recorded, load_config(None, [override]))


def test_an_evaluation_checks_the_games_but_not_the_training_data(recorded):
    check_settings(recorded, load_config(None, ["data.train_tasks=10"]), training=False)
    with pytest.raises(ConfigError, match="recorded with environment.seed=0"):
        check_settings(recorded, load_config(None, ["environment.seed=1"]), training=False)


HERO = ["rl.algorithm.reward=hero", "rl.algorithm.scale_rewards=false"]
PLAIN = [
    *("environment.knowledge=false", "experience_model.premise=false", "experience_model.reasoning=false"),
]


def test_hero_needs_a_world_that_measures_progress(tmp_path):
    check_settings(tmp_path, load_config(None, HERO))
    words = (
        r"rl\.dream\.algorithm\.reward and rl\.real\.algorithm\.reward is hero; the environment alfworld "
        r"with environment\.knowledge=false measures no progress.*rl\.dream\.algorithm\.reward=hero_learnt"
    )
    with pytest.raises(ConfigError, match=words):
        check_settings(tmp_path, load_config(None, [*HERO, *PLAIN]))
    check_settings(tmp_path, load_config(None, ["rl.algorithm.reward=hero_learnt", HERO[1], *PLAIN]))
    check_settings(tmp_path, load_config(None, PLAIN))
    only_real = load_config(None, [*PLAIN, *(option.replace("rl.", "rl.real.") for option in HERO)])
    with pytest.raises(ConfigError, match=r"^rl\.real\.algorithm\.reward is hero"):
        check_settings(tmp_path, only_real)


def test_hero_needs_progress_in_each_of_several_worlds():
    """The mixed adapter always defines `progress`; a plain world in it tells no more than the outcome."""
    boxes = "environment.own.adapter=components.environments.template:TemplateAdapter"
    mixed = [*HERO, "environment.name=mixed"]
    require_progress(load_config(None, [*mixed, "environment.worlds=[alfworld,browser]"]))
    with pytest.raises(ConfigError, match="environment mixed measures no progress"):
        require_progress(load_config(None, [*mixed, "environment.worlds=[alfworld,own]", boxes]))


@pytest.fixture
def few(tmp_path):
    """Data of three training tasks (two solved by the expert), two fidelity tasks and one held-out task."""
    layout = DataLayout.of(tmp_path, "alfworld")
    train = [make_task(number) for number in range(3)]
    for name, tasks in {"train": train, "fidelity": train[:2], "test": train[:1]}.items():
        write_tasks(layout.tasks(name), tasks)
    steps = [
        make_transition(0, f"e{n}", f"t{n}", reward=float(n > 0), done=n > 0, behaviour="expert")
        for n in range(3)
    ]
    write_transitions(
        layout.trajectories("train"),
        [*steps, make_transition(0, "e9", reward=1.0, done=True, behaviour="noisy")],
    )
    return tmp_path


FEW = {"evaluation.tasks": 1, "fidelity.tasks": 2, "fidelity.policy_tasks": 3, "cloning.demonstrations": 2}


def test_as_many_tasks_and_demonstrations_as_there_are_pass(few):
    check_settings(few, load_config(None, [f"{key}={most}" for key, most in FEW.items()]))
    check_settings(few, load_config(None, ["evaluation.tasks=1"]), training=False)


@pytest.mark.parametrize("key", FEW)
def test_more_tasks_or_demonstrations_than_there_are_are_refused(few, key):
    asked = [f"{other}={most + (other == key)}" for other, most in FEW.items()]
    words = (
        rf"asks for {key}={FEW[key] + 1}\. data/alfworld has {FEW[key]} [a-z -]+\. Give "
        rf"{key}={FEW[key]}, or .*dreamgym collect"
    )
    with pytest.raises(ConfigError, match=words):
        check_settings(few, load_config(None, asked))


def test_what_is_cloned_is_counted_by_behaviour(few):
    rest = [f"{key}={most}" for key, most in FEW.items() if key != "cloning.demonstrations"]
    check_settings(
        few, load_config(None, [*rest, "cloning.behaviours=[expert,noisy]", "cloning.demonstrations=3"])
    )
    with pytest.raises(
        ConfigError, match=r"cloning.demonstrations=2\. data/alfworld has 1 episodes to clone"
    ):
        check_settings(
            few, load_config(None, [*rest, "cloning.behaviours=[noisy]", "cloning.demonstrations=2"])
        )


def test_more_games_than_there_are_are_refused_for_an_evaluation_too(few):
    with pytest.raises(ConfigError, match="asks for evaluation.tasks=64. data/alfworld has 1 held-out tasks"):
        check_settings(few, load_config(), training=False)


def test_a_backbone_that_is_not_there_is_refused_by_its_key(tmp_path):
    config = load_config(None, [f"backbone.path={tmp_path / 'typo'}"])
    with pytest.raises(
        ConfigError, match="backbone.path is '.*typo': there is no such directory.*OWNER/NAME"
    ):
        check_settings(tmp_path, config)
    check_settings(tmp_path, config, training=False)
    with pytest.raises(ConfigError, match="backbone.path is .* holds no .*safetensors"):
        check_settings(tmp_path, load_config(None, [f"backbone.path={tmp_path}"]))
    with pytest.raises(ConfigError, match="experience_model.path is .* holds no .*safetensors"):
        check_settings(tmp_path, load_config(None, [f"experience_model.path={tmp_path}"]))
    (tmp_path / "model.safetensors").write_text("")
    with pytest.raises(DataError, match="model.safetensors cannot be loaded: it has 0 bytes"):
        check_settings(
            tmp_path, load_config(None, [f"backbone.path={tmp_path}", f"experience_model.path={tmp_path}"])
        )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("training", [True, False])
def test_a_device_that_is_not_there_is_refused_before_anything_runs(tmp_path, training):
    with pytest.raises(ConfigError, match="device is cuda, and torch .* finds no CUDA device"):
        check_settings(tmp_path, load_config(None, ["device=cuda"]), training=training)
    check_settings(tmp_path, load_config(None, ["device=cpu"]), training=training)


def test_a_cluster_is_asked_for_the_workers_of_the_largest_stage(recorded, monkeypatch):
    """`tests/cluster` has a real one; here only what is asked of it counts."""
    asked = []
    monkeypatch.setattr(ray_workers, "connect", lambda *wanted: asked.append(wanted))
    for address in ("auto", "local"):  # on one machine the workers share its cores anyway
        options = [f"cluster={address}", "environment.workers=2", "rl.dream.processes=5"]
        check_settings(recorded, load_config(None, options))
    assert asked == [("auto", 5)]


def test_how_a_backbone_is_used_may_differ_from_when_it_was_made(tmp_path):
    card = tmp_path / "data" / "alfworld" / "backbone" / "card.json"
    save_model(make_model(), VOCABULARY, card.parent)
    made = load_config(None, ["backbone.gradient_checkpointing=true"])
    card.write_text(
        json.dumps({"backbone": made.backbone.model_dump(), "pretrain": made.pretrain.model_dump()})
    )
    check_settings(tmp_path, load_config())


def test_a_stage_is_keyed_by_what_its_numbers_were_computed_with(tmp_path):
    def computing(*overrides, training=False):
        return Run(load_config(None, ["device=cpu", *overrides]), tmp_path).computing(training=training)

    assert (
        computing()
        == {"device": "cpu", "precision": "fp32"}
        == computing("backbone.gradient_checkpointing=true")
    )
    assert computing(training=True)["gradient_checkpointing"] is False
    assert computing("backbone.gradient_checkpointing=true", training=True)["gradient_checkpointing"] is True
    small, large = (computing(f"lora.rank={rank}", training=True) for rank in (4, 16))
    assert (small["lora"]["rank"], large["lora"]["rank"]) == (4, 16)
    assert "lora" not in computing(training=True) and "lora" not in computing("lora.rank=4")


def test_the_experience_model_starts_from_a_path_of_its_own_and_the_policy_does_not(tmp_path):
    larger = tmp_path / "models" / "larger"
    run = Run(load_config(None, [f"experience_model.path={larger}"]), tmp_path)
    assert experience_model_backbone(run) == larger
    assert policy_backbone(run) == tmp_path / "data" / "alfworld" / "backbone"
    assert (
        "path" not in run.slice("experience_model")["experience_model"]
    )  # where it lies; its content is in the key
    both = Run(load_config(None, [f"backbone.path={tmp_path / 'models' / 'small'}"]), tmp_path)
    assert experience_model_backbone(both) == policy_backbone(both) != policy_backbone(run)


FIVE_TOKENS = ["pretrain.phases=[{tokens: 5}]"]


@pytest.fixture
def card(tmp_path):
    """The card of a backbone that was pretrained with `FIVE_TOKENS`."""
    path = tmp_path / "data" / "alfworld" / "backbone" / "card.json"
    save_model(make_model(), VOCABULARY, path.parent)
    write_card(path, load_config(None, FIVE_TOKENS))
    return path


def write_card(path, config, **more):
    """Write a card as `dreamgym pretrain` does: the sections of its config, and `more` keys."""
    values = {"backbone": config.backbone.model_dump(), "pretrain": config.pretrain.model_dump(mode="json")}
    path.write_text(json.dumps(values | more))


def test_settings_that_differ_from_those_of_the_existing_backbone_are_refused(card, tmp_path):
    check_settings(tmp_path, load_config(None, FIVE_TOKENS))
    words = (
        r"made with backbone.layers=4, pretrain.phases=\[\{.*'tokens': 5.*this config asks for "
        r"backbone.layers=8, pretrain.phases=\[\{.*'tokens': 6.*dreamgym pretrain"
    )
    with pytest.raises(ConfigError, match=words):
        check_settings(tmp_path, load_config(None, ["backbone.layers=8", "pretrain.phases=[{tokens: 6}]"]))
    check_settings(tmp_path, load_config())  # a key at its default is not compared
    check_settings(tmp_path, load_config(None, ["backbone.layers=8"]), training=False)


def test_a_card_without_a_list_of_phases_is_compared_too(card, tmp_path):
    config = load_config(None, FIVE_TOKENS)
    flat = config.pretrain.model_dump(mode="json", exclude={"phases"})
    flat |= {"tokens": 5, "rehearsal": 0.2, "optimizer": "adamw"}
    card.write_text(json.dumps({"backbone": config.backbone.model_dump(), "pretrain": flat}))
    check_settings(tmp_path, config)
    with pytest.raises(ConfigError, match=r"'rehearsal': 0\.2.*this config asks for.*'rehearsal': 0\.7"):
        check_settings(tmp_path, load_config(None, ["pretrain.phases=[{tokens: 5, rehearsal: 0.7}]"]))


def test_settings_are_compared_with_the_first_pretraining_of_a_backbone(card, tmp_path):
    continued = load_config(None, ["pretrain.phases=[{tokens: 7}]"])
    write_card(card, continued, went_on_from=[json.loads(card.read_text())])
    check_settings(tmp_path, load_config(None, FIVE_TOKENS))
    phased = load_config(None, ["pretrain.phases=[{tokens: 5}, {tokens: 3}]"])
    first = phased.pretrain.trainings()[0].model_dump(mode="json")
    recipe = phased.pretrain.model_dump(mode="json")
    start = {"backbone": phased.backbone.model_dump(), "pretrain": first, "recipe": recipe}
    write_card(card, continued, went_on_from=[start])
    check_settings(tmp_path, phased)
    check_settings(tmp_path, load_config())
    with pytest.raises(ConfigError, match=r"made with pretrain.phases=.*asks for pretrain.phases=\[\{"):
        check_settings(tmp_path, load_config(None, ["pretrain.phases=[{tokens: 4}]"]))


def test_a_backbone_of_another_environment_is_refused(card, tmp_path):
    write_card(card, load_config(None, FIVE_TOKENS), environment={"name": "webshop"})
    check_settings(tmp_path, load_config(None, [*FIVE_TOKENS, "environment.name=webshop"]))
    words = "made with environment.name=webshop; this config asks for environment.name=alfworld"
    with pytest.raises(ConfigError, match=words):
        check_settings(tmp_path, load_config(None, FIVE_TOKENS))


def test_a_damaged_card_is_refused(card, tmp_path):
    card.write_text("{}")
    with pytest.raises(DataError, match=r"card.json cannot be read.*dvc checkout"):
        check_settings(tmp_path, load_config())


def test_another_shop_than_the_recorded_one_is_refused(tmp_path):
    """Sections of one environment are compared as values: after a round through JSON they are mappings."""
    config, lie = load_config(None, ["environment.name=webshop"]), tmp_path / "data" / "alfworld"
    for place in (lie, tmp_path / "data" / "webshop"):
        place.mkdir(parents=True)
        write_json(place / "settings.json", recorded_settings(config))
    check_settings(tmp_path, config)
    with pytest.raises(
        ConfigError,
        match="recorded with environment.webshop=.*'products': 3000.*this config asks for .*'products': 900",
    ):
        check_settings(
            tmp_path, load_config(None, ["environment.name=webshop", "environment.webshop.products=900"])
        )
    with pytest.raises(
        ConfigError,
        match="recorded with environment.name=webshop; this config asks for environment.name=alfworld",
    ):
        check_settings(tmp_path, load_config())


def test_data_recorded_elsewhere_is_taken_as_it_is(tmp_path):
    check_settings(tmp_path, load_config(None, ["data.train_tasks=10"]))


@pytest.mark.parametrize("text", ["{", "[]", '{"data": 3}'])
def test_damaged_settings_are_named(recorded, text):
    (recorded / "data" / "alfworld" / "settings.json").write_text(text)
    with pytest.raises(DataError, match="settings.json cannot be read"):
        check_settings(recorded, load_config())


def test_a_cell_of_a_world_behind_a_server_is_read_back(tmp_path, monkeypatch):
    monkeypatch.setattr("flows.jobs.studies.cell_origin.part_hash", lambda *_: "data")
    world = ["environment.name=openenv", "environment.openenv.url=http://here:8000"]
    first, other, wrong = (
        origin_of(load_config(None, [*world, *more]), tmp_path)
        for more in ([], ["environment.workers=7"], ["environment.openenv.state_field=text"])
    )
    require_origin(tmp_path / "cell", first, other, "")
    with pytest.raises(DataError, match="environment.openenv.state_field .state, not text"):
        require_origin(tmp_path / "cell", first, wrong, "")


def test_the_address_of_a_world_may_change_and_its_definition_may_not(tmp_path):
    """For an OpenEnv server, another address is the same environment, another field is not."""
    url, seeds = "environment.openenv.url=http://here:8000", "environment.openenv.tasks=seeds"
    here = load_config(None, ["environment.name=openenv", url, seeds])
    (tmp_path / "data" / "openenv").mkdir(parents=True)
    write_json(tmp_path / "data" / "openenv" / "settings.json", recorded_settings(here))
    other = [
        "environment.name=openenv",
        "environment.openenv.url=http://there:9000",
        "environment.timeout_seconds=5",
        seeds,
    ]
    check_settings(tmp_path, load_config(None, other), training=False)
    with pytest.raises(
        ConfigError,
        match="recorded with environment.openenv=.*'state_field': 'state'.*asks for .*'state_field': 'text'",
    ):
        check_settings(
            tmp_path, load_config(None, [*other, "environment.openenv.state_field=text"]), training=False
        )
