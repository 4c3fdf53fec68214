"""How far a WebShop episode has come towards its goal, by what its states show.

The steps are those of every solution: search for the kind, open a result without a mismatch, learn of each
required attribute that the item has it, choose each required option. They are counted for the item that is
open, or for the best one that was.
"""

from __future__ import annotations

from components.environments.webshop.goals import Requirements, read_requirements
from components.environments.webshop.knowledge import NO, Knowledge, assess_item
from components.environments.webshop.premise import first_matching_query
from components.environments.webshop.shop.reward import same_option
from components.records import Trajectory


def progress(trajectory: Trajectory) -> float:
    """Return the progress from 0.0 to 1.0.

    1.0 for a success and below 1.0 for all else; 0.0 where the instruction is free text.
    """
    requirements = read_requirements(trajectory.task.instruction)
    if trajectory.success or not requirements.is_exact:
        return float(trajectory.success)
    knowledge = Knowledge()
    best = 0
    for state in trajectory.states:
        knowledge.add_state(state)
        best = max(best, _completed_steps(knowledge, requirements))
    steps = 2 + len(requirements.attributes) + len(requirements.options)
    # An episode that did all steps without success stays below 1.
    return (bool(first_matching_query(trajectory)) + best) / (steps + 1)


def _completed_steps(knowledge: Knowledge, requirements: Requirements) -> int:
    """Return the steps done for the item that is open; 0 if it misses a requirement."""
    item = knowledge.item
    if item is None or item.groups is None or assess_item(item, requirements) == NO:
        return 0
    chosen = sum(
        any(same_option(required, value) for value in knowledge.chosen) for required in requirements.options
    )
    return (
        1
        + chosen
        + sum(item.attribute(required, requirements.kind) == "yes" for required in requirements.attributes)
    )
