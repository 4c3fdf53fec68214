"""How far an episode has come towards its goal, by what its states show.

The steps are those that every solution takes: search for the kind, open a result that nothing speaks against,
know of each wanted attribute that it has it, choose each wanted option. They are counted of the result that
is looked at, or of the best one that was.
"""

from __future__ import annotations

from components.environments.webshop.goals import Wants, read_wants
from components.environments.webshop.knowledge import NO, Knowledge, verdict
from components.environments.webshop.premise import first_query
from components.environments.webshop.shop.reward import same_option
from components.records import Trajectory


def progress(trajectory: Trajectory) -> float:
    """Between 0.0 and 1.0; 1.0 of a success, below 1.0 of all else; 0.0 where the instruction is free
    text.
    """
    wants = read_wants(trajectory.task.instruction)
    if trajectory.success or not wants.exact:
        return float(trajectory.success)
    known, best = Knowledge(), 0
    for state in trajectory.states:
        known.see(state)
        best = max(best, _reached(known, wants))
    steps = 2 + len(wants.attributes) + len(wants.options)
    return (bool(first_query(trajectory)) + best) / (
        steps + 1
    )  # all steps done and no success: still not the whole way


def _reached(known: Knowledge, wants: Wants) -> int:
    """Steps done of the result that is looked at: none where something is wrong with it."""
    item = known.item
    if item is None or item.groups is None or verdict(item, wants) == NO:
        return 0
    chosen = sum(any(same_option(wanted, value) for value in known.chosen) for wanted in wants.options)
    return 1 + chosen + sum(item.attribute(wanted, wants.kind) == "yes" for wanted in wants.attributes)
