"""Checks of a run's models before its first stage, by `dreamgym retrain` and by `dreamgym doctor`.

Each model is inspected (`components/language/checkpoint_files/inspection.py`). Then the longest episodes of
the data are compared with the longest sequence that the model reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from components.config import Config, ExperienceModelConfig
from components.errors import ConfigError, DreamGymError
from components.records import TEST, TRAIN, Trajectory
from components.trajectories.store import DataLayout, held_out, iter_episodes, read_tasks

if TYPE_CHECKING:
    from components.experience.formats.world_format import WorldFormat
    from components.experience.retrieval.replay_buffer import ReplayBuffer
    from components.language.checkpoint_files.inspection import Inspection

LONGEST_EPISODES = 8
"""Episodes, those with the most characters, whose tokens are counted."""


@dataclass(frozen=True)
class ModelCheck:
    """The models of a run, twice the same one if both sides start from it.

    Args:
        doubts: sentences about what may become too long for a model later.
    """

    policy: Inspection
    experience: Inspection
    doubts: tuple[str, ...] = ()


def check_models(root: Path, config: Config) -> ModelCheck | None:
    """Inspect the models that both sides start from; return None if the data has no backbone yet.

    Raises:
        DataError: files are missing, damaged or of two models, or there is too little memory.
        ConfigError: a stage cannot use the architecture, episodes are too long for the model, or the GPU is
            too small.
    """
    from components.language.compute import compute_of
    from components.language.gpu_memory import require_gpu_memory

    layout = DataLayout.of(root, config.environment.name)
    models = _inspect_models(layout, config)
    if models is None:
        return None
    policy, experience = models
    require_gpu_memory(config, compute_of(config), policy.weights, experience.weights)
    doubts = _check_lengths(layout, config, policy, experience)
    _check_answer_limits(layout, config, policy, experience)
    return ModelCheck(policy, experience, tuple(doubts))


def _inspect_models(layout: DataLayout, config: Config) -> tuple[Inspection, Inspection] | None:
    """Return what the policy and the experience model start from; None if the data has no backbone yet."""
    from components.language.checkpoint_files.inspection import inspect_model
    from components.language.pretrained.model_directory import find_model

    name = config.backbone.path
    policy_path = find_model(name).directory if name else layout.backbone
    if not policy_path.is_dir():
        return None
    policy = inspect_model(policy_path, config.backbone.format)
    own_path = config.experience_model.path
    if not own_path or config.experience_model.kind == "prompted":
        return policy, policy
    return policy, inspect_model(find_model(own_path).directory, config.backbone.format)


def recorded_answer_lengths(root: Path, config: Config) -> dict[str, list[int]]:
    """Return key of a token limit -> tokens of the recorded answers that it applies to.

    Empty if the data or its backbone is missing, or if there is no valid episode.
    """
    from flows.checks.answer_limits import answer_lengths

    layout = DataLayout.of(root, config.environment.name)
    models = _inspect_models(layout, config)
    episodes = _recorded_episodes(layout, config)["train"]
    if models is None or not episodes:
        return {}
    policy, experience = models
    return answer_lengths(
        config,
        experience=(experience.vocabulary, _experience_model_episodes(episodes, config)),
        policy=(policy.vocabulary, _episodes_to_clone(episodes, config)),
    )


def _check_lengths(
    layout: DataLayout, config: Config, policy: Inspection, experience: Inspection
) -> list[str]:
    """Raise ConfigError if a model is too short for the recorded episodes.

    Returns a doubt if an episode of `environment.max_steps` steps could become too long.
    """
    episodes = _recorded_episodes(layout, config)
    if not episodes["train"]:
        return []
    demonstrations = _longest_episodes(_episodes_to_clone(episodes["train"], config))
    model_episodes = _longest_episodes(_experience_model_episodes(episodes["train"], config))
    if config.experience_model.kind == "trained":
        model_episodes += _longest_episodes(_measured_episodes(episodes["fidelity"], config))
    counter = _TokenCounter(layout, config, episodes["train"], model_episodes)
    experience_tokens, steps = counter.longest_example(experience, config.experience_model)
    policy_tokens = _policy_tokens(demonstrations, policy)
    for model in (policy, experience):
        needed_as_policy = policy_tokens if model is policy else 0
        needed_as_experience_model = experience_tokens if model is experience else 0
        tokens = max(needed_as_policy, needed_as_experience_model)
        if tokens > model.longest:
            raise _too_short(model, tokens, _advice(model, needed_as_policy, counter, config))
    max_steps = config.environment.max_steps
    dream_tokens = round(experience_tokens * max(1.0, max_steps / steps))
    if dream_tokens > experience.longest:
        return [
            f"a dream of environment.max_steps={max_steps} steps may take {dream_tokens:,} tokens, and the"
            f" experience model reads {experience.longest:,}"
        ]
    return []


def _check_answer_limits(
    layout: DataLayout, config: Config, policy: Inspection, experience: Inspection
) -> None:
    """Raise ConfigError if a limit of new tokens cuts recorded answers."""
    from flows.checks.answer_limits import require_answer_limits

    episodes = _recorded_episodes(layout, config)["train"]
    if episodes:
        require_answer_limits(
            config,
            experience=(experience.vocabulary, _experience_model_episodes(episodes, config)),
            policy=(policy.vocabulary, _episodes_to_clone(episodes, config)),
        )


def _recorded_episodes(layout: DataLayout, config: Config) -> dict[str, list[Trajectory]]:
    """Return the recorded episodes of `train` and `fidelity` that validation would keep.

    There are none if the data is missing or damaged, which other checks report.
    """
    from components.experience.dataset import episodes_of_families

    episodes: dict[str, list[Trajectory]] = {}
    for name, families in (("train", config.data.families), ("fidelity", [])):
        try:
            recorded = iter_episodes(read_tasks(layout.tasks(name)), layout.trajectories(name))
            episodes[name] = [
                episode
                for episode in episodes_of_families(recorded, families)
                if _has_valid_length(episode, config)
            ]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, DreamGymError):
            episodes[name] = []
    return episodes


def _has_valid_length(episode: Trajectory, config: Config) -> bool:
    """Return True unless validation sets the episode aside for the length of its texts."""
    limit = config.data.max_text_chars
    texts = (text for step in episode.steps for text in (step.state, step.action, step.next_state))
    return len(episode.steps) > 0 and all(len(text) <= limit for text in (episode.task.initial_state, *texts))


def _experience_model_episodes(episodes: Sequence[Trajectory], config: Config) -> list[Trajectory]:
    """Return the episodes that the experience model is trained on; none for a prompted one."""
    from components.experience.dataset import select_episodes

    if config.experience_model.kind == "prompted":
        return []
    try:
        return select_episodes(episodes, config.experience_model, config.seed)
    except DreamGymError:
        return []  # the stage reports what is wrong with the choice


def _episodes_to_clone(episodes: Sequence[Trajectory], config: Config) -> list[Trajectory]:
    """Return the episodes that the policy is cloned from."""
    usable = [
        episode
        for episode in episodes
        if episode.steps[0].behaviour in config.cloning.behaviours
        and (episode.success or not config.cloning.needs_success(episode.steps[0].behaviour))
    ]
    return usable[: config.cloning.demonstrations]


def _measured_episodes(episodes: Sequence[Trajectory], config: Config) -> list[Trajectory]:
    """Return the episodes on whose steps fidelity is measured."""
    tasks = list({episode.task.id: episode.task for episode in episodes}.values())
    names: set[str] = set()
    for split in (TRAIN, TEST):
        names |= set([task.id for task in tasks if task.split == split][: config.fidelity.tasks])
    return [episode for episode in episodes if episode.task.id in names]


def _longest_episodes(episodes: Sequence[Trajectory]) -> list[Trajectory]:
    """Return the LONGEST_EPISODES episodes with the most characters."""

    def characters(episode: Trajectory) -> int:
        step_lengths = (len(step.action) + len(step.next_state) for step in episode.steps)
        return len(episode.task.initial_state) + sum(step_lengths)

    return sorted(episodes, key=characters, reverse=True)[:LONGEST_EPISODES]


class _TokenCounter:
    """Counts the tokens of the experience model's longest training example among `episodes`.

    Args:
        train: training episodes, from which demonstrations are retrieved.
    """

    def __init__(
        self, layout: DataLayout, config: Config, train: Sequence[Trajectory], episodes: Sequence[Trajectory]
    ) -> None:
        self._layout = layout
        self._config = config
        self._train = train
        self._episodes = episodes
        self._buffer: ReplayBuffer | None = None

    def longest_example(self, model: Inspection, settings: ExperienceModelConfig) -> tuple[int, int]:
        """Return the tokens of the longest example, and the number of steps of its episode.

        At first every step is assumed to have the longest possible demonstrations. They are retrieved only if
        that does not fit, because building the index takes seconds.
        """
        from components.experience.dataset import transition_examples
        from components.experience.formats.choose import world_format
        from components.experience.formats.training_examples import render_trajectory

        text = world_format(model.vocabulary, settings)
        without_demonstrations = [
            render_trajectory(text, episode, [[] for _ in episode.steps], history=settings.history)
            for episode in self._episodes
        ]
        limit = self._max_demonstration_tokens(text)
        upper_bounds = [
            (example.depth + limit, len(episode.steps))
            for example, episode in zip(without_demonstrations, self._episodes, strict=True)
        ]
        tokens, steps = max(upper_bounds, default=(0, 1))
        if tokens * max(1.0, self._config.environment.max_steps / steps) <= model.longest:
            return tokens, steps
        exact = transition_examples(text, self._episodes, self._demonstration_buffer(), settings)
        return max(
            (example.depth, len(episode.steps))
            for example, episode in zip(exact, self._episodes, strict=True)
        )

    def _max_demonstration_tokens(self, text: WorldFormat) -> int:
        """Return the tokens of `retrieval.k` demonstrations that are all as long as the longest one."""
        steps = [step for episode in self._train for step in episode.steps]
        by_length = sorted(steps, key=lambda step: len(step.state) + len(step.action) + len(step.next_state))
        longest = by_length[-LONGEST_EPISODES:]
        task = self._train[0].task
        without = len(text.question(task, [""], ""))
        lengths = [len(text.question(task, [""], "", [step])) - without for step in longest]
        return self._config.retrieval.k * max(lengths)

    def _demonstration_buffer(self) -> ReplayBuffer:
        """Return the buffer that demonstrations are retrieved from.

        It always uses the quick encoder: the demonstrations differ, but their lengths hardly do.
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
    """Return the tokens of the longest demonstration."""
    from components.policy.formats.choose import agent_format
    from components.policy.formats.demonstrations import render_demonstration

    agent = agent_format(model.vocabulary)
    return max((len(render_demonstration(agent, episode)) for episode in episodes), default=0)


def _advice(model: Inspection, policy_tokens: int, counter: _TokenCounter, config: Config) -> str:
    """Return what else the user can do: leave the history out if that is enough, or shorten the episodes."""
    if config.experience_model.history and policy_tokens <= model.longest:
        settings = config.experience_model.model_copy(update={"history": False})
        tokens, _ = counter.longest_example(model, settings)
        if tokens <= model.longest:
            return f"or set experience_model.history=false, with which {tokens:,} are enough"
    return (
        "or record shorter episodes (`dreamgym collect` with a lower environment.max_steps) and lower "
        "retrieval.k"
    )


def _too_short(model: Inspection, tokens: int, alternative: str) -> ConfigError:
    return ConfigError(
        f"The model in {model.path} reads at most {model.longest:,} tokens ({model.limit}): "
        f"{model.longest:,} is too short for episodes"
        f" of {tokens:,} tokens, which this data has in its tokenizer.",
        f"Expected a model that reads {tokens:,} tokens at once.",
        "Name a model with a wider window or more positions (backbone.path, experience_model.path; "
        "`dreamgym pretrain"
        f" backbone.max_positions={1 << (tokens - 1).bit_length()}` makes one), {alternative}.",
    )
