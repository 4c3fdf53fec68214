"""Prices of product records: `$12.99`, a range such as `$5.00 - $95.00`, or nothing that is an amount of dollars.

A product with a range costs the least of it, in the reward as in what a state tells first. The original draws its price from the range anew
in every process, so no shopper can know whether it is below a limit.
"""

from __future__ import annotations

import math
import re
from typing import Any

HIGHEST = 9_999_999.0
"""The highest price that a state can write."""
_NUMBER = r"(?P<number>\.?[\d.,]*\d)(?![eE]\d)"
_FIRST = re.compile(rf"\D*?(?P<negative>-\$?|\$\s*-)?(?P<dollar>\$\s*)?{_NUMBER}")
_SECOND = re.compile(rf"\.?\s*(?P<to>-|–|—|to\b)?\s*(?P<dollar>\$\s*)?{_NUMBER}(?P<rest>.*)", re.DOTALL)
_AMOUNT = re.compile(r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+")
_OTHER_MONEY = re.compile(r"[€£¥₹₩₽]|\b(?:EUR|GBP|JPY|INR|CAD|AUD|CHF|CNY)\b", re.IGNORECASE)


def read_prices(value: Any) -> tuple[float, ...]:
    """One price, or the lower and the higher end of a range, in dollars; () where `value` tells none.

    A text's leading number is the price: `$12.99 (2.5 oz.)` is 12.99. A second number makes a range only where it is an amount too. Of more
    than two the first two count, as in the original. Of a list the first two prices of its entries do.
    """
    found = _of_list(value) if isinstance(value, list | tuple) else _of_number(value) if _is_number(value) else _of_text(value)
    return tuple(sorted(set(found[:2])))


def _of_list(values: Any) -> list[float]:
    return [price for value in values if not isinstance(value, list | tuple | dict) for price in read_prices(value)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _of_number(value: float) -> list[float]:
    return [float(value)] if math.isfinite(value) and 0 <= value <= HIGHEST else []


def _of_text(value: Any) -> list[float]:
    """The amounts at the beginning of a text; where it has dollar signs, from the first of them on."""
    if not isinstance(value, str) or _OTHER_MONEY.search(value):
        return []
    found = _from(value)
    dollar = value.find("$")
    return found if dollar < 0 or len(found) == 2 or _FIRST.match(value[:dollar]) is None else _from(value[dollar:])


def _from(text: str) -> list[float]:
    """The first amount of `text`, and the second where the two are a range."""
    first = _FIRST.match(text)
    if first is None or first["negative"]:
        return []
    lower, second = _amount(first["number"]), _SECOND.match(text, first.end())
    return lower + _amount(second["number"]) if lower and second and _is_range(second) else lower


def _is_range(second: re.Match[str]) -> bool:
    """True if the second number is an amount of money: it has a dollar sign, or stands behind `-` or `to` with no word after it."""
    return bool(second["dollar"] or (second["to"] and not re.search(r"\w", second["rest"])))


def _amount(text: str) -> list[float]:
    """`1,299.00` as 1299.0; nothing where the commas or points are those of another notation."""
    return _of_number(float(text.replace(",", ""))) if _AMOUNT.fullmatch(text) else []
