"""The experience model M: (task, history, demonstrations, state, action) -> (reasoning, next state, reward,
done) (Eq. 4).

1. It predicts for a batch of episodes at once and keeps each episode's trunk in the cache
   (`decoding/prediction_batch.py`).
2. What follows from the history is decoded greedily. What no history determines, such as the content of a
   closed cabinet, is sampled at `temperature`; at 0 the likeliest is taken, which makes every room easy.
3. An answer has to pass the checks of `decoding/answer_checks.py`. A refused one is sampled again at most
   `resamples` times, several at once, and then given up (None).
   a. A sampled state is first sampled again behind the same reasoning; then the likeliest one is taken.
   b. Any other answer is sampled with its reasoning, at temperature 1.0.
   c. What an answer quotes rightly stays, where the adapter can tell (`Grounding`).
4. The hidden state of an episode is sampled once before step 0 (`decoding/hidden_state.py`).

Differs from the paper: M is a small model fine-tuned for one environment. Its weights are never shared with
the policy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from peft import PeftModel
from transformers import PreTrainedModel

from components.config import ExperienceModelConfig
from components.errors import ExperienceModelError
from components.experience.decoding.answer_checks import DecodingCounts, GroundingCheck, Refusal
from components.experience.decoding.hidden_state import sample_accepted_premises
from components.experience.decoding.prediction_batch import PredictionBatch
from components.experience.formats.choose import world_format
from components.files import read_text
from components.language.adapters import merge_lora, without_adapters
from components.language.backbone import load_backbone
from components.language.compute import Compute
from components.language.engines.engine_protocol import Engine
from components.language.engines.open_engine import choose_engine, open_engine
from components.language.vocabulary.vocabulary import Vocabulary
from components.records import Task

MAX_TEXT_TOKENS = 24
"""Longest premise or instruction, in tokens."""
PROMPT_FORM = ("history", "reasoning")
"""The options that decide the form of prompts and answers. A model answers only in the form that it was
trained on.
"""
PROMPT_FORM_FILE = "experience.json"


def save_prompt_form(directory: Path, config: ExperienceModelConfig) -> None:
    """Write to `directory`, which holds the weights, the form of prompts that they were trained on."""
    form = config.model_dump(include=set(PROMPT_FORM))
    text = json.dumps(form, sort_keys=True) + "\n"
    (directory / PROMPT_FORM_FILE).write_text(text, encoding="utf-8")


def _require_prompt_form(directory: Path, config: ExperienceModelConfig) -> None:
    """Raise ExperienceModelError if the model was trained on another form. A model without the file, from
    elsewhere, is used as it is.
    """
    path = directory / PROMPT_FORM_FILE
    if not path.is_file():
        return
    trained = json.loads(read_text(path))
    different = [name for name in PROMPT_FORM if name in trained and trained[name] != getattr(config, name)]
    if different:
        settings = [f"{name}={str(trained[name]).lower()}" for name in different]
        raise ExperienceModelError(
            f"The experience model in {directory} was trained with {', '.join(settings)}; this config asks "
            "for the opposite.",
            next_step="Add " + " ".join(f"experience_model.{setting}" for setting in settings) + ".",
        )


class ExperienceModel:
    """A fine-tuned causal LM with its vocabulary. `counts` holds what it has generated so far."""

    def __init__(
        self,
        model: PreTrainedModel | PeftModel,
        vocabulary: Vocabulary,
        config: ExperienceModelConfig,
        *,
        seed: int = 0,
        grounded: GroundingCheck | None = None,
        compute: Compute = Compute(),
    ) -> None:
        """Initialise.

        Args:
            grounded: the adapter's check of quotations; None: every reasoning counts as grounded.
            compute: device, precision and engine of decoding.
        """
        self.model = model
        self.vocabulary = vocabulary
        self.text = world_format(vocabulary, config)
        self.config = config
        self.seed = seed
        self.compute = compute
        self.grounded = grounded
        self.counts = DecodingCounts()
        self._opened_engine: Engine | None = None

    @classmethod
    def load(
        cls,
        directory: Path,
        config: ExperienceModelConfig,
        *,
        seed: int = 0,
        compute: Compute = Compute(),
        grounded: GroundingCheck | None = None,
    ) -> ExperienceModel:
        """Load the model saved in `directory` to the device and dtype of `compute`.

        It stays in the memory of the CPU where vLLM generates, which has a copy of its own.

        Raises:
            ExperienceModelError: the model was trained on another form of prompts than `config` names.
        """
        _require_prompt_form(directory, config)
        model, vocabulary = load_backbone(directory)
        if choose_engine(without_adapters(model).num_parameters(), compute)[0] == "kept-cache":
            model = model.to(compute.device)
        if compute.precision == "fp32" and compute.engine != "vllm-server":
            model = merge_lora(model)  # the same function, decoded faster
        model = compute.for_decoding(model)
        return cls(model, vocabulary, config, seed=seed, grounded=grounded, compute=compute)

    def sharing_weights(self, compute: Compute | None = None) -> ExperienceModel:
        """The same model with counts of its own, and another engine if `compute` names one."""
        return ExperienceModel(
            self.model,
            self.vocabulary,
            self.config,
            seed=self.seed,
            grounded=self.grounded,
            compute=compute or self.compute,
        )

    @property
    def is_concurrent(self) -> bool:
        """Whether threads may predict at the same time, each with a model of its own (`sharing_engine`)."""
        return self._engine(0).is_concurrent

    def sharing_engine(self, count: int) -> list[ExperienceModel]:
        """`count` times the same model and engine, with counts of their own. The weights may not change."""
        engine = self._engine(0)
        models = [self.sharing_weights() for _ in range(count)]
        for model in models:
            model._opened_engine = engine
        return models

    @property
    def tokens(self) -> int:
        """Tokens generated so far."""
        return self.counts.tokens

    @property
    def endpoint_costs(self) -> dict[str, int]:
        """Nothing: no endpoint is asked."""
        return {}

    @property
    def incoherent_answers(self) -> int:
        """Answers so far that the caller of `predict` refused."""
        return self.counts.refusals[Refusal.INCOHERENT]

    @property
    def ungrounded_answers(self) -> int:
        """Answers so far that quote wrongly."""
        return self.counts.refusals[Refusal.UNGROUNDED]

    @property
    def unanswered_steps(self) -> int:
        """Steps so far without any accepted answer."""
        return self.counts.unanswered_steps

    def begin(self, tasks: Sequence[Task], premises: Sequence[str] = (), *, seed: int = 0) -> PredictionBatch:
        """Begin one episode a task.

        Args:
            premises: one a task, "" for none; empty: no episode has a premise.
            seed: selects the random stream of the batch.
        """
        batch = self.empty_batch(len(tasks), seed=seed)
        for row, (task, premise) in enumerate(zip(tasks, premises or [""] * len(tasks), strict=True)):
            batch.begin_episode(row, task, premise)
        return batch

    def empty_batch(self, rows: int, *, seed: int = 0) -> PredictionBatch:
        """A batch of `rows` rows without episodes. `PredictionBatch.begin_episode` begins one in a row at any
        time, while the episodes of other rows go on.
        """
        needs_spare_rows = self.config.resamples or self.config.agreeing_samples
        spare_rows = max(1, self.config.resamples, rows // 2) if needs_spare_rows else 0
        session = self._engine(seed).open(rows + spare_rows)
        return PredictionBatch(session, rows, self.text, self.config, self.counts, self.grounded)

    def sample_hidden_state(
        self, tasks: Sequence[Task], objection: Callable[[Task, str], str], *, seed: int
    ) -> list[str]:
        """For each task, a premise without objection: see `hidden_state.sample_accepted_premises`."""

        def sample(some_tasks: Sequence[Task], attempt_seed: int) -> list[str]:
            prompts = [self.text.premise_prompt(task) for task in some_tasks]
            return self._generate_texts(prompts, attempt_seed, 1.0)

        return sample_accepted_premises(sample, tasks, objection, seed=seed)

    def vary(self, tasks: Sequence[Task], *, seed: int, temperature: float = 1.0) -> list[str]:
        """For each task, the instruction of another task of its room; "" where the generation did not end.

        This is M_task of Eq. 6, which shares the weights of M.
        """
        prompts = [self.text.variation_prompt(task) for task in tasks]
        longest = max((len(self.text.text_answer(task.instruction)) for task in tasks), default=0)
        return self._generate_texts(prompts, seed, temperature, max(MAX_TEXT_TOKENS, 2 * longest))

    def _generate_texts(
        self,
        prompts: Sequence[tuple[list[int], list[int]]],
        seed: int,
        temperature: float,
        most_tokens: int = MAX_TEXT_TOKENS,
    ) -> list[str]:
        """For each prompt (trunk, request), one text; "" where it does not end in time."""
        if not prompts:
            return []
        session = self._engine(seed).open(len(prompts), 256)
        written = session.generate(
            {row: trunk + request for row, (trunk, request) in enumerate(prompts)},
            stop=self.text.text_stop,
            max_new_tokens=most_tokens,
            temperature=temperature,
        )
        self.counts.tokens += sum(len(generation.tokens) for generation in written.values())
        return [self.text.parse_text(written[row].tokens) for row in range(len(prompts))]

    def _engine(self, seed: int) -> Engine:
        seed += self.seed * 100_003
        if self._opened_engine is not None:
            return self._opened_engine.with_seed(seed)
        return open_engine(self.model, self.vocabulary, self.compute, seed)
