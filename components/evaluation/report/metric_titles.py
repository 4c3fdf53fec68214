"""Metrics in words: the group and title of a metric's name, and a sentence that says what it measures.

`title_of("fidelity/next_state_exact/determined/changed_1_2")` is "next state exact, where the history
determines it, 1-2 facts changed". A name that is not listed here is shown with spaces for underscores and
without an explanation.
"""

from __future__ import annotations

import re

GROUPS = {
    "evaluate": "Evaluation on held-out real games",
    "synthetic_rl": "RL in the dream",
    "sim_to_real": "RL in the real environment",
    "real_rl": "RL in the real environment alone",
    "clone": "Cloning of demonstrations",
    "experience_model": "Fine-tuning of the experience model",
    "fidelity": "Fidelity of the experience model",
    "validate": "Validation of the offline data",
    "cost": "Costs",
    "bound": "Theorem 1",
}
"""First part of a metric's name -> its group."""

TERMS = {
    "success_rate": ("success rate", "share of episodes in which the task was solved"),
    "return_mean": ("mean return", "mean reward of an episode"),
    "policy_entropy": (
        "policy entropy",
        "how evenly the policy spreads its choice of a token, in nats; near 0 it no longer explores",
    ),
    "approx_kl": (
        "KL divergence",
        "how far an update moved the policy from the one that played, in nats a token",
    ),
    "zero_variance_groups": (
        "groups without variance",
        "groups of rollouts of one task that all ended alike; they give no update",
    ),
    "episode_length": ("episode length", "mean steps of an episode"),
    "impossible_actions": ("impossible actions", "share of actions that the world refused"),
    "malformed_actions": ("malformed actions", "share of actions that follow no command of the world"),
    "unparsable_episodes": (
        "unreadable episodes",
        "episodes that ended because the dream had no readable answer",
    ),
    "unparsable_rate": (
        "unreadable answers",
        "share of the experience model's answers that cannot be parsed",
    ),
    "broken_episodes": ("broken episodes", "episodes that infrastructure ended"),
    "overlong_episodes": ("overlong episodes", "episodes that no longer fit the policy's context"),
    "cut_replies": ("cut replies", "share of replies that reached the longest length"),
    "idle_steps": ("idle steps", "share of steps that changed nothing"),
    "lessons": ("episodes with a signal", "episodes whose advantage is not zero"),
    "gradient_norm": ("gradient norm", "length of the gradient before it is clipped"),
    "clip_share": ("clipped tokens", "share of tokens whose probability ratio was clipped"),
    "logprob_gap": (
        "log-probability gap",
        "difference between sampler and learner in a token's log-probability",
    ),
    "loss": ("loss", "what the optimiser lowers; of RL it does not tell how well the policy plays"),
    "generated_task_share": ("generated tasks", "share of tasks that the curriculum made up"),
    "tasks_proposed": ("tasks proposed", "variations that the experience model wrote"),
    "tasks_accepted": ("tasks accepted", "proposed variations that are new, well-formed and feasible"),
    "tasks_pool": ("tasks in the pool", "generated tasks that may be played"),
    "interactions": ("interactions", "steps taken in the world of this stage"),
    "dreamed_interactions": ("dreamed steps", "steps that the experience model answered"),
    "real_interactions": ("real interactions", "steps taken in the real environment for training"),
    "check_interactions": (
        "check interactions",
        "real steps spent on checks and evaluation, not on training",
    ),
    "budget": ("budget", "most real interactions that training may take"),
    "tokens": ("tokens", "tokens trained on"),
    "tokens_trained": ("tokens trained on", "tokens of all optimiser steps of all models"),
    "tokens_generated": ("tokens generated", "tokens that policy and experience model wrote"),
    "endpoint_prompt_tokens": ("endpoint tokens read", "tokens sent to language-model endpoints"),
    "endpoint_completion_tokens": ("endpoint tokens written", "tokens that endpoints wrote"),
    "next_state_exact": (
        "next state exact",
        "share of predicted states that equal the real one word for word",
    ),
    "fact_precision": ("fact precision", "share of predicted facts that the real state has"),
    "fact_recall": ("fact recall", "share of the real state's facts that were predicted"),
    "hallucination_rate": ("hallucination rate", "share of predicted facts that the real state contradicts"),
    "inconsistency_rate": (
        "inconsistency rate",
        "share of predicted states that contradict their own episode",
    ),
    "reward_precision": (
        "reward precision",
        "of the rewards that the model grants, the share that the real environment grants too",
    ),
    "reward_recall": ("reward recall", "of the real environment's rewards, the share that the model grants"),
    "policy_reward_precision": (
        "reward precision, policy's steps",
        "reward precision on real episodes of the policy itself",
    ),
    "policy_reward_recall": (
        "reward recall, policy's steps",
        "reward recall on real episodes of the policy itself",
    ),
    "rollout_agreement": (
        "dreamed successes confirmed",
        "share of dreamed successes that the real engine rewards for the same actions",
    ),
    "rollout_state_agreement": (
        "dreamed states confirmed",
        "share of states of dreamed successes that the real engine gives too",
    ),
    "dreamed_success_rate": (
        "success rate in the dream",
        "share of dreamed episodes that the dream calls a success",
    ),
    "real_success_rate": (
        "success rate in reality",
        "success rate of the same policy on the same tasks in the real environment",
    ),
    "refused_answers_a_step": (
        "refused answers",
        "answers of the experience model that a check refused, a step",
    ),
    "quarantined_share": ("rows set aside", "share of rows in episodes that break a rule"),
    "rows": ("rows", "transitions in the file"),
    "demonstrations": ("demonstrations", "expert episodes that the policy was cloned from"),
    "seconds": ("seconds", "wall time"),
    "steps_per_second": ("steps per second", "speed of the whole stage"),
    "success_rate_change": (
        "gain over the champion",
        "success rate of the new policy minus the champion's, on the same games",
    ),
    "mcnemar_p_value": (
        "p-value",
        "how likely so large a difference on the same games is by chance (McNemar)",
    ),
}
"""Part of a metric's name -> its words, and what it measures."""

