"""The config section `environment`: the real environment and its options."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from components.config.reading.config_values import Seed
from components.config.reading.section import Section
from components.config.worlds.browser_config import BrowserConfig
from components.config.worlds.own_world_config import (
    GymnasiumConfig,
    OpenEnvConfig,
    OwnConfig,
    TextWorldConfig,
)
from components.config.worlds.webshop_config import WebshopConfig

ADAPTERS_OWN = {
    "games": ("alfworld",),
    "receptacles": ("alfworld",),
    "objects": ("alfworld",),
    "workers": ("alfworld", "browser", "openenv", "own"),
    "webshop": ("webshop",),
    "browser": ("browser",),
    "text": ("gymnasium", "openenv"),
    "timeout_seconds": ("gymnasium", "openenv", "own"),
    "gymnasium": ("gymnasium",),
    "openenv": ("openenv",),
    "own": ("own",),
    "worlds": ("mixed",),
}
"""Fields of `environment` that only some adapters read; with another one they are refused, and left out of
what is recorded.
"""
WITHOUT_EFFECT: dict[str, Any] = {
    "workers": True,
    "description": True,
    "timeout_seconds": True,
    "openenv": {"token_variable", "sessions"},
    "browser": {"executable", "page_seconds"},
}
"""Options of the section `environment` that change no task and no step, as pydantic's `exclude`."""
NEEDED = {"gymnasium": "factory", "openenv": "url", "own": "adapter"}
"""World of the user -> the option with its address or code."""


class EnvironmentConfig(Section):
    """The real environment, and the size of its worlds."""

    name: Literal["alfworld", "webshop", "browser", "gymnasium", "openenv", "own", "recorded", "mixed"] = (
        Field(
            "alfworld",
            description="Adapter in components/environments; own: the adapter in environment.own.adapter; "
            "recorded: imported logs without a live world; mixed: all of environment.worlds in one training.",
        )
    )
    games: Literal["generated", "official"] = Field(
        "generated",
        description="Generate games from the package's floor plans, or play the official ones in "
        "$ALFWORLD_DATA.",
    )
    receptacles: int = Field(
        8,
        ge=3,
        le=60,
        description="Largest number of receptacles of a generated game; receptacles without a role are "
        "left out.",
    )
    objects: int = Field(8, ge=1, le=60, description="Objects of a generated game besides its targets.")
    max_steps: int = Field(20, ge=1, description="Step limit of an episode, real or dreamed.")
    workers: int = Field(
        2,
        ge=1,
        description="Worker processes of ALFWorld's engine, browsers, or concurrent sessions of OpenEnv.",
    )
    timeout_seconds: float = Field(
        120.0,
        gt=0,
        description="Time limit of one answer of a world of yours, a start or a step; after it the episode "
        "has failed, which is not counted against the agent.",
    )
    description: str = Field(
        "",
        description="What world this is, in a few lines: the system turn of chat models; empty: the "
        "adapter's own.",
    )
    knowledge: bool = Field(
        True,
        description="False: use nothing that the adapter knows of its world's text, its behaviours' thoughts "
        "included (ablation); then "
        "experience_model.premise must be false, and the reasoning that of another teacher or none.",
    )
    seed: Seed = Field(0, description="Seed of the games: the same seed gives the same tasks.")
    webshop: WebshopConfig = Field(default_factory=WebshopConfig)
    browser: BrowserConfig = Field(default_factory=BrowserConfig)
    text: TextWorldConfig = Field(default_factory=TextWorldConfig)
    gymnasium: GymnasiumConfig = Field(default_factory=GymnasiumConfig)
    openenv: OpenEnvConfig = Field(default_factory=OpenEnvConfig)
    own: OwnConfig = Field(default_factory=OwnConfig)
    worlds: list[Literal["alfworld", "webshop", "browser", "gymnasium", "openenv", "own"]] = Field(
        default_factory=list,
        description="Worlds of name: mixed, at least two; their options are those of this section.",
    )

    @model_validator(mode="after")
    def _mixed_worlds_are_different(self) -> EnvironmentConfig:
        if self.name == "mixed" and (len(self.worlds) < 2 or len(set(self.worlds)) < len(self.worlds)):
            raise ValueError(
                f"worlds: {', '.join(self.worlds) or 'none'}; expected two or more different ones, such as "
                "[alfworld, webshop]"
            )
        return self

    @model_validator(mode="after")
    def _refuse_options_without_effect(self) -> EnvironmentConfig:
        for field, adapters in ADAPTERS_OWN.items():
            if not set(adapters) & self._played:
                self._refuse_without_effect([field], f"name: {self.name}", f"name: {' or '.join(adapters)}")
        for name, option in NEEDED.items():
            if name in self._played and not getattr(getattr(self, name), option):
                raise ValueError(
                    f"name: {name} needs environment.{name}.{option}; see docs/guides/add-a-world.md"
                )
        if self.games == "official":
            self._refuse_without_effect(
                ["receptacles", "objects", *(["seed"] if self._played == {"alfworld"} else [])],
                "games: official",
                "games: generated",
            )
        if self.name == "webshop" and self.webshop.source == "official":
            self._refuse_without_effect(
                ["seed"], f"webshop.{self.webshop.catalogue_in_words}", "webshop.catalogue: generated"
            )
        return self

    @property
    def _played(self) -> set[str]:
        """The names of the worlds that are played, and `mixed` if it is that."""
        return {self.name, *self.worlds}

    @model_serializer(mode="wrap")
    def _without_other_adapters_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the options of other adapters, so that a new adapter changes no record of an old one.

        `knowledge` is left out where it is on, as in earlier records.
        """
        foreign = {name for name, adapters in ADAPTERS_OWN.items() if not self._played & set(adapters)}
        return {
            name: value
            for name, value in handler(self).items()
            if name not in foreign and (name, value) != ("knowledge", True)
        }

    def decisive(self, *, where: bool = False) -> dict[str, Any]:
        """Return the values of this section that affect the tasks and their course.

        Options of the machine are left out. WebShop's `auto` is replaced if it means the official files here.

        Args:
            where: include the address of an OpenEnv server. A server may move and have the same world, or
                stay and have another.
        """
        excluded = (
            WITHOUT_EFFECT if where else WITHOUT_EFFECT | {"openenv": {"url", *WITHOUT_EFFECT["openenv"]}}
        )
        values = self.model_dump(mode="json", exclude=excluded)
        if "webshop" in self._played and self.webshop.source == "official":
            values["webshop"]["catalogue"] = "official"
        return values

    @property
    def each_world(self) -> list[EnvironmentConfig]:
        """The section for each world that is played alone or in the mixture."""
        return [self.model_copy(update={"name": name, "worlds": []}) for name in self.worlds] or [self]

    @property
    def is_users_world(self) -> bool:
        """Whether the world, or one of the mixed ones, is the user's: it may have few tasks and no expert."""
        return not self._played.isdisjoint(NEEDED)

    @property
    def own_module(self) -> str:
        """The module of the user's code for the world; "" if there is none."""
        import_path = {"gymnasium": self.gymnasium.factory, "own": self.own.adapter}.get(self.name, "")
        return import_path.partition(":")[0]
