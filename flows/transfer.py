"""Transfer between worlds: the policies and the experience model of each one put to the test in every other.

    dreamgym transfer configs/quick.yaml configs/quick-webshop.yaml configs/quick-browser.yaml --json
    docs/results/transfer.json

Nothing is trained on the other world: a policy plays its held-out games as it stands, a model answers its
held-out steps with that world's own transitions to retrieve from. What has been made before (by `dreamgym
retrain`, say) is reused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from prefect import flow

from components.config import Config
from components.environments import make_adapter
from components.errors import ConfigError
from components.evaluation.documents import insert_table
from components.evaluation.fidelity import fidelity_metrics
from components.evaluation.intervals import Estimate, proportion
from components.evaluation.transfer_table import transfer_table
from components.experience.experience_model import ExperienceModel
from components.experience.fidelity import measure
from components.records import Trajectory
from components.tracking.hashes import file_hash
from flows.evaluate import held_out_tasks, play_games
from flows.experience_model import (
    buffer_of,
    encoder_of,
    episodes_of,
    families_of,
    fine_tune_experience_model,
    grounding_of,
    lessons_of,
)
from flows.held_out_ledger import note_held_out_read
from flows.synthetic_rl import clone_policy, train_in_dream
from flows.threads import decoding
from flows.validate import validate_data
from flows.workspace import Outcome, Workspace

CODE = ["flows.transfer"]
POLICIES = {"cloned": "clone", "dreamed": "synthetic_rl"}
"""Name of a policy -> the stage that makes it."""
STEPS, WORDIER = 6, 3
"""A vocabulary learnt elsewhere writes the same page in up to WORDIER times as many tokens: all models are
asked for an episode's first STEPS steps alone, which fit in, and models and policies may write that much
longer.
"""
ASKED = ("next_state_exact", "fact_precision", "hallucination_rate", "unparsable_rate")
Found = dict[str, dict[str, Estimate]]


@flow(name="transfer", validate_parameters=False)
def transfer(configs: Mapping[str, Config], root: Path = Path()) -> Found:
    """World -> metrics of everything that was put to the test in it. Args: configs: those of the worlds by
    their names.
    """
    runs = {name: Workspace(config, root.resolve()) for name, config in configs.items()}
    try:
        # 1. What each world trains for itself, made or reused.
        for name, run in runs.items():
            run.start(f"transfer {name}")
            validate_data(run)
            fine_tune_experience_model(run)
            clone_policy(run)
            train_in_dream(run)
        # 2. In each world: its held-out games by everybody's policies, its held-out steps by everybody's
        # models.
        for run in runs.values():
            for source, other in runs.items():
                play_policies(run, other, source)
                ask_model(run, other, source)
            run.finish()
    except BaseException as error:
        for run in runs.values():
            if hasattr(run, "manifest") and run.manifest.status == "running":
                run.fail(error)
        raise
    return {name: _found(run, list(runs)) for name, run in runs.items()}


def play_policies(run: Workspace, other: Workspace, source: str) -> None:
    """The held-out games of `run`'s world, played by the policies of `other`'s."""
    made = {name: other.results[stage] for name, stage in POLICIES.items()}
    inputs = {name: result.output_hashes["policy"] for name, result in made.items()} | {
        "tasks": file_hash(run.data.tasks("test"))
    }
    config = run.slice("environment", "evaluation") | {"max_new_tokens": _length(run)} | run.computing()
    run.stage(
        f"games_of_{source}", lambda _: _play(run, other, source), inputs=inputs, config=config, code=CODE
    )


def _play(run: Workspace, other: Workspace, source: str) -> Outcome:
    tasks = held_out_tasks(run.data.tasks("test"), run.config.evaluation.tasks)
    note_held_out_read(
        run.root, run.data.tasks("test"), f"transfer from {source}", run.manifest.run_id, len(tasks)
    )
    policies = {name: other.results[stage].outputs["policy"] for name, stage in POLICIES.items()}
    games = play_games(run, policies, tasks, _length(run))
    level = run.config.evaluation.confidence
    rates = {
        f"transfer/{source}/success_rate/{name}": proportion(sum(games.won[name].values()), len(tasks), level)
        for name in POLICIES
    }
    return Outcome({}, rates, costs=games.costs)


def _length(run: Workspace) -> int:
    """The most tokens of a policy's reply, native or not."""
    return WORDIER * run.config.synthetic_rl.max_new_tokens


