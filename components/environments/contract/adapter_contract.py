"""What every adapter promises, put to the test on a few tasks of its own world.

    dreamgym check-environment environment.name=own environment.own.adapter=my_world:MyAdapter

A promise that is not kept is `wrong`: a stage would fail on it, or learn nonsense. `doubt` is a part that the
world does without, with what that costs and what to set. The tests of the shipped adapters hold them to the
same promises, and to more.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from components.config import Config
from components.environments.contract.finding import Broken, Doubtful, Finding
from components.environments.contract.validation_check import examine_validation
from components.environments.protocol import NO_ACTION, Adapter, Environment, Grounding, side_by_side
from components.environments.text_world.replayed_behaviours import BEHAVIOURS
from components.environments.text_world.user_code import place_of, users_call
from components.errors import DreamGymError, EnvironmentFailure
from components.records import TEST, TRAIN, Task, Trajectory, Transition

NONSENSE = ("?", "", "fly to the moon", "<success>", "<end> <state>", "\n", "x" * 2000, "ünïcödé")
TASKS, LISTED, COMPARED = 4, 12, 24
_NUMBER = re.compile(r"\b[0-9a-f]{8,}\b|\d+")
PACE_SECONDS, PACE_ROUNDS = 2.0, 50
"""The pace is measured for so long, or for so many rounds of the tasks, whichever ends first."""


@dataclass
class Subject:
    """The adapter, its environment, some training tasks, and what was played in them so far."""

    adapter: Adapter
    world: Environment
    tasks: list[Task]
    config: Config
    opening: float = 0.0
    """Seconds that listing the tasks and opening the environment took."""
    played: dict[str, list[Trajectory]] = field(default_factory=dict)

    def play(self, name: str, seed: int = 0) -> list[Trajectory]:
        """The tasks played by the behaviour `name` up to the step limit. Raises Broken if a step failed."""
        self.world.reset(self.tasks)
        actors = [self.adapter.behaviour(name, task, seed) for task in self.tasks]
        played, admissible = (
            [Trajectory(task) for task in self.tasks],
            list(_attribute(self.world, "admissible")),
        )
        for number in range(self.config.environment.max_steps):
            rows = zip(actors, played, admissible, strict=True)
            actions = [None if _over(episode) else act(episode, can)[1] for act, episode, can in rows]
            if all(action is None for action in actions):
                break
            for row, (action, answer) in enumerate(zip(actions, self.world.step(actions), strict=True)):
                if action is None or answer is None:
                    continue
                if "failed" in answer.info:
                    raise Broken(
                        f"{name} did {action!r} in {self.tasks[row].id}, and the world failed: "
                        f"{answer.info['failed']}"
                    )
                before = played[row].states[-1]
                made = Transition(
                    self.tasks[row].id,
                    f"e{row}",
                    number,
                    before,
                    action,
                    answer.state,
                    answer.reward,
                    answer.done,
                )
                played[row], admissible[row] = (
                    Trajectory(self.tasks[row], (*played[row].steps, made)),
                    answer.info.get("admissible", ()),
                )
        return played

    def episodes(self) -> list[Trajectory]:
        """All that was played so far."""
        return [episode for played in self.played.values() for episode in played]


def check(config: Config, adapter: Adapter, told: Callable[[Finding], None]) -> bool:
    """Put every promise to the test and tell each finding; True if none is wrong.

    Raises:
        DreamGymError: there are no tasks, or no environment: nothing could be tested.
    """
    begun, count = time.perf_counter(), min(TASKS, config.data.train_tasks)
    with users_call(f"The adapter's tasks({TRAIN!r}, {count}, 5)"):
        tasks = list(adapter.tasks(TRAIN, count, 5))
    if not tasks or not all(isinstance(task, Task) for task in tasks):
        raise EnvironmentFailure(
            f"The adapter's tasks({TRAIN!r}, {count}, 5) gave {tasks!r:.200}.", "Expected a list of tasks."
        )
    with users_call("The adapter's open()"):
        world = adapter.open()
    subject = Subject(adapter, world, tasks, config, time.perf_counter() - begun)
    kept = True
    try:
        for promise in PROMISES:
            finding = _tested(promise, subject)
            kept &= finding.state != "wrong"
            told(finding)
    finally:
        subject.world.close()
    return kept


def _tested(promise: Callable[[Subject], str], subject: Subject) -> Finding:
    name = (promise.__doc__ or "").strip().rstrip(".")
    try:
        return Finding(name, "ok", promise(subject))
    except Broken as broken:
        return Finding(name, "doubt" if isinstance(broken, Doubtful) else "wrong", *map(str, broken.args))
    except DreamGymError as error:
        return Finding(name, "wrong", str(error))
    except Exception as error:  # a bug in the adapter is what this is there to show
        return Finding(name, "wrong", f"{type(error).__name__}: {error} ({place_of(error)})")


def _require(kept: object, found: str, *next_step: str) -> None:
    if not kept:
        raise Broken(found, *next_step)


def _attribute(world: Environment, name: str) -> Any:
    _require(
        hasattr(world, name),
        f"The environment has no attribute {name}.",
        "It lists for each row what can be done; () will do.",
    )
    return getattr(world, name)


def _over(episode: Trajectory) -> bool:
    return bool(episode.steps) and episode.steps[-1].done


def _protocol(it: Subject) -> str:
    """Adapter and environment have every method of the protocol."""
    for subject, kind in ((it.adapter, Adapter), (it.world, Environment)):
        lacking = [name for name in dir(kind) if not name.startswith("_") and not hasattr(subject, name)]
        _require(
            not lacking,
            f"{type(subject).__name__} has no {', '.join(lacking)}.",
            "Inherit PlainAdapter, RowsEnvironment, or write them.",
        )
    return f"{type(it.adapter).__name__}, {type(it.world).__name__}"


def _tasks(it: Subject) -> str:
    """Tasks are different ones, named by their split, and the same for the same arguments."""
    wanted = {TRAIN: min(LISTED, it.config.data.train_tasks), TEST: min(LISTED, it.config.evaluation.tasks)}
    listed = {split: it.adapter.tasks(split, count, 1) for split, count in wanted.items()}
    for split, tasks in listed.items():
        count = wanted[split]
        _require(
            isinstance(tasks, list),
            f"tasks({split!r}, {count}, 1) gives a {type(tasks).__name__}.",
            "Return a list.",
        )
        _require(
            tasks == it.adapter.tasks(split, count, 1),
            f"tasks({split!r}, {count}, 1) gives others when asked again.",
        )
        _require(
            len({task.id for task in tasks}) == count,
            f"{count} tasks of {split} were asked for; some are the same, or missing.",
        )
        for task in tasks:
            named = (task.environment, task.split) == (it.config.environment.name, split)
            _require(
                named,
                f"{task.id} has environment {task.environment!r} and split {task.split!r}.",
                "Expected those asked for.",
            )
            _require(
                task.instruction and task.initial_state, f"{task.id} has no instruction or no initial state."
            )
    shared = {task.id for task in listed[TRAIN]} & {task.id for task in listed[TEST]}
    _require(not shared, f"Tasks are both in train and in test: {', '.join(sorted(shared)[:3])}.")
    return ", ".join(f"{count} of {split}" for split, count in wanted.items())


def _validation(it: Subject) -> str:
    """Validation tasks are there, differ from training and test tasks, and are the same for the same draw."""
    found, next_step = examine_validation(it.adapter, it.config)
    if next_step:
        raise Doubtful(f"{found}.", next_step)
    return found


def _reset(it: Subject) -> str:
    """A task begins in its own initial state, every time."""
    for _ in range(2):
        for task, state in zip(it.tasks, it.world.reset(it.tasks), strict=True):
            _require(
                state == task.initial_state,
                f"{task.id} began with {state!r:.200}, its initial_state is {task.initial_state!r:.200}.",
            )
        for task, answer in zip(it.tasks, it.world.step([NO_ACTION] * len(it.tasks)), strict=True):
            _require(
                answer and "failed" not in answer.info,
                f"{task.id} did not begin as recorded: {answer and answer.info.get('failed')}",
            )
    return f"{len(it.tasks)} tasks, twice"


def _behaviours(it: Subject) -> str:
    """Behaviours play to the end or the step limit, and only the last step of a success is rewarded."""
    lacking = []
    for name in BEHAVIOURS:
        try:
            it.played[name] = it.play(name)
        except EnvironmentFailure as failure:
            lacking.append((name, failure))
            continue
        for step in (step for episode in it.played[name] for step in episode.steps):
            _require(
                step.reward in (0.0, 1.0) and step.reward <= step.done,
                f"{name}: reward {step.reward}, done {step.done}, {step.action!r}.",
            )
    _require(it.played, f"No behaviour can be played: {lacking[-1][1] if lacking else ''}")
    if lacking:
        off = " ".join(f"data.{name}=0" for name, _ in lacking)
        raise Doubtful(
            f"{', '.join(name for name, _ in lacking)} cannot be played: {lacking[0][1]}",
            f"Set {off}, or record solutions.",
        )
    return ", ".join(
        f"{name} won {sum(e.success for e in played)} of {len(played)}" for name, played in it.played.items()
    )


def _differ(it: Subject) -> str:
    """Training tasks are different ones by what they show."""
    count = min(COMPARED, it.config.data.train_tasks)
    tasks = it.adapter.tasks(TRAIN, count, 1)
    groups: dict[tuple[str, str], list[Task]] = {}
    for task in tasks:
        groups.setdefault((task.instruction, task.initial_state), []).append(task)
    different = sum(len(_streams(it, group)) for group in groups.values())
    if different == count:
        _differ_in_more_than_numbers(it, tasks)
        return f"{count} of {count}" + (
            f", {count - len(groups)} only after the first step" if len(groups) < count else ""
        )
    example = next(group for group in groups.values() if len(_streams(it, group)) < len(group))
    found = (
        f"{count} tasks are {different} different by their instructions and states; {example[0].id} and "
        f"{example[1].id} show the same."
    )
    if different == 1 < count:
        raise Broken(found, "Let a task's seed, or whatever names it, decide what the episode is about.")
    raise Doubtful(
        found, "Training sees fewer tasks than data.train_tasks says: add tasks, or lower data.train_tasks."
    )


def _differ_in_more_than_numbers(it: Subject, tasks: Sequence[Task]) -> None:
    """Raise Doubtful if most tasks are the same but for numbers in their states, as a count of episodes or
    the time are.
    """
    groups: dict[tuple[str, str], list[Task]] = {}
    for task in tasks:
        groups.setdefault((task.instruction, _NUMBER.sub("#", task.initial_state)), []).append(task)
    different = sum(
        len({tuple((_NUMBER.sub("#", s), r) for s, r in one) for one in _streams(it, group)})
        for group in groups.values()
    )
    if 2 * different > len(tasks):
        return
    example = max(groups.values(), key=len)
    found = (
        f"Without the numbers in their states {len(tasks)} tasks are {different} different; "
        f"{example[0].id} begins with"
    )
    found += f" {example[0].initial_state!r:.80}, {example[1].id} with {example[1].initial_state!r:.80}."
    raise Doubtful(
        found,
        "If such a number is a count of episodes or a time, leave it out of the state: the tasks are the "
        "same then.",
    )


def _streams(it: Subject, tasks: Sequence[Task]) -> set[tuple[tuple[str, float], ...]]:
    """What tasks that open alike answer to the same actions: one entry for each that differs."""
    if len(tasks) == 1:
        return {()}
    longest = max(it.episodes(), key=lambda episode: len(episode.steps), default=None)
    actions = [step.action for step in longest.steps] if longest and longest.steps else [NO_ACTION]
    rows = side_by_side(it.world, len(tasks))
    return {
        stream
        for start in range(0, len(tasks), rows)
        for stream in _answers(it.world, tasks[start : start + rows], actions)
    }


def _answers(
    world: Environment, tasks: Sequence[Task], actions: Sequence[str]
) -> list[tuple[tuple[str, float], ...]]:
    """For each task the states and rewards that `actions` lead to. Raises Broken if a step failed."""
    world.reset(tasks)
    found: list[tuple[tuple[str, float], ...]] = [()] * len(tasks)
    alive = set(range(len(tasks)))
    for action in actions:
        for row, answer in enumerate(
            world.step([action if row in alive else None for row in range(len(tasks))])
        ):
            if answer is None:
                continue
            if "failed" in answer.info:
                raise Broken(
                    f"{action!r} was done in {tasks[row].id}, and the world failed: {answer.info['failed']}"
                )
            found[row] = (*found[row], (answer.state, answer.reward))
            alive -= {row} if answer.done else set()
        if not alive:
            break
    return found


def _expert(it: Subject) -> str:
    """The expert wins."""
    won = [episode for episode in it.played.get("expert", []) if episode.success]
    if not won:
        found = f"It won none of {len(it.played.get('expert', []))}."
        raise Doubtful(
            found,
            "A policy is cloned from won expert episodes: without any, no stage after the experience model "
            "can run.",
        )
    return f"{len(won)} of {len(it.tasks)}"


def _repeatable(it: Subject) -> str:
    """The same behaviour with the same seed gives the same episode."""
    for name, played in it.played.items():
        for first, again in zip(played, it.play(name), strict=True):
            _require(
                first == again,
                f"{name} in {first.task.id} went another way the second time.",
                "Recorded data could not be made again.",
            )
    return ", ".join(it.played)


def _nonsense(it: Subject) -> str:
    """What is no action is answered with a state, and is not the world's failure."""
    for action in NONSENSE:
        it.world.reset(it.tasks[:1])
        (answer,) = it.world.step([action])
        right = (
            answer is not None
            and answer.state.strip()
            and not answer.done
            and not answer.reward
            and "failed" not in answer.info
        )
        _require(
            right,
            f"{action!r:.40} was answered with {answer!r:.300}.",
            "Answer with a state that says that nothing happened.",
        )
    return f"{len(NONSENSE)} kinds"


