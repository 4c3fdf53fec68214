"""`dreamgym play` with the ALFWorld engine, real data files and tiny models; the screen is read as text."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

import pytest
from builders import make_episode, make_task
from rich.console import Console

from components.config import RetrievalConfig
from components.experience.dream import Dream
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.experience.side_by_side import End, Playthrough, ReplayChecker
from components.experience.state_comparison import compare
from flows.cli.play.play_session import example_actions
from flows.cli.play.player import LineSource, Player, Worlds, line_source
from flows.cli.play.record import played_record
from flows.cli.play.screen import Screen

EMPTY = "Holding nothing."


class EngineAsDream:
    """Replaces the experience model: it gives the real engine's answers, changed at chosen steps.

    No model trained in seconds gives readable answers to a real game. And only known answers show whether the
    comparison finds exactly what is wrong.
    """

    def __init__(self, adapter):
        self.engine, self.altered, self.interactions = adapter.open(), {}, 0

    def reset(self, tasks):
        self.number = 0
        return self.engine.reset(tasks)

    def step(self, actions):
        self.number += 1
        (answer,) = self.engine.step(actions)
        answer = replace(answer, info={"reasoning": f"reason {self.number}"})
        return [self.altered.get(self.number, lambda step: step)(answer)]

    def close(self):
        self.engine.close()


@pytest.fixture(scope="module")
def engine_as_dream(adapter):
    dream = EngineAsDream(adapter)
    yield dream
    dream.close()


@pytest.fixture(scope="module")
def witness(adapter):
    witness = ReplayChecker(adapter)
    yield witness
    witness.close()


@pytest.fixture
def dream(engine_as_dream):
    engine_as_dream.altered = {}
    return engine_as_dream


@pytest.fixture
def expert(played):
    """A successful episode that takes an object at some step and moves it at its last step."""
    return next(e for e in played["expert"] if e.task.family == "pick_and_place_simple" and e.success)


@pytest.fixture
def begin(adapter, dream, world, expert):
    return lambda **changes: Playthrough(
        adapter, dream, expert.task, **({"max_steps": 30, "real": world} | changes)
    )


def _take(episode):
    """Return the number, from 1, of the step that takes an object."""
    return next(step.step + 1 for step in episode.steps if step.next_state.startswith("Took"))


def _play(play, episode):
    return [play.act(step.action) for step in episode.steps if play.end is None]


def show(player_lines, worlds, tasks, width=100, **console):
    """Return what is printed when these lines are played."""
    file = io.StringIO()
    screen = Screen(Console(file=file, width=width, **console))
    Player(worlds, screen, "train", tasks).play(tasks[0], line_source(player_lines))
    return file.getvalue()


@pytest.fixture
def worlds(adapter, dream, world, witness):
    return Worlds(adapter, dream, world, witness, 30)


def test_a_dream_that_answers_like_the_engine_agrees_at_every_step(begin, expert):
    play = begin()
    turns = _play(play, expert)
    assert len(turns) == len(expert.steps) and all(
        turn.agrees and turn.comparison.same_text for turn in turns
    )
    assert play.end is End.WON and play.real_over and play.first_disagreement is None
    assert play.dreamed.states == play.real.states == expert.states


def test_a_false_state_is_reported_fact_by_fact(begin, dream, expert):
    take = _take(expert)
    place = expert.steps[take - 2].next_state.split(":")[0].removeprefix("At ")
    dream.altered[take] = lambda step: replace(step, state=f"Nothing happens at {place}. {EMPTY}")
    play = begin()
    turns = _play(play, expert.up_to(take))
    thing = expert.steps[take - 1].action.split(" from")[0].removeprefix("take ")
    found = turns[-1].comparison
    assert found.contradicted == {("holding", "nothing"), ("event", "failed", "")} and not found.revealed
    assert found.missing == {("holding", thing), ("event", "took", thing)} and found.agreed == {("at", place)}
    assert play.first_disagreement is turns[-1] and [turn.agrees for turn in turns] == [True] * (take - 1) + [
        False
    ]


def test_a_newly_revealed_fact_is_invented_and_not_false(begin, dream, expert):
    step = next(s for s in expert.steps if re.match(r"At [a-z]+ \d+: [a-z]+ \d", s.next_state))
    place = step.next_state.split(":")[0].removeprefix("At ")
    dream.altered[step.step + 1] = lambda answer: replace(answer, state=f"At {place}: statue 9. {EMPTY}")
    play = begin()
    found = _play(play, expert.up_to(step.step + 1))[-1].comparison
    assert found.invented and not found.same_facts and ("in", "statue 9", place) in found.revealed


def test_at_a_revealing_step_a_wrong_hand_is_still_wrong(adapter):
    task = make_task()
    before = ("take mug 1 from desk 1", "Took mug 1 from desk 1. Holding mug 1.")
    dreamed = make_episode(task, before, ("go to shelf 1", "At shelf 1: egg 1. Holding mug 1."))
    failed = ("take mug 1 from desk 1", f"Nothing happens in the room. {EMPTY}")
    real = make_episode(task, failed, ("go to shelf 1", f"At shelf 1: nothing. {EMPTY}"))
    found = compare(adapter, dreamed, real)
    assert found.contradicted == {("holding", "mug 1"), ("in", "egg 1", "shelf 1")}
    assert found.revealed == {("in", "egg 1", "shelf 1"), ("empty", "shelf 1")} and not found.invented


def test_a_dream_that_contradicts_itself_has_no_revealed_facts(adapter):
    dreamed = make_episode(make_task(), ("go to shelf 1", "At shelf 1: egg 1. Holding mug 1."))
    real = make_episode(make_task(), ("go to shelf 1", f"At shelf 1: nothing. {EMPTY}"))
    assert not compare(adapter, dreamed, real).revealed


def test_a_dreamed_success_is_checked_in_the_dreams_own_world(witness, begin, dream, expert):
    play = begin()
    _play(play, expert)
    found = witness.confirm(play.dreamed)
    assert (
        found.agrees
        and all(one.same_text for one in found.comparisons)
        and found.interactions == len(expert.steps)
    )
    take = _take(expert)
    dream.altered[take] = lambda step: replace(step, reward=1.0, done=True)
    play = begin()
    turns = _play(play, expert)
    assert (
        play.end is End.WON
        and len(turns) == take
        and not turns[-1].same_outcome
        and turns[-1].comparison.same_text
    )
    found = witness.confirm(play.dreamed)
    assert not found.agrees and found.reason == "the real engine denies it" and len(found.comparisons) == take


def test_an_episode_without_reward_is_confirmed_by_an_engine_that_gives_none(witness, expert):
    found = witness.confirm(expert.up_to(_take(expert)))
    assert found.agrees and not found.reason
    denied = replace(expert, steps=(*expert.steps[:-1], replace(expert.steps[-1], reward=0.0, done=False)))
    assert witness.confirm(denied).reason == f"was won at step {len(expert.steps) - 1}, not at all"


def test_the_screen_shows_what_agrees_and_a_summary(worlds, expert):
    text = show([step.action for step in expert.steps], worlds, [expert.task])
    count = len(expert.steps)
    assert expert.task.instruction in text and expert.task.id in text
    assert text.count("== same text") == count and text.count("why  reason") == count
    assert "The dream says: success." in text
    assert f"Confirmed: the success is real there ({count} of {count} states confirmed)." in text
    assert f"{count} of {count} in their facts, {count} word for word" in text
    assert "diverged" not in text and "\x1b" not in text


def test_the_screen_shows_what_differs_and_when_the_worlds_part(worlds, dream, expert):
    take = _take(expert)
    dream.altered[take] = lambda step: replace(step, state=f"Looked around in the room. {EMPTY}")
    text = show([step.action for step in expert.steps[:take]] + ["look"], worlds, [expert.task])
    assert re.search(r"!! \d facts differ: .*contradicted", text) and "holding nothing" in text
    assert "From here on the two episodes differ: the dream was wrong." in text
    assert f"Diverged at step {take}. The dream's own: " in text


def test_after_the_worlds_part_the_engine_checks_the_dreams_own(worlds, dream, expert):
    """The dream adds an object next to the one to take; its later answers are compared in that world."""
    step = expert.steps[_take(expert) - 2]
    listed, place = step.next_state.split(".")[0], step.next_state.split(":")[0].removeprefix("At ")
    first = step.step + 1
    dream.altered[first] = dream.altered[first + 1] = lambda answer: replace(
        answer, state=f"{listed}, vase 9. {EMPTY}"
    )
    dream.altered[first + 2] = lambda answer: replace(answer, state=f"Nothing happens at {place}. {EMPTY}")
    text = show(
        [s.action for s in expert.steps[:first]] + [f"examine {place}", f"take vase 9 from {place}"],
        worlds,
        [expert.task],
    )
    invented, right, wrong = " ".join(text.split()).split(f"step {first}> ")[1].split("> ")
    assert (
        "?? 1 fact differs, newly revealed: the dream could not know" in invented and "own:" not in invented
    )
    assert "From here on the two episodes differ: the dream invented what had not been shown yet." in invented
    assert (
        "!! 1 fact differs: 1 contradicted" in right
        and "The dream's own: the real engine says the same." in right
    )
    assert "== same text" in wrong, "in the first world there is no vase either"
    assert (
        "The dream's own: the real engine says: not event failed; not holding nothing; event took, vase 9"
        in wrong
    )
    assert f"{first + 1} of {first + 2} states the same" in wrong


def test_a_terminal_shows_wrong_phrases_in_red(worlds, dream, expert, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    take = _take(expert)
    dream.altered[take] = lambda step: replace(step, state=step.state.replace("Holding", "Holding hot"))
    actions = [step.action for step in expert.steps[:take]]
    text = show(actions, worlds, [expert.task], force_terminal=True, color_system="standard")
    assert "\x1b[1;31mhot\x1b[0m" in text


def test_a_narrow_terminal_stacks_the_worlds(worlds, expert):
    both = re.compile(r"dream ─.*real ─")
    assert both.search(show(["look"], worlds, [expert.task], width=80))
    narrow = show(["look"], worlds, [expert.task], width=79)
    assert not both.search(narrow) and "─ real ─" in narrow


def test_the_real_episode_may_be_over_first(worlds, dream, expert):
    last = len(expert.steps)
    dream.altered[last] = dream.altered[last + 1] = lambda step: replace(step, reward=0.0, done=False)
    text = show([step.action for step in expert.steps] + ["look"], worlds, [expert.task])
    assert "!! dream: reward 0, not over; real: reward 1, the end" in text
    assert "its episode is over" in text and "left before its end" in text
    assert "The dream's own: the real episode is over." in text and "Denied: was won at step" in text


def test_every_command_answers(worlds, expert, tasks):
    first = expert.steps[0].action
    script = [
        ":why",
        first,
        ":why",
        ":demos",
        ":facts",
        ":history",
        ":help",
        ":tasks",
        ":tasks lamp",
        ":histroy",
        ":check",
        ":task 99",
        ":task",
        ":task 2",
        "",
        "# a comment",
        "look",
        ":restart",
        ":quit",
        "look",
    ]
    text = show(script, worlds, [expert.task, *[task for task in tasks if task.id != expert.task.id]])
    assert "No step yet" in text and "\nreason 1\n" in text and "was shown no demonstration" in text
    assert "both" in text and "agrees" in text and "show this list" in text
    assert tasks[-1].id in text and "Did you mean :history?" in text
    assert "No real world can be built" in text or "The real engine in the world" in text
    assert "There is no task number 99: expected 1 to 12." in text and "Name a task" in text
    assert text.count("task 2 of 12") == 2 and "a comment" not in text
    assert text.count("> look") == 1


def test_an_action_longer_than_any_model_takes_is_not_played(worlds, expert):
    text = show(["look " * 200, "look"], worlds, [expert.task])
    assert "Not played: an action of 999 characters" in text and "1 of at most 30" in text


def test_the_step_limit_cuts_the_episode_off(worlds, expert):
    text = show(["look", "look", "look", "look"], replace(worlds, max_steps=2), [expert.task])
    assert "2 steps are the limit (environment.max_steps)" in text
    assert "2 actions came after the end of the episode and had no effect." in text


@pytest.mark.parametrize("stop", [EOFError, KeyboardInterrupt])
def test_a_player_can_leave_at_any_time(worlds, expert, monkeypatch, stop):
    typed = iter(["look"])

    def answer(prompt):
        for line in typed:
            return line
        raise stop

    monkeypatch.setattr("builtins.input", answer)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    file = io.StringIO()
    source = line_source(None)
    assert source.typed
    Player(worlds, Screen(Console(file=file, width=100)), "train", [expert.task]).play(expert.task, source)
    assert "1 of at most 30" in file.getvalue() and ("Interrupted." in file.getvalue()) == (
        stop is KeyboardInterrupt
    )
    assert "> look" not in file.getvalue(), "what was typed is on the screen already"


def test_a_real_dream_shows_its_reasons_and_demonstrations(adapter, witness, learnt, lessons):
    buffer = ReplayBuffer(RetrievalConfig(k=1))
    buffer.add([replace(step, task_id="t9") for episode in lessons for step in episode.steps])
    bare = Dream(learnt, ReplayBuffer(RetrievalConfig(k=0)))
    actions = [step.action for step in lessons[0].steps]
    text = show([*actions, ":why", ":history"], Worlds(adapter, bare, None, witness, 20), [lessons[0].task])
    assert (
        "Took mug 1 from desk 1" in text
        and "reward 1, the end" in text
        and "The dream says: success." in text
    )
    assert "why  works" in text and "real" not in text.split("Steps")[1], (
        "without --side-by-side nothing is compared"
    )
    seen = show(
        ["go to desk 1", ":demos"],
        Worlds(adapter, Dream(learnt, buffer), None, witness, 20),
        [lessons[0].task],
    )
    assert "like go to desk 1 -> At desk 1: mug 1." in seen and "real, t9" in seen


def test_the_record_of_an_episode_has_each_state_before_and_after_its_action_in_both_worlds(worlds, expert):
    player = Player(worlds, Screen(Console(file=io.StringIO())), "train", [expert.task])
    script = [step.action for step in expert.steps]
    player.play(expert.task, line_source([*script, ":quit"]))
    found = played_record(player.episodes)
    assert [step["action"] for step in found["steps"]] == script and found["end"] == "success"
    assert [step["state"] for step in found["steps"]] == list(expert.states[:-1])
    assert [step["next_state"] for step in found["steps"]] == list(expert.states[1:])
    assert [step["reward"] for step in found["steps"]][-1] == 1.0 and found["steps"][-1]["done"]
    assert all(step["agrees"] and step["real"]["next_state"] == step["next_state"] for step in found["steps"])
    assert json.loads(json.dumps(found)) == found


def test_transcripts_hold_what_was_shown_and_typed(tmp_path, worlds, expert):
    for form in ("txt", "md", "html"):
        path = tmp_path / f"seen.{form}"
        screen = Screen(Console(file=io.StringIO(), width=60), path)
        asked = iter(["look"])
        Player(worlds, screen, "train", [expert.task]).play(
            expert.task, LineSource(lambda prompt, asked=asked: next(asked, None), True)
        )
        screen.save()
        text = path.read_text()
        assert "step 1&gt; " in text if form == "html" else "step 1> look" in text
        assert "Looked around in the room" in text and (form == "html") == ("<pre" in text)


def test_help_shows_what_actions_look_like(expert):
    shown = example_actions(expert.steps)
    assert {action.split()[0] for action in shown} == {step.action.split()[0] for step in expert.steps}
