"""Vocabularies: text and structure of prompts as token ids, in two formats (`compact`, `chat`)."""