def _budget(it: Subject) -> str:
    """Steps are counted, and the budget is not exceeded."""
    world = it.adapter.open(budget=3)
    try:
        world.reset(it.tasks[:2])
        answers = world.step(["?", None])
        _require(
            answers[1] is None and world.interactions == 1,
            f"One step was taken; interactions is {world.interactions}.",
        )
        world.step(["?", "?"])
        try:
            world.step(["?", None])
        except EnvironmentFailure:
            return "3 of 3"
        raise Broken("A fourth step was taken with a budget of 3.", "Raise EnvironmentFailure before it.")
    finally:
        world.close()


def _words(it: Subject) -> str:
    """Every step has a thought, a reason, and facts that do not contradict themselves."""
    for episode in it.episodes():
        for step in episode.steps:
            before, facts = episode.up_to(step.step), it.adapter.facts(episode.up_to(step.step + 1))
            _require(
                it.adapter.think(before, step.action),
                f"think gives no words for {step.action!r} in {episode.task.id}.",
            )
            _require(
                it.adapter.reason(before, step.action, step.next_state, step.reward),
                f"reason gives no words for {step.action!r}.",
            )
            if isinstance(it.adapter, Grounding):
                said = it.adapter.reason(before, step.action, step.next_state, step.reward)
                right = it.adapter.grounded(episode.task, before.states, step.action, said)
                _require(
                    right == len(said),
                    f"grounded objects to {said[right:]!r} in {said!r}, which is what reason says.",
                )
            _require(facts, f"facts finds nothing in {step.next_state!r:.200}.")
            denied = [fact for fact in facts if it.adapter.contradicts(fact, facts)]
            _require(not denied, f"{step.next_state!r:.200} contradicts itself: {denied[:1]}.")
    return f"{sum(len(episode.steps) for episode in it.episodes())} steps"


