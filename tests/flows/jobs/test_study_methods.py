"""Configs of a study's cells: every method has a valid one, without unused options; and cells on disk."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders import make_task

from components.config import load_config
from components.config.algorithm_config import DPOConfig, PPOConfig, RFTConfig
from components.errors import ConfigError, DataError
from components.evaluation.study.ablation_results import FULL, VARIANTS, apply_variant
from components.evaluation.study.cells import Cell
from components.tracking.stage_store.stage_result import StageResult
from components.trajectories.dvc.snapshots import snapshot
from components.trajectories.store import DataLayout, write_tasks
from flows.jobs.pretraining.card import CARD
from flows.jobs.studies.cell_origin import origin_of, require_origin
from flows.jobs.studies.method_config import chosen_methods, method_config
from flows.jobs.studies.method_groups import BUDGETS, GRADED
from flows.jobs.studies.study import steps_of, study
from flows.jobs.studies.study_cells import read_cell, write_cell
from flows.jobs.studies.study_methods import METHODS, bases_against

ROOT = Path(__file__).parents[3]
LIVE_CONFIGS = sorted(
    path.name for path in (ROOT / "configs").glob("*.yaml") if path.stem not in ("logs", "prompted")
)
"""A study plays held-out games: worlds that are logs alone have none."""
FAMILIES = ["f", "e", "d", "c", "b", "a"]


def versioned(place):
    """A folder whose data is that of this repository."""
    shutil.copy(ROOT / "data.dvc", place)
    shutil.copytree(ROOT / ".dvc", place / ".dvc", ignore=shutil.ignore_patterns("cache", "tmp"))


@functools.cache
def shipped(file, *overrides):
    """A shipped config; a config cannot be changed, so that all tests may share it."""
    return load_config(ROOT / "configs" / file, overrides)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("file", LIVE_CONFIGS)
def test_every_method_has_a_valid_config(name, file):
    method = METHODS[name]
    if method.options.get("sync_every", 0) > 1 and shipped(file).rl.dream.iterations == 1:
        with pytest.raises(ConfigError, match="it is offline"):
            method_config(shipped(file), name, 7, FAMILIES)
        return
    config = method_config(shipped(file), name, 7, FAMILIES)
    assert method_config(config, name, 7, FAMILIES) == config, (
        "a cell that is gone on with has its config from the run"
    )
    assert config.seed == 7 and config.data.families == (["a", "b", "c"] if method.transfer else [])
    if method.dream:
        assert config.rl.dream.algorithm.type == method.dream
    if method.real:
        section = config.rl.real if method.dream else config.rl.baseline
        assert section.algorithm.type == method.real
    if method.dream and method.real:
        limit = method.real_steps or config.rl.baseline.budget // 10
        assert config.rl.real.budget <= limit


def test_half_of_one_family_is_no_transfer():
    """Without a family left out it would learn from all, under another name."""
    for families in ([""], ["a", "a"]):
        with pytest.raises(
            ConfigError, match="transfer-clone learns from half of the families.*are of 1.*--methods clone"
        ):
            method_config(load_config(None), "transfer-clone", 0, families)


PLAIN_DREAMS = {
    "smollm2.yaml",
    "smollm2-smoke.yaml",
    "logs.yaml",
    "prompted.yaml",
    "study-meta-rewarding.yaml",
    "study-mixed.yaml",
}
"""Configs whose dream has neither reasoning nor retrieval: there is nothing for an ablation to leave out."""


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize(
    "file", sorted({path.name for path in (ROOT / "configs").glob("*.yaml")} - PLAIN_DREAMS)
)
def test_every_ablation_has_a_valid_config(name, file):
    before = shipped(file, "experience_model.near_miss_weight=3", "experience_model.hindsight=1")
    changed = apply_variant(before, VARIANTS[name], 7)
    assert changed.seed == 7 and (name == FULL) == (
        changed.model_copy(update={"seed": before.seed}) == before
    )


def test_ppo_plays_as_many_tasks_once_as_others_have_rollouts():
    before = load_config(
        None, ["rl.dream.algorithm.step_weight=1.0", "rl.dream.tasks=16", "rl.dream.num_generations=8"]
    )
    section = method_config(before, "dream-ppo", 0, FAMILIES).rl.dream
    assert (section.tasks, section.num_generations) == (128, 1)
    assert section.algorithm == PPOConfig(), "GRPO's own options are left out"


def test_plain_grpo_has_none_of_our_parts_and_no_other_stage_changes():
    before = load_config(None, ["rl.dream.algorithm.step_weight=1.0", "rl.baseline.algorithm.type=ppo"])
    changed = method_config(before, "dream-plain-grpo", 0, FAMILIES)
    options = changed.rl.dream.algorithm
    assert (options.step_weight, options.negative_advantage_weight, options.idle_penalty) == (0, 1, 0)
    assert changed.rl.baseline == before.rl.baseline
    real = method_config(load_config(None), "plain-grpo-real", 0, FAMILIES).rl.baseline.algorithm
    assert (real.step_weight, real.negative_advantage_weight, real.idle_penalty) == (0, 1, 0)


def test_the_engine_in_place_of_the_dream_plays_as_many_rollouts():
    before = load_config(None, ["rl.dream.iterations=10", "rl.dream.tasks=16", "environment.max_steps=20"])
    section = method_config(before, "engine-as-dream", 0, FAMILIES).rl.baseline
    assert (section.iterations, section.tasks, section.num_generations) == (10, 16, 8)
    assert section.budget == 10 * 16 * 8 * 20, "no iteration is left out for its budget"


def test_without_knowledge_every_hand_written_part_is_off():
    config = method_config(load_config(None), "no-knowledge", 0, FAMILIES)
    settings = config.experience_model
    assert not config.environment.knowledge
    assert not (settings.reasoning or settings.premise or settings.coherent or settings.grounded)


@pytest.mark.parametrize("stage", ["dream", "baseline"])
@pytest.mark.parametrize("iterations", [1, 6, 7, 8, 16, 25])
def test_rft_has_as_many_rollouts_as_the_others(stage, iterations):
    config = load_config(None, [f"rl.{stage}.iterations={iterations}", "rl.dream.check_every=0"])
    grpo, rft = (
        getattr(method_config(config, name, 0, FAMILIES).rl, stage)
        for name in (("dream-gigpo", "dream-rft") if stage == "dream" else ("gigpo-real", "rft-real"))
    )
    assert rft.iterations * rft.tasks == grpo.iterations * grpo.tasks
    assert rft.num_generations == grpo.num_generations


def test_rft_has_few_large_iterations():
    config = method_config(
        load_config(None, ["rl.dream.algorithm.optimizer_steps=3"]), "s2r-rft", 0, FAMILIES
    )
    assert (config.rl.dream.tasks, config.rl.dream.iterations) == (128, 2)
    assert config.rl.dream.algorithm == RFTConfig() and config.rl.dream.learning_rate == 1e-3
    assert (
        config.rl.real.tasks == 12
        and method_config(load_config(None), "rft-real", 0, FAMILIES).rl.baseline.tasks == 64
    )


def test_dpo_in_the_dream_synchronises_by_optimiser_steps():
    """As many rollouts and optimiser steps as GRPO, one step an iteration, at DPO's rate."""
    config = load_config(None, ["rl.dream.iterations=6", "rl.dream.check_every=3", "rl.dream.tasks=32"])
    grpo, dpo = (method_config(config, name, 0, FAMILIES).rl.dream for name in ("dream-gigpo", "dream-dpo-5"))
    assert grpo.algorithm.optimizer_steps == 2
    assert (dpo.iterations, dpo.tasks, dpo.check_every) == (12, 16, 6)
    assert dpo.algorithm == DPOConfig(sync_every=5, optimizer_steps=1) and dpo.learning_rate == 5e-5


