"""Closed configuration: an unknown key is refused with the nearest valid name, an option without effect is
refused too.

A hand-written config is a sparse YAML file over these defaults (`configs/*.yaml`); `key=value` overrides come
on top. The resolved config is saved as JSON with every run and loads back through `load_config`. Values that
the paper does not give (section 9 of its notes: k, lambda, group size, learning rates ...) are our own
choices; their sentences say "our choice".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PrivateAttr, ValidationError, field_validator, model_validator

from components.config.endpoint_config import EndpointConfig
from components.config.evaluation_config import EvaluationConfig, FidelityConfig, PromotionConfig, StudyConfig
from components.config.pretrain_config import PretrainPhase
from components.config.reading.config_file import explained, read_values, set_values
from components.config.reading.config_values import Seed
from components.config.section import Section
from components.config.tracking_config import TimeoutConfig, TrackingConfig
from components.config.training_config import (
    CloningConfig,
    CurriculumConfig,
    LoraConfig,
    RealRLConfig,
    SimToRealConfig,
    SyntheticRLConfig,
)
from components.config.worlds.environment_config import EnvironmentConfig

ChatTemplate = Literal["auto", "off"]
Precision = Literal["fp32", "bf16"]


class DataConfig(Section):
    """The offline trajectories that `dreamgym collect` records."""

    train_tasks: int = Field(300, ge=1, description="Training tasks played for the offline data.")
    fidelity_tasks: int = Field(
        40, ge=1, description="Further training-split tasks held out to measure fidelity on."
    )
    fidelity_worlds: int = Field(
        20,
        ge=0,
        description="Test-split tasks in worlds (floor plans, sites) where no training task plays, to "
        "measure fidelity on, too.",
    )
    expert: int = Field(1, ge=0, description="Expert episodes a task.")
    noisy: int = Field(1, ge=0, description="Episodes a task of an expert that errs.")
    near_miss: int = Field(
        2, ge=0, description="Episodes a task full of near misses: what teaches the dream to refuse."
    )
    random: int = Field(
        1, ge=0, description="Episodes a task of a random policy, impossible and malformed actions included."
    )
    seed: Seed = Field(0, description="Seed of the behaviours; regenerated data has the same DVC hash.")
    families: list[str] = Field(
        default_factory=list,
        description="Families of tasks that models and policies learn from (transfer to the others); empty: "
        "all.",
    )
    quarantine_share: float = Field(
        0.02, ge=0, le=1, description="Share of invalid rows above which validation stops the run."
    )
    max_text_chars: int = Field(
        4000, ge=1, description="Longest text that validation lets pass, in characters."
    )


class BackboneConfig(Section):
    """The small pretrained transformer that both models start from, or a Hugging Face model in its place."""

    path: str = Field(
        "", description="Directory with a causal LM in safetensors; empty: the backbone of the data."
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
        2, ge=1, description="Key-value heads, each shared by a group of query heads: a faster dream."
    )
    max_positions: int = Field(4096, ge=64, description="Longest sequence in tokens.")
    chat_template: ChatTemplate = Field(
        "auto",
        description="Wrap the prompts in the chat template of the model at `path` if its tokenizer has one, "
        "or never.",
    )
    gradient_checkpointing: bool = Field(
        False,
        description="Compute each block again in the backward pass: less memory in training, for about a "
        "third more time.",
    )

    @field_validator("chat_template", mode="before")
    @classmethod
    def _off_is_a_word(cls, value: object) -> object:
        return "off" if value is False else value  # as YAML reads it

    @model_validator(mode="after")
    def _no_dead_options(self) -> BackboneConfig:
        if not self.path:
            self._refuse_dead(["chat_template"], "an empty path", "backbone.path")
        return self


class PretrainConfig(Section):
    """How `dreamgym pretrain` makes the backbone, from trajectories of training tasks alone."""

    tasks: int = Field(
        1750, ge=1, description="Training tasks whose trajectories are played for it (not those held out)."
    )
    sizes: list[int] = Field(
        default_factory=lambda: [8, 8, 20],
        min_length=1,
        description="Receptacles, and as many objects, of its generated worlds, in equal parts; a size "
        "named twice has two.",
    )
    types: list[str] = Field(
        default_factory=list,
        description="MiniWoB task types that it plays in place of environment.browser.types, every fourth "
        "left out; empty: those.",
    )
    max_steps: int = Field(30, ge=1, description="Step limit of its episodes.")
    phases: list[PretrainPhase] = Field(
        default_factory=list,
        description="Trainings one after the other on the same episodes, each a mapping of the keys below "
        "that differ in it; empty: one.",
    )
    copy_tokens: int = Field(
        2_000_000,
        ge=0,
        description="Tokens of random sequences that come again, trained on first, to learn to copy; 0: "
        "none.",
    )
    compare_tokens: int = Field(
        3_000_000,
        ge=0,
        description="Tokens of lists and the question whether a word is among them, trained on next; 0: "
        "none.",
    )
    edit_tokens: int = Field(
        3_000_000,
        ge=0,
        description="Tokens of lists that lose and gain words, trained on after those; 0: none.",
    )
    number_tokens: int = Field(
        0,
        ge=0,
        description="Tokens of pairs of numbers and which is lower, trained on last of the exercises; 0: "
        "none.",
    )
    exercise_rehearsal: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Tokens of earlier exercises mixed into each later one, for each of its own; else these "
        "undo them.",
    )
    copy_repeats: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of the copying exercise with few different words, like a name spelt in letters.",
    )
    tokens: int = Field(
        28_000_000,
        ge=0,
        description="Tokens of trajectories trained on, in all passes; 0: none, the exercises alone.",
    )
    hindsight: int = Field(
        0,
        ge=0,
        description="Further copies of each judged episode, under an instruction that turns its outcome, as "
        "the adapter judges.",
    )
    renamed: int = Field(
        0,
        ge=0,
        description="Further copies of each of its episodes, with other names throughout: few real ones are "
        "learnt by heart.",
    )
    rehearsal: float = Field(
        0.2,
        ge=0,
        le=1,
        description="Tokens of comparing, editing, numbers mixed in, for each of the text's own.",
    )
    copy_rehearsal: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Tokens of copying mixed in as well; few texts are learnt by heart, and copying is "
        "forgotten.",
    )
    recall_rehearsal: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Tokens mixed in of what is there beside what is wanted, both to be fetched from far "
        "behind.",
    )
    optimizer: Literal["adamw", "muon"] = Field(
        "muon", description="Muon for the blocks' matrices, or AdamW for all weights."
    )
    learning_rate: float = Field(8e-3, gt=0, description="Peak of the cosine schedule.")
    text_rate: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Share of that rate for the text; below 1 it undoes less of the exercises.",
    )
    batch_tokens: int = Field(
        3072, ge=64, description="Tokens an update; many small updates learn copying sooner."
    )
    seed: Seed = Field(0, description="Seed of games, initial weights and batches.")

    @model_validator(mode="after")
    def _no_dead_options(self) -> PretrainConfig:
        if self.tokens == 0:
            of_text = ["hindsight", "renamed", "rehearsal", "copy_rehearsal", "recall_rehearsal", "text_rate"]
            self._refuse_dead(of_text, "tokens: 0", "tokens")
        return self

    def trainings(self) -> list[PretrainConfig]:
        """The settings of each phase, in order; those of `pretrain` itself where it names no phase.

        Seeds count up from `seed`, so that a later phase draws other names, exercises and batches than an
        earlier one.
        """
        if not self.phases:
            return [self]
        own = {name: getattr(self, name) for name in self.model_fields_set if name != "phases"}
        changes = [phase.model_dump(exclude_none=True) for phase in self.phases]
        return [
            PretrainConfig(**{**own, **change, "seed": self.seed + number})
            for number, change in enumerate(changes)
        ]

    @model_validator(mode="after")
    def _phases_are_settings(self) -> PretrainConfig:
        try:
            self.trainings()
        except ValidationError as error:
            problem = "; ".join(
                str(one["ctx"]["error"] if "ctx" in one else one["msg"]) for one in error.errors()
            )
            raise ValueError(
                f"a phase, together with what pretrain itself says, is refused: {problem}"
            ) from None
        return self


OF_REASONING = ("hindsight", "renamed", "grounded")
"""Options of the experience model that need the reasoning of the programmatic teacher."""


class ExperienceModelConfig(Section):
    """Fine-tuning of the experience model (Eq. 5). The paper gives no hyperparameters: all values are our
    choice.
    """

    path: str = Field(
        "",
        description="Directory with the causal LM that it starts from, in safetensors; empty: the policy's "
        "backbone.",
    )
    epochs: float = Field(
        1.0, gt=0, description="Passes over the offline episodes; less than 1: that share of them."
    )
    near_miss_weight: float = Field(
        2.0,
        gt=0,
        description="How many times as often an episode of near misses is learnt from as another; 1: all "
        "alike (our choice).",
    )
    behaviours: list[Literal["expert", "noisy", "near_miss", "random"]] = Field(
        default_factory=list,
        description="Whose offline episodes it learns from and retrieves (ablation); empty: everybody's.",
    )
    transitions: int = Field(
        0,
        ge=0,
        description="Most offline transitions that it learns from and retrieves (data-size curve), in whole "
        "episodes; 0: all.",
    )
    hindsight: int = Field(
        0,
        ge=0,
        description="Further copies of each judged episode, under an instruction that turns its outcome, as "
        "the adapter judges.",
    )
    renamed: int = Field(
        0,
        ge=0,
        description="Further copies of each of these episodes, with other names throughout: few names are "
        "learnt by heart.",
    )
    rehearsal: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Tokens of the backbone's exercises mixed in, for each of the episodes' own; else they "
        "are forgotten.",
    )
    optimizer: Literal["adamw", "muon"] = Field(
        "adamw", description="AdamW, or Muon for the blocks' matrices as in pretraining."
    )
    learning_rate: float = Field(1e-3, gt=0, description="Peak of the cosine schedule.")
    batch_tokens: int = Field(4096, ge=64, description="Tokens an update.")
    checkpoint_every: int = Field(
        200,
        ge=1,
        description="Updates between two checkpoints of fine-tuning, from which a run goes on; changes no "
        "result.",
    )
    history: bool = Field(
        True, description="False hides the steps before the current state from the model (ablation)."
    )
    recall: int = Field(
        6,
        ge=0,
        description="Earlier states of the episode that name what the action names, shown again beside it "
        "(our choice); 0: none.",
    )
    reasoning: bool = Field(True, description="False trains it to predict without reasoning (ablation).")
    teacher: Literal["programmatic", "llm"] = Field(
        "programmatic",
        description="Whose reasoning is learnt: the adapter's, recorded with the data, or that of the model "
        "at `endpoint`.",
    )
    max_unannotated_share: float = Field(
        0.05,
        ge=0,
        le=1,
        description="Share of episodes without an annotation of the `llm` teacher above which the stage "
        "fails.",
    )
    max_new_tokens: int = Field(128, ge=8, description="Longest answer, reasoning included, in tokens.")
    resamples: int = Field(
        6,
        ge=0,
        description="How often an answer that cannot be used is sampled again before the episode fails.",
    )
    coherent: bool = Field(
        True,
        description="Ask again where an answer contradicts the dreamed episode so far, as the adapter tells "
        "(our choice).",
    )
    grounded: bool = Field(
        False,
        description="Ask again where the reasoning quotes what it was not shown, as the adapter tells; "
        "where it always does, the likeliest "
        "answer is believed if it grants no reward (our choice).",
    )
    premise: bool = Field(
        True,
        description="A dream decides before its first step where the things lie that its goal needs (our "
        "choice).",
    )
    temperature: float = Field(
        1.0,
        ge=0,
        description="Of states that the history leaves open, such as what a box contains; all else is "
        "greedy. 0: the likeliest.",
    )
    lora: LoraConfig = Field(default_factory=LoraConfig)

    @model_validator(mode="after")
    def _no_dead_options(self) -> ExperienceModelConfig:
        if not self.history:
            self._refuse_dead(["recall"], "history: false", "history: true")
        if self.behaviours and ("near_miss" not in self.behaviours or set(self.behaviours) == {"near_miss"}):
            self._refuse_dead(
                ["near_miss_weight"],
                f"behaviours: {self.behaviours}",
                "near_miss and others among behaviours",
            )
        if not self.reasoning:
            self._refuse_dead(["teacher"], "reasoning: false", "reasoning: true")
        if self.teacher == "programmatic":
            self._refuse_dead(["max_unannotated_share"], "teacher: programmatic", "teacher: llm")
        if self.teacher == "llm" or not self.reasoning:
            given = f"teacher: {self.teacher}, reasoning: {self.reasoning}"
            self._refuse_dead(OF_REASONING, given, "the programmatic teacher's reasoning")
        return self


class RetrievalConfig(Section):
    """Demonstrations from the replay buffer."""

    k: int = Field(
        1,
        ge=0,
        description="Demonstrations a step (the paper does not give k: our choice); 0 turns retrieval off.",
    )
    index: Literal["exact", "chroma"] = Field(
        "exact",
        description="Exact search (comes back to the bit) or Chroma (for hundreds of thousands of "
        "transitions; approximate).",
    )
    server: str = Field(
        "",
        pattern=r"^$|^[^\s/:]+:\d+$",
        description="host:port of a Chroma server that holds the index: chroma; empty: in this process.",
    )
    encoder: Literal["hashing", "minilm", "path"] = Field(
        "hashing",
        description="Encoder of (state, action): hashed n-grams, all-MiniLM-L6-v2 from its package, or the "
        "one in encoder_path.",
    )
    encoder_path: str = Field(
        "",
        description="Directory of a sentence-transformers model or a plain Hugging Face encoder, in "
        "safetensors, for encoder: path.",
    )
    dimensions: int = Field(
        256, ge=16, description="Dimensions of the hashing encoder, for the state and for the action each."
    )
    action_weight: float = Field(
        0.7,
        ge=0,
        le=1,
        description="Share of the action in the similarity of two steps; the rest is the state's (our "
        "choice).",
    )
    capacity: int = Field(
        200_000,
        ge=1,
        description="Most transitions to retrieve from: all real ones, however many, and the newest "
        "synthetic ones that fit.",
    )

    @model_validator(mode="after")
    def _no_dead_options(self) -> RetrievalConfig:
        if self.k == 0:
            dead = ["index", "server", "encoder", "encoder_path", "dimensions", "action_weight", "capacity"]
            self._refuse_dead(dead, "k: 0", "k, for example k: 1")
        if self.index != "chroma":
            self._refuse_dead(["server"], f"index: {self.index}", "index: chroma")
        if self.encoder != "hashing":
            self._refuse_dead(["dimensions"], f"encoder: {self.encoder}", "encoder: hashing")
        if self.encoder != "path":
            self._refuse_dead(["encoder_path"], f"encoder: {self.encoder}", "encoder: path")
        elif not self.encoder_path:
            raise ValueError(
                "encoder: path needs encoder_path, the directory of a sentence encoder; set it, or set "
                "encoder: hashing"
            )
        return self


@dataclass(frozen=True)
class ConfigSource:
    """Where a config comes from: its file, and the `key=value` overrides on top. It takes no part in
    comparing configs.
    """

    file: str = field(default="", compare=False)
    overrides: tuple[str, ...] = field(default=(), compare=False)


class Config(Section):
    """One run's whole configuration."""

    _source: ConfigSource = PrivateAttr(default_factory=ConfigSource)

    seed: Seed = Field(0, description="Seed of everything trained or sampled in the run.")
    threads: int = Field(2, ge=1, le=1024, description="torch threads; more than there are cores is slower.")
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto",
        description="Where models train and decode; auto is cuda where there is one, else cpu. Each gives "
        "numbers of its own.",
    )
    precision: Precision = Field(
        "fp32",
        description="bf16 trains with rounded products on fp32 weights and decodes with bf16 weights, on "
        "hardware that has it.",
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
    synthetic_rl: SyntheticRLConfig = Field(default_factory=SyntheticRLConfig)
    sim_to_real: SimToRealConfig = Field(default_factory=SimToRealConfig)
    real_rl: RealRLConfig = Field(default_factory=RealRLConfig)
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig)
    study: StudyConfig = Field(default_factory=StudyConfig)
    promotion: PromotionConfig = Field(default_factory=PromotionConfig)
    tracking: TrackingConfig = Field(default_factory=TrackingConfig)
    timeout_minutes: TimeoutConfig = Field(default_factory=TimeoutConfig)

    @model_validator(mode="after")
    def _endpoint_fits_its_users(self) -> Config:
        """Refuse an endpoint that nobody asks, and one that is asked and not named."""
        users = ["experience_model.teacher=llm"] if self.experience_model.teacher == "llm" else []
        users += ["fidelity.judged"] if self.fidelity.judged else []
        changed = ", ".join(f"endpoint.{name}" for name in self.endpoint._changed())
        if changed and not users:
            cure = "remove it or set experience_model.teacher=llm or fidelity.judged"
            raise ValueError(f"{changed} has no effect: nothing asks an endpoint; {cure}")
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
    def _each_environment_has_its_own_champion(self) -> Config:
        """Policies of different worlds are never compared: their experiments, and so their registered models,
        differ.
        """
        if self.environment.name != "alfworld" and "experiment" not in self.tracking.model_fields_set:
            named = self.tracking.model_copy(
                update={"experiment": f"{self.tracking.experiment}-{self.environment.name}"}
            )
            object.__setattr__(self, "tracking", named)  # frozen for everyone else
        return self

    @model_validator(mode="after")
    def _only_a_browser_has_types(self) -> Config:
        environment = self.environment
        if environment.name != "browser" or environment.browser.benchmark != "miniwob":
            mode = "environment.name: browser and its benchmark: miniwob"
            self.pretrain._refuse_dead(["types"], f"environment.name: {environment.name}", mode)
        return self

    @model_validator(mode="after")
    def _clusters_are_seen(self) -> Config:
        if not self.curriculum.enabled:
            self.synthetic_rl.ppo._refuse_dead(
                ["clusters"], "curriculum.enabled: false", "curriculum.enabled: true"
            )
        return self

    @model_validator(mode="after")
    def _budgets_allow_an_iteration(self) -> Config:
        for name, stage in (("sim_to_real", self.sim_to_real), ("real_rl", self.real_rl)):
            least = stage.tasks * stage.group * self.environment.max_steps
            if stage.iterations and stage.budget < least:
                raise ValueError(
                    f"{name}.budget={stage.budget} allows no iteration, which may take {least} steps (tasks "
                    "* group * max_steps); "
                    f"raise it, lower {name}.tasks or {name}.group"
                    + (", or set sim_to_real.iterations=0" if name == "sim_to_real" else "")
                )
        return self


def load_config(path: Path | str | None = None, overrides: Sequence[str] = ()) -> Config:
    """The config of `path` (YAML or the resolved JSON) with `key=value` overrides on top, such as
    `synthetic_rl.group=4`.

    Raises:
        ConfigError: the file is missing or no mapping, a key stands twice, or a key or value is refused; the
            nearest valid key is named.
    """
    values: dict[str, Any] = {}
    if path is not None:
        values = read_values(Path(path))
    set_values(values, overrides)
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        raise explained(error, path, Config) from None
    config._source = ConfigSource("" if path is None else str(path), tuple(overrides))
    return config


def source_of(config: Config) -> ConfigSource:
    """The file and the overrides that `load_config` made the config of; empty if it was made otherwise."""
    return config._source


def dump_config(config: Config) -> str:
    """The resolved config as JSON text; `load_config` reads it back to an equal config."""
    return json.dumps(config.model_dump(exclude_unset=False), indent=2, sort_keys=True) + "\n"
