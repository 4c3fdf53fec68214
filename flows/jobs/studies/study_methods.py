"""The methods that a study compares: where and with which algorithm each trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from components.errors import ConfigError
from components.evaluation.study.ablation_results import VARIANTS

CLONE = "clone"
"""Method that all others start from."""
BASE = "grpo-real"
"""Method that most others are compared with."""
DREAM = "dream-grpo"
"""Method that ablations of the dream are compared with."""
TRANSFER = "transfer-grpo-real"
"""Method that transfer methods are compared with."""
WITHOUT_KNOWLEDGE: Mapping[str, Mapping[str, Any]] = {
    "environment": {"knowledge": False},
    "experience_model": {
        **VARIANTS["no-reasoning"]["experience_model"],
        **{"premise": False, "coherent": False, "grounded": False},
    },
}
"""All hand-written parts off: what the adapter knows, reasoning, premises, and the checks by its rules."""
PLAIN = {"step_weight": 0.0, "negative_advantage_weight": 1.0, "idle_penalty": 0.0}
"""Options of GRPO without ours: GiGPO's advantages of steps, halved negative ones, the idle penalty."""


@dataclass(frozen=True)
class Method:
    """A method of the study.

    Args:
        about: what it is, in words.
        dream: algorithm of RL in the dream; empty: none.
        real: algorithm of RL in the real environment; empty: none.
        logged: algorithm that learns from recorded episodes, with the settings of `rl.baseline` and
            `PREFERENCE_LEARNING_RATE`; empty: none.
        changes: section of the config -> options that differ.
        transfer: train on the first half of the task families only.
        rounds: of dream and reality; each has an equal part of the real interactions and of the iterations in
            the dream, and from the second on the experience model is trained on the real episodes before.
        options: of the algorithm of its only stage of RL.
        settings: of its only stage of RL.
        like_dream: RL in reality has the iterations and rollouts of RL in the dream, and no other limit.
        needs_failures: it is the clone itself where only successes are cloned.
        needs_chat_model: it is left out with the small backbone, unless it is named.
        is_control: a dream that must not help. RL in it is not watched and has all its iterations.
        is_graded: a dream of another quality. RL in it is not watched, and its policy's episodes are compared
            with reality at the end.
        base: method that it is compared with.
    """

    about: str
    dream: str = ""
    real: str = ""
    logged: str = ""
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    transfer: bool = False
    rounds: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    like_dream: bool = False
    needs_failures: bool = False
    needs_chat_model: bool = False
    is_control: bool = False
    is_graded: bool = False
    base: str = BASE

    @property
    def stages(self) -> list[str]:
        """The stages of RL in their order."""
        if self.logged:
            return ["logged_rl"]
        stages = ["synthetic_rl"] if self.dream else []
        if self.real:
            stages.append("sim_to_real" if self.dream else "real_rl")
        return stages

    @property
    def last(self) -> str:
        """The stage whose policy plays the held-out games."""
        return (self.stages or ["clone"])[-1]


def _in_dream(about: str, base: str = DREAM, **differences: Any) -> Method:
    """Return GRPO in a dream, compared with the full dream if no other base is named."""
    return Method(f"GRPO in {about}", dream="grpo", base=base, **differences)


def _graded(about: str, option: str = "", value: float = 0) -> Method:
    changes = {"experience_model": {option: value}} if option else {}
    return Method(f"GRPO in {about}", dream="grpo", changes=changes, is_graded=True, base=DREAM)


WRONG_DREAMS: Mapping[str, tuple[str, str, float]] = {
    "untrained-dream": ("the dream of the backbone itself, fine-tuned on next to nothing", "epochs", 1e-6),
    "flipped-dream": ("a dream that learnt half of the outcomes wrong", "flipped_outcomes", 0.5),
    "swapped-dream": ("a dream that learnt the next states of other steps", "swapped_states", 1.0),
}
"""Control -> what it is, and the option of the experience model that makes it wrong, with its value."""
GRADED: dict[str, Method] = {
    "graded-full": _graded("the dream, compared with reality at the end"),
    **{
        f"graded-{steps}-steps": _graded(f"a dream that learnt from {steps} steps", "transitions", steps)
        for steps in (500, 2000, 5000, 10_000)
    },
    **{
        f"graded-{percent}-flipped": _graded(
            f"a dream that learnt {percent} % of the outcomes wrong", "flipped_outcomes", percent / 100
        )
        for percent in (5, 10, 20, 40)
    },
    **{
        f"graded-{percent}-swapped": _graded(
            f"a dream that learnt {percent} % of the next states from other steps",
            "swapped_states",
            percent / 100,
        )
        for percent in (5, 10, 20, 40)
    },
}
"""Dreams of graded quality: which measure of fidelity predicts the success of the policy that trains in them?
They run only if they are named; `graded` names all.
"""

