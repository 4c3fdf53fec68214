"""How MLflow loads and describes the two models that a run registers: the policy and the experience model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from components.config import Config
from components.experience.formats.choose import world_format
from components.language.vocabulary.load_vocabulary import load_vocabulary
from components.policy.formats.choose import agent_format
from components.tracking.pyfunc import experience_pyfunc, policy_pyfunc
from components.tracking.pyfunc.pyfunc_files import ServedModel
from components.tracking.pyfunc.pyfunc_rows import read_rows


def served_policy(
    config: Config, weights: Path, example: Sequence[Mapping[str, Any]], facts: Mapping[str, str]
) -> ServedModel:
    """The policy in `weights`, with the evaluation's sampling settings as defaults.

    Args:
        example: rows of input.
        facts: names and values for the model's page.
    """
    max_new_tokens = config.rl.dream.max_new_tokens
    vocabulary = load_vocabulary(weights)
    row = read_rows(example)[-1]
    text = agent_format(vocabulary)
    return ServedModel(
        title="A policy: from a task and the history of its episode to a thought and the next action.",
        module=policy_pyfunc.__name__,
        signature=policy_pyfunc.signature(config.evaluation.temperature, max_new_tokens),
        example=example,
        settings={"max_new_tokens": max_new_tokens, "device": "cpu"},
        prompt_format=text.form,
        prompt_example=vocabulary.decode(policy_pyfunc.prompt(text, row)),
        facts={**facts, "format": vocabulary.format},
    )


def served_experience_model(
    config: Config, weights: Path, example: Sequence[Mapping[str, Any]], facts: Mapping[str, str]
) -> ServedModel:
    """The experience model in `weights`.

    Args:
        example: rows of input.
        facts: names and values for the model's page.
    """
    vocabulary = load_vocabulary(weights)
    row = read_rows(example)[-1]
    text = world_format(vocabulary, config.experience_model)
    return ServedModel(
        title="An experience model: from a task, a history and an action to reasoning, the next state, the "
        "reward and whether it ends.",
        module=experience_pyfunc.__name__,
        signature=experience_pyfunc.signature(),
        example=example,
        settings={"experience_model": config.experience_model.model_dump(mode="json"), "device": "cpu"},
        prompt_format=text.form,
        prompt_example=vocabulary.decode(
            experience_pyfunc.prompt(text, row, history=config.experience_model.history)
        ),
        facts={**facts, "format": vocabulary.format},
    )
