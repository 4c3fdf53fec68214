"""The methods that a study compares: where and with which algorithm each trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from components.errors import ConfigError
from components.evaluation.study.ablation_results import VARIANTS
from flows.jobs.studies.method import BASE, CLONE, DREAM, TRANSFER, Method, in_dream
from flows.jobs.studies.method_groups import BUDGETS, GRADED

WITHOUT_KNOWLEDGE: Mapping[str, Mapping[str, Any]] = {
    "environment": {"knowledge": False},
    "experience_model": {
        **VARIANTS["no-reasoning"]["experience_model"],
        **{"premise": False, "coherent": False, "grounded": False},
    },
}
"""All hand-written parts off: what the adapter knows, reasoning, premises, and the checks by its rules."""
PLAIN = {"step_weight": 0.0, "negative_advantage_weight": 1.0, "idle_penalty": 0.0}
"""Options of GRPO as in its paper.

Rows named GiGPO have its advantages of steps, and halved negative advantages and an idle penalty of ours.
"""


def _dpo(every: int, *, is_fine: bool = False, keeps_rate: bool = False) -> Method:
    """Return DPO in the dream.

    Args:
        every: optimiser steps between updates of players and reference; 0: none.
        is_fine: see `Method`. Only such rows have equally many optimiser steps.
        keeps_rate: see `Method`.
    """
    kinds = {0: "never updated: offline", 1: "updated at each step: online"}
    about = f"its players and reference {kinds.get(every, f'updated at each {every}th step: semi-online')}"
    steps = ", in four times as many steps on as many rollouts" if is_fine else ""
    rate = ", at GiGPO's learning rate" if keeps_rate else ""
    return Method(
        f"DPO in the dream, {about}{steps}{rate}",
        dream="dpo",
        options={"sync_every": every},
        is_fine=is_fine,
        keeps_rate=keeps_rate,
        base=DREAM,
    )


WRONG_DREAMS: Mapping[str, tuple[str, str, float]] = {
    "untrained-dream": ("the dream of the backbone itself, fine-tuned on next to nothing", "epochs", 1e-6),
    "flipped-dream": ("a dream that learnt half of the outcomes wrong", "flipped_outcomes", 0.5),
    "swapped-dream": ("a dream that learnt the next states of other steps", "swapped_states", 1.0),
}
"""Control -> what it is, and the option of the experience model that makes it wrong, with its value."""
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
    "gigpo-real": Method("GiGPO in reality", real="grpo"),
    "plain-grpo-real": Method("GRPO as in its paper, in reality", real="grpo", options=PLAIN),
    "family-normalised-real": Method(
        "GiGPO in reality, advantages normalised within each family of tasks (AgentRL)",
        real="grpo",
        options={"normalise_families": True},
        base="gigpo-real",
    ),
    "cross-policy-real": Method(
        "GiGPO in reality, a fifth of the replies in rollouts written by the clone (AgentRL)",
        real="grpo",
        options={"cross_policy_share": 0.2},
        base="gigpo-real",
    ),
    "engine-as-dream": Method(
        "GiGPO in reality with as many rollouts as in the dream, at a constant rate, tasks drawn evenly",
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
    "dream-gigpo": Method("GiGPO in the dream", dream="grpo"),
    "dream-plain-grpo": Method(
        "GRPO as in its paper, in the dream", dream="grpo", options=PLAIN, base="plain-grpo-real"
    ),
    "dream-episode-credit": in_dream(
        "the dream, advantages of whole episodes alone: without GiGPO's steps",
        options={"step_weight": 0.0},
    ),
    **{
        f"dream-{name}": in_dream(
            f"the dream with {what} of steps", base="dream-episode-credit", options={"step_credit": name}
        )
        for name, what in (("salt", "SALT's advantages"), ("istar", "iStar's rewards"))
    },
    "dream-family-normalised": in_dream(
        "the dream, advantages normalised within each family of tasks (AgentRL)",
        options={"normalise_families": True},
    ),
    "dream-cross-policy": in_dream(
        "the dream, a fifth of the replies in rollouts written by the clone (AgentRL)",
        options={"cross_policy_share": 0.2},
    ),
    "dream-hero": in_dream(
        "the dream, episodes of one outcome ranked by progress (HERO)",
        base="dream-unscaled",
        options={"reward": "hero", "scale_rewards": False},
    ),
    "dream-hero-learnt": in_dream(
        "the dream, episodes of one outcome ranked by a model learnt from the logs (HERO)",
        base="dream-unscaled",
        options={"reward": "hero_learnt", "scale_rewards": False},
    ),
    "dream-unscaled": in_dream(
        "the dream, advantages not divided by their deviation", options={"scale_rewards": False}
    ),
    "dream-unanswered": in_dream(
        "the dream, episodes without an answer are failures", settings={"unanswered": "failure"}
    ),
    "dream-left-out": in_dream(
        "the dream, episodes without an answer are left out", settings={"unanswered": "left_out"}
    ),
    "dream-perturbed": in_dream(
        "a dream that loses a tenth of the actions on purpose", settings={"lost_actions": 0.1}
    ),
    "echo-real": Method(
        "GiGPO in reality, also trained on the states that it observed (ECHO)",
        real="grpo",
        settings={"observation_weight": 0.1},
    ),
    "dream-dpo-1": _dpo(1),
    "dream-dpo-5": _dpo(5),
    "dream-dpo-10": _dpo(10, is_fine=True),
    "dream-dpo-offline": _dpo(0),
    "dream-dpo-1-fine": _dpo(1, is_fine=True),
    "dream-dpo-offline-fine": _dpo(0, is_fine=True),
    "dream-dpo-1-rl-rate": _dpo(1, keeps_rate=True),
    "dream-dpo-offline-rl-rate": _dpo(0, keeps_rate=True),
    "clone-world-modelling": Method(
        "cloning after learning what alternatives to the demonstrated actions lead to (Early Experience)",
        changes={"cloning": {"early_experience": "world_modelling", "only_successes": True}},
        base="clone-successes",
    ),
    "clone-self-reflection": Method(
        "cloning with thoughts on what alternatives lead to, templates of the adapter (Early Experience)",
        changes={"cloning": {"early_experience": "self_reflection", "only_successes": True}},
        base="clone-successes",
    ),
    "clone-own-reflection": Method(
        "cloning with thoughts on what alternatives lead to, written by the chat model (Early Experience)",
        changes={"cloning": {"early_experience": "own_reflection", "only_successes": True}},
        needs_chat_model=True,
        base="clone-successes",
    ),
    "successes-gigpo": in_dream(
        "the dream, from the clone of the successes", changes={"cloning": {"only_successes": True}}
    ),
    **{
        f"{name}-gigpo": Method(
            f"GiGPO in the dream, from the clone after Early Experience ({name.replace('-', ' ')})",
            dream="grpo",
            changes={"cloning": {"early_experience": name.replace("-", "_"), "only_successes": True}},
            base="successes-gigpo",
        )
        for name in ("world-modelling", "self-reflection")
    },
    "dream-ppo": Method("PPO in the dream", dream="ppo"),
    "dream-rft": Method("RFT in the dream", dream="rft"),
    "s2r-gigpo": Method("GiGPO in the dream, then in reality", dream="grpo", real="grpo"),
    "s2r-ppo": Method("PPO in the dream, then in reality", dream="ppo", real="ppo"),
    "rounds-gigpo": Method(
        "GiGPO in the dream, then in reality, twice; the dream learns from the first real episodes",
        dream="grpo",
        real="grpo",
        rounds=2,
        base="s2r-gigpo",
    ),
    "s2r-rft": Method("RFT in the dream, then in reality", dream="rft", real="rft"),
    "no-retrieval": in_dream("a dream without demonstrations", changes=VARIANTS["no-retrieval"]),
    "no-reasoning": in_dream("a dream without reasoning", changes=VARIANTS["no-reasoning"]),
    "no-history": in_dream("a dream without history", changes=VARIANTS["no-history"]),
    "no-curriculum": in_dream("the dream, tasks drawn evenly", changes={"curriculum": {"enabled": False}}),
    "posterior-curriculum": in_dream(
        "the dream, tasks chosen by a posterior over success",
        changes={"curriculum": {"selection": "posterior", "explore": 0.75}},
    ),
    "no-premise": in_dream("a dream without premises", changes={"experience_model": {"premise": False}}),
    "no-coherence": in_dream(
        "a dream that may contradict itself", changes={"experience_model": {"coherent": False}}
    ),
    "no-verifier": in_dream(
        "a dream whose quotations are not checked", changes={"experience_model": {"grounded": False}}
    ),
    "no-knowledge": in_dream(
        "a dream without hand-written parts but those of the backbone's pretraining",
        changes=WITHOUT_KNOWLEDGE,
    ),
    **{
        name: in_dream(about, changes={"experience_model": {option: value}}, is_control=True)
        for name, (about, option, value) in WRONG_DREAMS.items()
    },
    "transfer-clone": Method("cloning, half of the families", transfer=True, base=TRANSFER),
    "transfer-gigpo-real": Method(
        "GiGPO in reality, half of the families", real="grpo", transfer=True, base=TRANSFER
    ),
    "transfer-dream-gigpo": Method(
        "GiGPO in the dream, half of the families", dream="grpo", transfer=True, base=TRANSFER
    ),
    **GRADED,
    **BUDGETS,
}


def _from_successes(name: str, base: str = "successes-gigpo") -> Method:
    """Return the method `name`, begun with the clone of the successes."""
    method = METHODS[name]
    return replace(
        method,
        about=f"{method.about}, from the clone of the successes",
        changes={**method.changes, "cloning": {"only_successes": True}},
        base=base,
    )


METHODS |= {f"successes-{name}": _from_successes(name) for name in WRONG_DREAMS}
METHODS |= {f"successes-{name}": _from_successes(name, BASE) for name in ("gigpo-real", "s2r-gigpo")}
METHODS["successes-rounds-gigpo"] = _from_successes("rounds-gigpo", "successes-s2r-gigpo")
BASES = {name: method.base for name, method in METHODS.items()}
CONTROLS = frozenset(name for name, method in METHODS.items() if method.is_control)


def bases_against(against: str) -> dict[str, str]:
    """Return method -> the method that it is compared with, where `against` takes the place of BASE.

    Raises:
        ConfigError: there is no such method.
    """
    if against not in METHODS:
        raise ConfigError(f"There is no method {against!r}.", f"Expected one of {', '.join(METHODS)}.")
    return {name: against if base == BASE else base for name, base in BASES.items()}
