"""The stage in which a language model judges steps that the experience model predicted.

It is part of `dreamgym fidelity`, and of a run on logs alone, if `fidelity.judged` is above 0.
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from functools import partial
from pathlib import Path

from components.evaluation.judge import VERSION, judge_transitions
from components.evaluation.metrics.judgements import read_judgements
from components.language.endpoint.json_endpoint import Endpoint
from components.trajectories.store import read_tasks
from flows.run.pipeline_run import Run
from flows.run.stage import Inputs, Outcome, Stage, StageOutput, stage_flow
from flows.run.training.teacher_annotations import ANSWERS, endpoint_slice


@stage_flow("judge-dream")
def judge_dream(run: Run, source: str) -> Stage:
    """Stage: the paper's four rubrics, judged by a language model and compared with facts.

    Args:
        source: the stage whose output `judgements` is judged: `fidelity`, which also has steps of policies,
            or `experience_model`, which has those of held-out data.
    """
    return Stage(
        "judge",
        work=partial(_judge, run),
        inputs={"judgements": StageOutput(source, "judgements")},
        config={"judged": run.config.fidelity.judged, "version": VERSION} | endpoint_slice(run.config),
        code=__name__,
    )


def _judge(run: Run, inputs: Inputs, work: Path) -> Outcome:
    judgements = read_judgements(inputs["judgements"])
    count = min(run.config.fidelity.judged, len(judgements))
    sample = random.Random(run.config.seed).sample(judgements, count)
    with Endpoint(run.config.endpoint, run.root / ANSWERS) as endpoint:
        metrics, records = judge_transitions(endpoint, sample, read_tasks(run.data.tasks("fidelity")))
    lines = "".join(json.dumps(asdict(record)) + "\n" for record in records)
    (work / "verdicts.jsonl").write_text(lines, encoding="utf-8")
    return Outcome({"verdicts": "verdicts.jsonl"}, metrics, costs=endpoint.usage.costs())
