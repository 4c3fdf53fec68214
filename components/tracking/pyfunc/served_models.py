"""How MLflow loads and describes the two models that a run registers: the policy and the experience model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from components.config import Config
from components.language.tokenizer import Vocabulary
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
    vocabulary = Vocabulary.load(weights)
    row = read_rows(example)[-1]
    tokens = [token for part in policy_pyfunc.prompt(row) for token in vocabulary.encode(part)]
    return ServedModel(
        title="A policy: from a task and the history of its episode to a thought and the next action.",
        module=policy_pyfunc.__name__,
        signature=policy_pyfunc.signature(config.evaluation.temperature, max_new_tokens),
        example=example,
        settings={"max_new_tokens": max_new_tokens, "device": "cpu"},
        prompt_format=policy_pyfunc.FORMAT,
        prompt_example=vocabulary.decode(tokens),
        facts={**facts, "format": _prompt_format(vocabulary)},
    )


def served_experience_model(
    config: Config, weights: Path, example: Sequence[Mapping[str, Any]], facts: Mapping[str, str]
) -> ServedModel:
    """The experience model in `weights`.

    Args:
        example: rows of input.
        facts: names and values for the model's page.
    """
    vocabulary = Vocabulary.load(weights)
    row = read_rows(example)[-1]
    return ServedModel(
        title="An experience model: from a task, a history and an action to reasoning, the next state, the "
        "reward and whether it ends.",
        module=experience_pyfunc.__name__,
        signature=experience_pyfunc.signature(),
        example=example,
        settings={"experience_model": config.experience_model.model_dump(mode="json"), "device": "cpu"},
        prompt_format=experience_pyfunc.FORMAT,
        prompt_example=vocabulary.decode(experience_pyfunc.prompt(vocabulary, config.experience_model, row)),
        facts={**facts, "format": _prompt_format(vocabulary)},
    )


def _prompt_format(vocabulary: Vocabulary) -> str:
    return (
        "chat (the tokenizer's own template)"
        if vocabulary.has_chat_template
        else "compact (markers are special tokens)"
    )
