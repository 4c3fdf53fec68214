"""Make the backbone: a small transformer pretrained on trajectories of training tasks alone.

It plays the part of the pretrained language model that both the experience model and the policy start from.
It reads the same two texts that they will read: every behaviour's episodes as the experience model sees them,
and the noisy ones as the agent sees them; no expert episode is ever shown in the agent's form. Its games are
drawn with a seed of their own; those that `data/` holds out (the fidelity set and the test split) are left
out.

    dreamgym pretrain --config configs/quick.yaml

With `pretrain.phases` it is trained several times on the same episodes, each phase from the weights of the
one before. A phase that has ended is kept under `.dreamgym/pretrain/phase-N`, so an interrupted command,
typed again, goes on in the phase that was under way.

With `--to DIRECTORY` it is written there and data/ stays as it is; `pretrain.tokens=0` makes one that has
seen no trajectory at all and knows the exercises alone, for ablations whose variants shall learn everything
else from the offline data.

With `backbone.path` it goes on from that model with its vocabulary, on further games if `pretrain.seed` is
another one:

    dreamgym pretrain backbone.path=data/alfworld/backbone pretrain.seed=1 pretrain.copy_tokens=0
    pretrain.tokens=5000000
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, TypeVar

import torch
from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.utilities.annotations import quote

from components.config import Config
from components.config.worlds.browser_config import BrowserConfig
from components.config.worlds.environment_config import EnvironmentConfig
from components.environments import adapter_modules, make_adapter
from components.environments.browser.task_lists import is_unseen_type
from components.environments.capabilities import Adapter
from components.environments.text_world.import_path import look_here
from components.errors import ConfigError
from components.experience.dataset import (
    assume_premises,
    premise_examples,
    transition_examples,
    variation_examples,
)
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.files import write_text
from components.language.backbone import build_backbone, load_backbone, save_model
from components.language.compute import compute_of
from components.language.evaluation_mode import evaluating
from components.language.exercises.comparing import compare_examples
from components.language.exercises.copying import copy_examples
from components.language.exercises.editing import edit_examples
from components.language.exercises.magnitudes import magnitude_examples
from components.language.exercises.recalling import recall_examples
from components.language.exercises.rehearsal import LONGEST_LIST, rehearsal_examples
from components.language.threads import training
from components.language.tokenizer import Vocabulary
from components.language.training.examples import Example, batches, collate
from components.language.training.fine_tuning import supervised_finetune
from components.language.training.token_scores import token_logprobs
from components.language.training.training_run import TrainingRecord
from components.policy.agent_prompt import render_demonstration
from components.records import TRAIN, Task, Trajectory
from components.tracking.stage_store.hashes import file_hash, module_hash, text_hash, with_imports
from components.trajectories.augmentation.hindsight import hindsight, is_hindsight_copy
from components.trajectories.augmentation.renaming import original_task_id, rename_episodes
from components.trajectories.recording import collect, plan
from components.trajectories.store import (
    DataLayout,
    held_out,
    read_tasks,
    read_transitions,
    trajectories,
    write_tasks,
    write_transitions,
)
from flows.jobs.pretrain_run import LogCurves, pretraining_run
from flows.run.run_data import index_directories
from flows.training_log import curve_logger

T = TypeVar("T")

SEED_OFFSET = 1000
"""Added to the seed of the pretraining games, so that they are other games than the offline data's."""
BEHAVIOURS = {"expert": 1, "noisy": 2, "near_miss": 3, "random": 1}
AGENT_BEHAVIOURS = ("noisy",)
"""Whose episodes are shown in the agent's form too: never an expert's, and those of a random or near-miss
policy teach to err.
"""
AGENT_TIMES = 2
"""How often each of these is among the examples: its thoughts are long, and it is a seventh of all tokens
otherwise.
"""
SINGLE_WORDS, LONGEST_COMPARED = 0.25, 10
"""Share of the comparing exercise with single words, and the longest list of the rest."""
ASKED_TOKENS, ASKED_SEED = 20_000, 777
"""Tokens of each of the exercises that tell what a model is able to do, and a seed that no training has."""
EARLIER_SEED = 100
"""Added to the seed of the earlier exercises that come again in a later one."""
NOTE, MODEL = "settings.json", "model"
"""The file that says what the corpus was played with, and the directory of a finished phase's model."""
POOL_EPISODES = 500
"""Episodes, of all sizes, whose transitions serve as demonstrations in pretraining."""


