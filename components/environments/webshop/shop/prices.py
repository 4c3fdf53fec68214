"""Read the prices of product records: `$12.99`, `$5.00 - $95.00`, or a text without a price.

A product with a range costs its lower end, in the reward as in what a state shows first. The original draws
the price from the range again in every process, so no shopper can know whether it is below a limit.
"""

from __future__ import annotations

import html
import math
import re
import unicodedata
from typing import Any

MAX_PRICE = 9_999_999.0
"""The highest price that a state can write."""
_NUMBER = r"(?P<number>\.?[\d.,]*\d)(?![eE]\d)"
_FIRST = re.compile(rf"\D*?(?P<negative>-\$?|\$\s*-)?(?P<dollar>\$\s*)?{_NUMBER}")
_SECOND = re.compile(rf"\.?\s*(?P<to>-|–|—|to\b)?\s*(?P<dollar>\$\s*)?{_NUMBER}(?P<rest>.*)", re.DOTALL)
_AMOUNT = re.compile(r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+")
_DOLLAR_BEHIND = re.compile(r"(\.?\d[\d.,]*)\s*\$")
_RANGE_WORDS = {"from", "between", "to", "and"}
_MORE_DIGITS = re.compile(r"'\d{3}\b|\s\d{2,3}(?:[.,]\d+)?\s*(?:$|[-–—])")
"""What follows the first digits of an amount in a notation that is not read: `1 299`, `1'299`, `12 99`."""
_THOUSANDS = re.compile(r"[kKmM]\b")
_CODES = (
    "AED ARS AUD BRL CAD CHF CNY CZK DKK EUR GBP HKD HUF IDR ILS INR JPY KRW MXN MYR NOK NZD PHP PLN "
    "RMB RUB SAR SEK SGD THB TWD VND ZAR"
)
_OTHER_DOLLARS = "A AR AU B BR BZ C CA CDN CL CO COL HK J MEX MX MXN NT NZ R RD S SG TT TW Z"
_OTHER_MONEY = re.compile(
    rf"(?i:\b(?:{_CODES.replace(' ', '|')}|Rs|kr|euros?|rupees?|yen)\b|zł|Kč)"
    rf"|\b(?:{_OTHER_DOLLARS.replace(' ', '|')})\s?\$"
)


def read_prices(value: Any) -> tuple[float, ...]:
    """Return one price, or the lower and the higher end of a range, in dollars; () if there is none.

    A text's leading number is the price: `$12.99 (2.5 oz.)` is 12.99. A second number makes a range only
    where it is an amount too. Of more than two the first two count, as in the original. Of a list, the first
    two prices of its entries count.
    """
    prices = (
        _prices_of_list(value)
        if isinstance(value, list | tuple)
        else _prices_of_number(value)
        if _is_number(value)
        else _prices_of_text(value)
    )
    return tuple(sorted(set(prices[:2])))


def _prices_of_list(values: Any) -> list[float]:
    return [
        price
        for value in values
        if not isinstance(value, list | tuple | dict)
        for price in read_prices(value)
    ]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _prices_of_number(value: float) -> list[float]:
    return [float(value)] if math.isfinite(value) and 0 <= value <= MAX_PRICE else []


def _prices_of_text(value: Any) -> list[float]:
    """Return the amounts at the beginning of a text; of one with dollar signs, from the first sign on."""
    text = _plain_text(value) if isinstance(value, str) else ""
    if not text or _is_other_money(text):
        return []
    dollar = text.find("$")
    if dollar < 0 or _FIRST.match(text[:dollar]) is None:
        return _amounts_at_start(text)
    words = {word.lower() for word in re.findall(r"[^\W\d_]+", text[:dollar])}  # as in `Pack of 3 $9.99`
    amounts = _amounts_at_start(text) if words <= _RANGE_WORDS else []
    return amounts if len(amounts) == 2 else _amounts_at_start(text[dollar:])


def _plain_text(text: str) -> str:
    """Return `text` with one spelling of signs that HTML and Unicode spell in several ways.

    A dollar sign stands before its number.
    """
    visible = "".join(sign for sign in html.unescape(text) if unicodedata.category(sign) != "Cf")
    normalised = unicodedata.normalize("NFKC", visible).translate(
        {ord("−"): "-", ord("‐"): "-", ord("’"): "'"}
    )
    return normalised if re.search(r"\$\s*-?\.?\d", normalised) else _DOLLAR_BEHIND.sub(r"$\1", normalised)


def _is_other_money(text: str) -> bool:
    return any(unicodedata.category(sign) == "Sc" and sign != "$" for sign in text) or bool(
        _OTHER_MONEY.search(text)
    )


def _amounts_at_start(text: str) -> list[float]:
    """Return the first amount of `text`, and the second where the two are a range."""
    first = _FIRST.match(text)
    if first is None or first["negative"] or _THOUSANDS.match(text, first.end()):
        return []
    if "." not in first["number"] and _MORE_DIGITS.match(text, first.end()):
        return []
    lower = _amount(first["number"])
    second = _SECOND.match(text, first.end())
    return lower + _amount(second["number"]) if lower and second and _is_range(first, second) else lower


def _is_range(first: re.Match[str], second: re.Match[str]) -> bool:
    """Return whether both numbers are amounts of money.

    Both have dollar signs, or the second stands behind `-` or `to` with no word after it.
    """
    both_dollars = first["dollar"] and second["dollar"]
    return bool(both_dollars or (second["to"] and (second["dollar"] or not re.search(r"\w", second["rest"]))))


def _amount(text: str) -> list[float]:
    """Return `1,299.00` as [1299.0]; [] where commas or points are those of another notation."""
    return _prices_of_number(float(text.replace(",", ""))) if _AMOUNT.fullmatch(text) else []