def test_each_10th_step_synchronises_at_least_three_times_and_its_equals_have_as_many_steps():
    """As many rollouts as the rows of 12 steps, which stay as they were recorded."""
    config = shipped("methods.yaml")
    rows = {
        name: method_config(config, f"dream-dpo-{name}", 0, FAMILIES)
        for name in ("1", "5", "10", "offline", "1-fine", "offline-fine")
    }
    sizes = {name: (one.rl.dream.iterations, one.rl.dream.tasks) for name, one in rows.items()}
    assert sizes == dict.fromkeys(("1", "5", "offline"), (12, 16)) | dict.fromkeys(
        ("10", "1-fine", "offline-fine"), (48, 4)
    )
    for name, least in (("5", 2), ("10", 3)):
        dream = rows[name].rl.dream
        every = dream.algorithm.sync_every
        assert every == int(name) and len(range(every, dream.iterations, every)) >= least
    assert {one.rl.dream.learning_rate for one in rows.values()} == {5e-5}
    assert {name: one.study.curve_every for name, one in rows.items()} == {
        name: 3 * config.rl.dream.tasks // (2 * tasks) for name, (_, tasks) in sizes.items()
    }
    few = load_config(None, ["rl.dream.tasks=4", "rl.dream.iterations=8"])
    dream = method_config(few, "dream-dpo-10", 0, FAMILIES).rl.dream
    assert dream.iterations * dream.tasks == 8 * 4, "no more rollouts where tasks are few"