@flow(name="pretrain", validate_parameters=False)
def pretrain(config: Config, root: Path = Path(), to: Path | None = None) -> Path:
    """Corpus, vocabulary, examples, training, card; returns where the backbone is: `to`, or the backbone of
    the data.
    """
    require_held_out_types(config)
    with pretraining_run(config, root, root / ".dreamgym" / "pretrain") as log_curves:
        return _make_backbone(config, root, to, log_curves)


def _make_backbone(config: Config, root: Path, to: Path | None, log_curves: LogCurves) -> Path:
    layout = DataLayout.of(root, config.environment.name)
    work, target = root / ".dreamgym" / "pretrain", to or layout.backbone
    episodes = corpus(config, work, held_out(layout) if layout.tasks("test").is_file() else set())
    phases, before, key = config.pretrain.trainings(), config.backbone.path, corpus_key(config, work)
    for number, settings in enumerate(phases, start=1):
        last = number == len(phases)
        place = work if len(phases) == 1 else work / f"phase-{number}"
        phase = config.model_copy(
            update={"pretrain": settings, "backbone": config.backbone.model_copy(update={"path": before})}
        )
        key = phase_key(phase, key)
        made = target if last else place / MODEL
        if last or not is_finished(made, key):
            get_run_logger().info("phase %d of %d", number, len(phases))
            vocabulary = learn_vocabulary(phase, _whole(episodes))
            has_text = settings.phases[0].tokens > 0
            examples = render(phase, vocabulary, _whole(episodes), root) if has_text else []
            train(
                phase,
                vocabulary,
                _whole(examples),
                place,
                made,
                of_recipe(config, number, key),
                _whole(log_curves),
            )
        else:
            get_run_logger().info("phase %d of %d was finished before: %s", number, len(phases), made)
        before = str(made)
    for place in work.glob("phase-*"):
        shutil.rmtree(place, ignore_errors=True)
    return target


def require_held_out_types(config: Config) -> None:
    """Raise ConfigError where pretraining would play a task type that `environment.browser.types` keeps for
    the test split.
    """
    if not config.pretrain.types:
        return
    played, kept = config.environment.browser, pretraining_environment(config).browser
    wrong = [name for name in kept.types if not is_unseen_type(kept, name) and is_unseen_type(played, name)]
    if wrong:
        raise ConfigError(
            f"pretrain.types would train on {', '.join(wrong)}, which environment.browser.types keeps for "
            "the test split.",
            "Expected every fourth name of pretrain.types to be left out, those of the test split among "
            "them.",
            "Move it to a fourth place of pretrain.types (the 4th, 8th, 12th ...), or take it out.",
        )


def pretraining_environment(config: Config) -> EnvironmentConfig:
    """The environment that the corpus is played in: the run's, with `pretrain.types` in place of its own task
    types.
    """
    if not config.pretrain.types:
        return config.environment
    browser = BrowserConfig.model_validate(
        config.environment.browser.model_dump() | {"types": config.pretrain.types}
    )
    return config.environment.model_copy(update={"browser": browser})


def corpus_key(config: Config, work: Path) -> str:
    """Names what the first phase begins with: the episodes, and the model that `backbone.path` names, if
    any.
    """
    begun = Path(config.backbone.path)
    files = (
        sorted(file for file in begun.iterdir() if file.is_file())
        if config.backbone.path and begun.is_dir()
        else []
    )
    return text_hash(
        "\n".join([(work / NOTE).read_text(), *(f"{file.name} {file_hash(file)}" for file in files)])
    )


def phase_key(phase: Config, before: str) -> str:
    """Names a phase by its settings and by the key of what came before it."""
    parts: list[Any] = [
        phase.pretrain.model_dump(),
        phase.backbone.model_dump(exclude={"path"}),
        phase.device,
        phase.precision,
    ]
    parts += [phase.experience_model.model_dump(), phase.retrieval.model_dump(), before]
    return text_hash(json.dumps(parts, sort_keys=True))


def is_finished(model: Path, key: str) -> bool:
    """True if the phase of this key has left its model: the card is written last."""
    card = model / "card.json"
    return card.is_file() and bool(json.loads(card.read_text()).get("phase", {}).get("key") == key)


def of_recipe(config: Config, number: int, key: str) -> dict[str, Any]:
    """What a card says of the recipe that its phase belongs to; nothing where there is one phase alone."""
    count = len(config.pretrain.phases)
    recipe = config.pretrain.model_dump(mode="json")
    return {"phase": {"number": number, "of": count, "key": key}, "recipe": recipe} if count > 1 else {}


def _whole(value: T) -> T:
    """`value` as a task's argument that Prefect does not search for futures: in millions of tokens that would
    take minutes.
    """
    quoted: Any = quote(value)
    return quoted


