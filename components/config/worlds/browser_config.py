"""The config section `environment.browser`: the benchmark that a real Chromium plays, and its timeouts."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from components.config.reading.section import Section


class BrowserConfig(Section):
    """Options of the browser environment; `environment.workers` is the number of browsers."""

    action_seconds: ClassVar[float] = 5.0
    """Longest wait until an element can be acted on; BrowserGym's 0.5 fails on a busy machine."""

    benchmark: Literal["miniwob", "webarena", "webarenalite"] = Field(
        "miniwob",
        description="MiniWoB++ from its package, or the tasks of WebArena or WebArena-Lite on the sites "
        "in the WA_* variables.",
    )
    types: list[str] = Field(
        default_factory=list,
        description="MiniWoB task types, such as click-tab-2; every fourth is for the test split alone. "
        "Empty: all types with an expert.",
    )
    executable: str = Field(
        "",
        description="Program of Chromium or Chrome; empty: the first of chromium, google-chrome ... on "
        "the PATH.",
    )
    elements: int = Field(
        10,
        ge=3,
        le=60,
        description="Largest number of page elements in a state: those that share most words with the "
        "instruction.",
    )
    page_seconds: float = Field(
        30.0, gt=0, description="Timeout for a page to load or to answer; after it the episode has failed."
    )

    @model_validator(mode="after")
    def _refuse_options_without_effect(self) -> BrowserConfig:
        twice = sorted({name for name in self.types if self.types.count(name) > 1})
        if twice:
            raise ValueError(
                f"types names {', '.join(twice)} more than once: every fourth is for the test split alone"
            )
        if self.benchmark != "miniwob":
            self._refuse_without_effect(["types"], f"benchmark: {self.benchmark}", "benchmark: miniwob")
        return self
