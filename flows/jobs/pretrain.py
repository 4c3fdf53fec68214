"""Make the backbone: a small transformer pretrained on trajectories of training tasks alone.

It takes the place of the pretrained language model that the experience model and the policy start from. It
is trained on the two forms of text that they read: every behaviour's episodes as the experience model reads
them, and the noisy ones as the agent reads them. No expert episode has the agent's form. The games are drawn
with a seed of their own. Those that `data/` holds out (the fidelity set and the test split) are left out.

With `pretrain.corpus=logs` no game is played: it reads the recorded training episodes in both forms.

    dreamgym pretrain --config configs/quick.yaml

With several entries in `pretrain.phases` it is trained several times on the same episodes. Each phase starts
from the weights of the one before. A finished phase is kept under `.dreamgym/pretrain/phase-N`, so an
interrupted command, typed again, continues in the phase that was under way.

With `--to DIRECTORY` the backbone is written there, and `data/` is unchanged. With a phase of `tokens: 0` it
reads no trajectory and knows the exercises alone. Ablations use such a backbone: their variants then learn
everything else from the offline data.

With `backbone.path` the training continues from that model, with its vocabulary. Another `pretrain.seed`
gives further games:

    dreamgym pretrain backbone.path=data/alfworld/backbone pretrain.seed=1 "pretrain.phases=[{tokens: 50000}]"
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, TypeVar

from prefect import flow, get_run_logger
from prefect.utilities.annotations import quote

from components.config import Config, PretrainConfig
from components.records import Trajectory
from components.trajectories.store import DataLayout, held_out
from flows.jobs.pretrain_run import LogCurves, pretraining_run
from flows.jobs.pretraining.corpus import play_corpus, require_held_out_types
from flows.jobs.pretraining.logged_corpus import read_logged_corpus
from flows.jobs.pretraining.phase_training import train_phase
from flows.jobs.pretraining.phases import corpus_key, is_finished, phase_key, recipe_entries
from flows.jobs.pretraining.text_examples import learn_vocabulary, render_examples

T = TypeVar("T")

WORK = Path(".dreamgym", "pretrain")
"""Directory of the corpus, the finished phases and the checkpoints, below the repository."""
PHASE_MODEL = "model"
"""Directory of a finished phase's model, below the directory of the phase."""


@flow(name="pretrain", validate_parameters=False)
def pretrain(config: Config, root: Path = Path(), to: Path | None = None) -> Path:
    """Make the backbone and return its directory.

    The steps are: corpus, then for each phase vocabulary, examples, training and card.

    Args:
        root: of the repository.
        to: directory of the backbone; None: that of the data.

    Raises:
        ConfigError: `pretrain.types` names a task type of the test split.
        TrackingError: MLflow cannot be reached.
    """
    require_held_out_types(config)
    with pretraining_run(config, root, root / WORK) as log_curves:
        return _train_phases(config, root, to, log_curves)


def _train_phases(config: Config, root: Path, to: Path | None, log_curves: LogCurves) -> Path:
    """Train the phases that are not finished; return the directory of the last one's model."""
    layout = DataLayout.of(root, config.environment.name)
    work = root / WORK
    target = to or layout.backbone
    if config.pretrain.corpus == "logs":
        episodes = read_logged_corpus(layout, work, config.experience_model.behaviours)
    else:
        held_out_ids = held_out(layout) if layout.tasks("test").is_file() else set()
        episodes = play_corpus(config, work, held_out_ids)
    trainings = config.pretrain.trainings()
    count = len(trainings)
    start_model = config.backbone.path
    key = corpus_key(config, work)
    for number, settings in enumerate(trainings, start=1):
        is_last = number == count
        phase_work = work if count == 1 else work / f"phase-{number}"
        model = target if is_last else phase_work / PHASE_MODEL
        phase = _phase_config(config, settings, start_model)
        key = phase_key(phase, key)
        if is_last or not is_finished(model, key):
            get_run_logger().info("phase %d of %d", number, count)
            read = sum(len(episode.steps) for episode in episodes) if settings.phases[0].tokens else 0
            recipe = {"real_transitions": read} | recipe_entries(config, number, key)
            _train_one_phase(phase, root, episodes, phase_work, model, recipe, log_curves)
        else:
            get_run_logger().info("phase %d of %d was finished before: %s", number, count, model)
        start_model = str(model)
    for phase_work in work.glob("phase-*"):
        shutil.rmtree(phase_work, ignore_errors=True)
    return target


def _phase_config(config: Config, settings: PretrainConfig, start_model: str) -> Config:
    """Return the config of one phase. Args: start_model: directory that it continues from; empty: none."""
    backbone = config.backbone.model_copy(update={"path": start_model})
    return config.model_copy(update={"pretrain": settings, "backbone": backbone})


def _train_one_phase(
    phase: Config,
    root: Path,
    episodes: list[Trajectory],
    work: Path,
    target: Path,
    recipe: dict[str, Any],
    log_curves: LogCurves,
) -> None:
    """Train one phase as Prefect tasks: vocabulary, examples (none if the phase has no text), training."""
    vocabulary = learn_vocabulary(phase, _unsearched(episodes))
    has_text = phase.pretrain.phases[0].tokens > 0
    examples = render_examples(phase, vocabulary, _unsearched(episodes), root) if has_text else []
    train_phase(phase, vocabulary, _unsearched(examples), work, target, recipe, _unsearched(log_curves))


def _unsearched(value: T) -> T:
    """Return `value` as an argument of a task that Prefect does not search for futures.

    In millions of tokens the search would take minutes.
    """
    quoted: Any = quote(value)
    return quoted
