"""The configuration of a run: closed sections, one module a section, and how a file is read into them.

What other packages import: `Config`, its sections, `load_config`, `dump_config`, `source_of`, `with_values`.
"""

from components.config.backbone_config import BackboneConfig, TextFormat
from components.config.cloning_config import CloningConfig
from components.config.curriculum_config import CurriculumConfig
from components.config.data_config import DataConfig
from components.config.endpoint_config import EndpointConfig
from components.config.evaluation_config import EvaluationConfig, FidelityConfig, PromotionConfig
from components.config.experience_model_config import NEEDS_TEACHER_REASONING, ExperienceModelConfig
from components.config.lora_config import LoraConfig
from components.config.pretrain_config import PretrainConfig, PretrainPhase
from components.config.reading.section import Section
from components.config.retrieval_config import RetrievalConfig
from components.config.rl_config import BaselineRLConfig, DreamRLConfig, RealRLConfig, RLConfig
from components.config.run_config import (
    Config,
    Precision,
    dump_config,
    load_config,
    source_of,
    with_values,
)
from components.config.tracking_config import TrackingConfig
from components.config.vllm_config import EngineName, VllmConfig

__all__ = [
    "NEEDS_TEACHER_REASONING",
    "BackboneConfig",
    "BaselineRLConfig",
    "TextFormat",
    "CloningConfig",
    "Config",
    "CurriculumConfig",
    "DataConfig",
    "DreamRLConfig",
    "EndpointConfig",
    "EngineName",
    "EvaluationConfig",
    "ExperienceModelConfig",
    "FidelityConfig",
    "LoraConfig",
    "Precision",
    "PretrainConfig",
    "PretrainPhase",
    "PromotionConfig",
    "RLConfig",
    "RealRLConfig",
    "RetrievalConfig",
    "Section",
    "TrackingConfig",
    "VllmConfig",
    "dump_config",
    "load_config",
    "source_of",
    "with_values",
]
