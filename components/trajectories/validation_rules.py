"""Rules for recorded transitions, as Great Expectations' expectations.

Rules that span rows (step order, state chain ...) are computed as columns of True and False first, and then
expected to be True. So every rule is listed in the Data Docs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import pandas as pd

from components.config import DataConfig
from components.config.worlds.environment_config import EnvironmentConfig
from components.language.vocabulary.markers import MARKERS
from components.records import REAL, SYNTHETIC, Task
from components.trajectories.columns import ColumnProblem
from components.trajectories.store import TRANSITION_SCHEMA

ENVIRONMENTS = get_args(EnvironmentConfig.model_fields["name"].annotation)
MARKERS_SPELLED = "markers_spelled"
"""Name of the rule that counts texts that spell a reserved marker. It never fails."""
TEXT_COLUMNS = ("state", "action", "next_state")
COMPUTED_RULES = {
    "step_follows": ("step", "The steps of an episode are 0, 1, 2 ... in the order of the file."),
    "state_follows": ("state", "A state is the next state of the step before it."),
    "start_is_the_tasks": ("state", "The first state of an episode is its task's initial state."),
    "action_has_words": ("action", "An action is more than blanks."),
    "reward_ends": ("reward", "A rewarded step is terminal."),
    "end_is_last": ("done", "Only the last step of an episode is terminal."),
    "reward_is_last": ("reward", "Only the last step of an episode is rewarded."),
    "episode_has_one_task": ("task_id", "All steps of an episode have the same task."),
    "task_is_known": ("task_id", "The task is in one of the files of tasks."),
    "environment_is_known": ("task_id", "The task belongs to a known environment."),
    "task_is_not_held_out": ("task_id", "The task is not held out: it belongs to no other split."),
}
"""Rule that spans rows or files -> (column whose value is shown with a broken row, sentence)."""


@dataclass(frozen=True)
class Check:
    """The result of one rule: whether all rows keep it, how many do not, and the rule as a sentence.

    `unexpected` of `markers_spelled` is the number of rows that spell a marker.
    """

    name: str
    success: bool
    unexpected: int
    sentence: str


def add_rule_columns(
    frame: pd.DataFrame,
    tasks_by_split: Mapping[str, Sequence[Task]],
    split: str,
    environments: Collection[str],
) -> pd.DataFrame:
    """The frame with a column for each rule that spans rows or files, and `row`, the position in the file."""
    tasks = [task for tasks_of_split in tasks_by_split.values() for task in tasks_of_split]
    environment_of = {task.id: task.environment for task in tasks}
    initial_states = frame["task_id"].map({task.id: task.initial_state for task in tasks})
    held_out = {task.id for name, others in tasks_by_split.items() if name != split for task in others}
    episodes = frame.groupby("episode_id", sort=False, dropna=False)
    number = episodes.cumcount()
    is_last = number == episodes["episode_id"].transform("size") - 1
    # A missing or empty value breaks none of these rules, because it has a rule of its own.
    has_no_reward = ~(frame["reward"] > 0)
    is_done_or_missing = frame["done"] != False  # noqa: E712
    is_open_or_missing = frame["done"] != True  # noqa: E712
    return frame.assign(
        row=range(len(frame)),
        step_follows=frame["step"] == number,
        state_follows=_equal(frame["state"], episodes["next_state"].shift()) | (number == 0),
        start_is_the_tasks=(number > 0) | initial_states.isna() | _equal(frame["state"], initial_states),
        action_has_words=(frame["action"] == "") | (frame["action"].astype("str").str.strip() != ""),
        reward_ends=has_no_reward | is_done_or_missing,
        end_is_last=is_last | is_open_or_missing,
        reward_is_last=is_last | has_no_reward,
        episode_has_one_task=episodes["task_id"].transform("nunique") <= 1,
        task_is_known=frame["task_id"].isin(list(environment_of)),
        environment_is_known=frame["task_id"]
        .map(lambda task: environment_of.get(task) in environments or task not in environment_of)
        .astype(bool),
        task_is_not_held_out=~frame["task_id"].isin(list(held_out)),
        markers_spelled=_spells_marker(frame).astype(int),
    )


def _equal(first: pd.Series, second: pd.Series) -> pd.Series:
    """Whether values are equal; False where one is missing."""
    return (first == second).fillna(False).astype(bool)


def _spells_marker(frame: pd.DataFrame) -> pd.Series:
    markers = "|".join(re.escape(str(marker)) for marker in MARKERS)
    return (
        frame[[*TEXT_COLUMNS, "reasoning"]]
        .apply(lambda column: column.astype("str").str.contains(markers, regex=True))
        .any(axis=1)
    )


def row_expectations(config: DataConfig) -> list[Any]:
    """One expectation for each rule on a frame from `add_rule_columns`."""
    from great_expectations import expectations as gxe

    max_chars = config.max_text_chars
    rules: list[Any] = [
        gxe.ExpectColumnValuesToNotBeNull(
            column=name, notes=f"Each row has a value in {name}.", meta=_meta(f"{name}_is_present")
        )
        for name in TRANSITION_SCHEMA.names
    ]
    for name in TEXT_COLUMNS:
        notes = f"The text in {name} has 1 to {max_chars} characters."
        rules.append(
            gxe.ExpectColumnValueLengthsToBeBetween(
                column=name, min_value=1, max_value=max_chars, notes=notes, meta=_meta(f"{name}_length")
            )
        )
    for name, values in (("reward", [0.0, 1.0]), ("source", [REAL, SYNTHETIC])):
        notes = f"A {name} is {values[0]} or {values[1]}."
        meta = _meta(f"{name}_value")
        rules.append(gxe.ExpectColumnValuesToBeInSet(column=name, value_set=values, notes=notes, meta=meta))
    rules.append(
        gxe.ExpectCompoundColumnsToBeUnique(
            column_list=["episode_id", "step"],
            notes="No step is recorded twice.",
            meta=_meta("step_is_unique"),
        )
    )
    for name, (_, notes) in COMPUTED_RULES.items():
        rules.append(
            gxe.ExpectColumnValuesToBeInSet(column=name, value_set=[True], notes=notes, meta=_meta(name))
        )
    notes = "How many rows spell a reserved marker (encoded as plain text later)."
    rules.append(
        gxe.ExpectColumnSumToBeBetween(
            column=MARKERS_SPELLED, min_value=0, notes=notes, meta=_meta(MARKERS_SPELLED)
        )
    )
    return rules


def column_expectation(problems: Sequence[ColumnProblem]) -> tuple[pd.DataFrame, Any]:
    """(frame, expectation) of the rule that each column can be read, with a row for each column."""
    from great_expectations import expectations as gxe

    problem_of = {problem.column: problem for problem in problems}
    rows = [
        (name, problem_of[name].found if name in problem_of else "readable", "readable")
        for name in TRANSITION_SCHEMA.names
    ]
    frame = pd.DataFrame(rows, columns=["row", "found", "expected"])
    notes = "Each column of a transition is there, and can be read without changing a value."
    rule = gxe.ExpectColumnPairValuesToBeEqual(
        column_A="found", column_B="expected", notes=notes, meta=_meta("columns")
    )
    return frame, rule


def _meta(rule_name: str) -> dict[str, str]:
    return {"check": rule_name}