METHODS: dict[str, Method] = {
    CLONE: Method("cloning alone"),
    "clone-successes": Method(
        "cloning of the successful episodes alone", changes={"cloning": {"only_successes": True}}
    ),
    "clone-weighted": Method(
        "cloning of all episodes, weighted by their advantage",
        changes={"cloning": {"advantage_temperature": 0.5}},
        needs_failures=True,
    ),
    "dpo-logs": Method("DPO on the logs' own pairs", logged="dpo"),
    "dpo-offline": Method("DPO on what the clone did in reality", real="dpo"),
    "grpo-real": Method("GRPO in reality", real="grpo"),
    "plain-grpo-real": Method("GRPO as in its paper, in reality", real="grpo", options=PLAIN),
    "family-normalised-real": Method(
        "GRPO in reality, advantages normalised within each family of tasks (AgentRL)",
        real="grpo",
        options={"normalise_families": True},
        base="grpo-real",
    ),
    "cross-policy-real": Method(
        "GRPO in reality, a fifth of the replies in rollouts written by the clone (AgentRL)",
        real="grpo",
        options={"cross_policy_share": 0.2},
        base="grpo-real",
    ),
    "engine-as-dream": Method(
        "GRPO in reality with as many rollouts as in the dream, at a constant rate, tasks drawn evenly",
        real="grpo",
        like_dream=True,
        base=DREAM,
    ),
    "ppo-real": Method("PPO in reality", real="ppo"),
    "rft-real": Method("RFT in reality", real="rft"),
    "meta-rewarding-real": Method(
        "Meta-Rewarding in reality: the policy judges its episodes and its judgements, no outcome is read",
        real="meta_rewarding",
        needs_chat_model=True,
    ),
    "dream-grpo": Method("GRPO in the dream", dream="grpo"),
    "dream-plain-grpo": Method(
        "GRPO as in its paper, in the dream", dream="grpo", options=PLAIN, base="plain-grpo-real"
    ),
    "dream-episode-credit": _in_dream(
        "the dream, advantages of whole episodes alone: without GiGPO's steps",
        options={"step_weight": 0.0},
    ),
    **{
        f"dream-{name}": _in_dream(
            f"the dream with {what} of steps", base="dream-episode-credit", options={"step_credit": name}
        )
        for name, what in (("salt", "SALT's advantages"), ("istar", "iStar's rewards"))
    },
    "dream-family-normalised": _in_dream(
        "the dream, advantages normalised within each family of tasks (AgentRL)",
        options={"normalise_families": True},
    ),
    "dream-cross-policy": _in_dream(
        "the dream, a fifth of the replies in rollouts written by the clone (AgentRL)",
        options={"cross_policy_share": 0.2},
    ),
    "dream-hero": _in_dream(
        "the dream, episodes of one outcome ranked by progress (HERO)",
        base="dream-unscaled",
        options={"reward": "hero", "scale_rewards": False},
    ),
    "dream-hero-learnt": _in_dream(
        "the dream, episodes of one outcome ranked by a model learnt from the logs (HERO)",
        base="dream-unscaled",
        options={"reward": "hero_learnt", "scale_rewards": False},
    ),
    "dream-unscaled": _in_dream(
        "the dream, advantages not divided by their deviation", options={"scale_rewards": False}
    ),
    "dream-unanswered": _in_dream(
        "the dream, episodes without an answer are failures", settings={"unanswered": "failure"}
    ),
    "dream-left-out": _in_dream(
        "the dream, episodes without an answer are left out", settings={"unanswered": "left_out"}
    ),
    "dream-perturbed": _in_dream(
        "a dream that loses a tenth of the actions on purpose", settings={"lost_actions": 0.1}
    ),
    "echo-real": Method(
        "GRPO in reality, also trained on the states that it observed (ECHO)",
        real="grpo",
        settings={"observation_weight": 0.1},
    ),
    **{
        f"dream-dpo-{every or 'offline'}": Method(
            f"DPO in the dream, its players and reference {sync}",
            dream="dpo",
            options={"sync_every": every},
            base=DREAM,
        )
        for every, sync in (
            (1, "updated at each step: online"),
            *((steps, f"updated at each {steps}th step: semi-online") for steps in (5, 10)),
            (0, "never updated: offline"),
        )
    },
    "clone-world-modelling": Method(
        "cloning after learning what alternatives to the demonstrated actions lead to (Early Experience)",
        changes={"cloning": {"early_experience": "world_modelling", "only_successes": True}},
        base="clone-successes",
    ),
    "clone-self-reflection": Method(
        "cloning with thoughts on what alternatives lead to, written by the adapter (Early Experience)",
        changes={"cloning": {"early_experience": "self_reflection", "only_successes": True}},
        base="clone-successes",
    ),
    "clone-own-reflection": Method(
        "cloning with thoughts on what alternatives lead to, written by the chat model (Early Experience)",
        changes={"cloning": {"early_experience": "own_reflection", "only_successes": True}},
        needs_chat_model=True,
        base="clone-successes",
    ),
    "successes-grpo": _in_dream(
        "the dream, from the clone of the successes", changes={"cloning": {"only_successes": True}}
    ),
    **{
        f"{name}-grpo": Method(
            f"GRPO in the dream, from the clone after Early Experience ({name.replace('-', ' ')})",
            dream="grpo",
            changes={"cloning": {"early_experience": name.replace("-", "_"), "only_successes": True}},
            base="successes-grpo",
        )
        for name in ("world-modelling", "self-reflection")
    },
    "dream-ppo": Method("PPO in the dream", dream="ppo"),
    "dream-rft": Method("RFT in the dream", dream="rft"),
    "s2r-grpo": Method("GRPO in the dream, then in reality", dream="grpo", real="grpo"),
    "s2r-ppo": Method("PPO in the dream, then in reality", dream="ppo", real="ppo"),
    "rounds-grpo": Method(
        "GRPO in the dream, then in reality, twice; the dream learns from the first real episodes",
        dream="grpo",
        real="grpo",
        rounds=2,
        base="s2r-grpo",
    ),
    "s2r-rft": Method("RFT in the dream, then in reality", dream="rft", real="rft"),
    "no-retrieval": _in_dream("a dream without demonstrations", changes=VARIANTS["no-retrieval"]),
    "no-reasoning": _in_dream("a dream without reasoning", changes=VARIANTS["no-reasoning"]),
    "no-history": _in_dream("a dream without history", changes=VARIANTS["no-history"]),
    "no-curriculum": _in_dream("the dream, tasks drawn evenly", changes={"curriculum": {"enabled": False}}),
    "posterior-curriculum": _in_dream(
        "the dream, tasks chosen by a posterior over success",
        changes={"curriculum": {"selection": "posterior", "explore": 0.75}},
    ),
    "no-premise": _in_dream("a dream without premises", changes={"experience_model": {"premise": False}}),
    "no-coherence": _in_dream(
        "a dream that may contradict itself", changes={"experience_model": {"coherent": False}}
    ),
    "no-verifier": _in_dream(
        "a dream whose quotations are not checked", changes={"experience_model": {"grounded": False}}
    ),
    "no-knowledge": _in_dream(
        "a dream without hand-written parts but those of the backbone's pretraining",
        changes=WITHOUT_KNOWLEDGE,
    ),
    **{
        name: _in_dream(about, changes={"experience_model": {option: value}}, is_control=True)
        for name, (about, option, value) in WRONG_DREAMS.items()
    },
    "transfer-clone": Method("cloning, half of the families", transfer=True, base=TRANSFER),
    "transfer-grpo-real": Method(
        "GRPO in reality, half of the families", real="grpo", transfer=True, base=TRANSFER
    ),
    "transfer-dream-grpo": Method(
        "GRPO in the dream, half of the families", dream="grpo", transfer=True, base=TRANSFER
    ),
    **GRADED,
}


def _from_successes(name: str, base: str = "successes-grpo") -> Method:
    """Return the method `name`, begun with the clone of the successes."""
    method = METHODS[name]
    return replace(
        method,
        about=f"{method.about}, from the clone of the successes",
        changes={**method.changes, "cloning": {"only_successes": True}},
        base=base,
    )


METHODS |= {f"successes-{name}": _from_successes(name) for name in WRONG_DREAMS}
METHODS |= {f"successes-{name}": _from_successes(name, BASE) for name in ("grpo-real", "s2r-grpo")}
METHODS["successes-rounds-grpo"] = _from_successes("rounds-grpo", "successes-s2r-grpo")
BASES = {name: method.base for name, method in METHODS.items()}


def bases_against(against: str) -> dict[str, str]:
    """Return method -> the method that it is compared with, where `against` takes the place of BASE.

    Raises:
        ConfigError: there is no such method.
    """
    if against not in METHODS:
        raise ConfigError(f"There is no method {against!r}.", f"Expected one of {', '.join(METHODS)}.")
    return {name: against if base == BASE else base for name, base in BASES.items()}
