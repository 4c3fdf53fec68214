"""The expert shopper: searches with the instruction's words, rejects mismatches, chooses options and buys."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from components.environments.webshop.goals import Requirements
from components.environments.webshop.knowledge import (
    NO,
    Item,
    Knowledge,
    assess_item,
    next_missing_option,
    results_page_number,
)
from components.environments.webshop.thoughts import title_match_count
from components.environments.webshop.wording import short_query

MAX_RESULT_PAGES = 2
"""Pages of results that the expert looks at."""


@dataclass
class ExpertShopper:
    """Opens results without a mismatch, and reads the features where the title does not tell all."""

    requirements: Requirements
    rng: random.Random
    decided: bool = field(default=False, init=False)
    """Whether the expert has decided a step since this was last set to False."""

    def act(self, knowledge: Knowledge, admissible: list[str]) -> str:
        """Return the next action."""
        self.decided = True
        if knowledge.rank and knowledge.item:
            return self._act_on_item(knowledge, knowledge.item)
        return self._act_on_results(knowledge) if knowledge.query else f"search[{self.requirements.query}]"

    def _act_on_item(self, knowledge: Knowledge, item: Item) -> str:
        """Leave the item, read its features, choose an option, or buy."""
        if assess_item(item, self.requirements) == NO and (
            self._fitting_results(knowledge) or self._look_elsewhere(knowledge)
        ):
            return f"search[{knowledge.query}]"  # the same search shows the results again
        if not knowledge.on_item:
            return "click[< prev]"
        if item.features is None and assess_item(item, self.requirements) != "yes":
            return "click[features]"
        value = next_missing_option(item, self.requirements, knowledge.chosen)
        return f"click[{value}]" if value else "click[buy now]"

    def _act_on_results(self, knowledge: Knowledge) -> str:
        """Open the best result without a mismatch.

        Where there is none, look at another page, search again, or open the least bad result.
        """
        fitting = self._fitting_results(knowledge)
        if not fitting and (elsewhere := self._look_elsewhere(knowledge)):
            return elsewhere
        candidates = fitting or list(knowledge.results())
        return (
            self._open(knowledge, self._best(candidates))
            if candidates
            else f"search[{self.requirements.query}]"
        )

    def _look_elsewhere(self, knowledge: Knowledge) -> str:
        """Return the action for the next page, or for a plainer search; "" if both were done."""
        if (
            knowledge.number < min(knowledge.pages, MAX_RESULT_PAGES)
            and (knowledge.query, knowledge.number + 1) not in knowledge.listed_ranks
        ):
            return "click[next >]"
        return (
            "" if (self._plainest_query, 1) in knowledge.listed_ranks else f"search[{self._plainest_query}]"
        )

    def _open(self, knowledge: Knowledge, item: Item) -> str:
        """Click a result, or go to the page that shows it."""
        number = results_page_number(item.rank)
        if number != knowledge.number:
            return "click[next >]" if number > knowledge.number else "click[< prev]"
        return f"click[item {item.rank}]"

    def _fitting_results(self, knowledge: Knowledge) -> list[Item]:
        """Return the known results of this search without a mismatch."""
        return [item for item in knowledge.results() if assess_item(item, self.requirements) != NO]

    def _best(self, items: list[Item]) -> Item:
        """Return the item whose title matches most, of equals the first."""
        return max(items, key=lambda item: (title_match_count(item, self.requirements), -item.rank))

    @property
    def _plainest_query(self) -> str:
        """A search with fewer words, for when the first one finds nothing."""
        return short_query(
            " ".join(
                [self.requirements.kind, *self.requirements.attributes]
                if self.requirements.is_exact
                else self.requirements.words[:4]
            )
        )