def _believed(it: Subject) -> str:
    """No real step is called a contradiction, and what was seen is no revelation."""
    for episode in it.episodes():
        for step in episode.steps:
            objection = it.adapter.contradiction(episode.up_to(step.step), step.next_state)
            _require(
                not objection,
                f"A real state is objected to: {objection} ({step.action!r} in {episode.task.id}).",
            )
            again = it.adapter.revealing(episode.up_to(step.step + 1), step.action, step.next_state)
            _require(not again, f"{step.next_state!r:.200} is called revealing right after it was seen.")
    return f"{len(it.episodes())} episodes"


def _embodied(it: Subject) -> str:
    """An episode replays in the world that `embody` gives."""
    for episode in it.played.get("expert") or it.episodes()[:1]:
        world = it.adapter.embody(episode)
        found = it.world.reset([world])
        for step in episode.steps:
            (answer,) = it.world.step([step.action])
            found.append(answer.state if answer else "")
        _require(found == episode.states, f"{episode.task.id} replayed went another way.")
    return "the same states"


def _feasible(it: Subject) -> str:
    """The world's own tasks are feasible, and nonsense is not."""
    for task in it.tasks:
        _require(
            not it.adapter.feasible(task), f"{task.id} is called infeasible: {it.adapter.feasible(task)}."
        )
    _require(
        it.adapter.feasible(replace(it.tasks[0], instruction="be happy")),
        "The instruction 'be happy' is called feasible.",
    )
    return f"{len(it.tasks)} tasks"


