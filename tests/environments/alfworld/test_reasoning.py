"""The programmatic teacher compared with the engine: conclusions, novelty, and the thoughts of an agent."""

from __future__ import annotations

import re
from collections import Counter

from alfworld_play import everything, moments
from builders import make_episode, make_task

from components.environments.alfworld.embody import embody
from components.environments.alfworld.games import FAMILIES
from components.environments.alfworld.goals import RESULT, read_goal
from components.environments.alfworld.knowledge import read_knowledge
from components.environments.alfworld.reasoning import reason, reflect, think
from components.environments.alfworld.states import read_state
from components.records import Trajectory, Transition

H = " Holding nothing."
LOOK = re.compile(r"([a-z][a-z ]*) want ([a-z]+): (yes|no)")
PAIR = re.compile(r"((?:[a-z]+ )*[a-z]+|[a-z]+ \d+) want ([a-z]+(?: \d+)?): (yes|no)")


def test_going_to_a_lit_lamp_can_be_the_last_step(world):
    """The rarest ending: the lamp is lit before the book is fetched."""
    room = "Room: bed 1, desk 1, dresser 1. Holding nothing."
    shown = [("go to bed 1", "At bed 1: book 1." + H), ("go to desk 1", "At desk 1: desklamp 1." + H)]
    body = embody(
        make_episode(make_task(instruction="look at book under the desklamp", initial_state=room), *shown)
    )
    world.reset([body])
    episode, texts = Trajectory(body), []
    for action in (
        "go to desk 1",
        "use desklamp 1",
        "go to bed 1",
        "take book 1 from bed 1",
        "go to dresser 1",
        "go to desk 1",
    ):
        (answer,) = world.step([action])
        texts.append(reason(episode, action, answer.state, answer.reward).partition(". ")[2])
        transition = Transition("t", "e", len(texts), "", action, answer.state, answer.reward, answer.done)
        episode = episode.with_step(transition)
    assert (
        texts[1]
        == "a switch, desklamp 1 want desklamp 1: yes. works. desklamp want desklamp: yes, nothing want "
        "book: no. not done"
    )
    after_taking = "works. book want book: yes, Turned on desklamp 1 at desk 1 want bed 1: no. not done"
    assert texts[3] == "hand free, bed 1 want bed 1: yes, book 1 want book 1: yes. " + after_taking
    dark = "book want book: yes, Turned on desklamp 1 at desk 1 want dresser 1: no. not done"
    went = "bed 1 desk 1 dresser 1 want {0} 1: yes, {1} 1 want {0} 1: no. works, "
    assert texts[4] == went.format("dresser", "bed") + f"new. {dark}"
    shines = "book want book: yes, Turned on desklamp 1 at desk 1 want desk 1: yes. done"
    assert texts[5] == went.format("desk", "dresser") + f"known desklamp 1. {shines}"
    assert episode.success


def test_the_reasoning_concludes_what_the_engine_decides(played, wild):
    """`works` or `fails`, and `done` exactly where what was got is what is wanted; the engine's reward is the
    judge.
    """
    kinds = Counter()
    for history, step in everything(played) + moments(wild):
        text = reason(history, step.action, step.next_state, step.reward)
        failed = read_state(step.next_state).event == "failed"
        form = (
            r"(?:at|in the) ([a-z]+(?: \d+)?), hold (?:(?:clean|cool|hot) )*([a-z]+(?: \d+)?)\. "
            r"(?:([a-z0-9:, ]+)\. )?(works|fails)\b"
        )
        place, holding, needs, verdict = re.match(form, text).groups()
        assert (verdict == "fails") == failed and "no effect" not in text
        denial = re.compile(r"\b(?:not|no|full|already|wrong|cannot)\b|^closed$|heavy")
        texts = (needs or "").split(", ")
        if step.action.startswith("go to ") and len(texts) == 2:  # one must not be where one goes
            texts[1] = {"yes": "already there", "no": "elsewhere"}[texts[1].rpartition(": ")[2]]
        conclusions = {need.rpartition(": ")[2] for need in texts}
        conclusions -= (
            {"closed"} if step.action.startswith("open ") else set()
        )  # there it is what the action needs
        assert failed == any(denial.search(conclusion) for conclusion in conclusions), (text, step.action)
        assert holding == (read_state(step.state).holding or "nothing")
        assert place == (read_knowledge(history).place or "room")
        pairs = PAIR.findall(text.partition("works")[2])
        if pairs:
            assert all(
                (wanted == actual or wanted in actual.split()) == (answer == "yes")
                for actual, wanted, answer in pairs
            )
            holds = pairs[-1][2] == "yes"
            assert holds == (step.reward > 0.5) == text.endswith(". done"), (
                history.states,
                step.action,
                text,
            )
            kinds[history.task.family, holds] += 1
        else:
            assert step.reward == 0, (history.states, step.action, text)
    assert {(family, holds) for family in FAMILIES for holds in (True, False)} == kinds.keys()


