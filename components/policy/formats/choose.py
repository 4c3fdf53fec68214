"""Chooses the text format of a policy by its vocabulary."""

from __future__ import annotations

from components.language.vocabulary.chat_vocabulary import ChatVocabulary
from components.language.vocabulary.compact_vocabulary import CompactVocabulary
from components.language.vocabulary.vocabulary import Vocabulary
from components.policy.formats.agent_format import AgentFormat
from components.policy.formats.chat_agent import ChatAgent
from components.policy.formats.compact_agent import CompactAgent


def agent_format(vocabulary: Vocabulary) -> AgentFormat:
    """The text of a policy with this vocabulary."""
    if isinstance(vocabulary, ChatVocabulary):
        return ChatAgent(vocabulary)
    assert isinstance(vocabulary, CompactVocabulary)
    return CompactAgent(vocabulary)
