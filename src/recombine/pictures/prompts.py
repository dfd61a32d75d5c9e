"""The 31 prompt families that text-to-image generators are read with.

Eight are sets of things ("An image with one A, one B and one C."), the others templates with one
word per slot. Kinds and sizes follow the published experiment; its word lists are not known to us,
so the words are our own. Its description names thirty kinds that can be told apart; the last
family here, three animals bound to three colours, is our own too. "Three animals bound to three X"
means three fixed animals, each with an X of its own, so that only the binding varies.
"""

from __future__ import annotations

from recombine.errors import unknown
from recombine.pictures.family import PromptFamily, Scene, Slot, Things
from recombine.pictures.grammar import with_article

_ANIMALS = (
    "cat", "elephant", "owl", "horse", "dog", "lion", "penguin", "frog", "rabbit", "bear",
    "giraffe", "zebra", "turtle", "cow", "pig", "sheep", "monkey", "tiger", "duck", "fox",
)  # fmt: skip
_COLOURS = ("red", "blue", "green", "yellow", "purple", "orange", "black", "white", "pink", "brown")
_SOLIDS = ("cube", "sphere", "cone")
_FRUITS = (
    "apple", "banana", "pineapple", "strawberry", "watermelon", "pear", "lemon", "orange",
    "cherry", "kiwi",
)  # fmt: skip
_VEGETABLES = (
    "carrot", "tomato", "eggplant", "onion", "bell pepper", "cucumber", "pumpkin", "potato",
    "cabbage", "radish",
)  # fmt: skip
_SHAPES = ("triangle", "square", "circle", "star", "hexagon", "heart")
_CLOTHING = (
    "top hat", "scarf", "raincoat", "bow tie", "sweater", "apron", "dress", "boots", "gloves",
    "sunglasses",
)  # fmt: skip
_FOODS = (
    "pizza", "hamburger", "ice cream cone", "apple", "donut", "sandwich", "carrot", "egg",
    "pretzel", "cupcake",
)  # fmt: skip
_ROUND_FOODS = (
    "donut", "egg", "orange slice", "cookie", "blueberry", "meatball", "pancake", "cherry",
    "tomato", "onion ring",
)  # fmt: skip
_OBJECTS = (
    "chair", "teapot", "car", "guitar", "shoe", "clock", "umbrella", "book", "key", "violin",
)  # fmt: skip
_MATERIALS = ("wood", "glass", "gold", "stone", "paper", "wool", "ice", "chocolate")
_SURFACES = (
    "wooden table", "sandy beach", "grassy lawn", "marble floor", "snowy field", "red carpet",
    "rock", "mirror", "bed", "pile of hay",
)  # fmt: skip
_CONTAINERS = (
    "box", "basket", "glass jar", "bucket", "suitcase", "bowl", "bathtub", "backpack", "drawer",
    "wheelbarrow",
)  # fmt: skip
_ADJECTIVES = (
    "fluffy", "tiny", "giant", "old", "wet", "skinny", "fat", "transparent", "shiny", "muddy",
)  # fmt: skip
_STYLES = (
    "pixel-art", "watercolor", "origami", "cartoon", "pencil-sketch", "stained-glass", "mosaic",
    "low-poly",
)  # fmt: skip
_VERBS = ("running", "sleeping", "jumping", "swimming", "eating", "dancing", "reading", "flying")
_FRUIT_VERBS = (
    "rolling", "falling", "floating", "burning", "melting", "exploding", "dancing", "swimming",
    "sleeping", "flying",
)  # fmt: skip
_LOCATIONS = (
    "on a beach", "in a forest", "on the moon", "in a kitchen", "on a mountain", "under water",
    "in a city street", "in a desert", "on a boat",
)  # fmt: skip
_DESCRIPTORS = (
    "with butterfly wings", "with antlers", "with a crown", "with an eye patch", "with a beard",
    "with a long tail", "with a shell", "with a flower in its mouth", "with wheels", "with a lamp",
)  # fmt: skip
_EMOTIONS = ("happy", "sad", "angry", "surprised", "scared", "sleepy", "bored", "proud")
_COVERINGS = ("feathers", "moss", "snow", "scales", "flowers", "mud", "leaves", "frost")
_COUNTED = (
    "apple", "ball", "balloon", "book", "bottle", "candle", "car", "chair", "clock", "coin", "cup",
    "egg", "flower", "hat", "key", "knife", "pencil", "shoe", "star", "umbrella",
)  # fmt: skip
_NUMBERS = (
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
    "twenty",
)  # fmt: skip


def _animal(asks: str = "Which animal is it?") -> Slot:
    return Slot("animal", _ANIMALS[:10], asks)


def _solids(colours: int, solids: int) -> tuple[str, ...]:
    return tuple(f"{colour} {solid}" for colour in _COLOURS[:colours] for solid in _SOLIDS[:solids])


def _animal_and(name: str, template: str, words: tuple[str, ...], asks: str) -> Scene:
    return Scene(f"animal-{name}", template, (_animal(), Slot(name, words, asks)))


def _counting(name: str, counted: tuple[str, ...], most: int) -> Scene:
    return Scene(
        f"counting-{name}",
        "{number} {thing:s}",
        (
            Slot("number", _NUMBERS[:most], "How many of them are there?"),
            Slot("thing", counted, "What is there?"),
        ),
    )