def test_a_row_of_dpo_that_would_never_synchronise_is_offline():
    few = load_config(None, ["rl.dream.iterations=2", "rl.dream.check_every=0", "rl.dream.tasks=4"])
    assert "dream-dpo-5" not in chosen_methods(few, "") and "dream-dpo-offline" in chosen_methods(few, "")
    with pytest.raises(ConfigError, match="dream-dpo-5 is dream-dpo-offline with this config"):
        chosen_methods(few, "dream-dpo-5")


def test_rows_of_dpo_have_a_tenth_of_rls_rate_or_rls_own():
    config = load_config(None, ["rl.dream.learning_rate=4.0e-4"])
    for name in ("dream-dpo-1", "dream-dpo-offline"):
        slow, fast = (method_config(config, one, 0, FAMILIES).rl.dream for one in (name, f"{name}-rl-rate"))
        assert (slow.learning_rate, fast.learning_rate) == (5e-5, 4e-4)
        assert fast.model_copy(update={"learning_rate": 5e-5}) == slow


def test_a_policy_that_reflects_may_write_whole_reflections():
    config = method_config(load_config(None), "self-reflection-gigpo", 0, FAMILIES)
    assert {config.rl.dream.max_new_tokens, config.rl.real.max_new_tokens} == {192}


def test_offline_dpo_never_synchronises():
    section = method_config(
        load_config(None, ["rl.baseline.algorithm.epsilon=0.1"]), "dpo-offline", 0, FAMILIES
    ).rl.baseline
    assert section.algorithm == DPOConfig(sync_every=0) and section.budget == 25_000


def test_a_tenth_without_room_for_an_iteration_is_refused():
    with pytest.raises(
        ConfigError,
        match="A 10th of rl.baseline.budget is 2500 steps; an iteration of rl.real may take 3840",
    ):
        method_config(load_config(None, ["environment.max_steps=40"]), "s2r-gigpo", 0, FAMILIES)


def test_a_training_of_fewer_iterations_is_looked_at_as_often():
    settings = method_config(load_config(None, ["rl.dream.iterations=10"]), "dream-rft", 0, FAMILIES).rl.dream
    assert (settings.iterations, settings.check_every) == (5, 2)
    assert (
        method_config(
            load_config(None, ["rl.dream.check_every=5"]), "s2r-rft", 0, FAMILIES
        ).rl.dream.check_every
        == 2
    )


