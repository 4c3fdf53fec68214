"""Steps 5 and 7: compare the dream with the real environment on a policy's own episodes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from prefect import get_run_logger

from components.evaluation.metrics.fidelity_metrics import Metrics, check_agreement, policy_metrics
from components.evaluation.metrics.intervals import Estimate, exact_value
from components.evaluation.metrics.rollout_agreement import (
    AgreementCheck,
    agreement_metrics,
    play_until_decided,
    split_into_batches,
    undecided_note,
)
from components.experience.real_replay import replay, replayed_steps
from components.experience.replay_record import replay_record
from components.experience.step_judgements import judge_predictions
from components.language.threads import decoding
from components.policy.policy import Policy
from components.policy.rollout import Rollout, play
from components.policy.task_draws import draw_tasks
from components.policy.whole_episodes import play_whole
from components.records import Task
from components.tracking.stage_store.stage_result import StageResult
from components.trajectories.replay_log import append_once
from flows.run.live_adapter import live_adapter
from flows.run.pipeline_run import Run
from flows.run.run_data import EXPERIENCE, encoder_input, experience_input, families_config, training_tasks
from flows.run.run_dream import open_dream
from flows.run.stage import Inputs, Outcome, Stage, StageOutput, stage_flow


@stage_flow("check-dream")
def check_dream(run: Run, policy_stage: str, suffix: str) -> Stage:
    """Stage: compare the dream with the real environment on episodes of the policy of `policy_stage`.

    Args:
        suffix: of the names of the stage and its metrics, such as `cloned`.
    """
    config = run.slice("experience_model", "retrieval", "environment")
    config |= {"tasks": run.config.fidelity.policy_tasks}
    config |= run.config.rl.dream.model_dump(include={"temperature", "max_new_tokens"})
    config |= run.computing() | families_config(run)
    config |= {"gate": run.config.fidelity.model_dump(include={"min_rollout_agreement", "max_batches"})}
    return Stage(
        f"check_{suffix}",
        work=partial(_check, run, suffix),
        inputs={
            "model": StageOutput("experience_model", "model"),
            "policy": StageOutput(policy_stage, "policy"),
            "train": StageOutput("validate", "train"),
            "tasks": run.data.tasks("train"),
            **encoder_input(run),
            **experience_input(run),
        },
        config=config,
        code=__name__,
    )


def require_agreement(run: Run, result: StageResult) -> None:
    """Raise FidelityGateClosed if reality confirms too few of the policy's dreamed successes, the dream is
    kinder than it, or leaves most episodes unanswered.
    """
    metrics = {name: Estimate.from_json(entry) for name, entry in result.metrics.items()}
    check_agreement(metrics, run.config.fidelity, result.name.removeprefix("check_"))


def _check(run: Run, suffix: str, inputs: Inputs, work: Path) -> Outcome:
    config = run.config
    adapter = live_adapter(config)
    settings = config.fidelity
    candidates = training_tasks(run)
    drawn_tasks = draw_tasks(candidates, settings.policy_tasks * settings.max_batches, run.round_seed)
    batches = split_into_batches(drawn_tasks, len(candidates), settings.policy_tasks)
    model, buffer, dream = open_dream(run, inputs)
    policy = Policy.load(inputs["policy"], max_new_tokens=config.rl.dream.max_new_tokens, compute=run.compute)
    options: dict[str, Any] = {
        "max_steps": config.environment.max_steps,
        "temperature": config.rl.dream.temperature,
    }

    def dream_batch(batch: Sequence[Task], seed: int) -> list[Rollout]:
        return play(policy, dream, batch, seed=seed, **options)

    check = AgreementCheck()
    replay_batch = partial(replay, adapter)
    with decoding(config):
        check.add(dream_batch(batches[0], run.round_seed), replay_batch)
        with closing(adapter.open()) as real_world:
            real = play_whole(policy, real_world, batches[0], seed=run.round_seed, **options)
            real_steps = real_world.interactions
        refused_before = model.incoherent_answers
        judged = judge_predictions(model, buffer, adapter, [r.trajectory for r in real if r.trajectory.steps])
        refused_in_judging = model.incoherent_answers - refused_before
        play_until_decided(check, batches, settings, run.round_seed, dream_batch, replay_batch)
    buffer.close()
    real_steps += check.steps
    wins = [rollout.trajectory.success for rollout in real]
    metrics: Metrics = policy_metrics(
        judged,
        check.replays,
        len(check.rollouts),
        wins,
        _same_tasks(check.rollouts, real),
        unanswered=sum(rollout.unparsable for rollout in check.rollouts),
        suffix=suffix,
    )
    metrics |= agreement_metrics(check, settings, suffix)
    real_steps_taken = [step for rollout in real for step in rollout.trajectory.steps]
    append_once(work / EXPERIENCE, real_steps_taken + replayed_steps(check.replays), "check")
    records = [replay_record(adapter, one) for one in check.replays]
    (work / "replays.json").write_text(json.dumps(records, indent=1))
    metrics[f"fidelity/check_interactions/{suffix}"] = exact_value(real_steps)
    metrics[f"fidelity/refused_answers_a_step/{suffix}"] = exact_value(
        (model.incoherent_answers - refused_in_judging) / max(1, dream.interactions)
    )
    costs = {
        "check_interactions": real_steps,
        "replayed_episodes": sum(r.tries - 1 for r in real),
        "tokens_generated": model.tokens + policy.tokens,
        **model.endpoint_costs,
    }
    if note := undecided_note(check, settings, suffix):
        get_run_logger().warning(note)
    return Outcome(
        {"replays": "replays.json", EXPERIENCE: EXPERIENCE},
        metrics,
        details={"gate_note": note} if note else {},
        costs=costs,
    )


def _same_tasks(dreamed: Sequence[Rollout], real: Sequence[Rollout]) -> list[tuple[bool, bool]]:
    """Return (won in the dream, won in reality) of each task of the first batch that both answered.

    Args:
        dreamed: rollouts of all batches; the first batch's tasks are those of `real`, in its order.
    """
    return [
        (dream.trajectory.success, reality.trajectory.success)
        for dream, reality in zip(dreamed, real, strict=False)
        if not (dream.unparsable or dream.broken or reality.broken)
    ]
