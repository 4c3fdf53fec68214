"""Problems of a run's models are reported before the first stage, by preflight and doctor alike."""

from __future__ import annotations

import json
import re
import shutil
from bisect import bisect
from dataclasses import replace
from pathlib import Path

import pytest
from builders import make_episode, make_task
from foreign import make_checkpoint
from safetensors.torch import load_file, save_file

from components.config import load_config
from components.errors import ConfigError, DataError, DreamGymError
from components.language.checkpoint_files import inspection, model_size
from components.language.vocabulary.load_vocabulary import load_vocabulary
from components.trajectories.store import DataLayout, write_tasks, write_transitions
from flows.checks import doctor, model_checks
from flows.checks.answer_limits import require_answer_limits
from flows.checks.config_checks import check_settings
from flows.checks.model_checks import check_models

ROOT = Path(__file__).parents[3]
FEW = [
    "evaluation.tasks=1",
    "fidelity.tasks=1",
    "fidelity.policy_tasks=1",
    "cloning.demonstrations=1",
    "environment.max_steps=8",
]
STEPS = 8


def episode(number, *, split="train", state="At desk 1: mug 1."):
    steps = [(f"go to desk {step}", state) for step in range(STEPS)]
    played = make_episode(make_task(number, split=split), *steps, won=True, episode=f"e{number}")
    return replace(played, steps=tuple(replace(step, behaviour="expert") for step in played.steps))


def record(root, episodes):
    """Write the data of `episodes` to `root`, with one more task to measure on and one held-out task."""
    layout = DataLayout.of(root, "alfworld")
    parts = {"train": episodes, "fidelity": [episode(90)]}
    for name, recorded in parts.items():
        layout.tasks(name).parent.mkdir(parents=True, exist_ok=True)
        layout.trajectories(name).parent.mkdir(parents=True, exist_ok=True)
        write_tasks(layout.tasks(name), [one.task for one in recorded])
        write_transitions(layout.trajectories(name), [step for one in recorded for step in one.steps])
    write_tasks(layout.tasks("test"), [make_task(91, split="test")])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("clone")
    record(root, [episode(number) for number in range(3)])
    return root


@pytest.fixture(params=["loaded", "headers"])
def way(request, monkeypatch):
    """How a model is inspected: small ones are loaded; here also as large ones, by their headers only."""
    if request.param == "headers":
        monkeypatch.setattr(inspection, "LOADED_SIZE", 0)
        monkeypatch.setattr(
            "components.language.backbone.AutoModelForCausalLM.from_pretrained",
            lambda *_, **__: pytest.fail("was loaded"),
        )
    return request.param


def config_of(model, *more):
    given = {line.split("=")[0] for line in more}
    few = [line for line in FEW if line.split("=")[0] not in given]
    return load_config(None, [f"backbone.path={model}", *few, *more])


def refused(root, config, kind, words):
    """Return the message, which is the same in preflight and doctor."""
    with pytest.raises(kind, match=words) as raised:
        check_settings(root, config)
    rung = doctor.run_check(doctor.check_backbone, config, root)
    said = " ".join(part for part in (rung.found, rung.expected, rung.next_step) if part)
    assert rung.state == "wrong" and said == str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("gpt_oss", "gpt_oss cannot use the kept cache: its attention has s_aux"),
        ("gemma2", "gemma2 cannot use the kept cache: its attention has softcap"),
        ("bloom", "bloom cannot use the kept cache"),
        ("mpt", "With branches mpt is off by"),
    ],
)
def test_an_architecture_that_a_stage_cannot_use_is_refused_before_the_first(
    kind, words, data, way, tmp_path
):
    refused(data, config_of(make_checkpoint(tmp_path, kind)), ConfigError, words + ".*Llama, Qwen or Mistral")


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma", "gpt_neox", "gpt2", "phi3"])
def test_a_model_that_every_stage_can_use_is_not_refused(kind, data, way, tmp_path):
    sizes = {"n_positions": 4096} if kind == "gpt2" else {"max_position_embeddings": 4096}
    config = config_of(make_checkpoint(tmp_path, kind, **sizes))
    check_settings(data, config)
    rung = doctor.check_backbone(config, data)
    assert rung.state == "ok" and re.search(
        r"parameters \(.* in fp32\), [\d,]+ tokens, sequences of up to 4,096 tokens", rung.found
    )


