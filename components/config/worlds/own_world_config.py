"""The config sections of the user's worlds: an OpenEnv server, a Gymnasium interface, or an adapter.

Code is imported only from a `module:name` in the config. A token is never in a config: the section names the
environment variable with the token.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from components.config.endpoint_config import plain_address, variable_name
from components.config.reading.section import Section

IMPORT_PATH = r"^$|^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"


class TextWorldConfig(Section):
    """What a text world does not say about itself: for `gymnasium` and `openenv`."""

    instruction: str = Field(
        "", description="The task, if the first observation of the world does not state it."
    )
    success: float = Field(
        1.0,
        description="Smallest sum of the rewards of an episode that counts as success (reward 1, else 0).",
    )
    actions: list[str] = Field(
        default_factory=list,
        description="Actions of the random policy, if the world lists none.",
    )
    refusals: list[str] = Field(
        default_factory=list, description="Words in a state that show that the action was not carried out."
    )
    demonstrations: str = Field(
        "",
        description="File of recorded solutions for the expert: JSON lines with `task` (an id) and "
        "`actions` (a list); empty: none.",
    )


class GymnasiumConfig(Section):
    """A world with Gymnasium's `reset(seed=...)` and `step(action)`, whose observations and actions are
    text.
    """

    factory: str = Field(
        "",
        pattern=IMPORT_PATH,
        description="module:function that returns the environment, called without arguments.",
    )


class OpenEnvConfig(Section):
    """A world behind an OpenEnv server."""

    url: str = Field("", description="Address of the server, such as http://localhost:8000.")
    token_variable: str = Field(
        "",
        description="NAME of the environment variable with the server's token, never the token; empty: no "
        "token.",
    )
    action_field: str = Field(
        "action", min_length=1, description="Field of the server's action with the agent's text."
    )
    state_field: str = Field(
        "state",
        min_length=1,
        description="Field of the server's observation with the text for the agent.",
    )
    instruction_field: str = Field(
        "instruction",
        description="Field of the first observation, or of the server's tasks, with the instruction; "
        "empty: none.",
    )
    tasks: Literal["api", "seeds"] = Field(
        "api", description="api: the tasks that the server lists; seeds: one task for each seed of its reset."
    )
    train_split: str = Field("train", min_length=1, description="The server's name of the training split.")
    test_split: str = Field(
        "test",
        min_length=1,
        description="The server's name of the held-out split; if it is the training split, every second "
        "task is held out.",
    )
    validation_split: str = Field(
        "",
        description="The server's name of the split of validation games; empty: held-out tasks that were "
        "not recorded.",
    )
    sessions: int = Field(
        16,
        ge=1,
        description="Largest number of concurrent sessions; more episodes are played one part after the "
        "other.",
    )

    @model_serializer(mode="wrap")
    def _without_empty_validation_split(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave the field out if it is empty, so that data recorded without it still fits its config."""
        return {name: value for name, value in handler(self).items() if name != "validation_split" or value}

    @field_validator("url")
    @classmethod
    def _without_slash(cls, url: str) -> str:
        return url.rstrip("/")

    @model_validator(mode="after")
    def _no_secrets_and_no_dead_options(self) -> OpenEnvConfig:
        """Refuse secrets; the messages do not repeat the value, which may be a token or a password."""
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
            self._refuse_without_effect(
                ["train_split", "test_split", "validation_split"], "tasks: seeds", "tasks: api"
            )
        return self


class OwnConfig(Section):
    """A world with an adapter of the user's own."""

    adapter: str = Field(
        "",
        pattern=IMPORT_PATH,
        description="module:Class of the adapter, called with the section `environment`.",
    )
