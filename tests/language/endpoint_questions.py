"""A question with a strict answer, and how the endpoint's tests ask it."""

from __future__ import annotations

from components.language.endpoint.json_endpoint import Endpoint, Question, StrictAnswer

KEY = "sk-secret-0123456789"
NO_COSTS = {
    "endpoint_calls": 0,
    "endpoint_cached_calls": 0,
    "endpoint_prompt_tokens": 0,
    "endpoint_completion_tokens": 0,
}


class Colour(StrictAnswer):
    colour: str
    strength: int


RIGHT = {"colour": "blue", "strength": 2}
BLUE = Colour(**RIGHT)


def question(user="sky", version="colours-1", **changes):
    return Question("Say its colour.", user, version, Colour, **changes)


def ask(server, cache, one_question=None, **config):
    """(answer or failure, the endpoint's usage)."""
    with Endpoint(server.config(**config), cache) as endpoint:
        (result,) = endpoint.ask_all([one_question or question()])
        return result, endpoint.usage


def cached_files(cache):
    """File name -> text of every cached answer."""
    return {path.name: path.read_text() for path in cache.rglob("*") if path.is_file()}
