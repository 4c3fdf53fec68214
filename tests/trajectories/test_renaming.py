"""Episodes in other names: the same story, word for word but for the names, or none."""

from dataclasses import replace

from name_lists import ADAPTER, EPISODES, PEOPLE

from components.trajectories.augmentation.renaming import Names, retold, told_of


def test_names_are_exchanged_throughout_and_the_form_stays():
    told = retold(EPISODES, ADAPTER, 2, seed=0)
    assert len(told) == 2 * len(EPISODES) and len({one.task.id for one in told}) == len(told)
    for one, (first, wanted, _) in zip(told, 2 * PEOPLE, strict=True):
        new = one.task.instruction.removeprefix("Select ").removesuffix(" from the list and click Submit.")
        assert new != wanted and (new[0].isupper() or not new.isascii())
        assert one.steps[0].action == f"select [13] {new}" and f"select: = {new} {{" in one.states[1]
        assert first not in one.task.initial_state and one.states[-1] == "Episode over."
        assert one.steps[0].task_id == one.task.id and one.success
        assert (
            one.steps[-1].reasoning.endswith("done") and new.casefold() in one.steps[-1].reasoning.casefold()
        )


def test_some_names_are_of_other_scripts_and_all_copies_know_their_task():
    told = retold(EPISODES, ADAPTER, 40, seed=0)
    foreign = [one for one in told if not one.task.instruction.isascii()]
    assert 0.1 < len(foreign) / len(told) < 0.5
    assert len({one.task.instruction for one in foreign}) == len(foreign)
    assert (
        {told_of(one.task.id) for one in told}
        == {told_of(one.task.id) for one in EPISODES}
        == {one.task.id for one in EPISODES}
    )


def test_only_the_mark_of_a_copy_is_taken_from_an_id():
    assert [told_of(name) for name in ("a/1~2", "a/1~h1", "a/1~h1~3", "own/~home/1", "x~y")] == [
        "a/1",
        "a/1",
        "a/1",
        "own/~home/1",
        "x~y",
    ]


def test_the_same_seed_tells_the_same():
    assert (
        retold(EPISODES, ADAPTER, 1, seed=0)
        == retold(EPISODES, ADAPTER, 1, seed=0)
        != retold(EPISODES, ADAPTER, 1, seed=1)
    )
    assert retold(EPISODES, ADAPTER, 0, seed=0) == []


def test_what_hangs_on_a_word_is_not_told():
    """An outcome that the teacher explains otherwise in other names: here it was not explained as the teacher
    does at all.
    """
    strange = [
        replace(one, steps=(replace(one.steps[0], reasoning="since Cory is short"), *one.steps[1:]))
        for one in EPISODES
    ]
    assert retold(strange, ADAPTER, 1, seed=0) == []


def test_words_that_tasks_share_and_labels_and_marks_are_no_names():
    names = Names.of(EPISODES)
    assert {"select", "submit", "list", "button", "click", "episode"} <= names.stay["choose-list"]
    assert names.own["list/0"] == ["ana", "cory", "pia"] and "submit" not in names.pool
