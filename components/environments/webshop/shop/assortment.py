"""What a generated shop sells: kinds of products in departments, their attributes, options and prices.

A kind has groups of attributes of which a product has one each, so that two products of a kind can differ in
a single attribute. The words behind the comma in `tail` stand in the product's full name; they, the brands
and the kinds' names are each one kind's own, and of a kind's groups of attributes only one holds nouns, so
that the reward's title score tells any two kinds apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_MATERIAL = ("cotton", "linen", "wool", "polyester")
_CARE = ("washable", "dry clean", "quick dry")
_FIT = ("slim", "relaxed", "fitted")
_SHOE = ("leather", "suede", "canvas", "mesh")
_SOLE = ("arched", "cushioned", "grooved")
_WIDTH = ("wide", "narrow")
_WEATHER = ("waterproof", "breathable", "insulated")
_POWER = ("wireless", "wired", "solar")
_CHARGE = ("rechargeable", "disposable")
_EXTRA = ("bluetooth", "foldable", "magnetic")
_VESSEL = ("steel", "ceramic", "glass", "bamboo")
_KITCHEN = ("microwavable", "stackable", "collapsible")
_SAFE = ("leakproof", "nontoxic", "shatterproof")
_SKIN = ("sensitive skin", "oily skin", "dry skin")
_SOURCE = ("organic", "vegan", "mineral")
_PURE = ("hypoallergenic", "soothing", "hydrating")
_DIET = ("gluten free", "sugar free", "dairy free")
_FARM = ("organic", "raw", "roasted")
_TASTE = ("salted", "smoked", "sweet", "spicy")
_FRAME = ("oak", "pine", "metal", "wicker")
_SETUP = ("assembled", "foldable", "hanging")
_FINISH = ("matte", "glossy", "rustic")
_FABRIC = ("velvet", "cotton", "linen", "fleece")
_GRIP = ("padded", "ergonomic", "textured")
_LOAD = ("lightweight", "sturdy", "compact")

COLOURS = (
    "black",
    "white",
    "navy",
    "red",
    "green",
    "pink",
    "purple",
    "yellow",
    "orange",
    "brown",
    "beige",
    "teal",
    "gold",
    "silver",
)
SIZES = ("small", "medium", "large", "xl", "xxl")
_SHOES = ("6", "7", "8", "9", "11", "12")
_BEDS = ("twin", "queen", "king", "crib")
_PACKS = ("single", "pair", "six", "dozen")
_SCENTS = ("rose", "lemon", "mint", "vanilla", "cedar")
_FLAVOURS = ("chocolate", "lemon", "honey", "garlic", "apple")
_LENGTHS = ("short", "regular", "long")
_VOLUMES = ("travel", "standard", "jumbo")
_PLUGS = ("usb", "hdmi", "aux")


@dataclass(frozen=True)
class Kind:
    """One kind of product: `groups` of attributes, `options` (name and values), the range of its prices in
    dollars.
    """

    name: str
    department: str
    shelf: str
    groups: tuple[tuple[str, ...], ...]
    options: tuple[tuple[str, tuple[str, ...]], ...]
    prices: tuple[int, int]
    tail: str


def _kinds(department: str, table: list[tuple[Any, ...]]) -> list[Kind]:
    """Rows of name, shelf, groups, options, prices, tail."""
    return [Kind(row[0], department, *row[1:]) for row in table]


_COLOUR_SIZE = (("color", COLOURS), ("size", SIZES))
_COLOUR_SHOE = (("color", COLOURS), ("size", _SHOES))
_COLOUR_PLUG = (("color", COLOURS), ("connector", _PLUGS))
_COLOUR_VOLUME = (("color", COLOURS), ("size", _VOLUMES))
_SCENT_VOLUME = (("scent", _SCENTS), ("size", _VOLUMES))
_FLAVOUR_PACK = (("flavor", _FLAVOURS), ("pack", _PACKS))
_COLOUR_BED = (("color", COLOURS), ("size", _BEDS))
_COLOUR_LENGTH = (("color", COLOURS), ("length", _LENGTHS))

KINDS = (
    *_kinds(
        "clothing",
        [
            (
                "oxford shirt",
                "shirts",
                (_MATERIAL, _FIT, _CARE),
                _COLOUR_SIZE,
                (16, 58),
                "button collar office top",
            ),
            (
                "cardigan",
                "knits",
                (_MATERIAL, _FIT, _CARE),
                _COLOUR_SIZE,
                (19, 74),
                "knit layer sweater shoulder",
            ),
            (
                "hoodie",
                "pullovers",
                (_MATERIAL, _FIT, _CARE),
                _COLOUR_SIZE,
                (15, 55),
                "hood pocket sweatshirt jumper",
            ),
            (
                "chino pants",
                "trousers",
                (_MATERIAL, _FIT, _CARE, _WEATHER),
                _COLOUR_LENGTH,
                (18, 66),
                "belt loop slacks trouser",
            ),
            (
                "rain jacket",
                "coats",
                (_FIT, _CARE, _WEATHER),
                _COLOUR_SIZE,
                (28, 95),
                "storm shell parka coat",
            ),
            (
                "pajama set",
                "sleepwear",
                (_FABRIC, _FIT, _CARE),
                _COLOUR_SIZE,
                (14, 48),
                "nightwear bedtime robe lounge",
            ),
        ],
    ),
    *_kinds(
        "shoes",
        [
            (
                "running sneakers",
                "athletics",
                (_SHOE, _SOLE, _WIDTH),
                _COLOUR_SHOE,
                (26, 96),
                "trainer gym race jogger",
            ),
            (
                "hiking boots",
                "trail",
                (_SHOE, _SOLE, _WEATHER),
                _COLOUR_SHOE,
                (38, 129),
                "mountain trek ankle lace",
            ),
            (
                "loafers",
                "dress",
                (_SHOE, _SOLE, _WIDTH),
                _COLOUR_SHOE,
                (24, 88),
                "moccasin penny business tassel",
            ),
            (
                "sandals",
                "summer",
                (_SHOE, _SOLE, _WIDTH, _WEATHER),
                _COLOUR_SHOE,
                (12, 49),
                "beach strap toe summer",
            ),
            ("slippers", "house", (_FABRIC, _SOLE, _WIDTH), _COLOUR_SHOE, (9, 34), "scuff house heel mule"),
            ("ballet flats", "women", (_SHOE, _SOLE, _WIDTH), _COLOUR_SHOE, (17, 57), "bow pump dance women"),
        ],
    ),
    *_kinds(
        "electronics",
        [
            (
                "headphones",
                "audio",
                (_POWER, _CHARGE, _EXTRA),
                _COLOUR_PLUG,
                (19, 149),
                "ear headset music audio",
            ),
            (
                "keyboard",
                "computers",
                (_POWER, _CHARGE, _GRIP),
                _COLOUR_PLUG,
                (15, 89),
                "key typist laptop computer",
            ),
            (
                "desk lamp",
                "lighting",
                (_POWER, _EXTRA, _FINISH),
                _COLOUR_PLUG,
                (14, 62),
                "bulb reader lantern study",
            ),
            (
                "speaker",
                "sound",
                (_POWER, _CHARGE, _EXTRA, _WEATHER),
                _COLOUR_PLUG,
                (18, 118),
                "bass party stereo sound",
            ),
            (
                "doorbell",
                "security",
                (_POWER, _CHARGE, _FINISH),
                _COLOUR_PLUG,
                (22, 98),
                "chime entrance camera porch",
            ),
            (
                "game controller",
                "gaming",
                (_POWER, _CHARGE, _GRIP),
                _COLOUR_PLUG,
                (17, 72),
                "joystick console thumb video",
            ),
        ],
    ),
    *_kinds(
        "kitchen",
        [
            (
                "coffee mug",
                "drinkware",
                (_VESSEL, _KITCHEN, _SAFE),
                _COLOUR_VOLUME,
                (7, 29),
                "tea cup handle espresso",
            ),
            (
                "mixing bowl",
                "bakeware",
                (_VESSEL, _KITCHEN, _SAFE),
                _COLOUR_VOLUME,
                (9, 38),
                "dough salad batter whisk",
            ),
            (
                "frying pan",
                "cookware",
                (_VESSEL, _KITCHEN, _SAFE),
                _COLOUR_VOLUME,
                (14, 69),
                "skillet egg stove omelet",
            ),
            (
                "lunch box",
                "storage",
                (_VESSEL, _KITCHEN, _SAFE, _LOAD),
                _COLOUR_VOLUME,
                (8, 36),
                "bento meal container picnic",
            ),
            (
                "water bottle",
                "travel",
                (_VESSEL, _SAFE, _WEATHER),
                _COLOUR_VOLUME,
                (9, 39),
                "flask canteen sip straw",
            ),
            (
                "cutting board",
                "tools",
                (_VESSEL, _KITCHEN, _GRIP),
                _COLOUR_VOLUME,
                (8, 44),
                "block knife chef slice",
            ),
        ],
    ),
    *_kinds(
        "beauty",
        [
            (
                "face cream",
                "skincare",
                (_SKIN, _SOURCE, _PURE),
                _SCENT_VOLUME,
                (8, 46),
                "moisturizer night cheek wrinkle",
            ),
            ("shampoo", "hair", (_SOURCE, _PURE, _SKIN), _SCENT_VOLUME, (6, 33), "scalp lather rinse hair"),
            (
                "lip balm",
                "lips",
                (_SOURCE, _PURE, _FINISH),
                _SCENT_VOLUME,
                (4, 19),
                "chapstick stick mouth gloss",
            ),
            ("body lotion", "body", (_SKIN, _SOURCE, _PURE), _SCENT_VOLUME, (7, 38), "butter arm milk elbow"),
            (
                "deodorant",
                "hygiene",
                (_SKIN, _SOURCE, _PURE),
                _SCENT_VOLUME,
                (5, 22),
                "antiperspirant underarm odor sweat",
            ),
            (
                "hand soap",
                "bath",
                (_SKIN, _SOURCE, _PURE),
                _SCENT_VOLUME,
                (4, 24),
                "bubble dispenser sink wash",
            ),
        ],
    ),
    *_kinds(
        "food",
        [
            ("almond snack", "nuts", (_DIET, _FARM, _TASTE), _FLAVOUR_PACK, (6, 34), "trail mix pouch nut"),
            (
                "protein bar",
                "bars",
                (_DIET, _FARM, _TASTE),
                _FLAVOUR_PACK,
                (8, 42),
                "workout energy wrapper muscle",
            ),
            ("popcorn", "chips", (_DIET, _FARM, _TASTE), _FLAVOUR_PACK, (5, 27), "kernel movie bucket corn"),
            (
                "granola",
                "cereal",
                (_DIET, _FARM, _TASTE),
                _FLAVOUR_PACK,
                (6, 31),
                "oat breakfast cluster cereal",
            ),
            (
                "pasta sauce",
                "pantry",
                (_DIET, _FARM, _TASTE),
                _FLAVOUR_PACK,
                (5, 28),
                "tomato spaghetti jar basil",
            ),
            (
                "crackers",
                "bakery",
                (_DIET, _FARM, _TASTE),
                _FLAVOUR_PACK,
                (4, 25),
                "wafer cheese seed biscuit",
            ),
        ],
    ),
    *_kinds(
        "home",
        [
            (
                "throw blanket",
                "bedding",
                (_FABRIC, _CARE, _LOAD),
                _COLOUR_BED,
                (15, 68),
                "couch sofa cover nap",
            ),
            (
                "bookshelf",
                "furniture",
                (_FRAME, _SETUP, _FINISH),
                _COLOUR_VOLUME,
                (38, 179),
                "bookcase rack library cube",
            ),
            (
                "nightstand",
                "bedroom",
                (_FRAME, _SETUP, _FINISH),
                _COLOUR_VOLUME,
                (29, 129),
                "bedside drawer table cabinet",
            ),
            (
                "curtains",
                "windows",
                (_FABRIC, _CARE, _SETUP),
                _COLOUR_LENGTH,
                (13, 64),
                "drape rod panel window",
            ),
            (
                "wall mirror",
                "decor",
                (_FRAME, _SETUP, _FINISH),
                _COLOUR_VOLUME,
                (18, 98),
                "vanity reflection hallway bathroom",
            ),
            (
                "laundry hamper",
                "closet",
                (_FRAME, _SETUP, _LOAD),
                _COLOUR_VOLUME,
                (14, 52),
                "basket clothes sorter closet",
            ),
        ],
    ),
    *_kinds(
        "sports",
        [
            (
                "yoga mat",
                "fitness",
                (_GRIP, _LOAD, _SOLE),
                _COLOUR_LENGTH,
                (14, 68),
                "pilates stretch floor pose",
            ),
            (
                "backpack",
                "bags",
                (_GRIP, _LOAD, _WEATHER),
                _COLOUR_VOLUME,
                (21, 92),
                "rucksack school daypack commute",
            ),
            (
                "sleeping bag",
                "camping",
                (_FABRIC, _LOAD, _WEATHER),
                _COLOUR_LENGTH,
                (25, 119),
                "tent mummy camper campfire",
            ),
            (
                "bike helmet",
                "cycling",
                (_GRIP, _LOAD, _FINISH),
                _COLOUR_SIZE,
                (19, 86),
                "bicycle rider head cycle",
            ),
            (
                "dumbbell",
                "weights",
                (_GRIP, _LOAD, _SOLE),
                (("color", COLOURS), ("pack", _PACKS)),
                (12, 79),
                "barbell lift biceps iron",
            ),
            (
                "swim goggles",
                "pool",
                (_GRIP, _LOAD, _FINISH),
                _COLOUR_SIZE,
                (8, 37),
                "dive lens underwater pool",
            ),
        ],
    ),
)
BY_NAME = {kind.name: kind for kind in KINDS}
UNSEEN = frozenset(kind.name for number, kind in enumerate(KINDS) if number % 6 == 5)
"""The kinds that no training goal asks for: the last of each department."""
BRAND_BEGINS = (
    "hal",
    "mer",
    "tor",
    "vin",
    "bel",
    "cor",
    "dun",
    "fal",
    "gar",
    "kel",
    "lor",
    "nor",
    "per",
    "ros",
    "sil",
    "wex",
)
BRAND_ENDS = ("den", "row", "ton", "mark", "field", "ford", "gate", "wick", "stad", "lund", "crest", "moor")