def test_the_experience_models_own_backbone_is_checked_too(data, way, tmp_path):
    good = make_checkpoint(tmp_path / "good", "llama", max_position_embeddings=4096)
    sinks = make_checkpoint(tmp_path / "sinks", "gpt_oss")
    refused(
        data,
        config_of(good, f"experience_model.path={sinks}"),
        ConfigError,
        "gpt_oss cannot use the kept cache",
    )


def test_a_sliding_window_shorter_than_an_episode_is_reported_with_both_numbers(data, way, tmp_path):
    short = config_of(make_checkpoint(tmp_path / "short", "gemma3_text", sliding_window=64))
    limit = r"at most 64 tokens \(the window of 64 tokens that some of its layers attend to\)"
    said = refused(
        data,
        short,
        ConfigError,
        limit + r": 64 is too short for episodes of [\d,]+ tokens.*Name a model with a wider window",
    )
    needed = int(re.search(r"Expected a model that reads ([\d,]+) tokens", said).group(1).replace(",", ""))
    enough = {"max_position_embeddings": 4096, "sliding_window": needed}
    check_settings(data, config_of(make_checkpoint(tmp_path / "enough", "gemma3_text", **enough)))
    enough["sliding_window"] -= 1
    refused(
        data,
        config_of(make_checkpoint(tmp_path / "less", "gemma3_text", **enough)),
        ConfigError,
        f"{needed - 1:,} is too short",
    )


def test_too_few_positions_are_reported_and_the_suggested_setting_is_enough(data, way, tmp_path):
    long = make_checkpoint(tmp_path / "long", "llama", max_position_embeddings=4096)
    alone = fewest_positions(data, config_of(long, "experience_model.history=false"))
    short = make_checkpoint(tmp_path / "short", "llama", max_position_embeddings=alone)
    own = f"experience_model.path={short}"
    said = refused(
        data,
        config_of(long, own),
        ConfigError,
        rf"\(max_position_embeddings of {alone}\): {alone:,} is too short",
    )
    assert f"experience_model.history=false, with which {alone:,} are enough" in said
    check_settings(data, config_of(long, own, "experience_model.history=false"))


def fewest_positions(root, config):
    """Return the smallest number with which the experience model is accepted."""
    found = check_models(root, config).experience

    def fits(longest):
        try:
            model_checks._check_lengths(
                DataLayout.of(root, "alfworld"), config, found, replace(found, longest=longest)
            )
        except ConfigError:
            return False
        return True

    return bisect(range(found.longest), False, key=fits)


def test_a_dream_longer_than_the_recorded_episodes_is_a_doubt(data, tmp_path):
    model = make_checkpoint(tmp_path, "llama", max_position_embeddings=1024)
    config = config_of(model, "environment.max_steps=80", "rl.real.iterations=0")
    check_settings(data, config)
    rung = doctor.check_backbone(config, data)
    assert rung.state == "doubt"
    assert re.search(
        r"max_steps=80 steps may take [\d,]+ tokens, and the experience model reads 1,024", rung.found
    )


def test_a_model_that_fits_is_checked_without_an_index(data, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "components.experience.retrieval.replay_buffer.ReplayBuffer",
        lambda *_, **__: pytest.fail("an index was built"),
    )
    check_models(data, config_of(make_checkpoint(tmp_path, "llama", max_position_embeddings=4096)))


def test_texts_that_validation_sets_aside_are_not_counted(tmp_path):
    record(tmp_path, [episode(0), episode(1, state="mug " * 5_000)])
    check_settings(
        tmp_path, config_of(make_checkpoint(tmp_path / "model", "llama", max_position_embeddings=4096))
    )


def test_unreadable_data_is_left_to_another_check(data, tmp_path):
    model = make_checkpoint(tmp_path / "model", "llama")
    root = shutil.copytree(data, tmp_path / "clone")
    DataLayout.of(root, "alfworld").trajectories("train").write_text("no table")
    assert check_models(root, config_of(model)).policy.longest == 512
    shutil.rmtree(root / "data")
    assert check_models(root, config_of(model)).doubts == ()
    assert check_models(root, load_config(None, FEW)) is None, "the backbone of the data is not there yet"


