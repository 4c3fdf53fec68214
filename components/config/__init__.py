"""The configuration of a run: closed pydantic sections, one module a section, and how a YAML file is read
into them.

Everything that other packages import stands here: `Config`, its sections, `load_config`, `dump_config`,
`source_of`.
"""

from components.config.endpoint_config import EndpointConfig
from components.config.evaluation_config import EvaluationConfig, FidelityConfig, PromotionConfig
from components.config.run_config import (
    OF_REASONING,
    BackboneConfig,
    ChatTemplate,
    Config,
    DataConfig,
    ExperienceModelConfig,
    Precision,
    PretrainConfig,
    RetrievalConfig,
    dump_config,
    load_config,
    source_of,
)
from components.config.section import Section
from components.config.tracking_config import TrackingConfig

__all__ = [
    "OF_REASONING",
    "BackboneConfig",
    "ChatTemplate",
    "Config",
    "DataConfig",
    "EndpointConfig",
    "EvaluationConfig",
    "ExperienceModelConfig",
    "FidelityConfig",
    "Precision",
    "PretrainConfig",
    "PromotionConfig",
    "RetrievalConfig",
    "Section",
    "TrackingConfig",
    "dump_config",
    "load_config",
    "source_of",
]
