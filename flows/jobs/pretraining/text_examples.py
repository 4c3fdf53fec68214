"""CompactVocabulary and training examples of a pretraining, from the episodes of its corpus.

Examples have the two forms that a backbone is used in: the experience model's, of every behaviour, and the
agent's, of AGENT_BEHAVIOURS alone.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from components.config import Config
from components.environments import make_adapter
from components.environments.capabilities import Adapter
from components.experience.dataset import (
    assume_premises,
    premise_examples,
    transition_examples,
    variation_examples,
)
from components.experience.formats.choose import world_format
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.language.backbone import load_backbone
from components.language.training.examples import Example
from components.language.vocabulary.compact_vocabulary import CompactVocabulary
from components.policy.formats.choose import agent_format
from components.policy.formats.demonstrations import render_demonstration
from components.records import Task, Trajectory
from components.trajectories.augmentation.hindsight import hindsight, is_hindsight_copy
from components.trajectories.augmentation.renaming import original_task_id, rename_episodes
from flows.run.run_data import index_directories

AGENT_BEHAVIOURS = ("noisy",)
"""Behaviours whose episodes get the agent's form.

Never an expert's. Those of a random or near-miss policy would teach errors.
"""
AGENT_REPEATS = 2
"""Copies of each example in the agent's form.

Its thoughts are long. Without the copies it would be a seventh of all tokens.
"""
POOL_EPISODES = 500
"""Episodes, of all sizes, whose transitions serve as demonstrations in pretraining."""


@task(cache_policy=NO_CACHE)
def learn_vocabulary(config: Config, episodes: list[Trajectory]) -> CompactVocabulary:
    """Return a byte-level BPE trained on every text that a model reads or writes.

    With `backbone.path` it is the vocabulary of that model.
    """
    if config.backbone.path:
        vocabulary = load_backbone(Path(config.backbone.path), text_format="compact")[1]
        assert isinstance(vocabulary, CompactVocabulary)
        return vocabulary
    texts: list[str] = []
    for episode in episodes:
        texts += [episode.task.instruction, episode.task.initial_state]
        texts += [text for step in episode.steps for text in (step.action, step.reasoning, step.next_state)]
    return CompactVocabulary.train(texts, config.backbone.vocabulary)


@task(name="render", cache_policy=NO_CACHE)
def render_examples(
    config: Config, vocabulary: CompactVocabulary, episodes: list[Trajectory], root: Path
) -> list[Example]:
    """Return the examples in both forms, those of hindsight-relabelled and renamed episodes included.

    Args:
        config: of one phase.
        root: of the repository, with the stored embeddings.
    """
    adapter = make_adapter(config.environment)
    settings = config.pretrain.phases[0]
    seed = config.pretrain.seed
    pool = [step for episode in episodes[:: max(1, len(episodes) // POOL_EPISODES)] for step in episode.steps]
    buffer = ReplayBuffer(config.retrieval, pool, embeddings=index_directories(root)["embeddings"])
    episodes = episodes + hindsight(episodes, adapter, settings.hindsight, seed)
    episodes += rename_episodes(episodes, adapter, settings.renamed, seed)
    tasks: list[Task] = list({episode.task.id: episode.task for episode in episodes}.values())
    text = world_format(vocabulary, config.experience_model)
    with_premises = assume_premises(episodes, adapter, seed)
    examples = transition_examples(text, with_premises, buffer, config.experience_model, own=original_task_id)
    examples += premise_examples(text, episodes, adapter)
    examples += variation_examples(text, tasks, adapter.feasible, seed)
    examples += AGENT_REPEATS * agent_examples(config, vocabulary, episodes)
    buffer.close()
    return examples


def agent_examples(
    config: Config, vocabulary: CompactVocabulary, episodes: list[Trajectory]
) -> list[Example]:
    """Return episodes in the agent's form: of AGENT_BEHAVIOURS; of logs all, every action with loss.

    Without an expert there are none of AGENT_BEHAVIOURS: then all are imitated.
    """
    own = [episode for episode in episodes if not is_hindsight_copy(episode.task.id)]
    if config.pretrain.corpus == "logs":
        text = agent_format(vocabulary)
        return [render_demonstration(text, episode) for episode in own]
    adapter = make_adapter(config.environment)
    imitated = [episode for episode in own if episode.steps[0].behaviour in AGENT_BEHAVIOURS]
    return [agent_example(adapter, vocabulary, episode) for episode in imitated or own]


def agent_example(adapter: Adapter, vocabulary: CompactVocabulary, episode: Trajectory) -> Example:
    """Return an episode in the agent's form.

    Steps that changed no fact are in the context, without loss.
    """
    facts = [adapter.facts(episode.up_to(place)) for place in range(len(episode.steps) + 1)]
    changed = [any(fact[0] != "event" for fact in after - before) for before, after in pairwise(facts)]
    return render_demonstration(agent_format(vocabulary), episode, imitated=changed)