def test_an_option_that_a_method_has_no_use_for_is_left_out_or_refused_as_in_any_config():
    clustered = load_config(None, ["rl.dream.algorithm.type=ppo"])
    assert method_config(clustered, "no-curriculum", 0, FAMILIES).rl.dream.algorithm.type == "grpo"
    fine = load_config(
        None, ["rl.dream.algorithm.type=rft", "rl.dream.iterations=2", "rl.dream.check_every=2"]
    )
    assert method_config(fine, "dream-rft", 0, FAMILIES).rl.dream.check_every == 2
    single = load_config(None, ["rl.baseline.algorithm.type=ppo", "rl.baseline.num_generations=1"])
    with pytest.raises(ConfigError, match="of the method gigpo-real is refused.*num_generations"):
        method_config(single, "gigpo-real", 0, FAMILIES)


def test_methods_are_named():
    config = load_config(None)
    assert chosen_methods(config, "dream-ppo, clone") == ["clone", "dream-ppo"]
    with pytest.raises(ConfigError, match="no method 'dreem'.*dream-gigpo"):
        chosen_methods(config, "dreem")


def test_graded_dreams_run_if_they_are_named_and_end_with_a_comparison_with_reality():
    config = load_config(None)
    assert not set(GRADED) & set(chosen_methods(config, ""))
    assert chosen_methods(config, "graded,dream-gigpo") == ["dream-gigpo", *GRADED]
    assert chosen_methods(config, "graded-500-steps") == ["graded-500-steps"]
    few = method_config(config, "graded-500-steps", 0, [])
    wrong = method_config(config, "graded-40-flipped", 0, [])
    assert (few.experience_model.transitions, few.rl.dream.check_every) == (500, 0)
    assert wrong.experience_model.flipped_outcomes == 0.4
    assert list(steps_of(few, "graded-full"))[-2:] == ["check_dreamed", "evaluate_policy"]


def test_both_sides_of_a_budget_have_the_same_real_settings():
    config = load_config(None, ["environment.max_steps=20", "rl.real.tasks=6", "rl.baseline.tasks=12"])
    assert chosen_methods(config, "budgets") == list(BUDGETS) and not set(BUDGETS) & set(
        chosen_methods(config, "")
    )
    for steps, tasks in ((500, 3), (1000, 6), (5000, 6)):
        real = method_config(config, f"gigpo-real-{steps}", 0, []).rl.baseline
        refined = method_config(config, f"s2r-gigpo-{steps}", 0, []).rl.real
        for settings in (real, refined):
            assert (settings.budget, settings.tasks) == (steps, tasks)
            assert settings.tasks * settings.num_generations * 20 <= steps
        assert (real.iterations, real.learning_rate) == (refined.iterations, refined.learning_rate)
    long = load_config(None, ["environment.max_steps=100", "rl.real.tasks=2", "rl.baseline.tasks=2"])
    with pytest.raises(ConfigError, match="one task may take 800 real steps; the method has 500"):
        method_config(long, "s2r-gigpo-500", 0, [])


def test_a_method_that_changes_nothing_is_left_out_or_refused():
    config = load_config(None)
    assert set(METHODS) - {*GRADED, *BUDGETS} - set(chosen_methods(config, "")) == {
        "no-verifier",
        "clone-weighted",
        "clone-own-reflection",
        "meta-rewarding-real",
        "dream-unanswered",
    }
    assert chosen_methods(config, "clone-own-reflection"), "who names it is told why it does not run"
    assert "clone-own-reflection" in chosen_methods(load_config(None, ["backbone.path=models/chat"]), "")
    with pytest.raises(
        ConfigError, match="no-verifier is dream-gigpo with this config.*Leave no-verifier out"
    ):
        chosen_methods(config, "dream-gigpo,no-verifier")
    checked = load_config(None, ["experience_model.grounded=true", "cloning.behaviours=[noisy]"])
    left_out = {*GRADED, *BUDGETS, "dream-unanswered", "clone-own-reflection", "meta-rewarding-real"}
    changing = [name for name in METHODS if name not in left_out]
    assert chosen_methods(checked, "") == changing
    earlier = load_config(None, ["rl.dream.unanswered=left_out"])
    assert "dream-unanswered" in chosen_methods(earlier, "")
    assert "dream-left-out" not in chosen_methods(earlier, "")
    plain = load_config(None, ["experience_model.premise=false", "experience_model.coherent=false"])
    assert {"no-premise", "no-coherence"}.isdisjoint(chosen_methods(plain, ""))


