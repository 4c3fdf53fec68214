"""Prices of product records: `$12.99`, a range such as `$5.00 - $95.00`, or nothing that is an amount of
dollars.

A product with a range costs the least of it, in the reward as in what a state tells first. The original draws
its price from the range anew in every process, so no shopper can know whether it is below a limit.
"""

from __future__ import annotations

import html
import math
import re
import unicodedata
from typing import Any

HIGHEST = 9_999_999.0
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
    """One price, or the lower and the higher end of a range, in dollars; () where `value` tells none.

    A text's leading number is the price: `$12.99 (2.5 oz.)` is 12.99. A second number makes a range only
    where it is an amount too. Of more than two the first two count, as in the original. Of a list the first
    two prices of its entries do.
    """
    found = (
        _of_list(value)
        if isinstance(value, list | tuple)
        else _of_number(value)
        if _is_number(value)
        else _of_text(value)
    )
    return tuple(sorted(set(found[:2])))


def _of_list(values: Any) -> list[float]:
    return [
        price
        for value in values
        if not isinstance(value, list | tuple | dict)
        for price in read_prices(value)
    ]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _of_number(value: float) -> list[float]:
    return [float(value)] if math.isfinite(value) and 0 <= value <= HIGHEST else []


def _of_text(value: Any) -> list[float]:
    """The amounts at the beginning of a text; where it has dollar signs, from the first of them on."""
    text = _plain_text(value) if isinstance(value, str) else ""
    if not text or _is_other_money(text):
        return []
    dollar = text.find("$")
    if dollar < 0 or _FIRST.match(text[:dollar]) is None:
        return _from(text)
    words = {word.lower() for word in re.findall(r"[^\W\d_]+", text[:dollar])}  # as in `Pack of 3 $9.99`
    found = _from(text) if words <= _RANGE_WORDS else []
    return found if len(found) == 2 else _from(text[dollar:])


def _plain_text(text: str) -> str:
    """`text` with the signs that HTML and Unicode spell in several ways in one of them, and a dollar sign
    before its number.
    """
    kept = "".join(sign for sign in html.unescape(text) if unicodedata.category(sign) != "Cf")
    one_way = unicodedata.normalize("NFKC", kept).translate({ord("−"): "-", ord("‐"): "-", ord("’"): "'"})
    return one_way if re.search(r"\$\s*-?\.?\d", one_way) else _DOLLAR_BEHIND.sub(r"$\1", one_way)


def _is_other_money(text: str) -> bool:
    return any(unicodedata.category(sign) == "Sc" and sign != "$" for sign in text) or bool(
        _OTHER_MONEY.search(text)
    )


def _from(text: str) -> list[float]:
    """The first amount of `text`, and the second where the two are a range."""
    first = _FIRST.match(text)
    if first is None or first["negative"] or _THOUSANDS.match(text, first.end()):
        return []
    if "." not in first["number"] and _MORE_DIGITS.match(text, first.end()):
        return []
    lower, second = _amount(first["number"]), _SECOND.match(text, first.end())
    return lower + _amount(second["number"]) if lower and second and _is_range(first, second) else lower


def _is_range(first: re.Match[str], second: re.Match[str]) -> bool:
    """True if both numbers are amounts of money: with dollar signs, or the second behind `-` or `to` with no
    word after it.
    """
    both = first["dollar"] and second["dollar"]
    return bool(both or (second["to"] and (second["dollar"] or not re.search(r"\w", second["rest"]))))


def _amount(text: str) -> list[float]:
    """`1,299.00` as 1299.0; nothing where the commas or points are those of another notation."""
    return _of_number(float(text.replace(",", ""))) if _AMOUNT.fullmatch(text) else []
