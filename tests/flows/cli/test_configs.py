"""Every shipped config parses, says what it costs, and is documented."""

from pathlib import Path

import pytest

from components.config import Config, dump_config, load_config
from components.errors import ConfigError
from flows.cli.tables.config_reference import describe_keys

ROOT = Path(__file__).parents[3]
MOST_KEYS = 228
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))


def test_the_configs_are_there():
    assert [path.stem for path in CONFIGS] == [
        "cpu",
        "gpu",
        "logs",
        "methods",
        "pretrain-browser",
        "pretrain-exercises",
        "pretrain-webshop",
        "prompted",
        "quick-browser",
        "quick-webshop",
        "quick",
        "smollm2-smoke",
        "smollm2",
        "study-logs-only",
        "study-meta-rewarding",
        "study-mixed",
        "study-weak-logs",
        "study",
    ]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_shipped_config(path, tmp_path):
    config = load_config(path)
    resolved = tmp_path / "config.json"
    resolved.write_text(dump_config(config))
    assert load_config(resolved) == config


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_first_line_states_hardware_time_and_cost(path):
    first = path.read_text().splitlines()[0]
    assert first.startswith("# ") and any(word in first for word in ("CPU", "GPU"))
    assert "memory" in first and "cost" in first
    assert any(word in first for word in ("minutes", "hours", "time"))


def test_the_study_of_methods_trains_in_the_dreams_of_the_first_study():
    methods, first = (
        load_config(ROOT / "configs" / f"{name}.yaml") for name in ("methods", "study-logs-only")
    )
    study = first.study.model_copy(update={"methods": methods.study.methods})
    assert first.model_copy(update={"study": study}) == methods


def test_quick_fits_the_versioned_data():
    """The data that a clone comes with was recorded with these settings; other ones would train on games of
    another size.
    """
    quick, default = load_config(ROOT / "configs" / "quick.yaml"), Config()
    assert quick.environment == default.environment
    assert quick.data == default.data and quick.backbone == default.backbone


def test_a_record_holds_no_options_of_other_environments():
    """So that a new adapter changes no key and no hash of an old one's stages and data."""
    assert set(Config().environment.model_dump()) == {
        "name",
        "games",
        "receptacles",
        "objects",
        "max_steps",
        "workers",
        "description",
        "seed",
    }
    other = load_config(None, ["environment.name=webshop"])
    assert set(other.environment.model_dump(mode="json")) == {
        "name",
        "max_steps",
        "description",
        "seed",
        "webshop",
    }
    assert load_config(None, []).model_validate_json(dump_config(other)) == other
    browser = load_config(None, ["environment.name=browser"])
    assert set(browser.environment.model_dump(mode="json")) == {
        "name",
        "max_steps",
        "workers",
        "description",
        "seed",
        "browser",
    }


def test_unknown_key_in_a_file_names_the_nearest(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("curriculum:\n  sead: 3\n")
    with pytest.raises(ConfigError, match=r"Unknown key curriculum\.sead\. Did you mean curriculum\.seeds\?"):
        load_config(path)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["curriculum.enabled=false", "curriculum.share=0.1"], "share has no effect with enabled: false"),
        (
            ["environment.games=official", "environment.objects=3"],
            "objects has no effect with games: official",
        ),
        (["environment.webshop.products=300"], "webshop has no effect with name: alfworld"),
        (["environment.name=webshop", "environment.objects=3"], "objects has no effect with name: webshop"),
        (
            ["environment.name=webshop", "environment.webshop.catalogue=official", "environment.seed=3"],
            "seed has no effect with webshop",
        ),
        (
            [
                "environment.name=webshop",
                "environment.webshop.catalogue=generated",
                "environment.webshop.goals=synthetic",
            ],
            "goals has no effect",
        ),
        (["rl.algorithm.type=dpo", "rl.algorithm.epsilon=0.1"], "epsilon is no option of type dpo"),
        (["rl.real.algorithm.type=rft", "rl.real.algorithm.discount=0.9"], "is no option of type rft"),
        (
            ["rl.dream.algorithm.step_weight=0", "rl.dream.algorithm.discount=0.9"],
            "discount has no effect with step_weight: 0",
        ),
        (["curriculum.share=0", "curriculum.candidates=2"], "candidates has no effect with share: 0"),
        (["curriculum.share=0.5"], "share .+ explore is 1.25, more than all tasks"),
        (
            ["rl.dream.iterations=4", "rl.dream.check_every=5"],
            "check_every has no effect with iterations: 4",
        ),
        (["rl.algorithm.reward=hero"], "pull harder than one with a success.*set scale_rewards: false"),
        (
            ["rl.algorithm.type=ppo", "rl.num_generations=1", "rl.algorithm.reward=hero"],
            "reward is no option of type ppo",
        ),
        (["rl.algorithm.type=ppo", "rl.algorithm.reward=hero_learnt"], "reward is no option of type ppo"),
        (
            ["rl.dream.algorithm={type: dpo, sync_every: 8}", "rl.dream.iterations=8"],
            "sync_every: 8 never updates the rollout policy in 8 iterations: it is offline",
        ),
        (["rl.real.algorithm={type: dpo, sync_every: 5}"], "rl.real: sync_every: 5 never updates"),
        (["rl.algorithm.step_credit=salt", "rl.algorithm.step_weight=1"], "no effect with step_credit: salt"),
        (["lora.alpha=8"], "alpha has no effect with rank: 0"),
        (
            ["cloning.behaviours=[noisy]", "cloning.early_experience=self_reflection"],
            "Expected behaviours: .expert.",
        ),
        (
            ["experience_model.behaviours=[near_miss]", "experience_model.near_miss_weight=3"],
            "near_miss_weight has no effect",
        ),
    ],
)
def test_option_without_effect_is_refused(overrides, words):
    with pytest.raises(ConfigError, match=words):
        load_config(None, overrides)


