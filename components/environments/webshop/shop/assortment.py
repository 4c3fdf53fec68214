"""What a generated shop sells: kinds of products in departments, their attributes, options and prices.

A kind has groups of attributes, and a product has one attribute of each group. So two products of a kind can
differ in a single attribute. The words of `tail` stand behind the comma in the product's full name. These
words, the brands and the kinds' names are each one kind's own, and of a kind's groups of attributes only one
holds nouns. So the reward's title score tells any two kinds apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_ATTRIBUTE_GROUPS = {
    "material": ("cotton", "linen", "wool", "polyester"),
    "care": ("washable", "dry clean", "quick dry"),
    "fit": ("slim", "relaxed", "fitted"),
    "shoe": ("leather", "suede", "canvas", "mesh"),
    "sole": ("arched", "cushioned", "grooved"),
    "width": ("wide", "narrow"),
    "weather": ("waterproof", "breathable", "insulated"),
    "power": ("wireless", "wired", "solar"),
    "charge": ("rechargeable", "disposable"),
    "extra": ("bluetooth", "foldable", "magnetic"),
    "vessel": ("steel", "ceramic", "glass", "bamboo"),
    "kitchen": ("microwavable", "stackable", "collapsible"),
    "safe": ("leakproof", "nontoxic", "shatterproof"),
    "skin": ("sensitive skin", "oily skin", "dry skin"),
    "source": ("organic", "vegan", "mineral"),
    "pure": ("hypoallergenic", "soothing", "hydrating"),
    "diet": ("gluten free", "sugar free", "dairy free"),
    "farm": ("organic", "raw", "roasted"),
    "taste": ("salted", "smoked", "sweet", "spicy"),
    "frame": ("oak", "pine", "metal", "wicker"),
    "setup": ("assembled", "foldable", "hanging"),
    "finish": ("matte", "glossy", "rustic"),
    "fabric": ("velvet", "cotton", "linen", "fleece"),
    "grip": ("padded", "ergonomic", "textured"),
    "load": ("lightweight", "sturdy", "compact"),
}
"""Group of attributes -> its values, of which a product has one."""
_COLOURS_TEXT = "black white navy red green pink purple yellow orange brown beige teal gold silver"
COLOURS = tuple(_COLOURS_TEXT.split())
SIZES = ("small", "medium", "large", "xl", "xxl")
_OPTION_GROUPS = {
    "colours": ("color", COLOURS),
    "sizes": ("size", SIZES),
    "shoes": ("size", ("6", "7", "8", "9", "11", "12")),
    "beds": ("size", ("twin", "queen", "king", "crib")),
    "packs": ("pack", ("single", "pair", "six", "dozen")),
    "scents": ("scent", ("rose", "lemon", "mint", "vanilla", "cedar")),
    "flavours": ("flavor", ("chocolate", "lemon", "honey", "garlic", "apple")),
    "lengths": ("length", ("short", "regular", "long")),
    "volumes": ("size", ("travel", "standard", "jumbo")),
    "plugs": ("connector", ("usb", "hdmi", "aux")),
}
"""Group of options -> its name in the shop, and its values."""


@dataclass(frozen=True)
class Kind:
    """One kind of product: `groups` of attributes, `options` (name and values), its prices in dollars.

    `prices` are the lowest and the highest price.
    """

    name: str
    department: str
    shelf: str
    groups: tuple[tuple[str, ...], ...]
    options: tuple[tuple[str, tuple[str, ...]], ...]
    prices: tuple[int, int]
    tail: str


# A line that ends with a colon names a department. The columns of the others are: name, shelf, groups of
# attributes, groups of options, prices, tail.
_KINDS_TEXT = """
clothing:
oxford shirt | shirts | material fit care | colours sizes | 16-58 | button collar office top
cardigan | knits | material fit care | colours sizes | 19-74 | knit layer sweater shoulder
hoodie | pullovers | material fit care | colours sizes | 15-55 | hood pocket sweatshirt jumper
chino pants | trousers | material fit care weather | colours lengths | 18-66 | belt loop slacks trouser
rain jacket | coats | fit care weather | colours sizes | 28-95 | storm shell parka coat
pajama set | sleepwear | fabric fit care | colours sizes | 14-48 | nightwear bedtime robe lounge
shoes:
running sneakers | athletics | shoe sole width | colours shoes | 26-96 | trainer gym race jogger
hiking boots | trail | shoe sole weather | colours shoes | 38-129 | mountain trek ankle lace
loafers | dress | shoe sole width | colours shoes | 24-88 | moccasin penny business tassel
sandals | summer | shoe sole width weather | colours shoes | 12-49 | beach strap toe summer
slippers | house | fabric sole width | colours shoes | 9-34 | scuff house heel mule
ballet flats | women | shoe sole width | colours shoes | 17-57 | bow pump dance women
electronics:
headphones | audio | power charge extra | colours plugs | 19-149 | ear headset music audio
keyboard | computers | power charge grip | colours plugs | 15-89 | key typist laptop computer
desk lamp | lighting | power extra finish | colours plugs | 14-62 | bulb reader lantern study
speaker | sound | power charge extra weather | colours plugs | 18-118 | bass party stereo sound
doorbell | security | power charge finish | colours plugs | 22-98 | chime entrance camera porch
game controller | gaming | power charge grip | colours plugs | 17-72 | joystick console thumb video
kitchen:
coffee mug | drinkware | vessel kitchen safe | colours volumes | 7-29 | tea cup handle espresso
mixing bowl | bakeware | vessel kitchen safe | colours volumes | 9-38 | dough salad batter whisk
frying pan | cookware | vessel kitchen safe | colours volumes | 14-69 | skillet egg stove omelet
lunch box | storage | vessel kitchen safe load | colours volumes | 8-36 | bento meal container picnic
water bottle | travel | vessel safe weather | colours volumes | 9-39 | flask canteen sip straw
cutting board | tools | vessel kitchen grip | colours volumes | 8-44 | block knife chef slice
beauty:
face cream | skincare | skin source pure | scents volumes | 8-46 | moisturizer night cheek wrinkle
shampoo | hair | source pure skin | scents volumes | 6-33 | scalp lather rinse hair
lip balm | lips | source pure finish | scents volumes | 4-19 | chapstick stick mouth gloss
body lotion | body | skin source pure | scents volumes | 7-38 | butter arm milk elbow
deodorant | hygiene | skin source pure | scents volumes | 5-22 | antiperspirant underarm odor sweat
hand soap | bath | skin source pure | scents volumes | 4-24 | bubble dispenser sink wash
food:
almond snack | nuts | diet farm taste | flavours packs | 6-34 | trail mix pouch nut
protein bar | bars | diet farm taste | flavours packs | 8-42 | workout energy wrapper muscle
popcorn | chips | diet farm taste | flavours packs | 5-27 | kernel movie bucket corn
granola | cereal | diet farm taste | flavours packs | 6-31 | oat breakfast cluster cereal
pasta sauce | pantry | diet farm taste | flavours packs | 5-28 | tomato spaghetti jar basil
crackers | bakery | diet farm taste | flavours packs | 4-25 | wafer cheese seed biscuit
home:
throw blanket | bedding | fabric care load | colours beds | 15-68 | couch sofa cover nap
bookshelf | furniture | frame setup finish | colours volumes | 38-179 | bookcase rack library cube
nightstand | bedroom | frame setup finish | colours volumes | 29-129 | bedside drawer table cabinet
curtains | windows | fabric care setup | colours lengths | 13-64 | drape rod panel window
wall mirror | decor | frame setup finish | colours volumes | 18-98 | vanity reflection hallway bathroom
laundry hamper | closet | frame setup load | colours volumes | 14-52 | basket clothes sorter closet
sports:
yoga mat | fitness | grip load sole | colours lengths | 14-68 | pilates stretch floor pose
backpack | bags | grip load weather | colours volumes | 21-92 | rucksack school daypack commute
sleeping bag | camping | fabric load weather | colours lengths | 25-119 | tent mummy camper campfire
bike helmet | cycling | grip load finish | colours sizes | 19-86 | bicycle rider head cycle
dumbbell | weights | grip load sole | colours packs | 12-79 | barbell lift biceps iron
swim goggles | pool | grip load finish | colours sizes | 8-37 | dive lens underwater pool
"""


def _read_kinds(text: str) -> Iterator[Kind]:
    department = ""
    for line in text.strip().splitlines():
        if line.endswith(":"):
            department = line.removesuffix(":")
            continue
        name, shelf, groups, options, prices, tail = line.split(" | ")
        low, high = map(int, prices.split("-"))
        yield Kind(
            name,
            department,
            shelf,
            tuple(_ATTRIBUTE_GROUPS[group] for group in groups.split()),
            tuple(_OPTION_GROUPS[option] for option in options.split()),
            (low, high),
            tail,
        )


KINDS = tuple(_read_kinds(_KINDS_TEXT))
BY_NAME = {kind.name: kind for kind in KINDS}
HELD_OUT_KINDS = frozenset(kind.name for number, kind in enumerate(KINDS) if number % 6 == 5)
"""The kinds that no training goal asks for: the last of each department."""
_BRAND_BEGINNINGS_TEXT = "hal mer tor vin bel cor dun fal gar kel lor nor per ros sil wex"
BRAND_BEGINNINGS = tuple(_BRAND_BEGINNINGS_TEXT.split())
_BRAND_ENDINGS_TEXT = "den row ton mark field ford gate wick stad lund crest moor"
BRAND_ENDINGS = tuple(_BRAND_ENDINGS_TEXT.split())
