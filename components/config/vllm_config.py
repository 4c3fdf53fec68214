"""The config section `vllm`: memory and width of vLLM in this process, or the servers to use."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from components.config.reading.section import Section

EngineName = Literal["auto", "kept-cache", "vllm", "vllm-server"]


class VllmConfig(Section):
    """vLLM in the process of the run, one for each of the two models (`engine: vllm`), or behind servers."""

    cache_gb: float = Field(1.0, gt=0, description="Memory of each model's key-value cache, in GB.")
    rows: int = Field(256, ge=1, description="Most rows that are decoded together; further rows wait.")
    servers: list[str] = Field(
        default_factory=list,
        description="Addresses of `vllm serve` replicas for `engine: vllm-server`, such as "
        "http://localhost:8000.",
    )
    shared_dir: str = Field(
        "",
        description="Directory that this machine and the servers see under the same path, for adapters; "
        "empty: the directory of temporary files, with servers on this machine.",
    )
    timeout_seconds: float = Field(600.0, gt=0, description="Timeout of one answer of a server.")
