"""Real transitions that a run's models read before it played any: those of pretraining and of its logs."""

from __future__ import annotations

from collections.abc import Sequence

from flows.jobs.pretraining.card import earlier_cards
from flows.run.pipeline_run import Run
from flows.run.run_data import (
    episodes_to_clone,
    experience_model_backbone,
    model_episodes,
    policy_backbone,
)

PRETRAINING = "pretraining"
OFFLINE = "offline"


def recorded_transitions(run: Run, stages: Sequence[str]) -> dict[str, int]:
    """Return the number of different real transitions by origin, `PRETRAINING` and `OFFLINE`.

    `PRETRAINING` is missing if a backbone's card does not say how many it read: cards of earlier versions do
    not, nor do models from elsewhere.

    Args:
        stages: those of the run that trained a model; `experience_model` among them reads further episodes.
    """
    train = run.results["validate"].outputs["train"]
    episodes = episodes_to_clone(run, train, run.config.cloning.behaviours)
    backbones = {policy_backbone(run)}
    if "experience_model" in stages:
        episodes = episodes + model_episodes(run, train)
        backbones.add(experience_model_backbone(run))
    counts = {OFFLINE: len({(step.episode_id, step.step) for one in episodes for step in one.steps})}
    cards = [card for backbone in sorted(backbones) for card in earlier_cards(backbone) or [{}]]
    if all("real_transitions" in card for card in cards):
        counts[PRETRAINING] = sum(card["real_transitions"] for card in cards)
    return counts
