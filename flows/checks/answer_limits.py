"""Checks before a run that its token limits cut next to no recorded answer of either model.

The same text takes more tokens in a pretrained model's vocabulary than in the small backbone's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from components.config import Config
from components.experience.formats.choose import world_format
from components.experience.formats.world_format import recorded_answer
from components.experience.teachers.self_teacher import MAX_REASON_TOKENS
from components.language.vocabulary.vocabulary import Vocabulary
from components.policy.formats.choose import agent_format
from components.policy.own_reflections import MAX_REFLECTION_TOKENS, require_conversations
from components.records import Trajectory
from flows.checks.token_limits import REPLY_LIMITS, limit_of, require_limit

SAMPLED_EPISODES = 200
"""Episodes whose answers are counted, evenly spread."""


def require_answer_limits(
    config: Config,
    *,
    experience: tuple[Vocabulary, Sequence[Trajectory]],
    policy: tuple[Vocabulary, Sequence[Trajectory]],
) -> None:
    """Raise ConfigError if a limit cuts more than `MAX_CUT_SHARE` of the answers that a model learns.

    Args:
        experience: vocabulary of the experience model, and the episodes that it learns.
        policy: vocabulary of the policy, and the episodes that it clones.
    """
    for key, lengths in answer_lengths(config, experience=experience, policy=policy).items():
        require_limit([key], limit_of(config, key), lengths, "recorded answers")


def answer_lengths(
    config: Config,
    *,
    experience: tuple[Vocabulary, Sequence[Trajectory]],
    policy: tuple[Vocabulary, Sequence[Trajectory]],
) -> dict[str, list[int]]:
    """Return key of a limit -> tokens of the recorded answers, as `require_answer_limits` gets them.

    Where a model writes its own reasons or reflections, the longest one is counted in place of the recorded
    one. An adapter's reflections are counted when they are written (`token_limits.require_reflections_fit`).

    Raises:
        ConfigError: the model that is to write them cannot.
    """
    vocabulary, episodes = experience
    world = world_format(vocabulary, config.experience_model)
    writes_itself = config.experience_model.teacher == "self"
    room = MAX_REASON_TOKENS if writes_itself else 0
    answers: list[int] = []
    for episode in _sample(episodes):
        if writes_itself and not answers:
            world.reason_prompt(episode.task, episode.steps[0])  # refuses a backbone that cannot write one
        steps = (replace(step, reasoning="") if writes_itself else step for step in episode.steps)
        answers += [len(world.answer(recorded_answer(step))) + room for step in steps]
    vocabulary, episodes = policy
    agent = agent_format(vocabulary)
    room = MAX_REFLECTION_TOKENS if config.cloning.early_experience == "own_reflection" else 0
    if room:
        require_conversations(agent)
    replies = [
        max(len(agent.reply(step.thought, step.action)), room and len(agent.reply("", step.action)) + room)
        for episode in _sample(episodes)
        for step in episode.steps
    ]
    return {"experience_model.max_new_tokens": answers} | dict.fromkeys(REPLY_LIMITS, replies)


def _sample(episodes: Sequence[Trajectory]) -> Sequence[Trajectory]:
    return episodes[:: max(1, len(episodes) // SAMPLED_EPISODES)]
