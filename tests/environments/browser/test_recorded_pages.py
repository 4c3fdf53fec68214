"""The browser's data that come with a clone: every recorded end agrees with what the pages showed."""

from __future__ import annotations

from collections import Counter

import pytest
from builders import shipped

from components.environments.browser.reasoning import judged
from components.trajectories.store import read_tasks, read_transitions, trajectories


@pytest.mark.parametrize(
    ("split", "episodes", "paid", "checkboxes"), [("train", 600, 300, 26), ("fidelity", 150, 77, 5)]
)
def test_no_recorded_wrong_answer_has_a_reward(split, episodes, paid, checkboxes):
    """BrowserGym's own reward paid 310 and 80 of these episodes: in 10 and 3 of `click-checkboxes` a box was
    wrong.
    """
    tasks = read_tasks(shipped("data/browser/tasks", f"{split}.parquet"))
    recorded = trajectories(tasks, read_transitions(shipped("data/browser/trajectories", f"{split}.parquet")))
    assert len(recorded) == episodes
    ends = Counter((judged(one), one.steps[-1].reward) for one in recorded if one.steps[-1].done)
    assert set(ends) == {(1.0, 1.0), (0.0, 0.0)} and ends[1.0, 1.0] == paid
    assert sum(one.success and one.task.family == "click-checkboxes" for one in recorded) == checkboxes
    assert all(
        one.steps[-1].reasoning.endswith("done" if one.success else "lost")
        for one in recorded
        if one.steps[-1].done
    )
    assert not any(one.success and one.steps[-1].reasoning.endswith("not done") for one in recorded)
