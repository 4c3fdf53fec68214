"""The main job: from offline trajectories to a promoted policy.

    dreamgym retrain --config configs/quick.yaml

Each step is a subflow with an MLflow run of its own below the parent run, keyed by content: what has not
changed is reused.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from prefect import flow
from prefect.artifacts import create_markdown_artifact, create_progress_artifact, update_progress_artifact

from components.config import Config
from components.evaluation.fidelity import check_gate
from components.evaluation.intervals import Estimate
from components.evaluation.promotion import Decision
from components.evaluation.report import summary, write_report
from components.tracking.runs import write_games
from components.tracking.stages import StageResult
from flows.evaluate import POLICIES, evaluate_policies, promote_challenger
from flows.experience_model import fine_tune_experience_model
from flows.run_report import run_report
from flows.run_version import save_run_commit, save_run_version
from flows.settings import MLFLOW_PORT
from flows.sim_to_real import refine_in_reality
from flows.synthetic_rl import check_dream, clone_policy, train_in_dream
from flows.validate import validate_data
from flows.validation_games import note_draw, with_draw
from flows.workspace import OF_RUN, Workspace


@dataclass(frozen=True)
class Finished:
    """A run that came to its end: its directory and the gate's decision."""

    directory: Path
    decision: Decision


def _gated_experience_model(run: Workspace) -> StageResult:
    result = fine_tune_experience_model.fn(run)
    _gate(run)
    return result


STAGES: dict[str, Callable[[Workspace], StageResult]] = {
    "validate": validate_data.fn,
    "experience_model": _gated_experience_model,
    "clone": clone_policy.fn,
    "check_cloned": lambda run: check_dream.fn(run, "clone", "cloned"),
    "synthetic_rl": train_in_dream.fn,
    "check_dreamed": lambda run: check_dream.fn(run, "synthetic_rl", "dreamed"),
    "sim_to_real": refine_in_reality.fn,
    "evaluate": evaluate_policies.fn,
}
"""The stages of the job in their order, without Prefect around them: to ask which of them are there already.
"""


@flow(name="retrain", validate_parameters=False)
def retrain(config: Config, root: Path = Path()) -> Finished:
    """Validate, fine-tune the experience model, dream, refine in reality, evaluate, promote.

    Raises:
        FidelityGateClosed: the dream may not be trusted; RL is not started, or its result not used.
        DreamGymError: a stage failed; finished stages are kept and reused by the next run.
    """
    run = Workspace(with_draw(config), root.resolve())
    run.start("retrain")
    progress = _Progress(10)
    try:
        note_draw(run)
        # 1. Check the offline data and set bad episodes aside.
        progress.after(validate_data(run))
        # 2. Fine-tune the experience model; measure its fidelity on held-out real transitions.
        progress.after(fine_tune_experience_model(run))
        # 3. Stop here if its single steps may not be trusted.
        _gate(run)
        # 4. Clone a policy from a few expert demonstrations.
        progress.after(clone_policy(run))
        # 5. Hold the dream against the real engine on this policy's episodes.
        progress.after(check_dream(run, "clone", "cloned"))
        # 6. RL in the dream with the curriculum, zero real interactions.
        progress.after(train_in_dream(run))
        # 7. Hold the dream against the real engine again: RL may have found its weak spots.
        progress.after(check_dream(run, "synthetic_rl", "dreamed"))
        # 8. Snapshot the replay buffer with the new transitions.
        progress.after(snapshot_buffer(run))
        # 9. Refine in the real environment under a budget of interactions.
        progress.after(refine_in_reality(run))
        # 10. Play validation games.
        progress.after(evaluate_policies(run))
        # 11. Promote the refined policy, or say why not.
        decision = promote_challenger(run)
        # 12. Report, manifest, and the workspace as a commit.
        _finish(run, decision)
        progress.after(decision)
    except BaseException as error:
        run.fail(error)
        raise
    return Finished(run.directory, decision)


def _gate(run: Workspace) -> None:
    metrics = run.results["experience_model"].metrics
    check_gate({name: Estimate.from_json(entry) for name, entry in metrics.items()}, run.config.fidelity)


@flow(name="snapshot-buffer", flow_run_name=OF_RUN, validate_parameters=False)
def snapshot_buffer(run: Workspace) -> str:
    """Make the run's version of data/: that of its start with the dreamed transitions in the replay log.
    data/ itself stays as it is.
    """
    with run.limited("snapshot_buffer"):
        return save_run_version(run)


def _finish(run: Workspace, decision: Decision) -> None:
    run.count("sim_to_real/budget", run.config.sim_to_real.budget)
    run.count("cost/real_interactions", run.manifest.costs.real_interactions)
    run.count("cost/check_interactions", run.manifest.costs.check_interactions)
    run.count("cost/tokens_trained", run.manifest.costs.tokens_trained)
    run.count("cost/tokens_generated", run.manifest.costs.tokens_generated)
    run.count("cost/endpoint_prompt_tokens", run.manifest.costs.endpoint_prompt_tokens)
    run.count("cost/endpoint_completion_tokens", run.manifest.costs.endpoint_completion_tokens)
    write_games(
        run.directory,
        {name: json.loads(run.results["evaluate"].outputs[name].read_text()) for name in POLICIES},
    )
    run.conclude()
    if run.config.tracking.dvc_experiment:
        run.manifest.data.experiment_commit = save_run_commit(run)
    run.tracker.set_tags(run.parent, {"dvc.experiment_commit": run.manifest.data.experiment_commit})
    report = run_report(run, decision)
    markdown, page = write_report(run.directory, report)
    run.tracker.describe(run.parent, f"{summary(report)}\n\nAll of it: `report.html` among the artifacts.")
    run.finish([markdown, page, run.directory / "games.json"])
    shown = run.tracker.artifact_page(run.parent, page.name, f"http://127.0.0.1:{MLFLOW_PORT}")
    linked = (
        f"[The whole report, with episodes and pictures]({shown}) (in MLflow), or open "
        f"`{page}`.\n\n{markdown.read_text()}"
    )
    create_markdown_artifact(linked, key="report", description=f"Report of run {run.manifest.run_id}")


class _Progress:
    """A progress bar in the Prefect UI."""

    def __init__(self, steps: int) -> None:
        self._steps, self._done = steps, 0
        self._artifact = create_progress_artifact(progress=0.0, description="stages of this run")

    def after(self, _finished: object) -> None:
        """One more stage is done."""
        self._done += 1
        update_progress_artifact(artifact_id=self._artifact, progress=100.0 * self._done / self._steps)  # type: ignore[arg-type]
