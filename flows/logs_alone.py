"""Steps 1 to 11 of the main job where a world has logs and nothing that can be played.

    dreamgym retrain --logs agent.jsonl

The numbers are those of `flows/retrain.py`. Steps that need the real environment are left out: `LEFT_OUT`
says which, and the report repeats it. Nothing is promoted.
"""

from __future__ import annotations

from prefect import get_run_logger

from components.evaluation.promotion.gate import Decision
from flows.run.models.model_registration import register, register_experience_model
from flows.run.pipeline_run import Run
from flows.run.progress_bar import Progress
from flows.stages.clone import clone_policy
from flows.stages.evaluate_on_logs import evaluate_on_logs
from flows.stages.experience_model import fine_tune_experience_model, require_fidelity
from flows.stages.judge_dream import judge_dream
from flows.stages.snapshot_buffer import snapshot_buffer
from flows.stages.synthetic_rl import train_in_dream
from flows.stages.validate import validate_data

LEFT_OUT = {
    "5, 7": "No real environment confirmed the dreamed successes of the policies.",
    "9": "The policy was not refined in the real environment.",
    "10": "No policy played a held-out game: nobody knows how often it succeeds.",
}
"""Steps of `flows/retrain.py` that need a live world -> what is therefore not known."""


def train_on_logs(run: Run) -> Decision:
    """Train a policy in the dream alone, register it, and return the decision that it is not promoted."""
    progress = Progress(6 + bool(run.config.fidelity.judged))
    for step, consequence in LEFT_OUT.items():
        get_run_logger().warning("left out, step %s: %s", step, consequence)
    # 1. Check the logs and set bad episodes aside.
    progress.after(validate_data(run))
    # 2. Fine-tune the experience model; measure its fidelity on held-out logs.
    fidelity_result = progress.after(fine_tune_experience_model(run))
    # 3. Gate: stop here if single steps of the dream are not faithful enough.
    require_fidelity(run, fidelity_result)
    if run.config.fidelity.judged:  # a language model judges some of its held-out steps
        progress.after(judge_dream(run, "experience_model"))
    # 4. Clone a policy from the logs.
    progress.after(clone_policy(run))
    # 6. RL in the dream.
    progress.after(train_in_dream(run))
    # 8. Snapshot the replay buffer with the dreamed transitions.
    progress.after(snapshot_buffer(run))
    # 10. Instead of games: held-out tasks in the dream, and the actions of held-out logs.
    progress.after(evaluate_on_logs(run))
    # 11. Register both models; a live evaluation or a person has to promote the policy.
    return _register_unverified(run)


def _register_unverified(run: Run) -> Decision:
    reason = (
        "No live world was at hand, so nobody knows how often this policy succeeds. Go on in one with "
        f"`dreamgym refine {run.manifest.run_id} environment.name=...`, or decide yourself with "
        f"`dreamgym promote {run.manifest.run_id} --by NAME --reason TEXT`."
    )
    decision = Decision(False, [], reason)
    tags = {
        "dreamgym.run_id": run.manifest.run_id,
        "dreamgym.stage_key": run.results["synthetic_rl"].key,
        "dreamgym.promoted": "False",
        "dreamgym.verified": "False",
    }
    register(run, "policy", "synthetic_rl", "policy", tags)
    register_experience_model(run, tags)
    run.manifest.decision = decision.to_json()
    run.tracker.set_tags(run.parent, {"dreamgym.decision": "unverified", "dreamgym.reason": reason})
    return decision
