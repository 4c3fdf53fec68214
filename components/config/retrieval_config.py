"""The config section `retrieval`: demonstrations from the replay buffer."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from components.config.reading.section import Section


class RetrievalConfig(Section):
    """Demonstrations from the replay buffer."""

    action_weight: ClassVar[float] = 0.7
    """Weight of the action in the similarity of two steps; the rest is that of the state (our choice)."""

    k: int = Field(
        1,
        ge=0,
        description="Demonstrations per step (the paper gives no k: our choice); 0: no retrieval.",
    )
    index: Literal["exact", "chroma"] = Field(
        "exact",
        description="Exact search (reproducible to the bit), or Chroma for hundreds of thousands of "
        "transitions (approximate).",
    )
    server: str = Field(
        "",
        pattern=r"^$|^[^\s/:]+:\d+$",
        description="host:port of a Chroma server that holds the index: chroma; empty: in this process.",
    )
    encoder: Literal["hashing", "minilm", "path"] = Field(
        "hashing",
        description="Encoder of (state, action): hashed n-grams, all-MiniLM-L6-v2 from its package, or "
        "the model in encoder_path.",
    )
    encoder_path: str = Field(
        "",
        description="Directory of a sentence-transformers model or a plain Hugging Face encoder, in "
        "safetensors, for encoder: path.",
    )
    dimensions: int = Field(
        256, ge=16, description="Dimensions of the hashing encoder for the state, and as many for the action."
    )
    capacity: int = Field(
        200_000,
        ge=1,
        description="Size of the buffer in transitions: all real ones, and the newest synthetic ones that "
        "fit.",
    )

    @model_validator(mode="after")
    def _refuse_options_without_effect(self) -> RetrievalConfig:
        if self.k == 0:
            dead = ["index", "server", "encoder", "encoder_path", "dimensions", "capacity"]
            self._refuse_without_effect(dead, "k: 0", "k, for example k: 1")
        if self.index != "chroma":
            self._refuse_without_effect(["server"], f"index: {self.index}", "index: chroma")
        if self.encoder != "hashing":
            self._refuse_without_effect(["dimensions"], f"encoder: {self.encoder}", "encoder: hashing")
        if self.encoder != "path":
            self._refuse_without_effect(["encoder_path"], f"encoder: {self.encoder}", "encoder: path")
        elif not self.encoder_path:
            raise ValueError(
                "encoder: path needs encoder_path, the directory of a sentence encoder; set it, or set "
                "encoder: hashing"
            )
        return self
