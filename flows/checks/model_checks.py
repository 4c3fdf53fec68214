"""What would stop a run's models later, asked before its first stage: by `dreamgym retrain` and by `dreamgym
doctor` alike.

Each model is inspected (`components/language/checkpoint_files/inspection.py`), and the longest episodes of
the data are held against the longest sequence that it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from components.config import Config, ExperienceModelConfig
from components.errors import ConfigError, DreamGymError
from components.language.markers import ACTION, DEMO, STATE
from components.records import TEST, TRAIN, Trajectory
from components.trajectories.store import DataLayout, held_out, read_tasks, read_transitions, trajectories

if TYPE_CHECKING:
    from components.experience.retrieval.replay_buffer import ReplayBuffer
    from components.language.checkpoint_files.inspection import Inspection

LONGEST_EPISODES = 8
"""Episodes, those with the most characters, whose tokens are counted."""


@dataclass(frozen=True)
class ModelCheck:
    """The models of a run, the same one twice where both sides start from it, and what may be too long for
    them later.
    """

    policy: Inspection
    experience: Inspection
    doubts: tuple[str, ...] = ()


def check_models(root: Path, config: Config) -> ModelCheck | None:
    """Inspect the models that both sides start from; None where the backbone of the data is not there yet.

    Raises:
        DataError: files that are missing, damaged or of two models, or too little memory.
        ConfigError: an architecture that a stage cannot use, or episodes that are too long for the model.
    """
    from components.language.checkpoint_files.inspection import inspect_model

    layout = DataLayout.of(root, config.environment.name)
    policy_path = Path(config.backbone.path) if config.backbone.path else layout.backbone
    if not policy_path.is_dir():
        return None
    policy = inspect_model(policy_path, config.backbone.chat_template)
    own = config.experience_model.path
    experience = inspect_model(Path(own), config.backbone.chat_template) if own else policy
    doubts = _check_lengths(layout, config, policy, experience)
    return ModelCheck(policy, experience, tuple(doubts))


def _check_lengths(
    layout: DataLayout, config: Config, policy: Inspection, experience: Inspection
) -> list[str]:
    """Refuse models too short for the recorded episodes; what an episode of `environment.max_steps` would
    need is a doubt.
    """
    episodes = _episodes(layout, config)
    if not episodes["train"]:
        return []
    shown = _longest(_demonstrations(episodes["train"], config))
    lessons = _longest(_lessons(episodes["train"], config)) + _longest(
        _measured(episodes["fidelity"], config)
    )
    counter = _Counter(layout, config, episodes["train"], lessons)
    read, steps = counter.tokens(experience, config.experience_model)
    written = _policy_tokens(shown, policy)
    for model in (policy, experience):
        as_policy, as_experience = written * (model is policy), read * (model is experience)
        if (tokens := max(as_policy, as_experience)) > model.longest:
            raise _too_short(model, tokens, _what_would_do(model, as_policy, counter, config))
    dreamed = round(read * max(1.0, config.environment.max_steps / steps))
    if dreamed > experience.longest:
        return [
            f"a dream of environment.max_steps={config.environment.max_steps} steps may take {dreamed:,} "
            "tokens, and the"
            f" experience model reads {experience.longest:,}"
        ]
    return []


def _episodes(layout: DataLayout, config: Config) -> dict[str, list[Trajectory]]:
    """The recorded episodes of `train` and `fidelity`; none where the data is missing or damaged, which other
    checks judge.
    """
    found: dict[str, list[Trajectory]] = {}
    for name in ("train", "fidelity"):
        try:
            found[name] = trajectories(
                read_tasks(layout.tasks(name)), read_transitions(layout.trajectories(name))
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, DreamGymError):
            found[name] = []
    families = config.data.families
    found["train"] = [
        episode for episode in found["train"] if not families or episode.task.family in families
    ]
    return {
        name: [episode for episode in episodes if _usable(episode, config)]
        for name, episodes in found.items()
    }


def _usable(episode: Trajectory, config: Config) -> bool:
    """True unless validation sets it aside for its length."""
    most = config.data.max_text_chars
    texts = (text for step in episode.steps for text in (step.state, step.action, step.next_state))
    return len(episode.steps) > 0 and all(len(text) <= most for text in (episode.task.initial_state, *texts))


def _lessons(episodes: Sequence[Trajectory], config: Config) -> list[Trajectory]:
    """What the experience model learns from."""
    from components.experience.dataset import chosen

    try:
        return chosen(episodes, config.experience_model, config.seed)
    except DreamGymError:
        return []  # the stage says what is wrong with the choice


def _demonstrations(episodes: Sequence[Trajectory], config: Config) -> list[Trajectory]:
    """What the policy is cloned from."""
    named = [e for e in episodes if e.steps[0].behaviour in config.cloning.behaviours]
    return [e for e in named if e.success or e.steps[0].behaviour != "expert"][
        : config.cloning.demonstrations
    ]


def _measured(episodes: Sequence[Trajectory], config: Config) -> list[Trajectory]:
    """The episodes whose steps the stage measures."""
    tasks = list({episode.task.id: episode.task for episode in episodes}.values())
    parts = (
        [task.id for task in tasks if task.split == split][: config.fidelity.tasks] for split in (TRAIN, TEST)
    )
    names = {name for part in parts for name in part}
    return [episode for episode in episodes if episode.task.id in names]


def _longest(episodes: Sequence[Trajectory]) -> list[Trajectory]:
    """Those with the most characters."""

    def characters(episode: Trajectory) -> int:
        return len(episode.task.initial_state) + sum(
            len(step.action) + len(step.next_state) for step in episode.steps
        )

    return sorted(episodes, key=characters, reverse=True)[:LONGEST_EPISODES]


class _Counter:
    """Counts the tokens of the longest example of the experience model among `episodes`."""

    def __init__(
        self, layout: DataLayout, config: Config, train: Sequence[Trajectory], episodes: Sequence[Trajectory]
    ) -> None:
        self._layout, self._config, self._train, self._episodes = layout, config, train, episodes
        self._buffer: ReplayBuffer | None = None

    def tokens(self, model: Inspection, settings: ExperienceModelConfig) -> tuple[int, int]:
        """Tokens of the longest example and the steps of its episode.

        Demonstrations are retrieved only where the longest ones that there are would not fit: the index takes
        seconds.
        """
        from components.experience.dataset import transition_examples
        from components.experience.prompts import render_trajectory

        bare = [
            render_trajectory(
                model.vocabulary,
                episode,
                [[] for _ in episode.steps],
                history=settings.history,
                recalled=settings.recall,
                reasoning=settings.reasoning,
            )
            for episode in self._episodes
        ]
        most = self._most_of_demonstrations(model)
        counted = [
            (example.depth + most, len(episode.steps))
            for example, episode in zip(bare, self._episodes, strict=True)
        ]
        tokens, steps = max(counted, default=(0, 1))
        if tokens * max(1.0, self._config.environment.max_steps / steps) <= model.longest:
            return tokens, steps
        exact = transition_examples(model.vocabulary, self._episodes, self._retrieval(), settings)
        return max(
            (example.depth, len(episode.steps))
            for example, episode in zip(exact, self._episodes, strict=True)
        )

    def _most_of_demonstrations(self, model: Inspection) -> int:
        """Tokens of as many demonstrations as a step is shown, all of them as long as the longest."""
        steps = [step for episode in self._train for step in episode.steps]
        longest = sorted(steps, key=lambda step: len(step.state) + len(step.action) + len(step.next_state))[
            -LONGEST_EPISODES:
        ]
        pieces = ([DEMO, step.state, ACTION, step.action, STATE, step.next_state] for step in longest)
        return self._config.retrieval.k * max(len(model.vocabulary.encode(each)) for each in pieces)

    def _retrieval(self) -> ReplayBuffer:
        """What demonstrations come from; always by the quick encoder, which finds others of the same
        length.
        """
        from components.experience.retrieval.replay_buffer import ReplayBuffer

        if self._buffer is None:
            settings = self._config.retrieval.model_copy(
                update={"encoder": "hashing", "index": "exact", "server": ""}
            )
            steps = [step for episode in self._train for step in episode.steps]
            self._buffer = ReplayBuffer(settings, steps, hidden=held_out(self._layout))
        return self._buffer


def _policy_tokens(episodes: Sequence[Trajectory], model: Inspection) -> int:
    """Tokens of the longest demonstration, its thoughts left out."""
    from components.policy.agent_prompt import render_demonstration

    counts = (
        len(render_demonstration(model.vocabulary, episode, [""] * len(episode.steps)))
        for episode in episodes
    )
    return max(counts, default=0)


def _what_would_do(model: Inspection, policy_tokens: int, counter: _Counter, config: Config) -> str:
    """What shortens the episodes, with its effect where it is enough."""
    if config.experience_model.history and policy_tokens <= model.longest:
        alone, _ = counter.tokens(model, config.experience_model.model_copy(update={"history": False}))
        if alone <= model.longest:
            return f"or set experience_model.history=false, with which {alone:,} are enough"
    return (
        "or record shorter episodes (`dreamgym collect` with a lower environment.max_steps) and lower "
        "retrieval.k"
    )


def _too_short(model: Inspection, tokens: int, or_else: str) -> ConfigError:
    return ConfigError(
        f"The model in {model.path} reads at most {model.longest:,} tokens ({model.limit}): "
        f"{model.longest:,} is too short for episodes"
        f" of {tokens:,} tokens, which this data has in its tokenizer.",
        f"Expected a model that reads {tokens:,} tokens at once.",
        "Name a model with a wider window or more positions (backbone.path, experience_model.path; "
        "`dreamgym pretrain"
        f" backbone.max_positions={1 << (tokens - 1).bit_length()}` makes one), {or_else}.",
    )