def test_near_misses_fail_at_every_condition(played):
    missed = Counter()
    for history, step in moments(played["near_miss"]):
        text = reason(history, step.action, step.next_state, step.reward)
        missed.update(
            wanted for _, wanted, answer in PAIR.findall(text.partition("works")[2]) if answer == "no"
        )
        missed["another of its kind"] += bool(re.search(r", there [^:]*: no\. not done$", text))
    assert {"hot", "cool", "clean"} <= missed.keys() and missed.pop("another of its kind")
    assert any(" " in wanted for wanted in missed)  # the place where the lamp should shine
    assert len(missed) > 10 and missed.total() > 30


def test_the_reasoning_calls_new_what_the_history_does_not_determine(adapter, played, wild):
    counts = Counter()
    for history, step in everything(played) + moments(wild):
        if step.action.startswith(("go to ", "open ")) and read_state(step.next_state).event == "at":
            novel = (
                reason(history, step.action, step.next_state, step.reward)
                .partition("works, ")[2]
                .startswith("new")
            )
            assert novel == adapter.revealing(history, step.action, step.next_state)
            counts[novel] += 1
    assert min(counts.values()) > 50


def test_a_changed_listing_is_written_in_full():
    task = make_task(initial_state="Room: desk 1, shelf 1." + H)
    steps = [
        ("go to shelf 1", "At shelf 1: mug 1, mug 2, pen 1." + H),
        ("take mug 1 from shelf 1", "Took mug 1 from shelf 1. Holding mug 1."),
        ("go to desk 1", "At desk 1: nothing. Holding mug 1."),
        ("move mug 1 to desk 1", "Moved mug 1 to desk 1." + H),
        ("go to shelf 1", "At shelf 1: mug 2, pen 1." + H),
        ("take mug 2 from shelf 1", "Took mug 2 from shelf 1. Holding mug 2."),
    ]
    episode = make_episode(task, *steps)
    assert read_knowledge(episode.up_to(1)).describe_contents("shelf 1") == "mug 1 mug 2 pen 1"
    assert (
        read_knowledge(episode.up_to(2)).describe_contents("shelf 1")
        == "mug 1 mug 2 pen 1, less mug 1, now mug 2 pen 1"
    )
    assert read_knowledge(episode.up_to(4)).describe_contents("desk 1") == "nothing, more mug 1, now mug 1"
    back = reason(episode.up_to(4), *steps[4], 0.0)
    assert back.endswith("works, known mug 1 mug 2 pen 1, less mug 1, now mug 2 pen 1")
    there = ("go to desk 1", "At desk 1: mug 1. Holding mug 2.")
    two = make_episode(
        make_task(instruction="put two mug in desk", initial_state=task.initial_state), *steps, there
    )
    placed = reason(two, "move mug 2 to desk 1", "Moved mug 2 to desk 1." + H, 0.0)
    assert placed.endswith(
        "mug want mug: yes, there mug 1, mug want mug: yes, desk want desk: yes. not done"
    )  # the reward was 0.0


def test_treatments_are_named_before_the_state():
    task = make_task(initial_state="Room: desk 1, fridge 1." + H)
    cup = ("take cup 1 from desk 1", "Took cup 1 from desk 1. Holding clean cup 1.")
    cooled = ("cool cup 1 with fridge 1", "Cooled cup 1 with fridge 1. Holding clean cool cup 1.")
    fridge = ("go to fridge 1", "At fridge 1: closed. Holding clean cup 1.")
    episode = make_episode(task, ("go to desk 1", "At desk 1: cup 1." + H), cup, fridge)
    assert reason(episode, *cooled, 0.0).endswith("works, now clean cool cup 1")
    assert reason(episode.up_to(1), *cup, 0.0).endswith("works, now clean cup 1")
    assert reason(episode, "examine cup 1", "Looked around at fridge 1. Holding clean cup 1.", 0.0).endswith(
        "in the hand. works"
    )
    assert reason(episode, "examine fridge 1", "At fridge 1: closed. Holding clean cup 1.", 0.0).endswith(
        "here. works"
    )


