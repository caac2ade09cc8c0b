"""Function words: determiners, pronouns, prepositions, conjunctions, adverbs, and phrases of time."""

from __future__ import annotations

from .lexicon import FUTURE, PAST, PRESENT
from .spelling import agreeing
from .tables import table

DETERMINERS = {  # masculine, feminine, and their plurals
    "the": ("le", "la", "les", "les"),
    "this": ("ce", "cette", "ces", "ces"),
    "my": ("mon", "ma", "mes", "mes"),
    "his": ("son", "sa", "ses", "ses"),
    "her": ("son", "sa", "ses", "ses"),
    "our": ("notre", "notre", "nos", "nos"),
    "their": ("leur", "leur", "leurs", "leurs"),
    "a": ("un", "une", "", ""),
    "every": ("chaque", "chaque", "", ""),
    "which": ("quel", "quelle", "quels", "quelles"),
}
BEFORE_VOWEL = {"ce": "cet", "ma": "mon", "sa": "son"}
NUMBERS = {row["english"]: row["french"] for row in table("numbers") if row["counts"]}
AGES = {row["english"]: row["french"] for row in table("numbers")}
QUANTITIES = NUMBERS | {"many": "beaucoup de", "several": "plusieurs", "how many": "combien de"}
DETERMINER_TAGS = {  # of those that are not one DET; `all` is `all the`
    **dict.fromkeys(("my", "his", "her", "our", "their"), "PRON"),
    **dict.fromkeys(NUMBERS, "NUM"),
    "many": "ADJ",
    "several": "ADJ",
    "how many": "ADV ADJ",
    "all": "DET DET",
}

ELIDED = frozenset({"le", "la", "je", "me", "se", "ne", "de", "que", "si"})
CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}

# Person: 0 I, 1 he, 2 we, 3 they.
SUBJECTS = {"I": ("je", 0), "he": ("il", 1), "she": ("elle", 1), "we": ("nous", 2)}
REFLEXIVES = ("me", "se", "nous", "se")
OBJECTS = {  # English, then a direct and an indirect object before the verb, then after a preposition
    "me": ("me", "me", "moi"),
    "him": ("le", "lui", "lui"),
    "her": ("la", "lui", "elle"),
    "us": ("nous", "nous", "nous"),
    "them": ("les", "leur", ""),
}

PLACES = (  # for people and animals; with the English words' parts of speech
    ("in", "dans", frozenset({"inside"}), "ADP"),
    ("in", "dans", frozenset({"inside"}), "ADP"),
    ("at", "à", frozenset({"goal"}), "ADP"),
    ("on", "sur", frozenset({"ground"}), "ADP"),
    ("under", "sous", frozenset({"cover"}), "ADP"),
    ("behind", "derrière", frozenset({"landmark", "furniture"}), "ADP"),
    ("in front of", "devant", frozenset({"landmark", "vehicle"}), "ADP NOUN ADP"),
    ("near", "près de", frozenset({"landmark", "furniture"}), "ADP"),
    ("next to", "à côté de", frozenset({"landmark", "furniture"}), "ADV ADP"),
    ("far from", "loin de", frozenset({"landmark"}), "ADV ADP"),
)
SPOTS = (  # for things
    ("in", "dans", frozenset({"container", "inside"}), "ADP"),
    ("on", "sur", frozenset({"ground"}), "ADP"),
    ("under", "sous", frozenset({"cover"}), "ADP"),
    ("behind", "derrière", frozenset({"furniture"}), "ADP"),
    ("near", "près de", frozenset({"furniture"}), "ADP"),
    ("next to", "à côté de", frozenset({"furniture"}), "ADV ADP"),
)
COUNTRIES = {row["english"]: (row["in"], row["from"]) for row in table("countries")}
# English, its parts of speech, then French, each word with the places (from 0) of the words it renders.
TIMES = {
    tense: tuple((r["english"], r["tags"], r["french"]) for r in table("times") if r["tense"] == tense)
    for tense in (PRESENT, PAST, FUTURE)
}
OFTEN = {"often": "souvent", "always": "toujours", "sometimes": "parfois", "rarely": "rarement"}
MANNERS = {"slowly": "lentement", "quickly": "rapidement", "quietly": "doucement", "patiently": "patiemment"}
DENIALS = {"not": ("pas", "PART"), "never": ("jamais", "ADV"), "no longer": ("plus", "ADV ADV")}
GRADES = {"more": "plus", "less": "moins", "as": "aussi"}
BETTER = agreeing("meilleur")
CONJUNCTIONS = {  # `when` also asks, and English-EWT tags both alike
    "and": ("et", "CCONJ"),
    "but": ("mais", "CCONJ"),
    "because": ("parce que", "SCONJ"),
    "when": ("quand", "ADV"),
    "while": ("pendant que", "SCONJ"),
    "if": ("si", "SCONJ"),
}
WEATHER = {"rains": "pleut", "snows": "neige"}