def test_hero_by_progress_is_left_out_or_refused_where_the_world_measures_none(tmp_path):
    plain = load_config(
        None,
        [
            *("environment.knowledge=false", "experience_model.premise=false"),
            *("experience_model.reasoning=false", "experience_model.coherent=false"),
        ],
    )
    assert {"dream-hero", "dream-hero-learnt"} <= set(chosen_methods(load_config(None), ""))
    unnamed = chosen_methods(plain, "")
    assert "dream-hero" not in unnamed and "dream-hero-learnt" in unnamed
    assert chosen_methods(plain, "dream-hero"), "who names it is told why it does not run"
    write_tasks(DataLayout.of(tmp_path, "alfworld").tasks("train"), [make_task(0)])
    for methods in (["dream-hero"], ["clone", "dream-hero"]):
        with pytest.raises(ConfigError, match=r"reward is hero.*measures no progress.*=hero_learnt"):
            study.fn(plain, tmp_path, methods, [0], tmp_path / "cells")
    assert not (tmp_path / "cells").exists(), "nothing was trained"


def test_the_sections_of_rl_that_a_method_reads():
    names = {"clone": [], "dpo-logs": ["baseline"], "gigpo-real": ["baseline"], "dream-hero": ["dream"]}
    assert {name: METHODS[name].sections for name in names} == names
    assert METHODS["s2r-gigpo"].sections == ["dream", "real"]


def test_rl_in_a_control_is_not_watched():
    for name in ("untrained-dream", "flipped-dream", "swapped-dream"):
        assert method_config(load_config(None), name, 0, FAMILIES).rl.dream.check_every == 0


def test_a_shipped_study_asks_for_no_more_than_was_recorded():
    weak = load_config(ROOT / "configs" / "study-weak-logs.yaml")
    per_task = {name: getattr(weak.data, name) for name in weak.cloning.behaviours}
    assert weak.cloning.demonstrations == weak.data.train_tasks * sum(per_task.values()) == 900


def test_the_dreams_backbone_is_nothing_to_a_cell_without_a_dream(tmp_path):
    versioned(tmp_path)
    config = load_config(None, ["experience_model.path=models/exercises"])
    write(tmp_path / "models" / "exercises" / "model.safetensors", "first")
    first = [origin_of(config, tmp_path, reads_dream=reads) for reads in (True, False)]
    write(tmp_path / "models" / "exercises" / "model.safetensors", "second")
    second = [origin_of(config, tmp_path, reads_dream=reads) for reads in (True, False)]
    require_origin(tmp_path / "cell", first[1], second[1], "")
    require_origin(tmp_path / "cell", first[0], second[1], "")  # as such cells were written before
    with pytest.raises(DataError, match=r"something else: experience_model\.path"):
        require_origin(tmp_path / "cell", first[0], second[0], "")