def _premises(it: Subject) -> str:
    """Premises that real episodes have shown are not objected to."""
    shown = [(episode.task, premise) for episode in it.episodes() if (premise := it.adapter.premise(episode))]
    if not shown:
        _require(
            bool(it.adapter.objection(it.tasks[0], "nothing")),
            "No episode shows a premise, and one made up is not objected to.",
        )
        if not it.config.experience_model.premise:
            return "none was shown, and dreams begin without one (experience_model.premise=false)"
        raise Doubtful(
            "No episode has shown one.", "Set experience_model.premise=false: dreams begin without a premise."
        )
    for task, premise in shown:
        _require(
            not it.adapter.objection(task, premise),
            f"{premise!r} is objected to: {it.adapter.objection(task, premise)}.",
        )
    return f"{len(shown)} premises"


def _progress(it: Subject) -> str:
    """Progress is whole for a success, and for nothing else."""
    for episode in it.episodes():
        found = it.adapter.progress(episode)
        _require(
            found == 1.0 if episode.success else 0.0 <= found < 1.0,
            f"{found} in {episode.task.id}, success {episode.success}.",
        )
    return f"{len(it.episodes())} episodes"


def _strange(it: Subject) -> str:
    """Some held-out tasks play in worlds that no training task has."""
    tasks = it.adapter.tasks(TEST, min(LISTED, it.config.evaluation.tasks), 1)
    strange = sum(it.adapter.unseen(task) for task in tasks)
    if not strange and not it.config.data.fidelity_worlds:
        return f"none of {len(tasks)}, and none is asked for (data.fidelity_worlds=0)"
    if not strange:
        raise Doubtful(f"None of {len(tasks)} does.", "Set data.fidelity_worlds=0.")
    return f"{strange} of {len(tasks)}"


