"""A world of the user's: counts and whom to imitate follow the recorded data, unless the config sets them."""

from __future__ import annotations

import re

import pytest
from builders import make_task, make_transition

from components.config import load_config
from components.errors import ConfigError
from components.trajectories.store import DataLayout, write_tasks, write_transitions
from flows.checks.data_checks import require_enough_data
from flows.checks.fit_to_data import fit_to_data
from flows.jobs.pretraining.corpus import BEHAVIOURS, corpus_behaviours

SHOP = ["environment.name=gymnasium", "environment.gymnasium.factory=text_worlds:Counting"]
NO_EXPERT = ["data.expert=0", "data.noisy=0", "data.near_miss=0"]
NO_WEIGHT = {f"rl.{stage}.demonstration_weight": 0.0 for stage in ("dream", "real", "baseline")}


def record(root, environment, *episodes):
    """Record four training tasks, two fidelity tasks, three held-out ones, and (behaviour, won) episodes."""
    layout = DataLayout.of(root, environment)
    for split, count in {"train": 4, "fidelity": 2, "test": 3}.items():
        write_tasks(layout.tasks(split), [make_task(number) for number in range(count)])
    steps = [
        make_transition(0, f"e{number}", reward=float(won), done=won, behaviour=behaviour)
        for number, (behaviour, won) in enumerate(episodes)
    ]
    write_transitions(layout.trajectories("train"), steps)


def test_without_an_expert_all_recorded_behaviours_are_cloned(tmp_path):
    record(tmp_path, "gymnasium", *[("random", False)] * 3, ("noisy", True), ("near_miss", False))
    config, values = fit_to_data(tmp_path, load_config(None, SHOP))
    counts = {"evaluation.tasks": 3, "fidelity.tasks": 2, "fidelity.policy_tasks": 4}
    cloned = {"cloning.behaviours": ["noisy", "random"], "cloning.demonstrations": 4}
    assert values == counts | cloned | NO_WEIGHT
    assert config.cloning.behaviours == ["noisy", "random"]
    assert config.rl.dream.demonstration_weight == config.rl.real.demonstration_weight == 0
    require_enough_data(tmp_path, config, training=True)


def test_with_an_expert_only_counts_change(tmp_path):
    record(tmp_path, "gymnasium", ("expert", True), ("expert", False), ("random", False))
    _, values = fit_to_data(tmp_path, load_config(None, [*SHOP, "fidelity.tasks=1"]))
    assert values == {"evaluation.tasks": 3, "fidelity.policy_tasks": 4, "cloning.demonstrations": 1}


def test_an_expert_that_never_won_is_not_cloned(tmp_path):
    record(tmp_path, "gymnasium", ("expert", False), ("random", False))
    _, values = fit_to_data(tmp_path, load_config(None, SHOP))
    assert values["cloning.behaviours"] == ["random"] and NO_WEIGHT.items() <= values.items()


def test_what_the_config_sets_stays(tmp_path):
    record(tmp_path, "gymnasium", ("random", True))
    file = tmp_path / "my.yaml"
    file.write_text("fidelity: {tasks: 40}\nrl: {demonstration_weight: 0.5}\n")
    _, values = fit_to_data(tmp_path, load_config(file, [*SHOP, "cloning.behaviours=[noisy]"]))
    assert values == {"evaluation.tasks": 3, "fidelity.policy_tasks": 4}


def test_other_worlds_and_worlds_without_data_stay(tmp_path):
    record(tmp_path, "alfworld", ("random", True))
    for config in (load_config(), load_config(None, SHOP)):
        assert fit_to_data(tmp_path, config) == (config, {})


FITS = ["evaluation.tasks=1", "fidelity.tasks=1", "fidelity.policy_tasks=1"]


@pytest.mark.parametrize(
    ("overrides", "advice"),
    [
        ([], "cloning.behaviours=[random] cloning.demonstrations=3"),
        (["cloning.demonstrations=2"], "cloning.behaviours=[random]"),
        (
            ["cloning.behaviours=[noisy]", "cloning.only_successes=true", "cloning.demonstrations=2"],
            "cloning.behaviours=[random] cloning.only_successes=false",
        ),
    ],
)
def test_the_advice_where_nobody_can_be_cloned_works(tmp_path, overrides, advice):
    record(tmp_path, "alfworld", *[("random", False)] * 3)
    words = re.escape(f"has 0 episodes to clone. Give {advice}, or record more")
    given = [*FITS, "rl.demonstration_weight=0"]
    with pytest.raises(ConfigError, match=words):
        require_enough_data(tmp_path, load_config(None, [*given, *overrides]), training=True)
    keys = [text.partition("=")[0] for text in advice.split()]
    kept = [text for text in overrides if text.partition("=")[0] not in keys]
    require_enough_data(tmp_path, load_config(None, [*given, *kept, *advice.split()]), training=True)


def test_with_no_episode_at_all_more_are_to_be_recorded(tmp_path):
    record(tmp_path, "alfworld", ("expert", False))
    with pytest.raises(ConfigError, match=r"has 0 episodes to clone\. Record more with `dreamgym collect`"):
        require_enough_data(tmp_path, load_config(None, FITS), training=True)


def test_demonstrations_in_rl_without_an_expert_are_refused_before_the_first_stage(tmp_path):
    record(tmp_path, "alfworld", *[("random", False)] * 3)
    cloned = [*FITS, "cloning.behaviours=[random]", "cloning.demonstrations=1"]
    with pytest.raises(
        ConfigError,
        match=r"rl.dream.demonstration_weight and rl.real.demonstration_weight.*no expert episode that succ",
    ):
        require_enough_data(tmp_path, load_config(None, cloned), training=True)
    without = load_config(None, [*cloned, "rl.demonstration_weight=0"])
    require_enough_data(tmp_path, without, training=True)
    require_enough_data(tmp_path, load_config(None, cloned), training=False)


def test_a_backbone_of_the_users_world_is_pretrained_on_the_recorded_behaviours():
    assert corpus_behaviours(load_config(None, NO_EXPERT)) == BEHAVIOURS, "a world that comes with an expert"
    assert corpus_behaviours(load_config(None, SHOP)) == BEHAVIOURS
    assert corpus_behaviours(load_config(None, [*SHOP, *NO_EXPERT])) == {"random": 1}
    with pytest.raises(ConfigError, match="all of data.expert.*are 0.*pretrain.corpus=logs"):
        corpus_behaviours(load_config(None, [*SHOP, *NO_EXPERT, "data.random=0"]))