def _three_animals(name: str, each: str, words: tuple[str, ...], asks: str) -> Scene:
    """Three fixed animals; `each` says how a word is put on one of them."""
    animals = ("cat", "horse", "elephant")
    phrases = [
        each.replace("AN_ANIMAL", with_article(animal))
        .replace("ANIMAL", animal)
        .replace("WORD", animal)
        for animal in animals
    ]
    slots = tuple(Slot(animal, words, asks.replace("ANIMAL", animal)) for animal in animals)
    return Scene(f"three-animals-{name}", f"{phrases[0]}, {phrases[1]} and {phrases[2]}", slots)


_PLACES = ("top", "middle", "bottom")
_ALL: tuple[PromptFamily, ...] = (
    Things("animals-4", _ANIMALS[:4]),
    Things("animals-8", _ANIMALS[:8]),
    Things("animals-20", _ANIMALS),
    Things("solids-8", _solids(4, 2)),
    Things("solids-12", _solids(4, 3)),
    Things("solids-18", _solids(6, 3)),
    Things("fruits-vegetables-20", _FRUITS + _VEGETABLES),
    Things("mixed-20", _ANIMALS[:7] + _VEGETABLES[:7] + _SHAPES),
    _animal_and("clothing", "{animal:a} wearing {clothing:a}", _CLOTHING, "What does it wear?"),
    Scene(
        "animal-clothing-food",
        "{animal:a} wearing {clothing:a} and eating {food:a}",
        (
            _animal(),
            Slot("clothing", _CLOTHING, "What does it wear?"),
            Slot("food", _FOODS, "What does it eat?"),
        ),
    ),
    Scene(
        "animal-eyes-clothing",
        "{animal:a} with {eyes:s} for eyes, wearing {clothing:a}",
        (
            _animal(),
            Slot("eyes", _ROUND_FOODS, "What does it have for eyes?"),
            Slot("clothing", _CLOTHING, "What does it wear?"),
        ),
    ),
    Scene(
        "object-material-surface",
        "{object:a} made of {material} on {surface:a}",
        (
            Slot("object", _OBJECTS, "Which object is it?"),
            Slot("material", _MATERIALS, "What is it made of?"),
            Slot("surface", _SURFACES, "What does it stand or lie on?"),
        ),
    ),
    Scene(
        "nested-containers",
        "{object:a} inside {inner:a} inside {outer:a}",
        (
            Slot("object", _OBJECTS, "Which object is in the innermost container?"),
            Slot("inner", _CONTAINERS, "Which container holds the object itself?"),
            Slot("outer", _CONTAINERS, "Which container holds that container?"),
        ),
    ),
    Scene(
        "stacked-foods",
        "{top:a} on top of {middle:a} on top of {bottom:a}",
        tuple(Slot(place, _FOODS, f"Which food is at the {place}?") for place in _PLACES),
    ),
    Scene(
        "stacked-animals",
        "{top:a} on top of {middle:a} on top of {bottom:a}",
        tuple(Slot(place, _ANIMALS[:10], f"Which animal is at the {place}?") for place in _PLACES),
    ),
    Scene(
        "chase-chain",
        "{first:a} chasing {second:a} that is chasing {third:a}",
        (
            Slot("first", _ANIMALS[:10], "Which animal chases and is not chased?"),
            Slot("second", _ANIMALS[:10], "Which animal is chased and chases another?"),
            Slot("third", _ANIMALS[:10], "Which animal is chased and chases none?"),
        ),
    ),
    _animal_and("adjective", "{adjective:a} {animal}", _ADJECTIVES, "What is it like?"),
    _animal_and("colour", "{colour:a} {animal}", _COLOURS, "Which colour does it have?"),
    _animal_and("style", "{style:a} {animal}", _STYLES, "In which style is it shown?"),
    _animal_and("verb", "{animal:a} {verb}", _VERBS, "What is it doing?"),
    _animal_and("location", "{animal:a} {location}", _LOCATIONS, "Where is it?"),
    _animal_and("descriptor", "{animal:a} {descriptor}", _DESCRIPTORS, "What is odd about it?"),
    Scene(
        "fruit-verb",
        "{fruit:a} {verb}",
        (
            Slot("fruit", _FRUITS, "Which fruit is it?"),
            Slot("verb", _FRUIT_VERBS, "What is it doing?"),
        ),
    ),
    _counting("objects", _COUNTED, 20),
    _counting("animals", _ANIMALS[:10], 10),
    _three_animals(
        "materials", "AN_ANIMAL made of {WORD}", _MATERIALS, "What is the ANIMAL made of?"
    ),
    _three_animals("verbs", "AN_ANIMAL {WORD}", _VERBS, "What is the ANIMAL doing?"),
    _three_animals("emotions", "{WORD:a} ANIMAL", _EMOTIONS, "How does the ANIMAL feel?"),
    _three_animals("styles", "{WORD:a} ANIMAL", _STYLES, "In which style is the ANIMAL shown?"),
    _three_animals(
        "coverings", "AN_ANIMAL covered in {WORD}", _COVERINGS, "What covers the ANIMAL?"
    ),
    _three_animals("colours", "{WORD:a} ANIMAL", _COLOURS[:8], "Which colour is the ANIMAL?"),
)

FAMILIES: dict[str, PromptFamily] = {family.name: family for family in _ALL}
"""Every family by its name."""


def family_named(name: str) -> PromptFamily:
    """The family of this name.

    >>> family_named("animals-4").prompt(["cat", "owl", "horse"])
    'An image with one cat, one owl and one horse.'
    """
    if name not in FAMILIES:
        raise unknown("prompt family", name, FAMILIES)
    return FAMILIES[name]
