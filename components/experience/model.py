"""The experience model M: (task, history, demonstrations, state, action) -> (reasoning, next state, reward,
done) (Eq. 4).

It predicts for a batch of episodes at once and keeps each episode's trunk in the cache; the branch of a step
is rewound. What follows from the history is written greedily; what no history tells, such as what lies in a
cupboard that no one has opened, is imagined: its state and outcome are sampled at `temperature` (0: the
likeliest, which makes every room an easy one). An answer that does not parse, that quotes what it was not
shown, or that the caller does not accept, is written again at most `resamples` times side by side: what is
imagined behind the same reasoning, and where none will do the likeliest is taken; the rest reasoning and all,
at temperature 1.0, and then given up: None. Where the adapter can tell how far an answer quotes rightly
(`Grounding`), that much of it stays, and the rest is written again. Differs from the paper: M is a small
model fine-tuned for one environment, its weights are never shared with the policy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from components.config import ExperienceModelConfig
from components.errors import ExperienceModelError
from components.experience.episodic_recall import recall
from components.experience.prompts import (
    OUTCOMES,
    PREMISE,
    THINK,
    VARIATION,
    Answer,
    growth,
    opening,
    parse_answer,
    turn,
)
from components.files import read_text
from components.language.backbone import load_backbone
from components.language.compute import Compute
from components.language.engines.kept_cache import KeptCacheEngine
from components.language.engines.protocol import Generation, Session
from components.language.markers import END, STATE
from components.language.tokenizer import Vocabulary
from components.records import Task, Transition

RETRY_TEMPERATURE = 1.0
AT_ONCE = 2
"""Tries of an answer side by side, where the next ones can go on behind what these have right."""
PREMISE_TRIES = 8
"""How often a premise is sampled before a dream begins without one."""

FORM = ("history", "reasoning")
"""The options that decide what its prompts and answers look like; a model answers in the form that it has
learnt alone.
"""
FORM_FILE = "experience.json"


def note_form(directory: Path, config: ExperienceModelConfig) -> None:
    """Write beside the weights in `directory` which form of prompts they were trained on."""
    (directory / FORM_FILE).write_text(
        json.dumps(config.model_dump(include=set(FORM)), sort_keys=True) + "\n", encoding="utf-8"
    )


def _check_form(directory: Path, config: ExperienceModelConfig) -> None:
    path = directory / FORM_FILE
    if not path.is_file():
        return  # a model from elsewhere: it is taken as it is
    learnt = json.loads(read_text(path))
    other = {name: learnt[name] for name in FORM if name in learnt and learnt[name] != getattr(config, name)}
    if other:
        words = ", ".join(f"{name}={str(value).lower()}" for name, value in other.items())
        found = (
            f"The experience model in {directory} was trained with {words}; this config asks for the "
            "opposite."
        )
        raise ExperienceModelError(
            found, next_step="Add " + " ".join(f"experience_model.{word}" for word in words.split(", ")) + "."
        )


Grounded = Callable[[Task, Sequence[str], str, str], int]
"""Says of (task, states so far, action, reasoning) how many of its characters quote rightly:
`Grounding.grounded`.
"""
Check = Callable[[int, Answer], bool]
"""Says of a row's answer whether something holds."""


@dataclass(frozen=True)
class Query:
    """One row's question: what does `action` do in `state`, with these demonstrations at hand."""

    state: str
    action: str
    demonstrations: Sequence[Transition] = ()


