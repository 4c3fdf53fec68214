"""Names of metrics in words: the group and title of a metric, and a sentence that says what it measures.

`title_of("fidelity/next_state_exact/determined/changed_1_2")` is "next state exact, where the history
determines it, 1-2 facts changed". A name that is not listed here is shown with spaces instead of underscores
and without an explanation.
"""

from __future__ import annotations

import re

GROUPS = {
    "evaluate": "Evaluation on held-out real games",
    "synthetic_rl": "RL in the dream",
    "sim_to_real": "RL in the real environment",
    "real_rl": "RL in the real environment alone",
    "logged_rl": "learning from pairs of logged episodes",
    "clone": "Cloning of demonstrations",
    "experience_model": "Fine-tuning of the experience model",
    "fidelity": "Fidelity of the experience model",
    "validate": "Validation of the offline data",
    "cost": "Costs",
    "bound": "Theorem 1",
    "logs": "Held-out logs, and the dream in place of the world",
}
"""First part of a metric's name -> its group."""

TERMS = {
    "success_rate": ("success rate", "share of episodes that solve the task"),
    "return_mean": ("mean return", "mean reward of an episode"),
    "policy_entropy": (
        "policy entropy",
        "entropy of the policy's next-token distribution, in nats; near 0 it no longer explores",
    ),
    "approx_kl": (
        "KL divergence",
        "divergence of the updated policy from the policy that played, in nats per token",
    ),
    "zero_variance_groups": (
        "groups without variance",
        "groups whose rollouts all have the same return; they give no update",
    ),
    "rollouts_with_variance": (
        "rollouts with variance",
        "share of rollouts in groups whose returns differ; probes of new tasks are small groups",
    ),
    "episode_length": ("episode length", "mean number of steps per episode"),
    "impossible_actions": ("impossible actions", "share of actions that the environment refused"),
    "malformed_actions": ("malformed actions", "share of actions that are no valid command"),
    "unparsable_episodes": (
        "unparsable episodes",
        "episodes that ended because the dream gave no answer that can be parsed",
    ),
    "unparsable_rate": (
        "unparsable answers",
        "share of the experience model's answers that cannot be parsed",
    ),
    "broken_episodes": ("broken episodes", "episodes that an infrastructure failure ended"),
    "overlong_episodes": ("overlong episodes", "episodes that exceeded the policy's context length"),
    "cut_replies": ("truncated replies", "share of replies that reached the maximum length"),
    "idle_steps": ("idle steps", "share of steps that changed nothing"),
    "lessons": ("episodes with a signal", "episodes whose advantage is not zero"),
    "gradient_norm": ("gradient norm", "norm of the gradient before clipping"),
    "clip_share": ("clipped tokens", "share of tokens whose probability ratio was clipped"),
    "logprob_gap": (
        "log-probability gap",
        "difference between the sampler's and the trainer's log-probability of a token",
    ),
    "sampler_ratio_p01": (
        "sampler ratio, 1st percentile",
        "of the tokens' ratios exp(trainer - sampler), in bf16",
    ),
    "sampler_ratio_p50": (
        "sampler ratio, median",
        "of the tokens' ratios exp(trainer - sampler), in bf16",
    ),
    "sampler_ratio_p99": (
        "sampler ratio, 99th percentile",
        "of the tokens' ratios exp(trainer - sampler), in bf16",
    ),
    "sampler_ratio_outside": (
        "sampler ratio outside 0.8 to 1.25",
        "share of the tokens whose ratio exp(trainer - sampler) is further from 1, in bf16",
    ),
    "loss": ("loss", "value that the optimiser minimises; in RL it does not show how well the policy plays"),
    "generated_task_share": ("generated tasks", "share of tasks that the curriculum generated"),
    "tasks_proposed": ("proposed tasks", "task variations that the experience model proposed"),
    "tasks_accepted": ("accepted tasks", "proposed variations that are new, well-formed and feasible"),
    "tasks_pool": ("tasks in the pool", "generated tasks that may be played"),
    "tasks_probed": ("probed tasks", "new generated tasks that were played with a few rollouts"),
    "tasks_rejected": ("rejected tasks", "probed tasks whose rollouts were all won or all lost"),
    "interactions": ("interactions", "steps in the environment of this stage"),
    "dreamed_interactions": ("dreamed interactions", "steps that the experience model answered"),
    "real_interactions": ("real interactions", "steps in the real environment for training"),
    "earlier_real_interactions": (
        "earlier real interactions",
        "real steps of the rounds before, for training and for checks",
    ),
    "check_interactions": (
        "check interactions",
        "real steps for checks and evaluation, not for training",
    ),
    "budget": ("budget", "largest number of real interactions that training may use"),
    "tokens": ("tokens", "tokens trained on"),
    "tokens_trained": ("tokens trained on", "tokens of all optimiser steps of all models"),
    "tokens_generated": ("generated tokens", "tokens that policy and experience model generated"),
    "endpoint_prompt_tokens": ("endpoint prompt tokens", "tokens sent to language-model endpoints"),
    "endpoint_completion_tokens": ("endpoint completion tokens", "tokens that endpoints generated"),
    "normalised_match": (
        "same text, normalised",
        "share of predicted states that are the real text without case, punctuation and articles",
    ),
    "token_f1": ("token F1", "twice the common tokens of predicted and real states by the tokens of both"),
    "calibration": (
        "calibration",
        "whether the probability that the model gives to its answer says how often the answer is right",
    ),
    "next_state_exact": (
        "next state exact",
        "share of predicted states that equal the real state word for word",
    ),
    "fact_precision": ("fact precision", "share of predicted facts that the real state contains"),
    "fact_recall": ("fact recall", "share of the real state's facts that were predicted"),
    "hallucination_rate": ("hallucination rate", "share of predicted facts that the real state contradicts"),
    "inconsistency_rate": (
        "inconsistency rate",
        "share of predicted states that contradict their own episode",
    ),
    "reward_precision": (
        "reward precision",
        "share of the predicted rewards that the real environment also gives",
    ),
    "reward_recall": ("reward recall", "share of the real environment's rewards that the model predicts"),
    "unanswered_rate": (
        "unanswered",
        "share of real steps to which the dream had no answer that passed its checks",
    ),
    "policy_reward_precision": (
        "reward precision, policy's steps",
        "reward precision on the policy's own real episodes",
    ),
    "policy_reward_recall": (
        "reward recall, policy's steps",
        "reward recall on the policy's own real episodes",
    ),
    "rollout_agreement": (
        "dreamed successes confirmed",
        "share of dreamed successes that the real engine also rewards for the same actions",
    ),
    "rollout_state_agreement": (
        "dreamed states confirmed",
        "share of the dreamed successes' states that equal the real engine's",
    ),
    "unsure_answers_a_step": (
        "unsure answers per step",
        "dreamed answers below experience_model.min_confidence, which ended their episodes",
    ),
    "disagreeing_answers_a_step": (
        "disagreeing answers per step",
        "dreamed answers that one of experience_model.agreeing_samples differed from, which ended episodes",
    ),
    "logged_success_rate": (
        "success rate of the held-out logs",
        "share of held-out logged episodes of a known outcome that were a success, whoever acted",
    ),
    "same_action_rate": (
        "logged action taken",
        "share of steps of held-out successful logs at which the policy's most probable action is the logged "
        "one",
    ),
    "unanswered_episodes": (
        "unanswered episodes",
        "dreamed episodes that ended because no answer of the dream was accepted",
    ),
    "dreamed_success_rate": (
        "success rate in the dream",
        "share of dreamed episodes that end in success",
    ),
    "real_success_rate": (
        "success rate in reality",
        "success rate of the same policy on the same tasks in the real environment",
    ),
    "kindness": (
        "kindness of the dream",
        "success rate in the dream minus that in reality, of one policy on the tasks that both answered",
    ),
    "refused_answers_a_step": (
        "refused answers",
        "answers of the experience model that a check refused, per step",
    ),
    "quarantined_share": ("quarantined rows", "share of rows in episodes that violate a rule"),
    "rows": ("rows", "transitions in the file"),
    "demonstrations": ("demonstrations", "expert episodes that the policy was trained to imitate"),
    "seconds": ("seconds", "wall time"),
    "steps_per_second": ("steps per second", "speed of the whole stage"),
    "turn_seconds": ("seconds a turn", "time of a turn of all episodes, whatever their number"),
    "row_seconds": ("seconds a row", "time that each episode adds to a turn"),
    "tokens_per_second": ("tokens per second", "tokens trained on, by the wall time of the training"),
    "staleness": (
        "staleness",
        "updates between the policy that played the rollouts and the one that is trained on them",
    ),
    "gpu_memory_gb": ("GPU memory", "the most that tensors took in the training, in GB"),
    "gpu_mfu": (
        "share of the GPU's peak",
        "operations of the trained tokens over those that the GPU could do in bf16",
    ),
    "gpu_utilisation": ("GPU in use", "share of the time in which the GPU computed anything"),
    "success_rate_change": (
        "gain over the champion",
        "success rate of the new policy minus the champion's, on the same games",
    ),
    "mcnemar_p_value": (
        "p-value",
        "probability of a gain of at least this size by chance, on the same games (McNemar)",
    ),
}
"""Part of a metric's name -> its title, and what it measures."""