def ask_model(run: Workspace, other: Workspace, source: str) -> None:
    """The held-out steps of `run`'s world, answered by the experience model of `other`'s."""
    validated = run.results["validate"].output_hashes
    inputs = {"model": other.results["experience_model"].output_hashes["model"], **encoder_of(run)}
    inputs |= {name: validated[name] for name in ("train", "fidelity")}
    config = (
        run.slice("experience_model", "retrieval", "environment")
        | {"tasks": run.config.fidelity.tasks}
        | run.computing()
    )
    config |= families_of(run)
    run.stage(
        f"answers_of_{source}", lambda _: _ask(run, other, source), inputs=inputs, config=config, code=CODE
    )


def _ask(run: Workspace, other: Workspace, source: str) -> Outcome:
    settings = run.config.experience_model
    settings = settings.model_copy(update={"max_new_tokens": WORDIER * settings.max_new_tokens})
    directory, grounded = other.results["experience_model"].outputs["model"], grounding_of(run.config)
    model = ExperienceModel.load(
        directory, settings, seed=run.config.seed, compute=run.compute, grounded=grounded
    )
    buffer = buffer_of(run, lessons_of(run))
    with decoding():
        judgements = measure(model, buffer, make_adapter(run.config.environment), _beginnings(run))
    buffer.close()
    measured = fidelity_metrics(judgements)
    metrics = {f"transfer/{source}/{name}": measured[f"fidelity/{name}/determined"] for name in ASKED}
    return Outcome({}, metrics, costs={"tokens_generated": model.tokens})


def _beginnings(run: Workspace) -> list[Trajectory]:
    """The first steps of the episodes of the first held-out tasks of each split, as the model's own
    examination chooses tasks.
    """
    episodes = episodes_of(run, "fidelity")
    tasks = {episode.task.id: episode.task.split for episode in episodes}
    chosen = {
        name
        for split in set(tasks.values())
        for name in [t for t in tasks if tasks[t] == split][: run.config.fidelity.tasks]
    }
    return [
        replace(episode, steps=episode.steps[:STEPS]) for episode in episodes if episode.task.id in chosen
    ]


def _found(run: Workspace, sources: list[str]) -> dict[str, Estimate]:
    names = [
        f"transfer/{source}/{metric}"
        for source in sources
        for metric in (*(f"success_rate/{name}" for name in POLICIES), *ASKED)
    ]
    return {name: Estimate.from_json(run.metrics[name]) for name in names}


def by_world(configs: list[Config]) -> dict[str, Config]:
    """The configs by the names of their environments.

    Raises:
        ConfigError: fewer than two, two of one environment, or models that read and write another form of
            prompt.
    """
    named: dict[str, Config] = {config.environment.name: config for config in configs}
    if len(named) < 2 or len(named) < len(configs):
        found = (
            f"These are configs of {', '.join(config.environment.name for config in configs) or 'nothing'}."
        )
        next_step = "Type `dreamgym transfer configs/quick.yaml configs/quick-webshop.yaml`."
        raise ConfigError(found, "Transfer needs at least two environments, each once.", next_step)
    forms = {
        name: (config.experience_model.reasoning, config.experience_model.history)
        for name, config in named.items()
    }
    if len(set(forms.values())) > 1:
        told = ", ".join(f"{name} {reasoning} and {history}" for name, (reasoning, history) in forms.items())
        expected = "A model is asked in its own form of prompt, so these are to be the same in all configs."
        raise ConfigError(
            f"experience_model.reasoning and .history differ: {told}.",
            expected,
            "Set both alike in each, or as overrides.",
        )
    return named


def write_transfer(found: Found, table: Path) -> None:
    """The tables, between their marks in a document."""
    insert_table(table, transfer_table(found), "transfer")