@task(cache_policy=NO_CACHE)
def corpus(config: Config, work: Path, hidden: set[str]) -> list[Trajectory]:
    """Play the pretraining games, or read them back if they have been played before with the same
    settings.
    """
    settings = _worlds(config) | {"games_seed": config.environment.seed}
    settings |= config.pretrain.model_dump(include={"tasks", "sizes", "max_steps", "seed"})
    settings |= {"behaviours": BEHAVIOURS, "held_out": text_hash(" ".join(sorted(hidden)))}
    settings |= _own_world(config.environment)
    note = work / NOTE
    if note.is_file() and json.loads(note.read_text()) == settings:
        return trajectories(
            read_tasks(work / "tasks.parquet"), read_transitions(work / "transitions.parquet")
        )
    adapter = make_adapter(pretraining_environment(config))
    tasks = [task for task in choose_tasks(config) if task.id not in hidden]
    episodes = collect(
        adapter,
        plan(tasks, BEHAVIOURS, config.pretrain.seed),
        config.pretrain.max_steps,
        rows=64,
        on_batch=_say,
    )
    work.mkdir(parents=True, exist_ok=True)
    write_tasks(work / "tasks.parquet", tasks)
    write_transitions(work / "transitions.parquet", [step for episode in episodes for step in episode.steps])
    note.write_text(json.dumps(settings))
    return episodes


def _worlds(config: Config) -> dict[str, Any]:
    """What of the environment decides which tasks there are, but for its seed and the sizes, which
    pretraining chooses itself.
    """
    own = ("seed", "max_steps", "receptacles", "objects")
    return {
        name: value for name, value in pretraining_environment(config).decisive().items() if name not in own
    }


def _own_world(environment: EnvironmentConfig) -> dict[str, Any]:
    """The code that plays, the user's own included, and what the user's files and server add to it."""
    look_here()
    solutions = {
        "gymnasium": environment.gymnasium.demonstrations,
        "openenv": environment.openenv.demonstrations,
    }.get(environment.name, "")
    modules = ["components.trajectories.recording", *adapter_modules(environment)]
    return {
        "code": {name: module_hash(name) for name in with_imports(modules)},
        "demonstrations": file_hash(Path(solutions)) if solutions and Path(solutions).is_file() else "",
        "server": environment.openenv.url if environment.name == "openenv" else "",
    }


def choose_tasks(config: Config) -> list[Task]:
    """The pretraining games, an equal part of each size."""
    settings, environment, chosen = config.pretrain, pretraining_environment(config), []
    for number, size in enumerate(settings.sizes):
        sized = environment.model_dump().get("games") == "generated"
        sizes = {"receptacles": size, "objects": size} if sized else {}
        adapter = make_adapter(environment.model_copy(update=sizes))
        part = len(range(number, settings.tasks, len(settings.sizes)))
        chosen += adapter.tasks(TRAIN, part, settings.seed + SEED_OFFSET + number) if part else []
    return list({task.id: task for task in chosen}.values())


@task(cache_policy=NO_CACHE)
def learn_vocabulary(config: Config, episodes: list[Trajectory]) -> Vocabulary:
    """Byte-level BPE over every text that a model will read or write; that of `backbone.path` if there is
    one.
    """
    if config.backbone.path:
        return load_backbone(Path(config.backbone.path), chat_template=config.backbone.chat_template)[1]
    texts: list[str] = []
    for episode in episodes:
        texts += [episode.task.instruction, episode.task.initial_state]
        texts += [text for step in episode.steps for text in (step.action, step.reasoning, step.next_state)]
    return Vocabulary.train(texts, config.backbone.vocabulary)


