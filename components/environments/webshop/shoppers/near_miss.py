"""The near-miss shopper: plays as the expert up to one mistake on purpose, drawn for the episode.

The mistakes are those of a hasty agent:

- another option, or none,
- a product of the right kind that lacks an attribute or costs too much,
- a product whose features were never read,
- a product of another kind.

The experience model learns from the shop's answers when a purchase fails.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from components.environments.webshop.knowledge import (
    NO,
    UNSEEN,
    YES,
    Item,
    Knowledge,
    assess_item,
    next_missing_option,
    required_options,
)
from components.environments.webshop.shop.assortment import KINDS
from components.environments.webshop.shoppers.expert import ExpertShopper
from components.environments.webshop.shoppers.random_actions import impossible_action
from components.environments.webshop.wording import short_query

_READING_PROBABILITIES = {"unread": 0.0, "other product": 0.7}
"""Mistake -> the probability that the shopper reads the features first; 0.3 for other mistakes."""
IMMEDIATE_PURCHASE_PROBABILITY = 0.75
"""The probability that a shopper who forgets options buys at once, rather than choosing one of them first."""


@dataclass
class NearMissShopper:
    """The expert up to one mistake, with impossible actions between; one episode in ten or so makes none.

    The mistakes of hasty agents are drawn most often: to buy before the options are chosen, or to buy what
    costs too much.
    """

    expert: ExpertShopper
    mistake: str = field(init=False)

    def __post_init__(self) -> None:
        option_mistakes = (
            ["other option", "other option", *4 * ["no option"]] if self.expert.requirements.options else []
        )
        others = ["other product", "other product", "unread", "too dear", "too dear", "other kind", "none"]
        self.mistake = self.expert.rng.choice([*option_mistakes, *others])

    def act(self, knowledge: Knowledge, admissible: list[str]) -> str:
        """Return the next action."""
        rng = self.expert.rng
        if rng.random() < 0.25:
            return impossible_action(knowledge, self.expert.requirements, rng)
        if knowledge.on_item and knowledge.item:
            return self._act_on_item(knowledge, knowledge.item, admissible)
        if knowledge.rank:
            return "click[< prev]"
        if knowledge.listed_items and (wrong_items := self._wrong_items(knowledge)):
            return f"click[item {rng.choice(wrong_items).rank}]"
        if not knowledge.query and self.mistake == "other kind":
            words = [*self.expert.requirements.attributes, rng.choice(KINDS).name]
            return f"search[{short_query(' '.join(words))}]"
        return self.expert.act(knowledge, admissible)

    def _wrong_items(self, knowledge: Knowledge) -> list[Item]:
        """Return listed results that are wrong, or may be wrong, in the way of this episode's mistake."""
        requirements = self.expert.requirements
        if self.mistake == "too dear":
            return [
                item
                for item in knowledge.listed_items
                if requirements.limit and item.dollars > requirements.limit
            ]
        if self.mistake == "other kind":
            return [
                item
                for item in knowledge.listed_items
                if not set(requirements.kind.split()) <= set(item.title.split())
            ]
        if self.mistake not in ("other product", "unread"):
            return []
        lacking = [
            item
            for item in knowledge.listed_items
            if any(item.attribute(required, requirements.kind) != YES for required in requirements.attributes)
        ]
        target = NO if self.mistake == "other product" else UNSEEN
        return [item for item in lacking if assess_item(item, requirements) == target] or lacking

    def _act_on_item(self, knowledge: Knowledge, item: Item, admissible: list[str]) -> str:
        requirements = self.expert.requirements
        rng = self.expert.rng
        if self.mistake == "none":
            return self.expert.act(knowledge, admissible)
        if item.features is None and rng.random() < _READING_PROBABILITIES.get(self.mistake, 0.3):
            return "click[features]"
        if self.mistake == "other option":
            return self._choose_other_option(knowledge, item)
        value = next_missing_option(item, requirements, knowledge.chosen)
        if self.mistake == "no option" and (not value or rng.random() < IMMEDIATE_PURCHASE_PROBABILITY):
            return "click[buy now]"
        return f"click[{value}]" if value else "click[buy now]"

    def _choose_other_option(self, knowledge: Knowledge, item: Item) -> str:
        """Choose a wrong value in one group of required options, and the right ones in the others."""
        required = required_options(item, self.expert.requirements)
        rng = self.expert.rng
        groups = [values for _, values in item.groups or () if any(value in values for value in required)]
        if not groups:
            return "click[buy now]"
        wrong_group = groups[len(knowledge.items) % len(groups)]
        wrong_values = [value for value in wrong_group if value not in required]
        if wrong_values and not any(value in wrong_group for value in knowledge.chosen):
            return f"click[{rng.choice(wrong_values)}]"
        remaining = [
            value for value in required if value not in wrong_group and value not in knowledge.chosen
        ]
        return f"click[{remaining[0]}]" if remaining else "click[buy now]"
