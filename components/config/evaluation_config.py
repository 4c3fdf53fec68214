"""The config sections of measuring: the fidelity gate, evaluation on real games, studies, and the promotion
gate.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from components.config.reading.section import Section


class FidelityConfig(Section):
    """The gate between the experience model and RL: below one of these floors the run stops before RL."""

    tasks: int = Field(
        40, ge=1, description="Held-out tasks whose real transitions the model is measured on."
    )
    open_loop_tasks: int = Field(
        48,
        ge=1,
        description="Held-out tasks that each examined policy dreams once, replayed in the real engine.",
    )
    judged: int = Field(
        0,
        ge=0,
        description="Predicted steps that a language model at `endpoint` judges in `dreamgym fidelity`, "
        "and in a run on logs alone; 0: none.",
    )
    policy_tasks: int = Field(
        48, ge=1, description="Training tasks on which the current policy is checked, dreamed and real."
    )
    min_next_state_exact: float = Field(
        0.80, ge=0, le=1, description="Lowest rate of exact next states, where the history determines them."
    )
    min_reward_precision: float = Field(
        0.80, ge=0, le=1, description="Lowest reward precision on held-out transitions."
    )
    max_unparsable_rate: float = Field(
        0.02, ge=0, le=1, description="Highest rate of answers that cannot be parsed."
    )
    min_rollout_agreement: float = Field(
        0.80, ge=0, le=1, description="Lowest share of dreamed successes that the real environment confirms."
    )
    max_kindness: float = Field(
        0.20,
        ge=0,
        le=1,
        description="Success in the dream minus success in reality, of one policy on the same tasks: highest "
        "value of the lower end of its interval.",
    )
    max_batches: int = Field(
        4,
        ge=1,
        description="Most batches of policy_tasks that are dreamed and replayed while the interval of the "
        "confirmed share holds the floor.",
    )


class EvaluationConfig(Section):
    """Success on held-out real games."""

    confidence: ClassVar[float] = 0.95
    """Level of the intervals."""

    tasks: int = Field(64, ge=1, description="Held-out real games each policy plays once.")
    temperature: float = Field(
        1.0, ge=0, description="Sampling temperature of the evaluated policy; 1: as trained, 0: greedy."
    )


class StudyConfig(Section):
    """Which methods `dreamgym study` compares, and what it evaluates besides the final policies.

    `dreamgym retrain` does not read it.
    """

    real_rows: ClassVar[int] = 4
    """Episodes whose slowed steps pass at the same time; more wait in turn."""

    methods: list[str] = Field(
        default_factory=list,
        description="Methods to run; the first one is what most others are compared with. Empty: all that "
        "change something, compared with gigpo-real.",
    )
    curve_every: int = Field(
        0,
        ge=0,
        description="RL iterations between the policies that play held-out games for the learning curves; "
        "0: none.",
    )
    real_step_seconds: float = Field(
        0.0,
        ge=0,
        description="Time that a real step of training or of the dream watch takes in addition, by sleeping: "
        "what would a slow environment cost?",
    )
    success_epochs: float | None = Field(
        None,
        gt=0,
        description="Passes of the method clone-successes, which has fewer episodes than the clone; empty: "
        "cloning.epochs.",
    )
    rounds: int = Field(
        1,
        ge=1,
        description="Rounds of dream and reality in which a cell trains; set by its method, which gives each "
        "round its part of the iterations and the real interactions.",
    )


class PromotionConfig(Section):
    """When a challenger replaces the champion (vocabulary of MLflow's model validation)."""

    threshold: float = Field(
        0.2,
        ge=0,
        le=1,
        description="Lowest value of the lower bound of the success rate, also for the first champion.",
    )
    confidence: float = Field(
        0.95,
        ge=0.5,
        lt=1,
        description="One-sided level of that bound over all batches together (docs/reference/metrics.md "
        "gives the reason).",
    )
    min_absolute_change: float = Field(
        0.02, ge=-1, le=1, description="Smallest gain in success over the champion on the same games."
    )
    max_p_value: float = Field(
        0.05,
        gt=0,
        le=1,
        description="Largest one-sided p-value of the gain, over all batches together (exact McNemar "
        "test); 1: any.",
    )
    max_family_drop: float = Field(
        0.25,
        ge=0,
        le=1,
        description="Largest drop in success of any task family, by the bounds of its change on the same "
        "games; 1: any.",
    )
    max_batches: int = Field(
        3,
        ge=1,
        le=1000,
        description="Most batches of evaluation.tasks validation games that are played while the conditions "
        "are open.",
    )
    refresh: Literal["never", "week", "month"] = Field(
        "never",
        description="When other validation games are drawn: never, or in each ISO week or month (UTC) of "
        "a run's start.",
    )
    draw: int | None = Field(
        None,
        ge=0,
        le=10_000_000,
        description="Number of the draw of validation games; empty: by refresh. A run's record has it "
        "filled in.",
    )