def _short(it: Subject) -> str:
    """States and actions are short enough for the data's rules."""
    limit = it.config.data.max_text_chars
    longest = max(
        (len(text) for e in it.episodes() for text in (*e.states, *(step.action for step in e.steps))),
        default=0,
    )
    _require(
        longest <= limit,
        f"The longest has {longest:,} characters; data.max_text_chars is {limit:,}.",
        "Map states to what matters in them.",
    )
    return f"at most {longest:,} characters"


def _pace(it: Subject) -> str:
    """Its pace, which tells what a real step costs beside a dreamed one."""
    _require(it.played, "No behaviour can be played, so nothing was measured.")
    resets, stepping, rounds, steps = 0.0, 0.0, 0, 0
    behaviour, episodes = next(iter(it.played.items()))
    while rounds < PACE_ROUNDS and resets + stepping < PACE_SECONDS:
        begun = time.perf_counter()
        it.world.reset(it.tasks)
        ready, before = time.perf_counter(), it.world.interactions
        for number in range(max(len(episode.steps) for episode in episodes)):
            it.world.step(
                [
                    episode.steps[number].action if number < len(episode.steps) else None
                    for episode in episodes
                ]
            )
        stepping, resets = stepping + time.perf_counter() - ready, resets + ready - begun
        rounds, steps = rounds + 1, steps + it.world.interactions - before
    alone, whole = (
        f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
        for rate in (steps / stepping, steps / (stepping + resets))
    )
    rows = f"{len(it.tasks)} rows, {steps} steps of {behaviour} in {rounds} rounds of the same tasks"
    return (
        f"opened in {it.opening:.1f} s, a reset of all in {resets / rounds:.3g} s, {alone} steps/s, "
        f"{whole} with resets ({rows})"
    )


PROMISES: Sequence[Callable[[Subject], str]] = (
    _protocol,
    _tasks,
    _validation,
    _reset,
    _behaviours,
    _differ,
    _expert,
    _repeatable,
    _nonsense,
    _budget,
    _words,
    _believed,
    _embodied,
    _feasible,
    _premises,
    _progress,
    _strange,
    _short,
    _pace,
)
