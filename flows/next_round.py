"""The next round of a finished run: the dream learns from that run's real episodes, and RL goes on.

    dreamgym next-round RUN

Real episodes of RL in reality, of the checks and of the replays train the experience model further and are
retrieved by it. The policy goes on from where the run's RL in reality ended. The numbers of the steps are
those of `flows/retrain.py`.
"""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from components.config import Config
from components.evaluation.promotion.gate import Decision
from flows.past_runs.past_rounds import PastRound, past_round
from flows.retrain import RetrainResult, write_results
from flows.run.games.validation_games import record_validation_draw, with_validation_draw
from flows.run.pipeline_run import Run
from flows.run.progress_bar import Progress
from flows.stages.check_dream import check_dream, require_agreement
from flows.stages.evaluate import evaluate_policies
from flows.stages.experience_model import require_fidelity
from flows.stages.promote import promote_challenger
from flows.stages.refresh_experience_model import refresh_experience_model
from flows.stages.sim_to_real import refine_in_reality
from flows.stages.snapshot_buffer import snapshot_buffer
from flows.stages.synthetic_rl import train_in_dream

KEPT = ("validate", "clone")
"""Stages of the first round that no further one runs."""


@flow(name="next-round", validate_parameters=False)
def next_round(config: Config, root: Path, after: str) -> RetrainResult:
    """Run the round after the finished run `after`, and decide on the promotion of its policy.

    Raises:
        DataError: there is no such run, it has not finished or met no reality, or its stages are gone.
        FidelityGateClosed: the dream is not faithful enough.
        DreamGymError: a stage failed; finished stages are kept and reused by the same command.
    """
    earlier = past_round(root.resolve(), after)
    run = Run(with_validation_draw(config), root.resolve())
    run.start("next-round")
    try:
        begin_round(run, earlier)
        decision = _train_and_promote(run)
        # 12. Write the report and the manifest, and save the experiment commit.
        write_results(run, decision)
    except BaseException as error:
        run.fail(error)
        raise
    return RetrainResult(run.directory, decision)


def begin_round(run: Run, earlier: PastRound) -> None:
    """Take what the stages of the round before have made, and count its real steps.

    The stages that this round runs itself are not recorded as its own.
    """
    run.round = earlier.number + 1
    run.manifest.continues = earlier.run_id
    run.manifest.round = run.round
    run.manifest.costs.earlier_real_interactions = earlier.real_steps
    for result in earlier.stages:
        if result.name in KEPT:
            run.adopt(result, is_counted=False)
        else:
            run.results[result.name] = result


def _train_and_promote(run: Run) -> Decision:
    """Steps 1 to 11."""
    progress = Progress(7)
    record_validation_draw(run)
    # 1 and 2. Train the experience model on the real episodes of the rounds before; measure its fidelity.
    fidelity_result = progress.after(refresh_experience_model(run))
    # 3. Gate: stop here if single steps of the dream are not faithful enough.
    require_fidelity(run, fidelity_result)
    # 4 to 6. RL in the dream with the curriculum, from the policy of the round before.
    progress.after(train_in_dream(run, "sim_to_real"))
    # 7. Gate: compare the dream with the real environment on the trained policy's episodes.
    require_agreement(run, progress.after(check_dream(run, "synthetic_rl", "dreamed")))
    # 8. Snapshot the replay buffer with the dreamed transitions.
    progress.after(snapshot_buffer(run))
    # 9. Refine the policy in the real environment under a budget of interactions.
    progress.after(refine_in_reality(run))
    # 10. Play validation games.
    progress.after(evaluate_policies(run))
    # 11. Promote the refined policy if it is better than the champion.
    return progress.after(promote_challenger(run))