@task(cache_policy=NO_CACHE)
def render(config: Config, vocabulary: Vocabulary, episodes: list[Trajectory], root: Path) -> list[Example]:
    """The examples of both roles, the episodes told again in other names among them, if any are."""
    adapter = make_adapter(config.environment)
    pool = [step for episode in episodes[:: max(1, len(episodes) // POOL_EPISODES)] for step in episode.steps]
    buffer = ReplayBuffer(config.retrieval, pool, embeddings=index_directories(root)["embeddings"])
    episodes = episodes + hindsight(
        episodes, adapter, config.pretrain.phases[0].hindsight, config.pretrain.seed
    )
    episodes += rename_episodes(episodes, adapter, config.pretrain.phases[0].renamed, config.pretrain.seed)
    tasks: list[Task] = list({episode.task.id: episode.task for episode in episodes}.values())
    told = assume_premises(episodes, adapter, config.pretrain.seed)
    examples = transition_examples(vocabulary, told, buffer, config.experience_model, own=original_task_id)
    examples += premise_examples(vocabulary, episodes, adapter)
    examples += variation_examples(vocabulary, tasks, adapter.feasible, config.pretrain.seed)
    acted = [
        e for e in episodes if e.steps[0].behaviour in AGENT_BEHAVIOURS and not is_hindsight_copy(e.task.id)
    ]
    examples += AGENT_TIMES * [agent_example(adapter, vocabulary, episode) for episode in acted]
    buffer.close()
    return examples


def agent_example(adapter: Adapter, vocabulary: Vocabulary, episode: Trajectory) -> Example:
    """An episode in the agent's form, with the thoughts that its adapter gives; steps that changed nothing
    are read, not imitated.
    """
    thoughts = [adapter.think(episode.up_to(step.step), step.action) for step in episode.steps]
    facts = [adapter.facts(episode.up_to(place)) for place in range(len(episode.steps) + 1)]
    changed = [any(fact[0] != "event" for fact in after - before) for before, after in pairwise(facts)]
    return render_demonstration(vocabulary, episode, thoughts, changed)


@task(cache_policy=NO_CACHE)
def train(
    config: Config,
    vocabulary: Vocabulary,
    examples: list[Example],
    work: Path,
    target: Path,
    recipe: dict[str, Any] | None = None,
    log_curves: LogCurves = lambda step, values: None,
) -> Path:
    """Train from random weights, on the exercises first, or go on from `backbone.path`; write the backbone
    with its card.
    """
    curve = "pretrain" if not work.name.startswith("phase-") else f"pretrain/{work.name}"
    begun = config.backbone.path
    compute = compute_of(config)
    model = (
        load_backbone(Path(begun))[0]
        if begun
        else build_backbone(config.backbone, len(vocabulary), config.pretrain.seed)
    )
    model.to(compute.device)  # type: ignore[arg-type]
    history, skills = (
        _history(Path(begun)) if begun else [],
        {"before": able(model, vocabulary)} if begun else {},
    )
    settings = config.pretrain.phases[0]
    common: dict[str, Any] = {
        "learning_rate": settings.learning_rate,
        "batch_tokens": config.pretrain.batch_tokens,
        "seed": config.pretrain.seed,
    }
    common |= {
        "optimizer": "muon",
        "epochs": 1.0,
        "checkpoint_every": 500,
        "on_step": _report,
        "compute": compute,
    }
    with training(config):
        for name, exercise in exercises(config, vocabulary).items():
            figures = curve_logger(f"{curve}/{name}", log_curves)
            supervised_finetune(model, exercise, checkpoint=work / f"{name}.pt", on_figures=figures, **common)
        skills["exercises"] = able(model, vocabulary)
        mixed = examples + rehearsal(config, vocabulary, sum(map(len, examples)))
        beside = settings.rehearsal + settings.copy_rehearsal + settings.recall_rehearsal
        text: dict[str, Any] = {
            "total_tokens": round(settings.tokens * (1 + beside)),
            "checkpoint": work / "checkpoint.pt",
        }
        text |= {
            "learning_rate": settings.text_rate * settings.learning_rate,
            "on_figures": curve_logger(curve, log_curves),
        }
        record = supervised_finetune(model, mixed, **common | text) if examples else TrainingRecord()
        skills["text"] = able(model, vocabulary)
    save_model(model, vocabulary, target, dtype=torch.float16)
    card = {
        **_card(config, model, examples, record),
        **(recipe or {}),
        "able_after": skills,
        "went_on_from": history,
    }
    write_text(target / "card.json", json.dumps(card, indent=2) + "\n")
    for checkpoint in work.glob("*.pt"):
        checkpoint.unlink()
    return target


def exercises(config: Config, vocabulary: Vocabulary) -> dict[str, list[Example]]:
    """What is trained on before any text, in this order: copying, comparing single words, then lists of them,
    editing lists, numbers.

    With `exercise_rehearsal` each has some of all the earlier ones in it: trained in a row, the later wear
    down the earlier.
    """
    settings, base_seed = config.pretrain.phases[0], config.pretrain.seed
    single = int(SINGLE_WORDS * settings.compare_tokens)
    makers: dict[str, tuple[int, Callable[[int, int], list[Example]]]] = {
        "copying": (
            settings.copy_tokens,
            lambda tokens, seed: copy_examples(vocabulary, tokens, seed, repeats=settings.copy_repeats),
        ),
        "comparing-words": (single, lambda tokens, seed: compare_examples(vocabulary, tokens, 1, seed)),
        "comparing-lists": (
            settings.compare_tokens - single,
            lambda tokens, seed: compare_examples(vocabulary, tokens, LONGEST_COMPARED, seed),
        ),
        "editing": (settings.edit_tokens, lambda tokens, seed: edit_examples(vocabulary, tokens, seed)),
        "numbers": (
            settings.number_tokens,
            lambda tokens, seed: magnitude_examples(vocabulary, tokens, seed),
        ),
    }
    found: dict[str, list[Example]] = {}
    for number, (name, (tokens, make)) in enumerate(makers.items()):
        if not tokens:
            continue
        again = int(settings.exercise_rehearsal * tokens / len(found)) if found else 0
        earlier = (
            [makers[other][1](again, base_seed + EARLIER_SEED + number) for other in found] if again else []
        )
        found[name] = [*make(tokens, base_seed), *chain.from_iterable(earlier)]
    return found


def rehearsal(config: Config, vocabulary: Vocabulary, tokens: int) -> list[Example]:
    """The exercises again, mixed into `tokens` of text: in text alone a few answers in a hundred tokens ask
    for them.
    """
    settings = config.pretrain.phases[0]
    lists = int(settings.rehearsal * tokens / 2)
    copied, recalled = int(settings.copy_rehearsal * tokens), int(settings.recall_rehearsal * tokens)
    options: dict[str, Any] = {"repeats": settings.copy_repeats, "numbers": settings.number_tokens > 0}
    return rehearsal_examples(vocabulary, lists, copied, recalled, config.pretrain.seed + 1, **options)


def able(model: Any, vocabulary: Vocabulary) -> dict[str, float]:
    """Exercise -> share of the tokens asked for, in new exercises, that the model gives more than half of its
    probability.

    Of comparing that is the share of questions `<list> want <word>`, half of them no, that are answered
    rightly; of copying, editing and recalling it is the share of right tokens. What one exercise or the text
    undoes of another is seen here.
    """
    asked = {"copying": copy_examples(vocabulary, ASKED_TOKENS, ASKED_SEED)}
    asked["copying repeats"] = copy_examples(vocabulary, ASKED_TOKENS, ASKED_SEED, repeats=1.0)
    asked |= {
        f"comparing {n}": compare_examples(vocabulary, ASKED_TOKENS, n, ASKED_SEED)
        for n in (1, LONGEST_COMPARED, LONGEST_LIST)
    }
    asked["editing"] = edit_examples(vocabulary, ASKED_TOKENS, ASKED_SEED)
    asked["recalling"] = recall_examples(vocabulary, ASKED_TOKENS, ASKED_SEED)
    asked["numbers"] = magnitude_examples(vocabulary, ASKED_TOKENS, ASKED_SEED)
    found = {}
    with evaluating(model):
        for name, examples in asked.items():
            groups = [
                collate(rows, vocabulary.marker_id("<pad>")).to(model.device)
                for rows in batches(examples, 3072, 0)
            ]
            right = torch.cat([token_logprobs(model, group).logprobs > math.log(0.5) for group in groups])
            found[name] = round(right.float().mean().item(), 4)
    get_run_logger().info("share right of each exercise, comparing with the longest list: %s", found)
    return found


def _history(started: Path) -> list[dict[str, Any]]:
    """The cards of the makings before this one, the oldest first."""
    path = started / "card.json"
    if not path.is_file():
        return []
    card = json.loads(path.read_text())
    return [*card.pop("went_on_from", []), card]


def _card(config: Config, model: Any, examples: list[Example], record: TrainingRecord) -> dict[str, Any]:
    every = max(1, len(record.losses) // 100)
    return {
        "command": "dreamgym pretrain",
        "backbone": config.backbone.model_dump(exclude={"path"}),
        "pretrain": config.pretrain.model_dump(),
        "environment": _worlds(config) | {"seed": config.environment.seed},
        "threads": config.threads,
        "device": compute_of(config).device,
        "precision": config.precision,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "examples": len(examples),
        "tokens_in_corpus": sum(len(example) for example in examples),
        "tokens_trained": record.tokens,
        "steps": record.steps,
        "seconds": round(record.seconds),
        "losses": [
            round(sum(part) / len(part), 4)
            for i in range(0, len(record.losses), every)
            if (part := record.losses[i : i + every])
        ],
        "written": time.strftime("%Y-%m-%d"),
    }


def _say(done: int, count: int) -> None:
    if done % 640 == 0 or done == count:
        get_run_logger().info("collected %d of %d episodes", done, count)


def _report(step: int, tokens: int, loss: float) -> None:
    if step % 200 == 0:
        get_run_logger().info("step %d, %.2f M tokens, loss %.3f", step, tokens / 1e6, loss)
