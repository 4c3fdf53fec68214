"""Goes on with a run on logs in a live world: steps 7 to 12 of the main job, with that run's models.

    dreamgym refine RUN environment.name=openenv environment.openenv.url=http://localhost:8000

The live world has the texts and the actions of the logs, and tasks that `dreamgym collect` has recorded. The
numbers of the steps are those of `flows/retrain.py`.
"""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from components.config import Config
from components.evaluation.promotion.gate import Decision
from components.tracking.stage_store.stage_result import StageResult
from components.trajectories.store import DataLayout
from flows.jobs.import_logs import WORLD
from flows.past_runs.run_on_logs import stages_on_logs
from flows.retrain import RetrainResult, write_results
from flows.run.games.validation_games import record_validation_draw, with_validation_draw
from flows.run.pipeline_run import Run
from flows.run.progress_bar import Progress
from flows.stages.check_dream import check_dream, require_agreement
from flows.stages.evaluate import evaluate_policies
from flows.stages.promote import promote_challenger
from flows.stages.sim_to_real import refine_in_reality
from flows.stages.snapshot_buffer import snapshot_buffer


@flow(name="refine", validate_parameters=False)
def refine(config: Config, root: Path, of_run: str) -> RetrainResult:
    """Refine the policy of the run on logs `of_run` in a live world, and decide on its promotion.

    Raises:
        DataError: there is no such run, it is not one on logs, or its stages are gone.
        FidelityGateClosed: the live world confirms too few of the policy's dreamed successes.
        DreamGymError: a stage failed; finished stages are kept and reused by the same command.
    """
    root = root.resolve()
    earlier_run, finished = stages_on_logs(root, of_run)
    run = Run(with_validation_draw(config), root, logs=DataLayout.of(root, WORLD))
    run.start("refine")
    run.manifest.continues = earlier_run
    try:
        decision = _refine_and_promote(run, finished)
        # 12. Write the report and the manifest, and save the experiment commit.
        write_results(run, decision)
    except BaseException as error:
        run.fail(error)
        raise
    return RetrainResult(run.directory, decision)


def _refine_and_promote(run: Run, finished: list[StageResult]) -> Decision:
    """Steps 1 to 11."""
    progress = Progress(5)
    record_validation_draw(run)
    # 1 to 6. Take the models and the dreamed episodes of the run on logs.
    for result in finished:
        run.adopt(result)
    # 7. Gate: compare the dream with the live world on the policy's episodes, which the logs could not do.
    require_agreement(run, progress.after(check_dream(run, "synthetic_rl", "dreamed")))
    # 8. Snapshot the replay buffer with the dreamed transitions.
    progress.after(snapshot_buffer(run))
    # 9. Refine the policy in the live world under a budget of interactions.
    progress.after(refine_in_reality(run))
    # 10. Play validation games.
    progress.after(evaluate_policies(run))
    # 11. Promote the refined policy if it is better than the champion.
    return progress.after(promote_challenger(run))
