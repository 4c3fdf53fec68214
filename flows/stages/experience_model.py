"""Steps 2 and 3: fine-tune the experience model, measure its fidelity on held-out transitions; the gate."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from components.errors import FidelityGateClosed
from components.evaluation.metrics.fidelity_metrics import check_gate
from components.evaluation.metrics.intervals import Estimate
from components.evaluation.metrics.retrieval_recall import recall_metrics
from components.experience.prompted_model import save_card
from components.tracking.stage_store.stage_result import StageResult
from flows.run.pipeline_run import Run
from flows.run.run_data import (
    encoder_input,
    experience_model_backbone,
    model_episodes,
    open_buffer,
    read_episodes,
)
from flows.run.stage import Inputs, Outcome, Stage, StageOutput, stage_flow
from flows.run.training.experience_training import (
    MISSING_REPLIES,
    experience_model_config,
    measure_fidelity,
    train_and_measure,
)
from flows.run.training.system_turns import world_description


@stage_flow("experience-model")
def fine_tune_experience_model(run: Run) -> Stage:
    """Stage: fine-tune the experience model, and measure `fidelity/*` of single steps on held-out tasks."""
    is_prompted = run.config.experience_model.kind == "prompted"
    return Stage(
        "experience_model",
        work=partial(_prompt if is_prompted else _fine_tune, run),
        inputs={
            **({} if is_prompted else {"backbone": experience_model_backbone(run)}),
            "train": StageOutput("validate", "train"),
            "fidelity": StageOutput("validate", "fidelity"),
            **encoder_input(run),
        },
        config=experience_model_config(run),
        code=__name__,
    )


def require_fidelity(run: Run, result: StageResult) -> None:
    """Raise FidelityGateClosed if single steps of the experience model are not faithful enough.

    Steps to which an endpoint did not reply count as unparsable; the message says so, with the first reason.
    """
    metrics = {name: Estimate.from_json(entry) for name, entry in result.metrics.items()}
    try:
        check_gate(metrics, run.config.fidelity)
    except FidelityGateClosed as closed:
        missing = result.details.get(MISSING_REPLIES, "")
        if not missing:
            raise
        next_step = "Mend what the endpoint says of its first refusal, then type the same again."
        raise FidelityGateClosed(f"{closed.found} {missing}", closed.expected, next_step) from None


def _prompt(run: Run, inputs: Inputs, work: Path) -> Outcome:
    """Measure the fidelity of a prompted model; nothing is trained."""
    config = run.config
    buffer = open_buffer(run, model_episodes(run, inputs["train"]))
    save_card(work / "model", config.endpoint, world_description(config))
    episodes = read_episodes(run, "fidelity", inputs["fidelity"])
    outcome = measure_fidelity(run, work, buffer, episodes)
    outcome.metrics |= recall_metrics(buffer, episodes)
    buffer.close()
    return outcome


def _fine_tune(run: Run, inputs: Inputs, work: Path) -> Outcome:
    episodes = model_episodes(run, inputs["train"])
    return train_and_measure(run, run.config, inputs, work, start=inputs["backbone"], episodes=episodes)
