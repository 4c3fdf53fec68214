"""Transfer: the policies and the experience model of each environment, evaluated in every other one.

    dreamgym transfer configs/quick.yaml configs/quick-webshop.yaml configs/quick-browser.yaml --json
    docs/results/transfer.json

Nothing is trained on the other environment: a policy plays its held-out games, and a model predicts its
held-out steps with that environment's transitions to retrieve from. Finished stages, such as those of
`dreamgym retrain`, are reused.
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
from components.experience.step_judgements import judge_predictions
from components.language.threads import decoding
from components.records import Trajectory
from components.tracking.held_out_ledger import note_held_out_read
from flows.run.games.policy_games import held_out_tasks, play_games
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
STEPS = 6
"""First steps of an episode that all models predict; longer ones do not fit in every tokenizer."""
TOKEN_FACTOR = 3
"""Factor of answers' length limits: another environment's tokenizer needs up to as many times the tokens."""
METRICS = ("next_state_exact", "fact_precision", "hallucination_rate", "unparsable_rate")
TransferMetrics = dict[str, dict[str, Estimate]]
"""Environment -> metric -> estimate."""


@flow(name="transfer", validate_parameters=False)
def transfer(configs: Mapping[str, Config], root: Path = Path()) -> TransferMetrics:
    """Evaluate all policies and models in every environment; return environment -> metrics.

    Args:
        configs: environment -> its config.

    Raises:
        ConfigError: the model of an environment is prompted: no other environment can use it.
    """
    for name, config in configs.items():
        if config.experience_model.kind != "trained":
            raise ConfigError(
                f"experience_model.kind is {config.experience_model.kind} in the config of {name}.",
                "Expected trained: transfer asks each model about the other environments.",
                "Set experience_model.kind=trained.",
            )
    runs = {name: Run(config, root.resolve()) for name, config in configs.items()}
    try:
        # Train the policies and the model of each environment.
        for name, run in runs.items():
            run.start(f"transfer {name}")
            validate_data(run)
            fine_tune_experience_model(run)
            clone_policy(run)
            train_in_dream(run)
        # In each environment, evaluate the policies and the models of all of them.
        for run in runs.values():
            for source, other in runs.items():
                play_policies(run, other, source)
                predict_steps(run, other, source)
            run.finish()
    except BaseException as error:
        for run in runs.values():
            if hasattr(run, "manifest") and run.manifest.status == "running":
                run.fail(error)
        raise
    return {name: _metrics_of(run, list(runs)) for name, run in runs.items()}


def play_policies(run: Run, other: Run, source: str) -> None:
    """Play the held-out games of `run`'s environment with the policies of `other`.

    Args:
        source: name of `other`'s environment.
    """
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
    """Return the longest reply of a policy in tokens; it is the same for policies of all environments."""
    return TOKEN_FACTOR * run.config.rl.dream.max_new_tokens


def predict_steps(run: Run, other: Run, source: str) -> None:
    """Predict the held-out steps of `run`'s environment with the experience model of `other`."""
    config = run.slice("experience_model", "retrieval", "environment")
    config |= {"tasks": run.config.fidelity.tasks} | run.computing() | families_config(run)
    stage = Stage(
        f"answers_of_{source}",
        work=partial(_predict, run, source),
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


def _predict(run: Run, source: str, inputs: Inputs, _work: Path) -> Outcome:
    settings = run.config.experience_model
    settings = settings.model_copy(update={"max_new_tokens": TOKEN_FACTOR * settings.max_new_tokens})
    model = ExperienceModel.load(
        inputs["model"],
        settings,
        seed=run.config.seed,
        compute=run.compute,
        grounded=quotation_check(run.config),
    )
    buffer = open_buffer(run, model_episodes(run, inputs["train"]))
    with decoding(run.config):
        episodes = _first_steps(run, inputs["fidelity"])
        judgements = judge_predictions(model, buffer, make_adapter(run.config.environment), episodes)
    buffer.close()
    measured = fidelity_metrics(judgements)
    metrics = {f"transfer/{source}/{name}": measured[f"fidelity/{name}/determined"] for name in METRICS}
    return Outcome({}, metrics, costs={"tokens_generated": model.tokens})


def _first_steps(run: Run, fidelity: Path) -> list[Trajectory]:
    """Return the first STEPS steps of the episodes on which fidelity is measured."""
    episodes = read_episodes(run, "fidelity", fidelity)
    splits = {episode.task.id: episode.task.split for episode in episodes}
    chosen: set[str] = set()
    for split in set(splits.values()):
        names = [name for name, own_split in splits.items() if own_split == split]
        chosen |= set(names[: run.config.fidelity.tasks])
    return [
        replace(episode, steps=episode.steps[:STEPS]) for episode in episodes if episode.task.id in chosen
    ]


def _metrics_of(run: Run, sources: list[str]) -> dict[str, Estimate]:
    names = [
        f"transfer/{source}/{metric}"
        for source in sources
        for metric in (*(f"success_rate/{name}" for name in POLICIES), *METRICS)
    ]
    return {name: Estimate.from_json(run.metrics[name]) for name in names}


def by_environment(configs: list[Config]) -> dict[str, Config]:
    """Return the configs by the names of their environments.

    Raises:
        ConfigError: there are fewer than two configs, two of one environment, or models with different forms
            of prompt.
    """
    by_name: dict[str, Config] = {config.environment.name: config for config in configs}
    if len(by_name) < 2 or len(by_name) < len(configs):
        names = ", ".join(config.environment.name for config in configs)
        problem = f"These are configs of {names or 'nothing'}."
        next_step = "Type `dreamgym transfer configs/quick.yaml configs/quick-webshop.yaml`."
        raise ConfigError(problem, "Transfer needs at least two environments, each once.", next_step)
    forms = {
        name: (config.experience_model.reasoning, config.experience_model.history)
        for name, config in by_name.items()
    }
    if len(set(forms.values())) > 1:
        values = ", ".join(
            f"{name} {reasoning} and {history}" for name, (reasoning, history) in forms.items()
        )
        expected = "Expected the same in all configs: a model reads only its own form of prompt."
        raise ConfigError(
            f"experience_model.reasoning and .history differ: {values}.",
            expected,
            "Set both to the same values in each config, or as overrides.",
        )
    return by_name


def write_transfer(metrics: TransferMetrics, table: Path) -> None:
    """Write the tables into a Markdown document, between their marks."""
    insert_table(table, transfer_table(metrics), "transfer")