_QUALIFIERS = {
    "determined": "where the history determines it",
    "revealing": "where the step reveals something new",
    "near_miss": "near misses",
    "held_out_tasks": "held-out tasks",
    "held_out_worlds": "held-out worlds",
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
    "as_used": "as RL uses it",
}
"""Further part of a metric's name -> its words."""
_CONDITIONS = {
    "threshold": "success rate reaches the floor",
    "rollout_agreement": "real engine confirms dreamed successes",
    "min_absolute_change": "gain over the champion is large enough",
    "max_p_value": "gain is unlikely by chance",
    "max_family_drop": "no family of tasks loses too much",
}
"""Name of a promotion condition -> its words."""


def group_of(name: str) -> str:
    """Return the group of a metric or curve."""
    prefix = name.partition("/")[0]
    return GROUPS.get(prefix, prefix.replace("_", " "))


def title_of(name: str) -> str:
    """Return a metric's name in words, without its group."""
    parts = name.split("/")
    if len(parts) > 1 and parts[0] not in TERMS:
        parts = parts[1:]
    term = next((part for part in parts if part in TERMS), "")
    qualifiers = [_qualifier_in_words(part) for part in parts if part != term]
    return ", ".join([*([TERMS[term][0]] if term else []), *qualifiers])


def explanation_of(name: str) -> str:
    """Return what the metric measures; empty if it is not listed."""
    term = next((part for part in name.split("/") if part in TERMS), "")
    return TERMS[term][1] if term else ""


def condition_in_words(name: str) -> str:
    """Return a promotion condition in words."""
    return _CONDITIONS.get(name, name.replace("_", " "))


def _qualifier_in_words(part: str) -> str:
    """Return a split or a policy in words; `changed_1_2` and `1-2` are "1-2 facts changed"."""
    match = re.fullmatch(r"(?:changed_)?(\d+)(?:([_-])(\d+)|(?:_plus|\+))?", part)
    if match is None:
        return _QUALIFIERS.get(part, part.replace("_", " "))
    suffix = f"-{match[3]}" if match[3] else ("" if part.removeprefix("changed_") == match[1] else "+")
    return f"{match[1]}{suffix} facts changed"