def test_dpo_may_be_offline_or_synchronise_at_least_once():
    for every in (0, 1, 7):
        options = [f"rl.dream.algorithm={{type: dpo, sync_every: {every}}}", "rl.dream.iterations=8"]
        assert load_config(None, options).rl.dream.algorithm.sync_every == every
    single = load_config(None, ["rl.dream.algorithm=dpo", "rl.dream.iterations=1", "rl.dream.check_every=0"])
    assert single.rl.dream.algorithm.sync_every == 1, "online, in one iteration"


def test_every_key_is_documented():
    assert (ROOT / "docs" / "configuration.md").read_text() == describe_keys(), "Type `make docs`."


def test_the_same_key_of_another_section_comes_before_one_that_looks_alike():
    wanted = (
        r"Unknown key iterations\. Did you mean rl\.iterations or rl\.dream\.iterations or "
        r"rl\.real\.iterations or rl\.baseline\.iterations\?"
    )
    with pytest.raises(ConfigError, match=wanted):
        load_config(None, ["iterations=3"])


@pytest.mark.parametrize(
    "override", ["experience_model.temperature=.inf", "promotion.min_absolute_change=.nan"]
)
def test_numbers_must_be_finite(override):
    with pytest.raises(ConfigError, match="finite number"):
        load_config(None, [override])


def test_a_budget_that_allows_no_iteration_is_refused():
    with pytest.raises(ConfigError, match=r"rl\.baseline\.budget=5000 allows no iteration.*5120 steps"):
        load_config(None, ["rl.baseline.budget=5000"])
    with pytest.raises(ConfigError, match=r"rl\.real\.budget=1000 allows no iteration.*1920 steps"):
        load_config(None, ["rl.real.budget=1000"])
    assert load_config(None, ["rl.real.budget=0", "rl.real.iterations=0"]).rl.real.budget == 0


def test_each_environment_has_an_experiment_and_so_a_champion_of_its_own():
    named = {
        path.stem: load_config(path).tracking.experiment
        for path in CONFIGS
        if path.stem != "gpu" and not path.stem.startswith(("study", "pretrain", "methods"))
    }
    assert named == {
        "quick": "dreamgym",
        "cpu": "dreamgym",
        "quick-webshop": "dreamgym-webshop",
        "quick-browser": "dreamgym-browser",
        "smollm2": "dreamgym-smollm2",
        "smollm2-smoke": "dreamgym-smollm2-smoke",
        "logs": "dreamgym-logs",
        "prompted": "dreamgym-prompted",
    }
    shop = load_config(ROOT / "configs" / "quick-webshop.yaml", ["tracking.experiment=mine"])
    assert (
        shop.tracking.experiment == "mine"
        and load_config(None, ["tracking.experiment=mine"]).tracking.experiment == "mine"
    )
    assert type(shop).model_validate(shop.model_dump(mode="json")) == shop


def test_an_earlier_key_is_refused_with_its_new_name():
    names = {
        "synthetic_rl.group=4": r"synthetic_rl\.group is now rl\.dream\.num_generations\.",
        "sim_to_real.clip_high=0.3": r"clip_high is now rl\.real\.algorithm\.epsilon_high\.",
        "real_rl.iterations=3": r"real_rl\.iterations is now rl\.baseline\.iterations\.",
        "synthetic_rl.interpolation=0.5": r"interpolation is removed; its value is always 1\.0\.",
        "cloning.lora.rank=4": r"cloning\.lora\.rank is now lora\.rank\.",
        "pretrain.tokens=5": r"pretrain\.tokens is now tokens in an entry of pretrain\.phases\.",
    }
    for override, words in names.items():
        with pytest.raises(ConfigError, match=words):
            load_config(None, [override])


def test_a_key_of_rl_holds_for_all_stages_unless_a_stage_overrides_it():
    rl = load_config(None, ["rl.tasks=5", "rl.real.tasks=3", "rl.algorithm.epsilon=0.1"]).rl
    assert (rl.dream.tasks, rl.real.tasks, rl.baseline.tasks) == (5, 3, 5)
    assert {stage.algorithm.epsilon for stage in (rl.dream, rl.real, rl.baseline)} == {0.1}
    assert Config().rl.real.tasks == 12, "a stage's own default stays"


def test_a_stage_with_another_algorithm_keeps_the_options_that_both_share():
    options = ["rl.algorithm.epsilon=0.1", "rl.algorithm.beta=0.2", "rl.algorithm.optimizer_steps=5"]
    rl = load_config(None, [*options, "rl.dream.algorithm=ppo", "rl.real.algorithm=dpo"]).rl
    assert (rl.dream.algorithm.type, rl.dream.algorithm.epsilon, rl.dream.algorithm.beta) == ("ppo", 0.1, 0.2)
    assert rl.real.algorithm.optimizer_steps == 5
    assert rl.real.algorithm.beta == 0.1, "DPO's beta is another idea than GRPO's"


def test_there_are_few_keys():
    """Each key counts once, entries of lists and the options of each type of algorithm included."""
    keys = {line.split("`")[1] for line in describe_keys().splitlines() if line.startswith("| `")}
    assert len(keys) <= MOST_KEYS