def test_a_cell_comes_back_for_its_origin_alone(tmp_path):
    versioned(tmp_path)
    origin = origin_of(load_config(None, ["seed=3", "threads=1"]), tmp_path)
    cell = Cell("clone", 3, origin, {"g": True}, {"g": "f"}, seconds={"x": 1.5}, curve=[[1.0, 2.0, 3.0, 0.5]])
    path = write_cell(tmp_path, cell)
    assert read_cell(tmp_path, "clone", 3, origin) == cell and read_cell(tmp_path, "clone", 4, origin) is None
    other = origin_of(load_config(None, ["seed=3", "rl.dream.num_generations=4"]), tmp_path)
    with pytest.raises(DataError, match=r"something else: rl.dream.num_generations \(8, not 4\)\. .*rm "):
        read_cell(tmp_path, "clone", 3, other)
    text = path.read_text()
    path.write_text(text.replace('"demonstrations"', '"demonstratons"'))
    with pytest.raises(DataError, match="a config that is no longer valid.*rm "):
        read_cell(tmp_path, "clone", 3, origin)
    path.write_text(text[:-20])
    with pytest.raises(DataError, match="no cell of a study.*rm "):
        read_cell(tmp_path, "clone", 3, origin)


def test_a_backbone_pretrained_again_with_equal_weights_is_the_same(tmp_path):
    """Its card has another date and time."""
    versioned(tmp_path)
    model = tmp_path / "models" / "mine"
    model.mkdir(parents=True)
    config = load_config(None, ["backbone.path=models/mine"])

    def origin(weights, date):
        (model / "model.safetensors").write_text(weights)
        (model / CARD).write_text(date)
        return origin_of(config, tmp_path)

    first = origin("w", "2026-11-28")
    assert origin("w", "2026-11-30") == first != origin("v", "2026-11-28")


def test_a_key_that_was_added_since_counts_with_its_default(tmp_path):
    versioned(tmp_path)
    origin = origin_of(load_config(None, ["evaluation.tasks=7"]), tmp_path)
    del origin["config"]["evaluation"]["temperature"]
    now = [
        origin_of(load_config(None, ["evaluation.tasks=7", *more]), tmp_path)
        for more in ([], ["evaluation.temperature=0"])
    ]
    require_origin(tmp_path / "cell", origin, now[0], "")
    with pytest.raises(DataError, match=r"evaluation.temperature \(1.0, not 0.0\)"):
        require_origin(tmp_path / "cell", origin, now[1], "")


@pytest.mark.parametrize("name", ["alfworld", "webshop", "browser"])
def test_cells_of_every_environment_come_back_but_not_for_another_one(tmp_path, name):
    versioned(tmp_path)
    origin = origin_of(load_config(None, [f"environment.name={name}"]), tmp_path)
    require_origin(tmp_path / "cell", json.loads(json.dumps(origin)), origin, "")
    other = origin_of(load_config(None, [f"environment.name={name}", "environment.max_steps=7"]), tmp_path)
    with pytest.raises(DataError, match=r"environment.max_steps \(20, not 7\)"):
        require_origin(tmp_path / "cell", origin, other, "")


def test_what_only_a_machine_decides_is_no_part_of_a_browsers_origin(tmp_path):
    versioned(tmp_path)
    machine = [
        "environment.browser.executable=/x",
        "environment.browser.page_seconds=9",
        "environment.workers=7",
    ]
    first, second = (
        origin_of(load_config(None, ["environment.name=browser", *more]), tmp_path) for more in ([], machine)
    )
    assert first == second


def test_a_section_that_a_kind_of_cell_never_reads_does_not_count(tmp_path):
    versioned(tmp_path)
    made, now = (load_config(None, more) for more in ([], ["rl.real.budget=9000"]))
    require_origin(tmp_path / "cell", origin_of(made, tmp_path), origin_of(now, tmp_path, ["rl.real"]), "")
    with pytest.raises(DataError, match=r"something else: rl.real.budget \(4000, not 9000\)"):
        require_origin(tmp_path / "cell", origin_of(made, tmp_path), origin_of(now, tmp_path), "")


