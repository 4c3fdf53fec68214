"""The config section `endpoint`: the language model that is asked over HTTP, and its timeouts.

The API key is never in a config, because every run saves its config. The section names the environment
variable with the key.
"""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from components.config.reading.section import Section


class EndpointConfig(Section):
    """A language model behind a chat-completions endpoint that speaks OpenAI's protocol (vLLM, Ollama, hosted
    ones).
    """

    url: str = Field(
        "", description="Base address, such as http://localhost:8000/v1; `/chat/completions` is appended."
    )
    model: str = Field("", description="Name of the model at the endpoint.")
    key_variable: str = Field(
        "",
        description="NAME of the environment variable with the API key, such as OPENAI_API_KEY, never the "
        "key; empty: no key.",
    )
    timeout_seconds: float = Field(120.0, gt=0, description="Timeout of one answer.")
    retries: int = Field(
        5,
        ge=0,
        description="Retries after a transport error, a timeout, HTTP 429 or 5xx.",
    )
    backoff_seconds: float = Field(
        1.0, ge=0, description="Wait before the first retry; doubled each time, up to 60, with jitter."
    )
    corrections: int = Field(
        2,
        ge=0,
        description="How often an unusable answer is requested again, with a description of its error.",
    )
    temperature: float = Field(
        0.0, ge=0, description="Sampling temperature; some hosted models only accept 1."
    )
    max_tokens: int = Field(4096, ge=1, description="Longest answer in tokens.")
    limit_field: Literal["max_tokens", "max_completion_tokens"] = Field(
        "max_tokens",
        description="Name of that limit in the request; OpenAI's newer models expect max_completion_tokens.",
    )
    json_mode: bool | Literal["schema"] = Field(
        True,
        description="true: request `response_format: json_object`; schema: request `json_schema` with the "
        "answer's form, which vLLM then enforces, for small models; false: for endpoints that refuse both.",
    )
    admissible: bool = Field(
        False,
        description="List the admissible actions in each message to an agent, as the paper's prompt does. "
        "Policies of this project never see such a list, because a dream has none.",
    )
    concurrency: int = Field(4, ge=1, description="Concurrent requests.")

    @model_validator(mode="after")
    def _refuse_options_without_effect(self) -> EndpointConfig:
        if self.retries == 0:
            self._refuse_without_effect(["backoff_seconds"], "retries: 0", "retries")
        return self

    @model_validator(mode="after")
    def _no_secrets(self) -> EndpointConfig:
        """The messages do not repeat what they refuse: it may be a key or a password."""
        if self.key_variable and not variable_name(self.key_variable):
            raise ValueError(
                "key_variable is not the name of an environment variable (capitals, digits, '_'); "
                "put the key into one, such as OPENAI_API_KEY, and give that name"
            )
        if self.url and not plain_address(self.url):
            raise ValueError(
                "url is not a plain http(s) address such as http://localhost:8000/v1, without user, "
                "password, '?' or '#'; "
                "a key goes into the variable that key_variable names"
            )
        return self


def variable_name(text: str) -> bool:
    """Return True if `text` can be the name of an environment variable."""
    return re.fullmatch(r"[A-Z_][A-Z0-9_]*", text) is not None


def plain_address(url: str) -> bool:
    """Return True for an http(s) address without user, password, query or fragment."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if it is not a number
    except ValueError:
        return False
    return (
        parts.scheme in ("http", "https")
        and bool(parts.hostname)
        and "@" not in parts.netloc
        and not parts.query + parts.fragment
    )
