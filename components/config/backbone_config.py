"""The config section `backbone`: the pretrained model that both models start from."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from components.config.reading.section import Section

TextFormat = Literal["auto", "chat", "compact"]


class BackboneConfig(Section):
    """The small pretrained transformer that both models start from, or a Hugging Face model in its place."""

    path: str = Field(
        "",
        description="Directory with a causal LM in safetensors, or the name of one on the Hugging Face hub, "
        "OWNER/NAME[@COMMIT]; empty: the backbone of the data.",
    )
    family: Literal["llama", "qwen"] = Field(
        "llama", description="Architecture that `dreamgym pretrain` builds."
    )
    vocabulary: int = Field(
        2048, ge=300, description="Size of the byte-level BPE vocabulary, markers included."
    )
    hidden: int = Field(128, ge=8, description="Width of the residual stream.")
    layers: int = Field(4, ge=1, description="Transformer blocks.")
    heads: int = Field(4, ge=1, description="Query heads.")
    key_value_heads: int = Field(
        2,
        ge=1,
        description="Key-value heads, each shared by a group of query heads; fewer make decoding faster.",
    )
    max_positions: int = Field(4096, ge=64, description="Longest sequence in tokens.")
    format: TextFormat = Field(
        "auto",
        description="Text format of the model at `path`. chat: conversations in its own chat template; "
        "compact: added markers; auto: as its card says, else chat if its tokenizer has a template.",
    )
    gradient_checkpointing: bool = Field(
        False,
        description="Recompute each block in the backward pass: less memory in training, about a third "
        "more time.",
    )

    @model_validator(mode="after")
    def _refuse_options_without_effect(self) -> BackboneConfig:
        if not self.path:
            self._refuse_without_effect(["format"], "an empty path", "backbone.path")
        return self
