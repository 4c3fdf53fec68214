"""The config section `experience_model`: how the dream is trained and how it answers."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from components.config.reading.section import Section

NEEDS_TEACHER_REASONING = ("hindsight", "renamed", "grounded")
"""Options that need the reasoning of the programmatic teacher."""


OF_TRAINED_MODELS = (
    *(
        "path",
        "epochs",
        "near_miss_weight",
        "outcome_weight",
        "hindsight",
        "renamed",
        "rehearsal",
    ),
    *("optimizer", "learning_rate", "batch_tokens", "recall", "reasoning", "teacher", "max_new_tokens"),
    *("grounded", "min_confidence", "temperature"),
)
"""Options that mean nothing to a prompted model."""


class ExperienceModelConfig(Section):
    """Fine-tuning of the experience model (Eq. 5). The paper gives no hyperparameters: all values are our
    choice.
    """

    refresh_epochs: ClassVar[float] = 4.0
    """Passes over the real steps of earlier rounds when a further round trains it on; as many offline steps
    are mixed in (our choice).
    """

    checkpoint_every: ClassVar[int] = 200
    """Updates between two checkpoints of fine-tuning."""
    max_unannotated_share: ClassVar[float] = 0.05
    """Share of episodes without an annotation of the `llm` teacher above which the stage fails."""

    kind: Literal["trained", "prompted"] = Field(
        "trained",
        description="trained: a causal LM is fine-tuned on the recorded data. prompted: the model at "
        "`endpoint` answers for the world, without training.",
    )
    path: str = Field(
        "",
        description="Directory of the causal LM that it starts from, in safetensors; empty: the backbone "
        "of the policy.",
    )
    epochs: float = Field(
        1.0, gt=0, description="Passes over the offline episodes; less than 1: that share of them."
    )
    near_miss_weight: float = Field(
        2.0,
        gt=0,
        description="Sampling weight of near-miss episodes relative to the others; 1: all episodes "
        "equally often (our choice).",
    )
    outcome_weight: float = Field(
        1.0,
        gt=0,
        description="Weight in the loss of the tokens of reward and end of the episode; a reward comes once "
        "in an episode, so with 1 the states outweigh it (our choice).",
    )
    behaviours: list[Literal["expert", "noisy", "near_miss", "random", "policy"]] = Field(
        default_factory=list,
        description="Behaviours whose offline episodes are trained on and retrieved (ablation); empty: all.",
    )
    transitions: int = Field(
        0,
        ge=0,
        description="Limit of offline transitions that are trained on and retrieved, in whole episodes "
        "(data-size curve); 0: all.",
    )
    flipped_outcomes: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of the offline episodes that it learns from with the wrong outcome (negative "
        "control).",
    )
    swapped_states: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of the offline steps that it learns from with the next state of another step "
        "(negative control).",
    )
    hindsight: int = Field(
        0,
        ge=0,
        description="Relabelled copies per judged episode, with an instruction that reverses its outcome.",
    )
    renamed: int = Field(
        0,
        ge=0,
        description="Copies per episode with all names replaced, so that the few recorded names are not "
        "memorised.",
    )
    rehearsal: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Tokens of the backbone's exercises per token of the episodes; without them the "
        "exercises are forgotten.",
    )
    optimizer: Literal["adamw", "muon"] = Field(
        "adamw", description="AdamW, or Muon for the matrices of the blocks, as in pretraining."
    )
    learning_rate: float = Field(1e-3, gt=0, description="Peak of the cosine schedule.")
    batch_tokens: int = Field(4096, ge=64, description="Tokens per update.")
    history: bool = Field(
        True, description="False hides the steps before the current state from the model (ablation)."
    )
    recall: int = Field(
        6,
        ge=0,
        description="Earlier states that contain a name of the action and are repeated in the prompt (our "
        "choice); 0: none.",
    )
    reasoning: bool = Field(True, description="False trains it to predict without reasoning (ablation).")
    teacher: Literal["programmatic", "llm", "self"] = Field(
        "programmatic",
        description="Source of the reasoning to train on: the adapter's, recorded with the data; the model "
        "at `endpoint`; or the chat model itself, before its training, where its reason makes the recorded "
        "state likelier.",
    )
    max_new_tokens: int = Field(128, ge=8, description="Longest answer in tokens, reasoning included.")
    resamples: int = Field(
        6,
        ge=0,
        description="Further samples of an unusable answer before the episode fails.",
    )
    coherent: bool = Field(
        True,
        description="Resample an answer that contradicts the dreamed episode, by a rule of the adapter "
        "(our choice).",
    )
    grounded: bool = Field(
        False,
        description="Resample an answer whose reasoning quotes text that it was not shown, by a rule of "
        "the adapter. If all samples do, the most likely answer counts unless it grants a "
        "reward (our choice).",
    )
    min_confidence: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Least probability of a whole dreamed answer that the history determines; below it the "
        "model does not know, and the episode ends as unanswered. The report's reliability says how often "
        "answers of a probability are right. 0: none.",
    )
    agreeing_samples: int = Field(
        0,
        ge=0,
        le=8,
        description="Further answers to a dreamed step, sampled at temperature 1 (a prompted model: at "
        "endpoint.temperature), that must all have the next state and the outcome of the first where the "
        "history determines it; else the model does not know, and the episode ends as unanswered. The check "
        "without rules for a model behind an endpoint, which gives no probability. 0: none.",
    )
    premise: bool = Field(
        True,
        description="Decide before the first step of a dream where the objects of its goal are (our choice); "
        "false for a prompted model, which decides nothing before.",
    )
    temperature: float = Field(
        1.0,
        ge=0,
        description="Sampling temperature of states that the history leaves open, such as the content of "
        "a box; all else is greedy. 0: the most likely.",
    )

    @model_validator(mode="after")
    def _refuse_options_without_effect(self) -> ExperienceModelConfig:
        if self.kind == "prompted":
            self._refuse_without_effect(OF_TRAINED_MODELS, "kind: prompted", "kind: trained")
            if self.premise and "premise" in self.model_fields_set:
                raise ValueError(
                    "premise: true has no effect with kind: prompted; remove it or set kind: trained"
                )
            object.__setattr__(self, "premise", False)  # the section is frozen
        if not self.history:
            self._refuse_without_effect(["recall"], "history: false", "history: true")
        if self.behaviours and ("near_miss" not in self.behaviours or set(self.behaviours) == {"near_miss"}):
            self._refuse_without_effect(
                ["near_miss_weight"],
                f"behaviours: {self.behaviours}",
                "near_miss and others among behaviours",
            )
        if not self.reasoning:
            self._refuse_without_effect(["teacher"], "reasoning: false", "reasoning: true")
        if self.teacher != "programmatic" or not self.reasoning:
            setting = f"teacher: {self.teacher}, reasoning: {self.reasoning}"
            self._refuse_without_effect(
                NEEDS_TEACHER_REASONING, setting, "the programmatic teacher's reasoning"
            )
        return self