_QUALIFIERS = {
    "determined": "where the history determines it",
    "revealing": "where something new is revealed",
    "near_miss": "near misses",
    "held_out_tasks": "held-out tasks",
    "held_out_worlds": "worlds never seen",
    "expert": "expert's steps",
    "noisy": "noisy expert's steps",
    "random": "random steps",
    "possible": "possible actions",
    "impossible": "impossible actions",
    "malformed": "malformed actions",
    "cloned": "cloned policy",
    "dreamed": "dreamed policy",
    "refined": "refined policy",
    "train": "training data",
}
_CONDITIONS = {
    "threshold": "success rate reaches the floor",
    "rollout_agreement": "the dream can be trusted",
    "min_absolute_change": "gains enough over the champion",
    "max_p_value": "the gain is not chance",
    "max_family_drop": "no family of tasks gets worse",
}


def group_of(name: str) -> str:
    """The group that a metric or curve belongs to."""
    first = name.partition("/")[0]
    return GROUPS.get(first, first.replace("_", " "))


def title_of(name: str) -> str:
    """A metric's name in words, without its group."""
    parts = name.split("/")[1:] if "/" in name else [name]
    known = next((part for part in parts if part in TERMS), "")
    others = [_qualifier(part) for part in parts if part != known]
    return ", ".join([*([TERMS[known][0]] if known else []), *others])


def explanation_of(name: str) -> str:
    """What the metric measures; empty if this is not listed."""
    known = next((part for part in name.split("/") if part in TERMS), "")
    return TERMS[known][1] if known else ""


def condition_in_words(name: str) -> str:
    """A condition of promotion in words."""
    return _CONDITIONS.get(name, name.replace("_", " "))


def _qualifier(part: str) -> str:
    """`changed_1_2` or `1-2` -> "1-2 facts changed"; a split or a policy in words."""
    match = re.fullmatch(r"(?:changed_)?(\d+)(?:([_-])(\d+)|(?:_plus|\+))?", part)
    if match is None:
        return _QUALIFIERS.get(part, part.replace("_", " "))
    more = f"-{match[3]}" if match[3] else ("" if part.removeprefix("changed_") == match[1] else "+")
    return f"{match[1]}{more} facts changed"
