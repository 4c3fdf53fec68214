"""The episodes that stages read: with thoughts, or without."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import make_episode, make_task

from components.config import load_config
from components.trajectories.store import DataLayout, write_tasks, write_transitions
from flows.run.pipeline_run import Run
from flows.run.run_data import episodes_to_clone, training_episodes


@pytest.mark.parametrize(("thoughts", "expected"), [("true", "to the desk"), ("false", "")])
def test_policies_learn_from_episodes_with_or_without_thoughts(tmp_path, thoughts, expected):
    episode = make_episode(make_task(), ("go", "s"), won=True)
    step = replace(episode.steps[0], thought="to the desk", behaviour="expert")
    layout = DataLayout.of(tmp_path, "alfworld")
    write_tasks(layout.tasks("train"), [episode.task])
    write_transitions(layout.trajectories("train"), [step])
    run = Run(load_config(None, [f"cloning.thoughts={thoughts}"]), tmp_path)
    for read in (training_episodes, lambda *given: episodes_to_clone(*given, ["expert"])):
        (found,) = read(run, layout.trajectories("train"))
        assert [one.thought for one in found.steps] == [expected]
