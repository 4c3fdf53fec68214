"""The config section `environment.webshop`: products and goals of the shop."""

from __future__ import annotations

import os
from typing import Literal

from pydantic import Field, model_validator

from components.config.reading.section import Section

VARIABLE = "WEBSHOP_DATA"
"""The environment variable that names the folder of the official product files."""


class WebshopConfig(Section):
    """Products and goals of the WebShop adapter."""

    catalogue: Literal["auto", "generated", "official"] = Field(
        "auto",
        description="Generate the products, or read the official files in $WEBSHOP_DATA; auto: official "
        "if it is set.",
    )
    products: int = Field(
        3000,
        ge=200,
        le=50_000,
        description="Products of the generated catalogue; official files are always read whole.",
    )
    goals: Literal["human", "synthetic"] = Field(
        "human",
        description="Of official files: goals written by people, or goals made of attributes and options.",
    )

    @property
    def source(self) -> str:
        """`generated` or `official`: the catalogue on this machine."""
        return (
            ("official" if os.environ.get(VARIABLE) else "generated")
            if self.catalogue == "auto"
            else self.catalogue
        )

    @property
    def catalogue_in_words(self) -> str:
        """The catalogue for messages, with the meaning of `auto` on this machine."""
        return f"catalogue: {self.catalogue}" + (
            f" and ${VARIABLE} set" if self.catalogue == "auto" and self.source == "official" else ""
        )

    @model_validator(mode="after")
    def _refuse_options_without_effect(self) -> WebshopConfig:
        if self.source == "official":
            self._refuse_without_effect(["products"], self.catalogue_in_words, "catalogue: generated")
        if self.catalogue == "generated":
            self._refuse_without_effect(["goals"], "catalogue: generated", "catalogue: official")
        return self
