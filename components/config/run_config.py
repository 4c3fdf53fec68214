"""The whole configuration of a run: closed sections, loading, and dumping.

An unknown key is refused with the nearest valid name, and so is an option that would have no effect. A config
file is a sparse YAML file over the defaults (`configs/*.yaml`); `key=value` overrides are applied to it. The
resolved config is saved as JSON with every run, and `load_config` reads it back. Where a description says
"our choice", the paper gives no value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from components.config.backbone_config import BackboneConfig
from components.config.cloning_config import CloningConfig
from components.config.curriculum_config import CurriculumConfig
from components.config.data_config import DataConfig
from components.config.endpoint_config import EndpointConfig
from components.config.evaluation_config import (
    EvaluationConfig,
    FidelityConfig,
    PromotionConfig,
    StudyConfig,
)
from components.config.experience_model_config import ExperienceModelConfig
from components.config.lora_config import LoraConfig
from components.config.migration import require_current_keys
from components.config.pretrain_config import PretrainConfig
from components.config.reading.config_file import explained, read_values, set_values
from components.config.reading.config_values import Seed
from components.config.reading.section import Section
from components.config.retrieval_config import RetrievalConfig
from components.config.rl_config import RLSection
from components.config.tracking_config import TrackingConfig
from components.config.vllm_config import EngineName, VllmConfig
from components.config.worlds.environment_config import EnvironmentConfig
from components.errors import ConfigError

Precision = Literal["auto", "fp32", "bf16"]


@dataclass(frozen=True)
class ConfigSource:
    """The file and the `key=value` overrides of a config, and all keys that they set, such as `rl.tasks`.

    Not part of the config's equality.
    """

    file: str = field(default="", compare=False)
    overrides: tuple[str, ...] = field(default=(), compare=False)
    keys: frozenset[str] = field(default=frozenset(), compare=False)

    def sets(self, key: str) -> bool:
        """Whether the file or an override sets the key; `rl.tasks` sets `rl.dream.tasks` too."""
        section, *_, name = key.split(".")
        return key in self.keys or f"{section}.{name}" in self.keys


class Config(Section):
    """The configuration of a run."""

    _source: ConfigSource = PrivateAttr(default_factory=ConfigSource)

    seed: Seed = Field(0, description="Seed of everything trained or sampled in the run.")
    threads: int = Field(
        2, ge=1, le=1024, description="torch threads; more than the number of cores is slower."
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto",
        description="Where models train and decode; auto: cuda if available, else cpu. Numbers differ "
        "between devices.",
    )
    precision: Precision = Field(
        "fp32",
        description="bf16: mixed-precision training on fp32 weights, and decoding with bf16 weights, on "
        "hardware that has it; auto: bf16 there, fp32 elsewhere.",
    )
    engine: EngineName = Field(
        "auto",
        description="What generates tokens. kept-cache: our own, with transformers, the fastest for models "
        "of a few million weights; vllm: vLLM in the same process (`make install VLLM=1`); vllm-server: vLLM "
        "servers (`vllm.servers`); auto: vllm on a GPU for models of 20 million weights or more, if it is "
        "installed, else kept-cache.",
    )
    cluster: str = Field(
        "",
        description="Ray cluster on which `environment.workers`, `rl.dream.processes` and the seeds of a "
        "study or an ablation run: local, auto, HOST:PORT or ray://HOST:PORT; empty: processes of this "
        "machine. The numbers are the same but in worlds that refill rows (docs/scaling.md).",
    )
    stage_timeout_minutes: float = Field(
        1440.0,
        gt=0,
        description="Time limit of a stage in minutes; its checkpoint is kept and the next run resumes it.",
    )
    environment: EnvironmentConfig = Field(default_factory=EnvironmentConfig)
    data: DataConfig = Field(default_factory=DataConfig)
    backbone: BackboneConfig = Field(default_factory=BackboneConfig)
    pretrain: PretrainConfig = Field(default_factory=PretrainConfig)
    experience_model: ExperienceModelConfig = Field(default_factory=ExperienceModelConfig)
    endpoint: EndpointConfig = Field(default_factory=EndpointConfig)
    retrieval: RetrievalConfig = Field(default_factory=RetrievalConfig)
    fidelity: FidelityConfig = Field(default_factory=FidelityConfig)
    cloning: CloningConfig = Field(default_factory=CloningConfig)
    curriculum: CurriculumConfig = Field(default_factory=CurriculumConfig)
    rl: RLSection = Field(default_factory=RLSection)
    lora: LoraConfig = Field(default_factory=LoraConfig)
    vllm: VllmConfig = Field(default_factory=VllmConfig)
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig)
    study: StudyConfig = Field(default_factory=StudyConfig)
    promotion: PromotionConfig = Field(default_factory=PromotionConfig)
    tracking: TrackingConfig = Field(default_factory=TrackingConfig)

    @model_validator(mode="after")
    def _endpoint_fits_its_users(self) -> Config:
        """Refuse a used endpoint without address or model."""
        users = self._endpoint_users()
        missing = [
            f"endpoint.{name}" for name in ("url", "model") if users and not getattr(self.endpoint, name)
        ]
        if missing:
            raise ValueError(
                f"{' and '.join(users)} asks a language model, but {' and '.join(missing)} is empty; "
                "set them, for example endpoint.url=http://localhost:8000/v1 endpoint.model=NAME"
            )
        return self

    @model_validator(mode="after")
    def _samples_of_an_endpoint_can_differ(self) -> Config:
        """Refuse samples that must agree from an endpoint that always says the same."""
        model = self.experience_model
        if model.kind == "prompted" and model.agreeing_samples and not self.endpoint.temperature:
            raise ValueError(
                "experience_model.agreeing_samples with endpoint.temperature=0: samples hardly differ; "
                "set endpoint.temperature=1"
            )
        return self

    def require_endpoint_user(self) -> None:
        """Raise ConfigError if options of `endpoint` are set, and no stage asks one.

        An evaluation may ask it (`dreamgym evaluate --policy endpoint`), so the config itself is valid.
        """
        changed = ", ".join(f"endpoint.{name}" for name in self.endpoint._changed())
        if changed and not self._endpoint_users():
            raise ConfigError(
                f"{changed} has no effect: nothing asks an endpoint.",
                next_step="Remove it, or set experience_model.kind=prompted, experience_model.teacher=llm or "
                "fidelity.judged.",
            )

    @model_validator(mode="after")
    def _knowledge_that_is_off_is_not_used(self) -> Config:
        """Refuse what a world without knowledge cannot do."""
        if self.environment.knowledge:
            return self
        model = self.experience_model
        used = ["experience_model.premise"] if model.premise and model.kind == "trained" else []
        has_adapters_reasoning = (
            model.reasoning and model.teacher == "programmatic" and model.kind == "trained"
        )
        used += ["experience_model.reasoning"] if has_adapters_reasoning else []
        if used:
            settings = " ".join(f"{name}=false" for name in used)
            raise ValueError(
                f"environment.knowledge: false leaves no knowledge to {', '.join(used)}; set {settings}"
            )
        return self

    def without_unused_endpoint(self) -> Config:
        """Return the config with the default `endpoint` if no stage asks one."""
        return self if self._endpoint_users() else self.model_copy(update={"endpoint": EndpointConfig()})

    def _endpoint_users(self) -> list[str]:
        """Return the settings that make a stage ask the endpoint."""
        model = self.experience_model
        users = ["experience_model.kind=prompted"] if model.kind == "prompted" else []
        users += ["experience_model.teacher=llm"] if model.teacher == "llm" else []
        users += ["curriculum.judge"] if self.curriculum.judge else []
        return users + (["fidelity.judged"] if self.fidelity.judged else [])

    @model_validator(mode="after")
    def _each_environment_has_its_own_champion(self) -> Config:
        """Policies of different worlds are never compared: their experiments, and so their registered models,
        differ.
        """
        if self.environment.name != "alfworld" and "experiment" not in self.tracking.model_fields_set:
            worlds = "-".join(self.environment.worlds) or self.environment.name
            tracking = self.tracking.model_copy(update={"experiment": f"{self.tracking.experiment}-{worlds}"})
            object.__setattr__(self, "tracking", tracking)  # the section is frozen
        return self

    @model_validator(mode="after")
    def _only_a_browser_has_types(self) -> Config:
        environment = self.environment
        has_browser = any(world.name == "browser" for world in environment.each_world)
        if not has_browser or environment.browser.benchmark != "miniwob":
            mode = "environment.name: browser and its benchmark: miniwob"
            self.pretrain._refuse_without_effect(["types"], f"environment.name: {environment.name}", mode)
        return self

    @model_validator(mode="after")
    def _servers_fit_the_engine(self) -> Config:
        server_options = ["servers", "shared_dir", "timeout_seconds"]
        if self.engine != "vllm-server":
            self.vllm._refuse_without_effect(server_options, f"engine: {self.engine}", "engine: vllm-server")
        elif not self.vllm.servers:
            raise ValueError(
                "engine is vllm-server, but vllm.servers is empty; set it, for example "
                "vllm.servers=[http://localhost:8000]"
            )
        return self

    @model_validator(mode="after")
    def _older_weights_can_play(self) -> Config:
        dream = self.rl.dream
        if dream.iterations and dream.processes > 1 and self.engine == "vllm-server" and not self.lora.rank:
            raise ValueError(
                "engine vllm-server with lora.rank: 0 needs rl.dream.processes: 1: the servers hold one "
                "version of all weights, which one process sends; or set lora.rank=16"
            )
        if dream.staleness and dream.processes > 1 and self.engine == "vllm-server":
            raise ValueError(
                "rl.dream.staleness with engine vllm-server needs rl.dream.processes: 1: other processes "
                "cannot play with the weights before an update"
            )
        if dream.staleness > 1 and self.engine.startswith("vllm"):
            raise ValueError(
                f"rl.dream.staleness is {dream.staleness}, but vLLM holds one version of the policy's "
                "weights; expected 0 or 1, or engine: kept-cache"
            )
        stages = (dream, self.rl.real, self.rl.baseline)
        has_partner = any(getattr(stage.algorithm, "cross_policy_share", 0) for stage in stages)
        if has_partner and self.engine.startswith("vllm"):
            raise ValueError(
                f"rl.algorithm.cross_policy_share with engine {self.engine}: it holds one policy; set the "
                "share to 0, or engine: kept-cache"
            )
        return self

    @model_validator(mode="after")
    def _budgets_allow_an_iteration(self) -> Config:
        for name, stage in (("rl.real", self.rl.real), ("rl.baseline", self.rl.baseline)):
            needed = stage.tasks * stage.num_generations * self.environment.max_steps
            if stage.iterations and stage.budget < needed:
                raise ValueError(
                    f"{name}.budget={stage.budget} allows no iteration, which may take {needed} steps (tasks "
                    f"* num_generations * max_steps); raise it, lower {name}.tasks or {name}.num_generations"
                    + (", or set rl.real.iterations=0" if name == "rl.real" else "")
                )
        return self


def load_config(path: Path | str | None = None, overrides: Sequence[str] = ()) -> Config:
    """Return the config of `path` (YAML or the resolved JSON) with `key=value` overrides on top, such as
    `rl.num_generations=4`.

    Raises:
        ConfigError: the file is missing or not a mapping, has a key twice, or has a key or value that is
            refused; the message names the nearest valid key.
    """
    values: dict[str, Any] = {}
    if path is not None:
        values = read_values(Path(path))
    set_values(values, overrides)
    require_current_keys(values, path)
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        raise explained(error, path, Config) from None
    config._source = ConfigSource("" if path is None else str(path), tuple(overrides), _keys_of(values))
    return config


def _keys_of(values: Mapping[str, Any]) -> frozenset[str]:
    """Return the dotted keys of all values in a tree of mappings."""
    keys: set[str] = set()
    for name, value in values.items():
        below = _keys_of(value) if isinstance(value, Mapping) else frozenset({""})
        keys |= {f"{name}.{key}" if key else name for key in below}
    return frozenset(keys)


def source_of(config: Config) -> ConfigSource:
    """Return the file and the overrides of a config from `load_config`; empty for other configs."""
    return config._source


def with_values(config: Config, values: Mapping[str, Any]) -> Config:
    """Return the config with some keys set, such as `environment.max_steps`; its file and overrides stay."""
    plain = config.model_dump(mode="json")
    for key, value in values.items():
        *sections, name = key.split(".")
        part = plain
        for section in sections:
            part = part[section]
        part[name] = value
    changed = Config.model_validate(plain)
    changed._source = config._source
    return changed


def dump_config(config: Config) -> str:
    """Return the resolved config as JSON text; `load_config` reads it back to an equal config."""
    return json.dumps(config.model_dump(exclude_unset=False), indent=2, sort_keys=True) + "\n"
