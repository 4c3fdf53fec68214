"""The config sections of worlds that are the user's own: behind an OpenEnv server, with Gymnasium's
interface, or with an own adapter.

Code is imported from where a `module:name` says and from nowhere else, and a token never stands in a config:
the section names the environment variable that holds it.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from components.config.endpoint_config import plain_address, variable_name
from components.config.section import Section

IMPORT_PATH = r"^$|^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"


class TextWorldConfig(Section):
    """What no world of text says by itself, so the user must."""

    instruction: str = Field(
        "", description="What is to be done, where the world does not say it with its first observation."
    )
    success: float = Field(
        1.0,
        description="Least sum of an episode's own rewards that is a success: its reward is 1 then, else 0.",
    )
    actions: list[str] = Field(
        default_factory=list,
        description="Actions that the random policy draws from where the world lists none.",
    )
    refusals: list[str] = Field(
        default_factory=list, description="Words in a state that tell that the action was not carried out."
    )
    demonstrations: str = Field(
        "",
        description="File of recorded solutions, for the expert: JSON lines with `task` (an id) and "
        "`actions` (a list); empty: none.",
    )


class GymnasiumConfig(TextWorldConfig):
    """A world with Gymnasium's `reset(seed=...)` and `step(action)`, whose observations and actions are
    text.
    """

    factory: str = Field(
        "", pattern=IMPORT_PATH, description="What makes it, called without arguments: module:function."
    )


class OpenEnvConfig(TextWorldConfig):
    """A world behind an OpenEnv server."""

    url: str = Field("", description="The server's address, such as http://localhost:8000.")
    token_variable: str = Field(
        "",
        description="NAME of the environment variable with the server's token, never the token; empty: none "
        "is sent.",
    )
    action_field: str = Field(
        "action", min_length=1, description="Field of the server's action that holds the agent's words."
    )
    state_field: str = Field(
        "state",
        min_length=1,
        description="Field of the server's observation that holds the text that the agent sees.",
    )
    instruction_field: str = Field(
        "instruction",
        description="Field of the first observation, or of the server's tasks, with what is to be done; "
        "empty: none has.",
    )
    tasks: Literal["api", "seeds"] = Field(
        "api", description="Tasks are those that the server lists, or one for each seed of its reset."
    )
    train_split: str = Field("train", min_length=1, description="The server's name of the training split.")
    test_split: str = Field(
        "test",
        min_length=1,
        description="That of the held-out one; if it is the same, every second task is held out.",
    )
    validation_split: str = Field(
        "",
        description="That of validation games; empty: games of the held-out split that are not among the "
        "recorded ones.",
    )
    sessions: int = Field(
        16,
        ge=1,
        description="Most sessions at once, as many as the server allows; more episodes are played one part "
        "after the other.",
    )
    timeout_seconds: float = Field(
        60.0,
        gt=0,
        description="Longest wait for one answer; then the episode has failed, which is not the agent's "
        "fault.",
    )

    @model_serializer(mode="wrap")
    def _without_empty_validation_split(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Left out where it is empty, so that data recorded without the field still fits its config."""
        return {name: value for name, value in handler(self).items() if name != "validation_split" or value}

    @field_validator("url")
    @classmethod
    def _without_slash(cls, url: str) -> str:
        return url.rstrip("/")

    @model_validator(mode="after")
    def _no_secrets_and_no_dead_options(self) -> OpenEnvConfig:
        """The messages do not repeat what they refuse: it may be a token or a password."""
        if self.token_variable and not variable_name(self.token_variable):
            raise ValueError(
                "token_variable is not the name of an environment variable; put the token into one and give "
                "that name"
            )
        if self.url and not plain_address(self.url):
            raise ValueError(
                "url is not a plain http(s) address such as http://localhost:8000, without user, password, "
                "'?' or '#'"
            )
        if self.tasks == "seeds":
            self._refuse_dead(["train_split", "test_split", "validation_split"], "tasks: seeds", "tasks: api")
        return self


class OwnConfig(Section):
    """A world with an adapter of the user's own."""

    adapter: str = Field(
        "", pattern=IMPORT_PATH, description="Its class, called with the section `environment`: module:Class."
    )
