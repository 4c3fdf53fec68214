"""The main job: from offline trajectories to a promoted policy.

    dreamgym retrain --config configs/quick.yaml
    dreamgym retrain --logs agent.jsonl

With logs alone, without a world that can be played, `logs_alone.py` has the steps.

Most steps are stages: subflows with an MLflow run of their own below the parent run. A stage is keyed by its
inputs, config, code, package pins and seed, so an unchanged one is reused. The modules in `flows/stages/` use
the step numbers below.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prefect import flow
from prefect.artifacts import create_markdown_artifact

from components.config import Config
from components.evaluation.promotion.gate import Decision
from components.evaluation.report.run_report import summary, write_report
from components.tracking.runs import write_games
from flows.logs_alone import LEFT_OUT, train_on_logs
from flows.run.games.validation_games import record_validation_draw, with_validation_draw
from flows.run.models.policy_export import export_policy
from flows.run.pipeline_run import Run
from flows.run.plan import PlannedStage
from flows.run.progress_bar import Progress
from flows.run.run_data import has_live_world
from flows.settings import MLFLOW_PORT
from flows.stages.check_dream import check_dream, require_agreement
from flows.stages.clone import clone_policy
from flows.stages.evaluate import evaluate_policies
from flows.stages.evaluate_on_logs import evaluate_on_logs
from flows.stages.experience_model import fine_tune_experience_model, require_fidelity
from flows.stages.judge_dream import judge_dream
from flows.stages.promote import promote_challenger
from flows.stages.report import played_games, run_report
from flows.stages.sim_to_real import refine_in_reality
from flows.stages.snapshot_buffer import save_run_commit, snapshot_buffer
from flows.stages.synthetic_rl import train_in_dream
from flows.stages.validate import validate_data


@dataclass(frozen=True)
class RetrainResult:
    """A finished run: its directory, the promotion gate's decision, and whether a live world was played."""

    directory: Path
    decision: Decision
    is_live: bool = True


STEPS = {
    "validate": PlannedStage(validate_data.declare),
    "experience_model": PlannedStage(fine_tune_experience_model.declare, gate=require_fidelity),
    "judge": PlannedStage(
        lambda run: judge_dream.declare(run, "experience_model"),
        condition=lambda run: bool(run.config.fidelity.judged) and not has_live_world(run),
    ),
    "clone": PlannedStage(clone_policy.declare),
    "check_cloned": PlannedStage(
        lambda run: check_dream.declare(run, "clone", "cloned"),
        gate=require_agreement,
        condition=has_live_world,
    ),
    "synthetic_rl": PlannedStage(train_in_dream.declare),
    "check_dreamed": PlannedStage(
        lambda run: check_dream.declare(run, "synthetic_rl", "dreamed"),
        gate=require_agreement,
        condition=has_live_world,
    ),
    "evaluate_on_logs": PlannedStage(evaluate_on_logs.declare, condition=lambda run: not has_live_world(run)),
    "sim_to_real": PlannedStage(refine_in_reality.declare, condition=has_live_world),
    "evaluate": PlannedStage(evaluate_policies.declare, condition=has_live_world),
}
"""The stages that `--dry-run` plans, in order, with their gates; neither snapshot nor promotion."""


@flow(name="retrain", validate_parameters=False)
def retrain(config: Config, root: Path = Path()) -> RetrainResult:
    """Train a policy in the dream and in the real environment, and promote it if it passes the gate.

    Without a live world, train it in the dream alone and promote nothing (`logs_alone.py`).

    Raises:
        FidelityGateClosed: the dream is not faithful enough; RL is not started, or its result is not used.
        DreamGymError: a stage failed; finished stages are kept and reused by the next run.
    """
    run = Run(with_validation_draw(config), root.resolve())
    run.start("retrain")
    try:
        decision = _train_and_promote(run) if has_live_world(run) else train_on_logs(run)
        # 12. Write the report and the manifest, and save the experiment commit.
        write_results(run, decision)
    except BaseException as error:
        run.fail(error)
        raise
    return RetrainResult(run.directory, decision, has_live_world(run))


def _train_and_promote(run: Run) -> Decision:
    """Steps 1 to 11."""
    progress = Progress(10)
    record_validation_draw(run)
    # 1. Check the offline data and set bad episodes aside.
    progress.after(validate_data(run))
    # 2. Fine-tune the experience model; measure its fidelity on held-out real transitions.
    fidelity_result = progress.after(fine_tune_experience_model(run))
    # 3. Gate: stop here if single steps of the dream are not faithful enough.
    require_fidelity(run, fidelity_result)
    # 4. Clone a policy from expert demonstrations.
    progress.after(clone_policy(run))
    # 5. Gate: compare the dream with the real environment on the cloned policy's episodes.
    require_agreement(run, progress.after(check_dream(run, "clone", "cloned")))
    # 6. RL in the dream with the curriculum, without real interactions.
    progress.after(train_in_dream(run))
    # 7. Gate: compare again on the trained policy's episodes; RL may have exploited errors of the dream.
    require_agreement(run, progress.after(check_dream(run, "synthetic_rl", "dreamed")))
    # 8. Snapshot the replay buffer with the dreamed transitions.
    progress.after(snapshot_buffer(run))
    # 9. Refine the policy in the real environment under a budget of interactions.
    progress.after(refine_in_reality(run))
    # 10. Play validation games.
    progress.after(evaluate_policies(run))
    # 11. Promote the refined policy if it is better than the champion.
    return progress.after(promote_challenger(run))


def write_results(run: Run, decision: Decision) -> None:
    """Write the run's costs, games, metrics and report, and save its experiment commit (step 12)."""
    costs = run.manifest.costs
    run.count("sim_to_real/budget", run.config.rl.real.budget)
    run.count("cost/real_interactions", costs.real_interactions)
    run.count("cost/check_interactions", costs.check_interactions)
    if run.round > 1:
        run.count("cost/earlier_real_interactions", costs.earlier_real_interactions)
    run.count("cost/tokens_trained", costs.tokens_trained)
    run.count("cost/tokens_generated", costs.tokens_generated)
    run.count("cost/endpoint_prompt_tokens", costs.endpoint_prompt_tokens)
    run.count("cost/endpoint_completion_tokens", costs.endpoint_completion_tokens)
    write_games(run.directory, played_games(run))
    run.conclude()
    if run.config.tracking.dvc_experiment:
        run.manifest.data.experiment_commit = save_run_commit(run)
    run.tracker.set_tags(run.parent, {"dvc.experiment_commit": run.manifest.data.experiment_commit})
    export_policy(run)
    report = run_report(run, decision, () if has_live_world(run) else list(LEFT_OUT.values()))
    markdown, page = write_report(run.directory, report)
    run.tracker.describe(
        run.parent, f"{summary(report)}\n\nThe whole report: `report.html` among the artifacts."
    )
    run.finish([markdown, page, run.directory / "games.json"])
    report_url = run.tracker.artifact_page(run.parent, page.name, f"http://127.0.0.1:{MLFLOW_PORT}")
    text = (
        f"[The whole report, with episodes and pictures]({report_url}) (in MLflow), or open "
        f"`{page}`.\n\n{markdown.read_text()}"
    )
    create_markdown_artifact(text, key="report", description=f"Report of run {run.manifest.run_id}")