def thought_after(episode):
    return think(read_goal(episode.task.instruction), read_knowledge(episode))


def test_thoughts_carry_what_a_later_step_needs():
    room = "Room: desk 1, shelf 1, shelf 2." + H
    shown = [
        ("go to shelf 1", "At shelf 1: desklamp 1." + H),
        ("go to shelf 2", "At shelf 2: mug 1, mug 2." + H),
    ]
    look = make_episode(make_task(instruction="look at mug under the desklamp", initial_state=room), *shown)
    assert thought_after(look) == "note desklamp 1 at shelf 1. mug want mug: yes. mug 1 at shelf 2"
    took = [*shown, ("take mug 1 from shelf 2", "Took mug 1 from shelf 2. Holding mug 1.")]
    two = make_task(instruction="put two mug in desk", initial_state=room)
    assert (
        thought_after(make_episode(two, *took))
        == "note mug 2 at shelf 2 next. mug want mug: yes. mug 1 to desk 1"
    )
    put = [
        *took,
        ("go to desk 1", "At desk 1: nothing. Holding mug 1."),
        ("move mug 1 to desk 1", "Moved mug 1 to desk 1." + H),
    ]
    assert thought_after(make_episode(two, *put)) == "note mug 1 at desk 1 placed. mug 2 at shelf 2"


def test_the_thoughts_of_the_expert_lead_to_its_actions(played):
    """`find` before exploring, the thing and its place before taking it, the verb before treating, the goal
    before delivering.
    """
    counts = Counter()
    for history, step in moments(played["expert"]):
        thought, verb = step.thought, step.action.split()[0]
        compared, _, aim = thought.rpartition(". ")
        counts[aim.split()[0]] += 1
        if verb in ("heat", "cool", "clean"):
            assert aim == f"{verb} {read_knowledge(history).holding}" and compared.endswith(
                f"plain want {RESULT[verb]}: no"
            )
        if verb == "move":
            assert (
                aim == f"{read_knowledge(history).holding} to {step.action.split(' to ')[1]}"
                and ": no" not in compared
            )
        if verb == "take":
            assert aim == step.action.removeprefix("take ").replace(" from ", " at ") and compared.endswith(
                ": yes"
            )
        if verb == "go" and aim.startswith("find") and not read_knowledge(history).holding:
            assert not compared.endswith(": yes")
        if aim.startswith("find"):
            unseen = aim.partition(", new ")[2]
            assert all(f"{place} " in f"{unseen} " for place in read_knowledge(history).unsearched_places())
            assert (
                verb == "open"
                or unseen == "nothing"
                or step.action.removeprefix("go to ") in read_knowledge(history).unsearched_places()
            )
        for listed, wanted, answer in LOOK.findall(compared):
            assert (wanted in listed.split()) == (answer == "yes")
            counts[answer] += 1
    assert {"find", "heat", "cool", "clean"} <= counts.keys() and min(counts["yes"], counts["no"]) > 10


def test_a_thought_drops_a_thing_that_is_not_the_target(tasks):
    body = next(task for task in tasks if "mug" not in task.instruction)
    wrong = make_episode(body, ("take mug 1 from desk 1", "Took mug 1 from desk 1. Holding mug 1."))
    assert thought_after(wrong) == f"mug want {read_goal(body.instruction).target}: no. drop mug 1"


def test_a_reflection_names_the_consequences_of_alternatives():
    episode = make_episode(make_task(), ("go to shelf 1", "At shelf 1: mug 1. Holding nothing."))
    alternatives = [
        ("look", "Looked around in the room. Holding nothing."),
        ("go to shelf 1", "At shelf 1: mug 1. Holding nothing."),
    ]
    said = "look would not help. go to shelf 1 would fail. find mug"
    assert reflect(episode, alternatives, "find mug") == said