class ExperienceModel:
    """A fine-tuned causal LM with its vocabulary.

    `tokens` counts what it has generated, `refused` the answers that its caller did not accept, `misquoting`
    those that quote wrongly, `unparsable` the steps without an answer in the end.
    """

    def __init__(
        self,
        model: object,
        vocabulary: Vocabulary,
        config: ExperienceModelConfig,
        *,
        seed: int = 0,
        grounded: Grounded | None = None,
    ) -> None:
        """Args: grounded: the adapter's, which says how far an answer's reasoning quotes rightly; None: all
        is believed.
        """
        self.vocabulary, self.config = vocabulary, config
        self.model, self.grounded = model, grounded
        self.seed = seed
        self.tokens = 0
        self.unparsable = self.refused = self.misquoting = 0

    @classmethod
    def load(
        cls,
        directory: Path,
        config: ExperienceModelConfig,
        *,
        seed: int = 0,
        compute: Compute = Compute(),
        grounded: Grounded | None = None,
    ) -> ExperienceModel:
        """The model saved in `directory`, where and as `compute` says.

        Raises:
            ExperienceModelError: it was trained on prompts of another form than `config` asks for.
        """
        _check_form(directory, config)
        model, vocabulary = load_backbone(directory, compute.device)
        return cls(compute.for_decoding(model), vocabulary, config, seed=seed, grounded=grounded)

    def begin(self, tasks: Sequence[Task], premises: Sequence[str] = (), *, seed: int = 0) -> Foresight:
        """Start one episode a task, each with its premise, if it has one; `seed` numbers the random
        stream.
        """
        foresight = self.vacant(len(tasks), seed=seed)
        for row, (task, premise) in enumerate(zip(tasks, premises or [""] * len(tasks), strict=True)):
            foresight.enter(row, task, premise)
        return foresight

    def vacant(self, rows: int, *, seed: int = 0) -> Foresight:
        """A batch of `rows` rows without an episode yet: `Foresight.enter` begins one in a row, at any time,
        while others are under way.
        """
        spare = max(self.config.resamples, rows // 2) if self.config.resamples else 0
        return Foresight(self, rows, self._engine(seed).open(rows + spare))

    def presume(
        self, tasks: Sequence[Task], objection: Callable[[Task, str], str], *, seed: int
    ) -> list[str]:
        """For each task, where the things lie that decide it: sampled until there is no `objection`; "" where
        every try met one.
        """
        found = [""] * len(tasks)
        for attempt in range(PREMISE_TRIES):
            lacking = [row for row, premise in enumerate(found) if not premise]
            written = self._write_behind(
                [tasks[row] for row in lacking], PREMISE, seed * PREMISE_TRIES + attempt, 1.0
            )
            for row, text in zip(lacking, written, strict=True):
                found[row] = "" if objection(tasks[row], text) else text
        return found

    def vary(self, tasks: Sequence[Task], *, seed: int, temperature: float = 1.0) -> list[str]:
        """For each task, the instruction of another task of its room (Eq. 6; M_task shares the weights of
        M).
        """
        return self._write_behind(tasks, VARIATION, seed, temperature)

    def _write_behind(
        self, tasks: Sequence[Task], asking: Sequence[str], seed: int, temperature: float
    ) -> list[str]:
        """What the model writes behind each task's opening when it is asked so; "" where it comes to no
        end.
        """
        if not tasks:
            return []
        prompts = {row: self.vocabulary.encode([*opening(task), *asking]) for row, task in enumerate(tasks)}
        stop = {self.vocabulary.marker_id(END)}
        session = self._engine(seed).open(len(tasks), 256)
        written = session.generate(prompts, stop=stop, max_new_tokens=24, temperature=temperature)
        self.tokens += sum(len(g.tokens) for g in written.values())
        texts = [self.vocabulary.pieces(written[row].tokens) for row in range(len(tasks))]
        return [pieces[0] if len(pieces) == 2 and pieces[1] == END else "" for pieces in texts]

    def _engine(self, seed: int) -> KeptCacheEngine:
        return KeptCacheEngine(self.model, self.vocabulary, seed=self.seed * 100_003 + seed)  # type: ignore[arg-type]


class Foresight:
    """A batch of episodes under way: predict steps, and say which of them came true.

    `written` holds each row's first answer in the last `predict` as it was generated, readable or not; where
    it was sampled, the first sample. The session's rows behind those of the episodes are spare: further tries
    of an answer are written there.
    """

    def __init__(self, model: ExperienceModel, rows: int, session: Session) -> None:
        self._model, self._rows, self._session = model, rows, session
        self._tasks: dict[int, Task] = {}
        self._premises: dict[int, str] = {}
        self._pending: dict[int, list[int]] = {}
        self._states: dict[int, list[str]] = {}
        self._asked: dict[int, Query] = {}
        self._stop = {model.vocabulary.marker_id(outcome) for outcome in OUTCOMES}
        self.written: dict[int, Generation] = {}

    def enter(self, row: int, task: Task, premise: str = "") -> None:
        """Begin an episode of `task` in `row`, in place of whatever stood there; the other rows stay where
        they are.
        """
        self._session.clear(row)
        self._tasks[row], self._premises[row], self._states[row] = task, premise, [task.initial_state]
        self._pending[row] = self._model.vocabulary.encode(opening(task, premise))

    def predict(
        self, queries: Mapping[int, Query], accept: Check | None = None, leaves_open: Check | None = None
    ) -> dict[int, Answer | None]:
        """The answer for each row asked, None where no try could be parsed and was accepted. The trunks stay
        as they were.

        Args (each asked with (row, answer)):
            accept: an answer that it refuses is sampled again like one that cannot be parsed.
            leaves_open: true of a greedy answer that the history does not determine; behind its reasoning it
            is sampled at the config's
                temperature instead. None: everything is greedy.

        Raises:
            DataError: a prompt does not fit behind its row; nothing was written then, and the other rows can
                still be asked.
        """
        self._asked = dict(queries)
        prompts = {row: self._prompt(row, query) for row, query in queries.items()}
        trunks = {row: self._session.lengths[row] + len(self._pending[row]) for row in queries}
        ends = {row: trunks[row] + len(prompt) for row, prompt in prompts.items()}
        self.written = self._write({row: self._pending[row] + prompt for row, prompt in prompts.items()}, 0.0)
        likeliest = self._read(self.written)
        heads = {row: self._sound(row, generation) for row, generation in self.written.items()}
        imagined: dict[int, Answer | None] = {}
        if leaves_open is not None and self._model.config.temperature > 0:
            open_rows = [
                row for row, it in likeliest.items() if it and heads[row] is None and leaves_open(row, it)
            ]
            imagined = self._imagine({row: ends[row] for row in open_rows}, accept)
        found = {
            row: imagined.get(row) or self._accepted(row, answer, accept, heads[row])
            for row, answer in likeliest.items()
        }
        begun = {
            row: heads[row] or Generation([], [], False) for row, answer in found.items() if answer is None
        }
        self._session.rewind({row: ends[row] + len(head.tokens) - 1 for row, head in begun.items()})
        found |= self._try_again(
            {row: (prompts[row] + head.tokens)[-1:] for row, head in begun.items()},
            RETRY_TEMPERATURE,
            accept,
            begun,
        )
        found |= self._last_resort(
            [row for row in begun if found[row] is None and heads[row]], likeliest, accept
        )
        self._session.rewind(trunks)
        self._pending |= {row: [] for row in queries}
        self._model.unparsable += sum(answer is None for answer in found.values())
        return found

    def advance(self, steps: Mapping[int, tuple[str, str]]) -> None:
        """Add (action, next state) to the history of each row named."""
        if not self._model.config.history:
            return
        for row, (action, state) in steps.items():
            self._pending[row] = self._pending[row] + self._model.vocabulary.encode(growth(action, state))
            self._states[row].append(state)

    def finish(self, rows: Sequence[int]) -> None:
        """Rows that are over: they cost nothing any more."""
        self._session.drop(rows)

    def _prompt(self, row: int, query: Query) -> list[int]:
        memories = recall([*self._states[row][:-1], query.state], query.action, self._model.config.recall)
        pieces = turn(
            self._tasks[row], query.state, query.action, query.demonstrations, memories, self._premises[row]
        )
        return self._model.vocabulary.encode(pieces)

    def _last_resort(
        self, rows: Sequence[int], likeliest: Mapping[int, Answer | None], accept: Check | None
    ) -> dict[int, Answer | None]:
        """Of rows whose every answer quotes wrongly, the likeliest one, if it grants no reward and
        contradicts nothing.
        """
        return {
            row: self._accepted(row, it, accept) for row in rows if (it := likeliest[row]) and it.reward <= 0
        }

    def _imagine(self, ends: Mapping[int, int], accept: Check | None) -> dict[int, Answer | None]:
        """Of rows whose answers begin behind `ends` tokens of the session: their reasoning, with state and
        outcome sampled behind it.
        """
        thought, temperature = self._model.vocabulary.marker_id(STATE), self._model.config.temperature
        begun = {row: _until(self.written[row], thought) for row in ends}
        starts = {row: end + len(begun[row].tokens) - 1 for row, end in ends.items()}
        self._session.rewind(starts)
        self.written |= self._write(dict.fromkeys(ends, [thought]), temperature, begun)
        answers = self._read({row: self.written[row] for row in ends})
        found = {row: self._accepted(row, answer, accept) for row, answer in answers.items()}
        failed = [row for row, answer in found.items() if answer is None]
        self._session.rewind({row: starts[row] for row in failed})
        return found | self._try_again(dict.fromkeys(failed, [thought]), temperature, accept, begun)

    def _try_again(
        self,
        last: Mapping[int, list[int]],
        temperature: float,
        accept: Check | None,
        begun: Mapping[int, Generation],
    ) -> dict[int, Answer | None]:
        """Up to `resamples` further answers of each row; the first accepted.

        Args:
            last: of each row the one token to go on behind; all before it stands in the session.
            begun: what the answer of a row begins with, up to that token.

        Where the adapter can tell how far an answer quotes rightly, `AT_ONCE` are tried at a time, and the
        next go on behind what the best of them has right.
        """
        found: dict[int, Answer | None] = dict.fromkeys(last)
        last, begun = dict(last), dict(begun)
        tries = [row for _ in range(self._model.config.resamples) for row in last]
        while tries:
            most = AT_ONCE * len(set(tries)) if self._model.grounded else len(tries)
            spare = dict(zip(range(self._rows, self._session.rows), tries[:most], strict=False))
            self._session.copy(spare)
            heads = {place: begun[row] for place, row in spare.items()}
            written = self._write({place: last[row] for place, row in spare.items()}, temperature, heads)
            for place, answer in self._read(written).items():
                row, head = spare[place], self._sound(spare[place], written[place])
                if found[row] is None:
                    found[row] = self._accepted(row, answer, accept, head)
                if head and len(head.tokens) > len(begun[row].tokens):
                    last[row] = last[row] + head.tokens[len(begun[row].tokens) :]
                    begun[row] = head
            self._session.rewind(dict.fromkeys(spare, 0))
            tries = [row for row in tries[len(spare) :] if found[row] is None]
        return found

    def _accepted(
        self, row: int, answer: Answer | None, accept: Check | None, head: Generation | None = None
    ) -> Answer | None:
        """`answer`, if it can be used. Args: head: what of it quotes rightly; None: all."""
        if answer is None or head is not None:
            self._model.misquoting += head is not None
            return None
        if accept is None or accept(row, answer):
            return answer
        self._model.refused += 1
        return None

    def _sound(self, row: int, generation: Generation) -> Generation | None:
        """The beginning of an answer that quotes rightly; None if nothing of it quotes wrongly, as far as the
        adapter can tell.
        """
        if self._model.grounded is None:
            return None
        vocabulary, query = self._model.vocabulary, self._asked[row]
        pieces = vocabulary.pieces(generation.tokens)
        if len(pieces) < 2 or pieces[0] != THINK:
            return None
        right = self._model.grounded(
            self._tasks[row], [*self._states[row], query.state], query.action, pieces[1]
        )
        if right >= len(pieces[1]):
            return None
        ends = range(1, len(generation.tokens))
        end = next(
            (
                end
                for end in ends
                if len("".join(vocabulary.pieces(generation.tokens[1 : end + 1])[:1])) > right
            ),
            1,
        )
        return Generation(generation.tokens[:end], generation.logprobs[:end], False)

    def _write(
        self,
        prompts: Mapping[int, list[int]],
        temperature: float,
        begun: Mapping[int, Generation] | None = None,
    ) -> dict[int, Generation]:
        """Answers behind the prompts. Args: begun: what the answer of a row begins with, where its prompt
        does not end before it.
        """
        limit = self._model.config.max_new_tokens
        written = self._session.generate(
            prompts, stop=self._stop, max_new_tokens=limit, temperature=temperature
        )
        self._model.tokens += sum(len(generation.tokens) for generation in written.values())
        for row, head in (begun or {}).items():
            tokens, logprobs = head.tokens + written[row].tokens, head.logprobs + written[row].logprobs
            written[row] = Generation(
                tokens[:limit], logprobs[:limit], written[row].stopped and len(tokens) <= limit
            )
        return written

    def _read(self, written: Mapping[int, Generation]) -> dict[int, Answer | None]:
        vocabulary, reasoning = self._model.vocabulary, self._model.config.reasoning
        return {
            row: parse_answer(vocabulary.pieces(generation.tokens), reasoning=reasoning)
            for row, generation in written.items()
        }


def _until(generation: Generation, marker: int) -> Generation:
    """What it wrote up to the first `marker`, which is kept."""
    end = generation.tokens.index(marker) + 1
    return Generation(generation.tokens[:end], generation.logprobs[:end])
