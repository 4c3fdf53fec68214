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
from functools import partial
from pathlib import Path

from prefect import flow

from components.config import Config
from components.environments import make_adapter
from components.errors import ConfigError
from components.evaluation.metrics.fidelity_metrics import fidelity_metrics
from components.evaluation.metrics.intervals import Estimate, proportion
from components.evaluation.report.document_tables import insert_table
from components.evaluation.study.transfer_table import transfer_table
from components.experience.model import ExperienceModel
from components.experience.step_judgements import measure
from components.language.threads import decoding
from components.records import Trajectory
from components.tracking.held_out_ledger import note_held_out_read
from flows.run.games import held_out_tasks, play_games
from flows.run.pipeline_run import Run
from flows.run.run_data import encoder_input, families_config, model_episodes, open_buffer, read_episodes
from flows.run.run_dream import quotation_check
from flows.run.stage import Inputs, Outcome, Stage, StageOutput
from flows.stages.clone import clone_policy
from flows.stages.experience_model import fine_tune_experience_model
from flows.stages.synthetic_rl import train_in_dream
from flows.stages.validate import validate_data

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
    runs = {name: Run(config, root.resolve()) for name, config in configs.items()}
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


def play_policies(run: Run, other: Run, source: str) -> None:
    """The held-out games of `run`'s world, played by the policies of `other`'s."""
    policies = {name: other.results[stage].outputs["policy"] for name, stage in POLICIES.items()}
    config = run.slice("environment", "evaluation") | {"max_new_tokens": _max_new_tokens(run)}
    stage = Stage(
        f"games_of_{source}",
        work=partial(_play, run, source),
        inputs={**policies, "tasks": run.data.tasks("test")},
        config=config | run.computing(),
        code=__name__,
    )
    run.stage(stage)


def _play(run: Run, source: str, inputs: Inputs, _work: Path) -> Outcome:
    tasks = held_out_tasks(inputs["tasks"], run.config.evaluation.tasks)
    job = f"transfer from {source}"
    note_held_out_read(run.root, inputs["tasks"], job, run.manifest.run_id, len(tasks))
    games = play_games(run, {name: inputs[name] for name in POLICIES}, tasks, _max_new_tokens(run))
    level = run.config.evaluation.confidence
    rates = {
        f"transfer/{source}/success_rate/{name}": proportion(sum(games.won[name].values()), len(tasks), level)
        for name in POLICIES
    }
    return Outcome({}, rates, costs=games.costs)


def _max_new_tokens(run: Run) -> int:
    """Longest reply of a policy, in tokens; the same for policies of this world and of others."""
    return WORDIER * run.config.rl.dream.max_new_tokens


def ask_model(run: Run, other: Run, source: str) -> None:
    """The held-out steps of `run`'s world, answered by the experience model of `other`'s."""
    config = run.slice("experience_model", "retrieval", "environment")
    config |= {"tasks": run.config.fidelity.tasks} | run.computing() | families_config(run)
    stage = Stage(
        f"answers_of_{source}",
        work=partial(_ask, run, source),
        inputs={
            "model": other.results["experience_model"].outputs["model"],
            "train": StageOutput("validate", "train"),
            "fidelity": StageOutput("validate", "fidelity"),
            **encoder_input(run),
        },
        config=config,
        code=__name__,
    )
    run.stage(stage)


def _ask(run: Run, source: str, inputs: Inputs, _work: Path) -> Outcome:
    settings = run.config.experience_model
    settings = settings.model_copy(update={"max_new_tokens": WORDIER * settings.max_new_tokens})
    model = ExperienceModel.load(
        inputs["model"],
        settings,
        seed=run.config.seed,
        compute=run.compute,
        grounded=quotation_check(run.config),
    )
    buffer = open_buffer(run, model_episodes(run, inputs["train"]))
    with decoding():
        episodes = _first_steps(run, inputs["fidelity"])
        judgements = measure(model, buffer, make_adapter(run.config.environment), episodes)
    buffer.close()
    measured = fidelity_metrics(judgements)
    metrics = {f"transfer/{source}/{name}": measured[f"fidelity/{name}/determined"] for name in ASKED}
    return Outcome({}, metrics, costs={"tokens_generated": model.tokens})


def _first_steps(run: Run, fidelity: Path) -> list[Trajectory]:
    """The first STEPS steps of the episodes of the tasks on which a model's fidelity is measured."""
    episodes = read_episodes(run, "fidelity", fidelity)
    tasks = {episode.task.id: episode.task.split for episode in episodes}
    chosen = {
        name
        for split in set(tasks.values())
        for name in [t for t in tasks if tasks[t] == split][: run.config.fidelity.tasks]
    }
    return [
        replace(episode, steps=episode.steps[:STEPS]) for episode in episodes if episode.task.id in chosen
    ]


def _found(run: Run, sources: list[str]) -> dict[str, Estimate]:
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