def test_only_the_offline_data_of_its_environment_make_a_cell_another(tmp_path):
    """The hash is that of the same files versioned alone, as in cells of before environments had folders of
    their own.
    """
    alone, root = tmp_path / "alone", tmp_path / "root"
    for place, folder in ((alone, "data"), (root, "data/alfworld")):
        subprocess.run(["git", "init", "-q", str(place)], check=True)
        write(place / folder / "tasks" / "train.parquet", "tasks")
    version = snapshot(alone).hash
    assert version != snapshot(root).hash
    before = origin_of(load_config(None), root)
    assert before["data"] == version
    write(root / "data" / "alfworld" / "replay" / "00000-dream.parquet", "dreamed transitions")
    write(root / "data" / "webshop" / "tasks" / "train.parquet", "tasks of a shop")
    snapshot(root)
    assert origin_of(load_config(None), root) == before
    backbone = root / "data" / "alfworld" / "backbone"
    write(backbone / "model.safetensors", "weights")
    write(backbone / CARD, "2026-11-28")
    snapshot(root)
    pretrained = origin_of(load_config(None), root)
    write(backbone / CARD, "2026-11-30")
    snapshot(root)
    assert origin_of(load_config(None), root) == pretrained != before
    write(root / "data" / "alfworld" / "tasks" / "train.parquet", "other tasks")
    snapshot(root)
    assert origin_of(load_config(None), root)["data"] != version


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # a link into DVC's cache
    path.write_text(text)


@pytest.mark.parametrize("every", [0, 2])
def test_a_cell_has_its_methods_stages_in_their_order(every):
    """What `resume --dry-run` asks for: with curves also the policies kept during training, unless the stage
    kept none.
    """
    config = load_config(ROOT / "configs" / "study.yaml", [f"study.curve_every={every}"])
    before, played = ["validate", "clone"], ["evaluate_policy"]
    dreamed = ["experience_model", "synthetic_rl"]
    assert list(steps_of(config, "clone")) == before + played
    assert list(steps_of(config, "gigpo-real")) == [
        *before,
        "real_rl",
        *["snapshots_real_rl"] * bool(every),
        *played,
    ]
    last = ["snapshots_synthetic_rl", "snapshots_sim_to_real"] if every else []
    found = steps_of(config, "s2r-gigpo")
    first = [*dreamed, "sim_to_real", *last]
    assert list(found) == [*before, *first, *played]
    again = [f"{stage} 2" for stage in first]
    assert list(steps_of(config, "rounds-gigpo")) == [*before, *first, *again, *played]
    if every:
        kept_none = StageResult("sim_to_real", "0", ROOT, {}, {"policy": ROOT}, {}, 1.0)
        run = SimpleNamespace(results={"sim_to_real": kept_none})
        assert not found["snapshots_sim_to_real"].condition(run)


def test_each_round_has_an_equal_part_of_the_iterations_and_of_the_real_steps():
    config = load_config(ROOT / "configs" / "study.yaml")
    one, two = (method_config(config, name, 0, []).rl for name in ("s2r-gigpo", "rounds-gigpo"))
    assert (two.real.budget, two.real.tasks) == (one.real.budget // 2, one.real.tasks // 2)
    assert 2 * two.dream.iterations - one.dream.iterations in (0, 1)
    assert 0 < two.dream.check_every <= two.dream.iterations


def test_another_method_takes_the_place_of_the_base_and_ablations_keep_theirs():
    bases = bases_against("clone-successes")
    assert bases["dream-gigpo"] == bases["clone"] == "clone-successes"
    assert bases["no-history"] == METHODS["no-history"].base == "dream-gigpo"
    with pytest.raises(ConfigError, match="There is no method 'clone,ppo'"):
        bases_against("clone,ppo")


def test_the_clone_of_successes_differs_from_the_clone_in_its_episodes_alone():
    clone, successes = (
        method_config(load_config(None), name, 0, []) for name in ("clone", "clone-successes")
    )
    assert successes.cloning.only_successes and not clone.cloning.only_successes
    assert successes == clone.model_copy(update={"cloning": successes.cloning})
    longer = load_config(None, ["study.success_epochs=32"])
    passes = [
        method_config(longer, name, 0, []).cloning.epochs for name in ("clone", "clone-successes", "dpo-logs")
    ]
    assert passes == [longer.cloning.epochs, 32, longer.cloning.epochs]