def test_a_tokenizer_with_more_ids_than_embeddings_is_refused(data, way, tmp_path):
    model = make_checkpoint(tmp_path, "llama", tie_word_embeddings=True)
    weights = load_file(model / "model.safetensors")
    weights["model.embed_tokens.weight"] = weights["model.embed_tokens.weight"][:-3].contiguous()
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    settings = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(settings | {"vocab_size": settings["vocab_size"] - 3}))
    refused(data, config_of(model), DataError, "The tokenizer in .* has 330 ids, the model 327 embeddings")


def test_missing_and_damaged_files_are_refused(data, way, tmp_path):
    whole = make_checkpoint(tmp_path / "whole", "llama")
    lacking = shutil.copytree(whole, tmp_path / "lacking")
    weights = load_file(whole / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if "layers.1" not in name}
    save_file(kept, lacking / "model.safetensors", {"format": "pt"})
    refused(
        data,
        config_of(lacking),
        DataError,
        r"lack weights of the model that its config.json describes: model\.layers\.1\.",
    )
    cut = shutil.copytree(whole, tmp_path / "cut")
    (cut / "model.safetensors").write_bytes((whole / "model.safetensors").read_bytes()[:3000])
    refused(data, config_of(cut), DataError, "model.safetensors cannot be loaded: it has 3,000 bytes")
    for name, words in {"tokenizer.json": "tokenizer", "config.json": "cannot be loaded"}.items():
        without = shutil.copytree(whole, tmp_path / f"without {name}")
        (without / name).unlink()
        (without / "tokenizer_config.json").unlink(missing_ok=name == "tokenizer.json")
        refused(data, config_of(without), DreamGymError, words)


def test_a_model_larger_than_the_memory_is_refused_with_the_number(data, way, tmp_path, monkeypatch):
    monkeypatch.setattr(model_size, "ALWAYS_FITS", 0)
    monkeypatch.setattr(model_size, "free_memory", lambda: 100_000)
    refused(
        data,
        config_of(make_checkpoint(tmp_path, "llama")),
        DataError,
        r"takes 0.2 MB in fp32; 0.1 MB of memory are free",
    )


def test_a_run_without_training_skips_the_model_checks(data, tmp_path):
    check_settings(data, config_of(make_checkpoint(tmp_path, "gpt_oss")), training=False)


@pytest.mark.parametrize(
    "key", ["experience_model.max_new_tokens", "rl.dream.max_new_tokens", "rl.real.max_new_tokens"]
)
def test_a_limit_that_cuts_recorded_answers_is_refused_with_one_that_does_not(key, data, way, tmp_path):
    model = make_checkpoint(tmp_path, "llama", max_position_embeddings=4096)
    said = refused(
        data,
        config_of(model, f"{key}=8"),
        ConfigError,
        f"{key}=8 would cut 100.0% of the recorded answers.*at most 0.1%",
    )
    enough = re.search(rf"Set {key}=(\d+)\.", said).group(1)
    check_settings(data, config_of(model, f"{key}={enough}"))


def test_the_limits_of_the_shipped_configs_for_pretrained_models_fit_their_words():
    """The recorded ALFWorld games in SmolLM2's tokens, as the three configs would be refused or not."""
    layout = DataLayout.of(ROOT, "alfworld")
    if not layout.trajectories("train").is_file() or not (ROOT / "models/smollm2").is_dir():
        pytest.skip("no data or no SmolLM2 in this clone: dvc pull, make model")
    for name in ("smollm2", "smollm2-smoke", "gpu"):
        more = ["backbone.path=models/smollm2", "device=cpu", "precision=fp32", "engine=kept-cache"]
        config = load_config(ROOT / f"configs/{name}.yaml", more)
        episodes = model_checks._recorded_episodes(layout, config)["train"]
        words = load_vocabulary(ROOT / "models/smollm2")
        experience = (words, model_checks._experience_model_episodes(episodes, config))
        require_answer_limits(
            config, experience=experience, policy=(words, model_checks._episodes_to_clone(episodes, config))
        )
