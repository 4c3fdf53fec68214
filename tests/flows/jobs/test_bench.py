"""`dreamgym bench dream` with a tiny untrained model, real episodes, the real engine and real `generate`."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace

import pytest
from builders import make_model
from typer.testing import CliRunner
from vllm_models import NEEDS_VLLM

from components.environments.step_cost import replay
from components.errors import ConfigError, EnvironmentFailure, ExperienceModelError
from components.experience.recorded_episodes import count_differing_answers
from components.language.backbone import save_model
from components.language.vocabulary.compact_vocabulary import CompactVocabulary
from components.records import Trajectory
from components.trajectories.recording import collect, plan
from components.trajectories.store import DataLayout, write_tasks, write_transitions
from flows.cli import app as cli

FIGURES = {
    "dream/steps_per_second",
    "dream/tokens_per_second",
    "plain_generate/steps_per_second",
    "plain_generate/tokens_per_second",
    "ratio_vs_plain_generate",
    "single_generate/steps_per_second",
    "single_generate/tokens_per_second",
    "ratio_vs_single_generate",
    "stock_environment/steps_per_second",
    "ratio_vs_stock_environment",
    "cached_environment/steps_per_second",
    "ratio_vs_cached_environment",
    "tokens_identical_share",
    "episodes",
    "steps",
    "threads",
    "rounds",
}


@pytest.fixture
def run(quiet_process):
    """Run a command line in this process."""
    return lambda *arguments: CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def episodes(adapter, tasks):
    """Five random episodes of four steps, of five tasks."""
    return collect(adapter, plan(tasks[:5], {"random": 1}, seed=3), max_steps=4)


@pytest.fixture
def repository(tmp_path, episodes, tasks):
    """A git repository with recorded data of a few episodes; the test split has a separate task."""
    place = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", str(place)], check=True)
    layout = DataLayout.of(place, "alfworld")
    for name, chosen in (("fidelity", episodes[:3]), ("train", episodes[3:])):
        write_tasks(layout.tasks(name), [episode.task for episode in chosen])
        write_transitions(layout.trajectories(name), [step for episode in chosen for step in episode.steps])
    write_tasks(layout.tasks("test"), [tasks[5]])
    return place


@pytest.fixture
def model(tmp_path, episodes):
    """Directory of a random model with ALFWorld's tokens, whose choices do not depend on rounding."""
    return save_random_model(tmp_path / "model", episodes)


def save_random_model(directory, episodes, **shape):
    texts = [text for episode in episodes for text in episode.states]
    vocabulary = CompactVocabulary.train(texts, 340)
    save_model(make_model(vocabulary=vocabulary, scale=10.0, **shape), vocabulary, directory)
    return directory


def test_the_figures_are_written_like_metrics_and_shown_as_a_table(run, repository, model, tmp_path):
    file = tmp_path / "bench.json"
    small = ("--episodes", 2, "--rounds", 2, "experience_model.max_new_tokens=8")
    done = run("bench", "dream", "--root", repository, "--model", model, "--json", file, *small)
    assert done.exit_code == 0, done.output
    figures = json.loads(file.read_text())
    assert set(figures) == FIGURES
    assert all(set(entry) == {"value", "n", "low", "high"} for entry in figures.values())
    assert all(
        entry["low"] <= entry["value"] <= entry["high"] and entry["value"] > 0 for entry in figures.values()
    )
    assert (
        figures["tokens_identical_share"]["value"] == 1.0 and figures["tokens_identical_share"]["n"] == 2 * 8
    )
    assert figures["ratio_vs_plain_generate"]["n"] == 2 and figures["steps"]["value"] == 8
    assert (
        "plain generate" in done.output
        and "1 thread(s) each, 2 episodes in a batch" in done.output
        and "100.00% of 16" in done.output
    )


@NEEDS_VLLM
def test_vllm_competes_when_the_config_names_it(run, repository, episodes, tmp_path):
    file = tmp_path / "bench.json"
    model = save_random_model(tmp_path / "model", episodes, hidden=64)  # vLLM takes no narrower heads than 32
    small = ("--episodes", 2, "--rounds", 2, "experience_model.max_new_tokens=8", "engine=vllm")
    done = run("bench", "dream", "--root", repository, "--model", model, "--json", file, *small)
    assert done.exit_code == 0, done.output
    figures = json.loads(file.read_text())
    vllm = {f"{name}/{rate}_per_second" for name in ("vllm", "raw_vllm") for rate in ("steps", "tokens")}
    assert set(figures) == FIGURES | vllm | {"ratio_vs_vllm", "ratio_vs_raw_vllm"}
    assert "dream (vLLM)" in done.output and "vLLM, all episodes in a call" in done.output


def test_another_answer_fails_unless_two_tokens_are_almost_equally_likely(untrained):
    prompt, written = [20, 21, 22], [30, 31]
    assert count_differing_answers(untrained, {0: prompt}, {0: written}, {0: list(written)}) == 0
    with pytest.raises(ExperienceModelError, match="Row 0: plain generate writes .* nats apart at token 1"):
        count_differing_answers(untrained, {0: prompt}, {0: [30, 99]}, {0: written})
    with pytest.raises(ExperienceModelError, match="inf nats"):
        count_differing_answers(untrained, {0: prompt}, {0: written[:1]}, {0: written})
    head = untrained.model.get_output_embeddings().weight
    head.data[99] = head.data[31]
    assert count_differing_answers(untrained, {0: prompt}, {0: [30, 99]}, {0: written}) == 1


def test_without_a_model_the_message_says_what_to_type(run, repository):
    done = run("bench", "dream", "--root", repository)
    assert done.exit_code == 1
    assert (
        "There is no finished experience model of alfworld under" in done.output and "--model" in done.output
    )
    (repository / ".dreamgym/stages/experience_model-0123456789ab.partial/model").mkdir(parents=True)
    assert run("bench", "dream", "--root", repository).exit_code == 1


def test_a_directory_without_weights_and_an_unknown_benchmark_are_named(run, repository, tmp_path):
    done = run("bench", "dream", "--root", repository, "--model", tmp_path)
    assert done.exit_code == 1 and "holds no experience model: no *.safetensors in it" in done.output
    done = run("bench", "sleep", "--root", repository)
    assert (
        done.exit_code == ConfigError.exit_code
        and "There is no benchmark 'sleep'" in done.output
        and "dream" in done.output
    )


def test_more_episodes_than_were_recorded_are_refused(run, repository, model):
    done = run("bench", "dream", "--root", repository, "--model", model, "--episodes", 4)
    assert done.exit_code == ConfigError.exit_code and "The fidelity set has 3." in done.output


def test_a_replay_that_disagrees_with_the_record_is_refused(world, episodes):
    episode = episodes[0]
    assert replay(world, episode).steps == len(episode.steps)
    wrong = Trajectory(episode.task, (replace(episode.steps[0], next_state="At the moon: nothing."),))
    with pytest.raises(EnvironmentFailure, match="recorded was 'At the moon: nothing.'"):
        replay(world, wrong)
