"""Copies with other names are the same episodes apart from the names."""

from dataclasses import replace

from name_lists import ADAPTER, EPISODES, PEOPLE

from components.trajectories.augmentation.renaming import Names, original_task_id, rename_episodes


def test_names_are_replaced_throughout_and_the_form_stays():
    copies = rename_episodes(EPISODES, ADAPTER, 2, seed=0)
    assert len(copies) == 2 * len(EPISODES) and len({copy.task.id for copy in copies}) == len(copies)
    for copy, (first, name, _) in zip(copies, 2 * PEOPLE, strict=True):
        new = copy.task.instruction.removeprefix("Select ").removesuffix(" from the list and click Submit.")
        assert new != name and (new[0].isupper() or not new.isascii())
        assert copy.steps[0].action == f"select [13] {new}" and f"select: = {new} {{" in copy.states[1]
        assert first not in copy.task.initial_state and copy.states[-1] == "Episode over."
        assert copy.steps[0].task_id == copy.task.id and copy.success
        assert (
            copy.steps[-1].reasoning.endswith("done")
            and new.casefold() in copy.steps[-1].reasoning.casefold()
        )


def test_some_names_are_in_other_scripts_and_all_copies_name_their_task():
    copies = rename_episodes(EPISODES, ADAPTER, 40, seed=0)
    in_other_scripts = [copy for copy in copies if not copy.task.instruction.isascii()]
    assert 0.1 < len(in_other_scripts) / len(copies) < 0.5
    assert len({copy.task.instruction for copy in in_other_scripts}) == len(in_other_scripts)
    assert (
        {original_task_id(copy.task.id) for copy in copies}
        == {original_task_id(copy.task.id) for copy in EPISODES}
        == {copy.task.id for copy in EPISODES}
    )


def test_only_the_mark_of_a_copy_is_removed_from_an_id():
    assert [original_task_id(name) for name in ("a/1~2", "a/1~h1", "a/1~h1~3", "own/~home/1", "x~y")] == [
        "a/1",
        "a/1",
        "a/1",
        "own/~home/1",
        "x~y",
    ]


def test_the_same_seed_gives_the_same_copies():
    assert (
        rename_episodes(EPISODES, ADAPTER, 1, seed=0)
        == rename_episodes(EPISODES, ADAPTER, 1, seed=0)
        != rename_episodes(EPISODES, ADAPTER, 1, seed=1)
    )
    assert rename_episodes(EPISODES, ADAPTER, 0, seed=0) == []


def test_an_episode_whose_reasoning_depends_on_a_word_is_not_copied():
    """The recorded reasoning differs from the teacher's."""
    strange = [
        replace(copy, steps=(replace(copy.steps[0], reasoning="since Cory is short"), *copy.steps[1:]))
        for copy in EPISODES
    ]
    assert rename_episodes(strange, ADAPTER, 1, seed=0) == []


def test_common_words_labels_and_marks_are_not_names():
    names = Names.of(EPISODES)
    assert {"select", "submit", "list", "button", "click", "episode"} <= names.form_words["choose-list"]
    assert names.of_task["list/0"] == ["ana", "cory", "pia"] and "submit" not in names.pool
