"""Chooses the text format of an experience model by its vocabulary."""

from __future__ import annotations

from components.config import ExperienceModelConfig
from components.experience.formats.chat_world import ChatWorld
from components.experience.formats.compact_world import CompactWorld
from components.experience.formats.world_format import WorldFormat
from components.language.vocabulary.chat_vocabulary import ChatVocabulary
from components.language.vocabulary.compact_vocabulary import CompactVocabulary
from components.language.vocabulary.vocabulary import Vocabulary


def world_format(vocabulary: Vocabulary, config: ExperienceModelConfig) -> WorldFormat:
    """The text of an experience model with this vocabulary and the options `reasoning` and `recall`."""
    if isinstance(vocabulary, ChatVocabulary):
        return ChatWorld(vocabulary, reasoning=config.reasoning, recalled=config.recall)
    assert isinstance(vocabulary, CompactVocabulary)
    return CompactWorld(vocabulary, reasoning=config.reasoning, recalled=config.recall)
