"""Builders that several test files share: tasks, transitions, episodes, a tiny vocabulary and tiny models."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import yaml

from components.config import BackboneConfig
from components.experience.formats.compact_world import CompactWorld
from components.language.backbone import build_backbone
from components.language.vocabulary.compact_vocabulary import CompactVocabulary
from components.policy.formats.compact_agent import CompactAgent
from components.records import Task, Trajectory, Transition

ROOM = "Room: desk 1, fridge 1, microwave 1, shelf 1. Holding nothing."
TEXTS = [
    ROOM,
    "put a hot mug in desk",
    "go to desk 1 open fridge 1 take mug 1 from desk 1 move mug 1 to desk 1 heat mug 1 with microwave 1",
    "At fridge 1: closed. Holding nothing. At fridge 1: open, egg 1, mug 2. Holding hot mug 1.",
    "Took mug 1 from desk 1. Moved mug 1 to desk 1. Nothing happens at desk 1.",
    "works, new fails, hand full want hot mug in desk: mug yes, hot no, desk yes. not done find mug",
]
VOCABULARY = CompactVocabulary.train(TEXTS, 340)
WORLD = CompactWorld(VOCABULARY)
"""The experience model's text, with reasoning and without recall."""
AGENT = CompactAgent(VOCABULARY)


def make_task(number: int = 0, **changes) -> Task:
    return replace(
        Task(f"t{number}", "alfworld", "train", "put a mug in desk", ROOM, "pick_and_place_simple"), **changes
    )


def make_transition(step: int = 0, episode: str = "e0", task: str = "t0", **changes) -> Transition:
    plain = Transition(
        task,
        episode,
        step,
        f"At shelf {step}: nothing. Holding nothing.",
        f"go to shelf {step + 1}",
        f"At shelf {step + 1}: nothing. Holding nothing.",
        0.0,
        False,
        "works, new",
    )
    return replace(plain, **changes)


def make_episode(task: Task, *steps: tuple[str, str], won: bool = False, episode: str = "e0") -> Trajectory:
    """An episode of (action, next state); with `won` its last step is rewarded."""
    transitions: list[Transition] = []
    state = task.initial_state
    for number, (action, following) in enumerate(steps):
        last = won and number == len(steps) - 1
        transitions.append(
            Transition(task.id, episode, number, state, action, following, float(last), last, "works")
        )
        state = following
    return Trajectory(task, tuple(transitions))


def with_unknown_outcome(episode: Trajectory) -> Trajectory:
    """The episode as the import of a log without an outcome marks it."""
    return replace(episode, steps=tuple(replace(step, outcome_known=False) for step in episode.steps))


def with_thoughts(episode: Trajectory, *thoughts: str) -> Trajectory:
    """The episode with one thought per step."""
    pairs = zip(episode.steps, thoughts, strict=True)
    return replace(episode, steps=tuple(replace(step, thought=thought) for step, thought in pairs))


def make_model(
    *,
    seed: int = 1,
    scale: float = 1.0,
    vocabulary: CompactVocabulary = VOCABULARY,
    hidden: int = 16,
    max_positions: int = 4096,
    family: str = "llama",
):
    """An untrained model; `scale` above 1 separates its probabilities, so that rounding changes no choice."""
    config = BackboneConfig(
        vocabulary=340, hidden=hidden, layers=2, heads=2, max_positions=max_positions, family=family
    )
    model = build_backbone(config, len(vocabulary), seed).eval()
    for weight in model.parameters():
        if weight.dim() > 1:
            weight.data.mul_(scale)
    return model


def shipped(part: str, name: str) -> Path:
    """Return the file in seed/ for a file of a part of data/."""
    root = Path(__file__).parents[1]
    objects = root / "seed" / "files" / "md5"
    outs = yaml.safe_load((root / "data.dvc").read_text())["outs"]
    listing = next(out["md5"] for out in outs if out["path"] == part)
    entries = json.loads((objects / listing[:2] / listing[2:]).read_text())
    digest = next(entry["md5"] for entry in entries if entry["relpath"] == name)
    return objects / digest[:2] / digest[2:]
