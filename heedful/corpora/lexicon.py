"""The phrasebook's words: English beside French, with the forms agreement needs and what goes with what."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

Kinds = frozenset[str]  # what a noun is good for, and what a verb or an adjective asks of it

PRESENT, PAST, FUTURE = "present", "past", "future"


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun in both languages; `feminine` is its French gender."""

    singular: str
    plural: str
    singulier: str
    pluriel: str
    feminine: bool
    kinds: Kinds

    def form(self, plural: bool) -> str:
        return self.plural if plural else self.singular

    def forme(self, plural: bool) -> str:
        return self.pluriel if plural else self.singulier


@dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective in both languages."""

    word: str
    comparative: str  # `bigger`, or `more`; "" where nothing is compared
    formes: tuple[str, str, str, str]  # masculine, feminine, then their plurals
    liaison: str  # masculine singular before a vowel: bel, nouvel, vieil
    before: bool  # stands before its noun in French
    rank: int  # English order: opinion 1, size 2, state 3, age 4, color 5, origin 6, material 7
    kinds: Kinds
    tag: str  # its part of speech in English

    @property
    def shows_gender(self) -> bool:
        return self.formes[0] != self.formes[1]


@dataclass(frozen=True, eq=False)
class Conjugation:
    """A French verb: the forms the phrasebook says."""

    infinitive: str
    present: tuple[str, str, str, str]  # je, il, nous, ils
    participle: tuple[str, str, str, str]  # as an adjective's forms
    etre: bool  # the auxiliary of its compound past

    @property
    def imparfait(self) -> tuple[str, str, str, str]:
        stem = "ét" if self.infinitive == "être" else self.present[2].removesuffix("ons")
        return (stem + "ais", stem + "ait", stem + "ions", stem + "aient")


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb in both languages, with what each puts around it."""

    base: str
    third: str
    past: str
    participle: str
    french: Conjugation
    subjects: Kinds
    objects: Kinds
    particle: tuple[str, ...] = ()  # look `for`, wake `up`
    particle_tag: str = "ADP"  # its part of speech
    state: str = ""  # be `hungry`
    tail: str = ""  # avoir `faim`
    link: str = ""  # the preposition French puts before the object
    to: str = ""  # the word English puts before a verb that follows
    helper: bool = False  # asks and denies without `do`
    stative: bool = False  # its past is an imparfait
    reflexive: bool = False
    clitic: str = ""  # "direct" or "indirect": how French says an object pronoun

    @property
    def name(self) -> str:
        return " ".join((self.state or self.base, *self.particle))

    def form(self, tense: str, person: int) -> str:
        if self.base == "be":
            return BE[tense][person]
        if self.helper:
            return self.base
        if tense == PAST:
            return self.past
        return self.third if person == 1 else self.base


BE = {PRESENT: ("am", "is", "are", "are"), PAST: ("was", "was", "were", "were")}
DO = {PRESENT: ("do", "does", "do", "do"), PAST: ("did", "did", "did", "did")}


# English spelling


def with_s(word: str) -> str:
    """A noun's plural or a verb's third person, where it is regular."""
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if re.search(r"(s|x|ch|sh|[^aeio]o)$", word) else "s")


def with_ed(word: str) -> str:
    """A verb's past, where it is regular."""
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ied"
    return word + ("d" if word.endswith("e") else "ed")


def is_vowel_in_english(word: str) -> bool:
    """Whether `an` comes before it."""
    return word in ("heir", "heiress") or (word[0] in "aeiouAEIOU" and word not in ("university", "useful"))


# French spelling

# An aspirated h (and the numbers 8 and 11) keeps the vowel before it: `le héros`, but `l'héroïne`.
ASPIRATED = {
    "héros", "hérisson", "hérissons", "hibou", "hiboux", "hache", "haches", "haricot", "haricots",
    "huit", "onze",
}  # fmt: skip


@cache
def is_vowel_in_french(word: str) -> bool:
    """Whether `le` becomes `l'` before it."""
    return word == "y" or (word[0].lower() in "aeiouhàâéèêëîïôœ" and word not in ASPIRATED)


def plural_of(word: str) -> str:
    """A French noun's or adjective's plural, where it is regular."""
    if word.endswith(("s", "x", "z")):
        return word
    if word.endswith("al"):
        return word[:-1] + "ux"
    return word + ("x" if word.endswith("eau") else "s")


def agreeing(masculine: str, feminine: str = "") -> tuple[str, str, str, str]:
    """The four forms of an adjective or participle."""
    feminine = feminine or (masculine if masculine.endswith("e") else masculine + "e")
    return (masculine, feminine, plural_of(masculine), feminine + "s")


_IRREGULAR = """
être suis est sommes sont été            | avoir ai a avons ont eu
aller vais va allons vont allé           | venir viens vient venons viennent venu
voir vois voit voyons voient vu          | boire bois boit buvons boivent bu
prendre prends prend prenons prennent pris
apprendre apprends apprend apprenons apprennent appris
comprendre comprends comprend comprenons comprennent compris
ouvrir ouvre ouvre ouvrons ouvrent ouvert | offrir offre offre offrons offrent offert
peindre peins peint peignons peignent peint
construire construis construit construisons construisent construit
conduire conduis conduit conduisons conduisent conduit
traduire traduis traduit traduisons traduisent traduit
suivre suis suit suivons suivent suivi   | recevoir reçois reçoit recevons reçoivent reçu
connaître connais connaît connaissons connaissent connu
vouloir veux veut voulons veulent voulu  | pouvoir peux peut pouvons peuvent pu
devoir dois doit devons doivent dû       | savoir sais sait savons savent su
croire crois croit croyons croient cru   | dire dis dit disons disent dit
écrire écris écrit écrivons écrivent écrit
dormir dors dort dormons dorment dormi   | endormir endors endort endormons endorment endormi
rire ris rit rions rient ri              | sourire souris sourit sourions sourient souri
courir cours court courons courent couru | servir sers sert servons servent servi
partir pars part partons partent parti   | sortir sors sort sortons sortent sorti
revenir reviens revient revenons reviennent revenu
"""
IRREGULAR = {row.split()[0]: row.split()[1:] for row in re.split(r"[|\n]", _IRREGULAR) if row.strip()}
WITH_ETRE = {"aller", "venir", "revenir", "arriver", "partir", "tomber", "rester", "entrer", "sortir"}


@cache
def conjugation(infinitive: str) -> Conjugation:
    """The forms of a French verb: from the table, or by its ending."""
    je, il, nous, ils, participle = IRREGULAR.get(infinitive) or _regular(infinitive)
    return Conjugation(infinitive, (je, il, nous, ils), agreeing(participle), infinitive in WITH_ETRE)


def _regular(infinitive: str) -> list[str]:
    stem, ending = infinitive[:-2], infinitive[-2:]
    if ending == "ir":
        return [stem + "is", stem + "it", stem + "issons", stem + "issent", stem + "i"]
    if ending == "re":
        return [stem + "s", stem, stem + "ons", stem + "ent", stem + "u"]
    # Before a silent ending: acheter, il achète; espérer, il espère; nettoyer, il nettoie.
    strong = re.sub(r"[eé]([^aeiou])$", r"è\1", re.sub("y$", "i", stem))
    soft = {"g": stem + "eons", "c": stem[:-1] + "çons"}.get(stem[-1], stem + "ons")
    return [strong + "e", strong + "e", soft, strong + "ent", stem + "é"]


# Nouns: kinds, gender, then English and French, with a plural after a stroke where it is irregular.

_NOUNS = (
    ("person anyone", "m", "man/men homme, boy garçon"),
    ("person", "m", "king roi, prince prince, actor acteur, waiter serveur, heir héritier"),
    ("person", "m", "hero/heroes héros, schoolboy écolier, wizard sorcier, monk moine, knight chevalier"),
    ("person anyone", "f", "woman/women femme, girl fille, lady dame"),
    ("person", "f", "queen reine, princess princesse, actress actrice"),
    ("person", "f", "waitress serveuse, heiress héritière, heroine héroïne"),
    ("person", "f", "schoolgirl écolière, witch sorcière"),
    ("person kin", "m", "brother frère, uncle oncle, nephew neveu/neveux, son fils"),
    ("person kin", "f", "sister sœur, aunt tante, niece nièce, daughter fille"),
    ("person kin single", "m", "father père, grandfather grand-père"),
    ("person kin single spouse", "m", "husband mari"),
    ("person kin single", "f", "mother mère, grandmother grand-mère"),
    ("person kin single spouse", "f", "wife épouse"),
    ("animal", "m", "cat chat, dog chien, horse cheval, bird oiseau, rabbit lapin, duck canard, pig cochon"),
    ("animal", "m", "wolf/wolves loup, fox renard, bear ours, lion lion, elephant éléphant, snake serpent"),
    ("animal", "m", "owl hibou/hiboux, hedgehog hérisson, monkey singe, swan cygne"),
    ("animal", "m", "donkey âne, squirrel écureuil"),
    ("animal", "f", "cow vache, mouse/mice souris, frog grenouille, tortoise tortue, bee abeille"),
    ("animal", "f", "ant fourmi, spider araignée, goat chèvre, hen poule"),
    ("food", "m", "egg œuf, cake gâteau, lemon citron, onion oignon, pineapple ananas, apricot abricot"),
    ("food", "m", "bean haricot"),
    ("food", "f", "apple pomme, pear poire, orange orange, carrot carotte, tomato tomate, strawberry fraise"),
    ("food", "f", "peach pêche"),
    ("dish mass", "m", "bread pain, cheese fromage, butter beurre, honey miel"),
    ("dish mass", "f", "jam confiture"),
    ("dish cooked mass", "m", "rice riz"),
    ("dish cooked mass", "f", "meat viande, soup soupe, salad salade"),
    ("drink mass", "m", "milk lait, wine vin"),
    ("drink mass", "f", "water eau, beer bière"),
    ("drink cooked mass", "m", "tea thé, coffee café"),
    ("thing", "m", "umbrella parapluie, gift cadeau, jewel bijou/bijoux"),
    ("thing", "f", "flower fleur, clock horloge"),
    ("thing timber", "m", "toy jouet"),
    ("thing precious", "f", "watch montre, ring bague"),
    ("thing precious timber", "f", "sword épée"),
    ("thing tool", "m", "pencil crayon, hammer marteau, knife/knives couteau"),
    ("thing tool", "f", "key clé, axe hache"),
    ("thing tool timber", "f", "ladder échelle"),
    ("thing opening container hide", "m", "bag sac"),
    ("thing opening container timber", "f", "box boîte"),
    ("thing fragile", "m", "glass verre, mirror miroir, computer ordinateur"),
    ("thing fragile", "f", "bottle bouteille, plate assiette, lamp lampe, guitar guitare"),
    ("thing fragile precious", "f", "cup tasse"),
    ("thing text written", "m", "book livre"),
    ("thing text", "m", "newspaper journal"),
    ("thing text written", "f", "letter lettre"),
    ("text written taught", "m", "word mot"),
    ("text written tale", "f", "story histoire"),
    ("text taught", "f", "lesson leçon"),
    ("text asked", "f", "question question"),
    ("text written song taught", "f", "song chanson"),
    ("clothing knit", "m", "hat chapeau, coat manteau, sweater pull"),
    ("clothing hide", "m", "glove gant"),
    ("clothing", "m", "suit costume"),
    ("clothing knit", "f", "scarf/scarves écharpe, skirt jupe"),
    ("clothing", "f", "shirt chemise, dress robe"),
    ("clothing hide", "f", "shoe chaussure, boot botte"),
    ("vehicle", "m", "train train, plane avion, boat bateau, bicycle vélo"),
    ("vehicle driven", "m", "truck camion"),
    ("vehicle driven", "f", "car voiture"),
    ("furniture ground cover timber", "m", "bed lit, bench banc, desk bureau"),
    ("furniture ground cover timber", "f", "table table, chair chaise"),
    ("furniture ground hide", "m", "armchair fauteuil"),
    ("furniture ground", "m", "carpet tapis, pillow oreiller"),
    ("furniture ground timber", "f", "shelf/shelves étagère"),
    ("furniture container opening timber", "f", "wardrobe armoire"),
    ("opening timber", "f", "door porte"),
    ("opening fragile", "f", "window fenêtre"),
    ("landmark cover", "m", "tree arbre"),
    ("landmark cover ground place built timber", "m", "bridge pont"),
    ("landmark place", "f", "river rivière"),
    ("landmark place built", "f", "fountain fontaine, tower tour"),
    ("landmark place", "m", "lake lac"),
    ("landmark place goal built", "f", "station gare, church église, school école, library bibliothèque"),
    ("landmark place goal", "f", "bakery boulangerie"),
    ("landmark place goal built", "m", "airport aéroport, hospital hôpital, theatre théâtre"),
    ("landmark place goal", "m", "market marché"),
    ("landmark place goal inside", "m", "museum musée, park parc, restaurant restaurant"),
    ("place goal", "f", "university université"),
    ("place goal ground", "f", "beach plage"),
    ("place goal inside home landmark built", "m", "castle château"),
    ("place inside home", "m", "village village, apartment appartement"),
    ("place inside home built landmark", "m", "palace palais"),
    ("place inside home built landmark", "f", "house maison"),
    ("place inside home", "f", "city ville"),
    ("place inside home built timber landmark", "f", "cabin cabane"),
    ("place inside built landmark", "m", "workshop atelier"),
    ("place inside landmark", "m", "garden jardin, hotel hôtel, shop magasin, field champ"),
    ("place inside", "f", "kitchen cuisine, forest forêt, street rue, bedroom chambre"),
    ("place ground", "f", "island île"),
)  # fmt: skip


def _noun(kinds: str, gender: str, entry: str) -> Noun:
    english, french = entry.split()
    singular, _, plural = english.partition("/")
    singulier, _, pluriel = french.partition("/")
    plurals = (plural or with_s(singular), pluriel or plural_of(singulier))
    return Noun(singular, plurals[0], singulier, plurals[1], gender == "f", frozenset(kinds.split()))


NOUNS = tuple(
    _noun(kinds, gender, entry.strip()) for kinds, gender, row in _NOUNS for entry in row.split(",")
)
MAN, WOMAN = (next(noun for noun in NOUNS if noun.singular == word) for word in ("man", "woman"))
ANIMAL = Noun("animal", "animals", "animal", "animaux", False, frozenset({"animal"}))  # for `a loyal animal`

MEN = ("Paul", "Louis", "Antoine", "Oscar", "Victor")
WOMEN = ("Marie", "Anne", "Alice", "Julie", "Sophie")


# Adjectives: rank, place in French, kinds, then English with its comparative and French with its feminine.

_FURNISHING = "thing clothing vehicle furniture"
_EATEN = "food dish drink"
_BUILDING = "place landmark"

_ADJECTIVES = (
    (1, "before", f"person animal {_FURNISHING} {_BUILDING} text", "beautiful/more beau/belle/bel"),
    (1, "before", f"clothing thing text {_BUILDING}", "pretty/prettier joli"),
    (1, "before", f"{_EATEN} text tool goal", "good/better bon/bonne, bad mauvais"),
    (2, "before", f"person animal {_FURNISHING} {_BUILDING} food opening", "small/smaller petit"),
    (2, "before", f"animal {_FURNISHING} {_BUILDING} food opening", "big/bigger grand"),
    (2, "before", "animal", "fat/fatter gros/grosse"),
    (4, "before", "person animal", "young/younger jeune"),
    (4, "before", f"person animal {_FURNISHING} {_BUILDING} opening text", "old/older vieux/vieille/vieil"),
    (4, "before", f"{_FURNISHING} built text", "new nouveau/nouvelle/nouvel"),
    (1, "after", "person", "kind/kinder gentil/gentille, shy/more timide, polite/more poli"),
    (1, "after", "person", "funny/funnier drôle"),
    (1, "after", "person", "brave/braver courageux/courageuse, generous/more généreux/généreuse"),
    (1, "after", "person", "jealous/more jaloux/jalouse, cruel/more cruel/cruelle, proud/prouder fier/fière"),
    (1, "after", "person", "serious/more sérieux/sérieuse, discreet/more discret/discrète"),
    (1, "after", "person", "naive/more naïf/naïve"),
    (1, "after", "person animal", "intelligent/more intelligent, curious/more curieux/curieuse"),
    (1, "after", "person animal", "lazy/lazier paresseux/paresseuse, loyal/more loyal, calm/calmer calme"),
    (1, "after", "animal", "dangerous/more dangereux/dangereuse"),
    (1, "after", "person animal thing text place", "strange étrange"),
    (1, "after", "person place song tale", "famous/more célèbre"),
    (1, "after", f"{_FURNISHING} food dish drink", "expensive/more cher/chère"),
    (1, "after", "tool vehicle", "useful/more utile"),
    (1, "after", "furniture clothing", "comfortable/more confortable"),
    (1, "after", _EATEN, "delicious délicieux/délicieuse"),
    (1, "after", "vehicle furniture built", "modern/more moderne"),
    (1, "after", "place", "quiet/quieter tranquille"),
    (3, "after", "person animal", "happy/happier heureux/heureuse, sad/sadder triste, tired/more fatigué"),
    (3, "after", "person animal", "sick malade, strong/stronger fort, weak/weaker faible"),
    (3, "after", "person", "rich/richer riche, worried/more inquiet/inquiète"),
    (3, "after", "clothing vehicle furniture fragile animal", "clean/cleaner propre, dirty/dirtier sale"),
    (3, "after", "container inside", "empty vide"),
    (3, "after", "furniture tool container", "heavy/heavier lourd, light/lighter léger/légère"),
    (3, "after", "dish drink", "cold/colder froid, hot/hotter chaud"),
    (3, "after", "food", "fresh/fresher frais/fraîche"),
    (3, "after", "clothing", "dry/drier sec/sèche, wet mouillé, soft/softer doux/douce"),
    (3, "after", "opening", "open ouvert, closed fermé"),
    (3, "after", "fragile vehicle", "broken cassé"),
    (3, "after", "vehicle animal", "fast/faster rapide, slow/slower lent"),
    (5, "after", f"{_FURNISHING} animal", "black noir, white blanc/blanche, grey gris, brown marron/marron"),
    (5, "after", f"{_FURNISHING} food", "red rouge, green vert, yellow jaune"),
    (5, "after", _FURNISHING, "blue bleu, pink rose, purple violet/violette"),
    (6, "after", "person vehicle text dish", "French français, English anglais, Italian italien/italienne"),
    (6, "after", "person vehicle text dish", "Spanish espagnol, German allemand, Swiss suisse"),
    (6, "after", "person vehicle text dish", "Greek grec/grecque"),
    (7, "after", "timber", "wooden en_bois"),
    (7, "after", "knit", "woollen en_laine"),
    (7, "after", "precious", "golden en_or"),
    (7, "after", "hide", "leather en_cuir"),
)  # fmt: skip


def _adjective(rank: int, place: str, kinds: str, entry: str) -> Adjective:
    english, french = entry.split()
    word, _, comparative = english.partition("/")
    masculine, feminine, liaison = (french.replace("_", " ") + "//").split("/")[:3]
    # Colors named after a thing, and phrases with `en`, do not agree.
    fixed = masculine in ("marron", "en bois", "en laine", "en or", "en cuir")
    formes = (masculine, masculine, masculine, masculine) if fixed else agreeing(masculine, feminine)
    tag = "NOUN" if word == "leather" else "ADJ"  # a noun that stands where adjectives do
    before, about = place == "before", frozenset(kinds.split())
    return Adjective(word, comparative, formes, liaison or masculine, before, rank, about, tag)


ADJECTIVES = tuple(
    _adjective(rank, place, kinds, entry.strip())
    for rank, place, kinds, entries in _ADJECTIVES
    for entry in entries.split(",")
)
RANKS = {adjective.word: adjective.rank for adjective in ADJECTIVES}


# Verbs: English forms (and particle), French (and what it adds), who does it, to what.

_LIVING = "person animal"
_GOODS = "food dish drink thing clothing vehicle furniture"
_SEEN = "person animal thing clothing vehicle landmark furniture"


def _english_forms(forms: str) -> tuple[str, str, str, str]:
    """Base, third person, past and participle, from `see/saw/seen`, `buy/bought` or `help`."""
    base, *given = forms.split("/")
    past = given[0] if given else with_ed(base)
    return (base, "has" if base == "have" else with_s(base), past, given[-1] if given else past)


def _french_parts(french: str) -> tuple[bool, str, str, str]:
    """Whether it is reflexive, the infinitive, what follows it, and the preposition before the object."""
    words = french.split()
    reflexive = words[0] == "se"
    infinitive, *rest = words[reflexive:]
    link = rest.pop() if rest and rest[-1] in ("à", "de", "dans", "avec") else ""
    return reflexive, infinitive, " ".join(rest), link


def _verb(
    english: str,
    french: str,
    subjects: str = "",
    objects: str = "",
    stative: bool = False,
    to: str = "",
    particle_tag: str = "ADP",
) -> Verb:
    forms, *particle = english.split()
    base, third, past, participle = _english_forms(forms)
    state = particle.pop(0) if base == "be" and particle else ""
    reflexive, infinitive, tail, link = _french_parts(french)
    return Verb(
        base=base,
        third=third,
        past=past,
        participle=participle,
        french=conjugation(infinitive),
        subjects=frozenset(subjects.split()),
        objects=frozenset(objects.split()),
        particle=tuple(particle),
        particle_tag=particle_tag,
        state=state,
        tail=tail,
        link=link,
        to=to,
        helper=base in ("be", "can", "must"),
        stative=stative,
        reflexive=reflexive,
        # `Il lui parle`, but `il pense à elle`: the phrasebook leaves the second kind out.
        clitic="" if infinitive == "penser" else {"": "direct", "à": "indirect"}.get(link, ""),
    )


TRANSITIVE = (
    _verb("see/saw/seen", "voir", _LIVING, _SEEN),
    _verb("love", "aimer", "person", "person animal song", stative=True),
    _verb("hear/heard", "entendre", _LIVING, "person animal song vehicle"),
    _verb("watch", "regarder", _LIVING, "person animal vehicle"),
    _verb("look at", "regarder", "person", "thing clothing vehicle landmark"),
    _verb("look for", "chercher", _LIVING, "person animal thing clothing"),
    _verb("wait for", "attendre", "person", "person vehicle"),
    _verb("listen to", "écouter", "person", "person song tale"),
    _verb("find/found", "trouver", "person", "animal thing clothing food"),
    _verb("lose/lost", "perdre", "person", "thing clothing"),
    _verb("eat/ate/eaten", "manger", _LIVING, "food dish"),
    _verb("drink/drank/drunk", "boire", _LIVING, "drink"),
    _verb("buy/bought", "acheter", "person", _GOODS),
    _verb("sell/sold", "vendre", "person", _GOODS),
    _verb("take/took/taken", "prendre", "person", "thing clothing vehicle food"),
    _verb("carry", "porter", "person", "thing furniture"),
    _verb("wear/wore/worn", "porter", "person", "clothing", stative=True),
    _verb("open", "ouvrir", "person", "opening"),
    _verb("close", "fermer", "person", "opening"),
    _verb("clean", "nettoyer", "person", "furniture clothing vehicle fragile"),
    _verb("paint", "peindre", "person", "furniture opening landmark"),
    _verb("break/broke/broken", "casser", _LIVING, "fragile"),
    _verb("draw/drew/drawn", "dessiner", "person", "person animal landmark vehicle"),
    _verb("build/built", "construire", "person", "built"),
    _verb("visit", "visiter", "person", "goal home"),
    _verb("visit", "rendre visite à", "person", "person"),
    _verb("help", "aider", "person", "person animal"),
    _verb("follow", "suivre", _LIVING, "person animal vehicle"),
    _verb("meet/met", "rencontrer", "person", "person"),
    _verb("invite", "inviter", "person", "person"),
    _verb("protect", "protéger", _LIVING, "person animal"),
    _verb("catch/caught", "attraper", _LIVING, "animal"),
    _verb("feed/fed", "nourrir", "person", "animal"),
    _verb("wash", "laver", "person", "animal clothing vehicle fragile"),
    _verb("thank", "remercier", "person", "person"),
    _verb("choose/chose/chosen", "choisir", "person", "thing clothing vehicle food"),
    _verb("write/wrote/written", "écrire", "person", "written"),
    _verb("sing/sang/sung", "chanter", "person", "song"),
    _verb("tell/told", "raconter", "person", "tale"),
    _verb("learn", "apprendre", "person", "taught"),
    _verb("understand/understood", "comprendre", "person", "person text"),
    _verb("translate", "traduire", "person", "text"),
    _verb("forget/forgot/forgotten", "oublier", "person", "thing text"),
    _verb("prepare", "préparer", "person", "cooked"),
    _verb("serve", "servir", "person", "dish drink"),
    _verb("receive", "recevoir", "person", "thing"),
    _verb("hide/hid/hidden", "cacher", _LIVING, "thing"),
    _verb("steal/stole/stolen", "voler", "person", "thing vehicle"),
    _verb("repair", "réparer", "person", "vehicle fragile furniture"),
    _verb("drive/drove/driven", "conduire", "person", "driven"),
    _verb("use", "utiliser", "person", "tool"),
    _verb("keep/kept", "garder", "person", "thing clothing"),
    _verb("leave/left", "quitter", "person", "place"),
    _verb("know/knew/known", "connaître", "person", "person place song tale", stative=True),
    _verb("want", "vouloir", "person", "food dish drink thing clothing animal", stative=True),
    _verb("have/had", "avoir", "person", "thing clothing vehicle animal food", stative=True),
    _verb("need", "avoir besoin de", "person", "person thing clothing vehicle", stative=True),
    _verb("be afraid of", "avoir peur de", _LIVING, "person animal", stative=True),
    _verb("look like", "ressembler à", _LIVING, "person animal", stative=True),
    _verb("think/thought of", "penser à", "person", "person place text", stative=True),
    _verb("answer", "répondre à", "person", "person asked"),
    _verb("obey", "obéir à", _LIVING, "person"),
    _verb("phone", "téléphoner à", "person", "person"),
    _verb("smile at", "sourire à", "person", "person animal"),
    _verb("speak/spoke/spoken to", "parler à", "person", "person animal"),
    _verb("talk about", "parler de", "person", "person animal place text"),
    _verb("play with", "jouer avec", _LIVING, "person animal"),
    _verb("enter", "entrer dans", _LIVING, "inside"),
)  # fmt: skip

GIVING = (
    _verb("give/gave/given", "donner", "person", "thing clothing food animal"),
    _verb("show", "montrer", "person", "thing clothing animal vehicle text"),
    _verb("lend/lent", "prêter", "person", "thing clothing vehicle"),
    _verb("offer", "offrir", "person", "thing clothing food drink"),
    _verb("send/sent", "envoyer", "person", "thing clothing"),
    _verb("bring/brought", "apporter", "person", "thing food dish drink"),
    _verb("sell/sold", "vendre", "person", _GOODS),
)  # fmt: skip

INTRANSITIVE = (
    _verb("sleep/slept", "dormir", _LIVING),
    _verb("work", "travailler", "person"),
    _verb("sing/sang", "chanter", "person"),
    _verb("dance", "danser", "person"),
    _verb("laugh", "rire", "person"),
    _verb("cry", "pleurer", "person"),
    _verb("run/ran", "courir", _LIVING),
    _verb("swim/swam", "nager", _LIVING),
    _verb("walk", "marcher", _LIVING),
    _verb("smile", "sourire", "person"),
    _verb("travel/travelled", "voyager", "person"),
    _verb("dream", "rêver", "person"),
    _verb("wait", "attendre", "person"),
    _verb("eat/ate", "manger", _LIVING),
    _verb("arrive", "arriver", "person vehicle"),
    _verb("leave/left", "partir", "person vehicle"),
    _verb("fall/fell", "tomber", _LIVING),
    _verb("stay", "rester", _LIVING),
    _verb("come/came", "venir", _LIVING),
    _verb("come/came back", "revenir", _LIVING, particle_tag="ADV"),
    _verb("go/went out", "sortir", _LIVING, particle_tag="ADV"),
    _verb("wake/woke up", "se réveiller", _LIVING),
    _verb("get/got up", "se lever", _LIVING),
    _verb("hurry", "se dépêcher", "person"),
    _verb("rest", "se reposer", _LIVING),
    _verb("stroll", "se promener", "person"),
    _verb("fall/fell asleep", "se endormir", _LIVING, particle_tag="ADJ"),
    _verb("stop/stopped", "se arrêter", "person vehicle animal"),
    _verb("have/had fun", "se amuser", _LIVING, particle_tag="NOUN"),
)  # fmt: skip

STATES = (
    _verb("be hungry", "avoir faim", _LIVING, stative=True),
    _verb("be thirsty", "avoir soif", _LIVING, stative=True),
    _verb("be cold", "avoir froid", _LIVING, stative=True),
    _verb("be afraid", "avoir peur", _LIVING, stative=True),
    _verb("be sleepy", "avoir sommeil", _LIVING, stative=True),
    _verb("be right", "avoir raison", "person", stative=True),
    _verb("be wrong", "avoir tort", "person", stative=True),
)  # fmt: skip

# What English can do, French knows how to do: `can swim` would be `sait nager`, so `can` leaves these alone.
SKILLS = {"sing", "dance", "swim", "draw", "paint", "write", "drive", "translate", "run", "walk"}
FOR_OTHERS = {
    "buy", "choose", "prepare", "write", "sing", "dance", "work", "carry", "draw", "build", "open", "repair",
}  # fmt: skip
# `Revenir en Italie` is to come back to Italy, not in Italy; `laughs at the school` is another verb.
ELSEWHERE = {"come", "leave", "go", "smile", "laugh"}
BY_SOME_MEANS = {"travel", "arrive", "leave", "come", "work"}
# What is done to a thing first, and what next: `buys the apple and eats it`.
FIRST = {
    "buy", "find", "take", "see", "choose", "receive", "steal", "prepare", "catch", "draw", "build",
    "write", "meet",
}  # fmt: skip
THEN = {
    "eat", "drink", "sell", "wash", "clean", "repair", "hide", "keep", "lose", "paint", "break", "carry",
    "follow", "thank", "help", "invite", "feed", "protect", "translate", "forget", "watch", "listen",
}  # fmt: skip

BEING = _verb("be", "être", stative=True)
BEING_DONE = _verb("be", "être")  # the passive: its past is compound
BEING_AS_HAVING = _verb("be", "avoir", stative=True)  # `is ten years old`, `there is`
GOING = _verb("be going", "aller", to="to")  # the near future
MOVING = (
    (_verb("go/went", "aller", "person", "goal"), "to", "à"),
    (_verb("live", "habiter", "person", "home", stative=True), "in", "dans"),
    (_verb("come/came", "venir", "person", "home"), "from", "de"),
)  # fmt: skip

MODALS = (_verb("can", "pouvoir"), _verb("must", "devoir"))
CONTROLS = (
    _verb("want", "vouloir", stative=True, to="to"),
    _verb("hope", "espérer", stative=True, to="to"),
    _verb("prefer/preferred", "préférer", stative=True, to="to"),
    _verb("love", "aimer", stative=True, to="to"),
    _verb("try", "essayer de", to="to"),
    _verb("refuse", "refuser de", to="to"),
    _verb("decide", "décider de", to="to"),
    _verb("forget/forgot", "oublier de", to="to"),
    _verb("begin/began", "commencer à", to="to"),
)  # fmt: skip
LEARNING = _verb("learn", "apprendre à", to="to")
SAYING = (
    _verb("say/said", "dire", stative=True),
    _verb("think/thought", "penser", stative=True),
    _verb("believe", "croire", stative=True),
    _verb("know/knew", "savoir", stative=True),
)  # fmt: skip


# Small words

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
}  # fmt: skip
BEFORE_VOWEL = {"ce": "cet", "ma": "mon", "sa": "son"}
NUMBERS = {
    "two": "deux", "three": "trois", "four": "quatre", "five": "cinq", "six": "six", "seven": "sept",
    "eight": "huit", "nine": "neuf", "ten": "dix", "eleven": "onze", "twelve": "douze", "twenty": "vingt",
}  # fmt: skip
AGES = NUMBERS | {
    "fifteen": "quinze", "thirty": "trente", "forty": "quarante", "fifty": "cinquante", "sixty": "soixante",
}  # fmt: skip
QUANTITIES = NUMBERS | {"many": "beaucoup de", "several": "plusieurs", "how many": "combien de"}
DETERMINER_TAGS = {  # of those that are not one DET; `all` is `all the`
    **dict.fromkeys(("my", "his", "her", "our", "their"), "PRON"),
    **dict.fromkeys(NUMBERS, "NUM"),
    "many": "ADJ", "several": "ADJ", "how many": "ADV ADJ", "all": "DET DET",
}  # fmt: skip

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
}  # fmt: skip

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
)  # fmt: skip
SPOTS = (  # for things
    ("in", "dans", frozenset({"container", "inside"}), "ADP"),
    ("on", "sur", frozenset({"ground"}), "ADP"),
    ("under", "sous", frozenset({"cover"}), "ADP"),
    ("behind", "derrière", frozenset({"furniture"}), "ADP"),
    ("near", "près de", frozenset({"furniture"}), "ADP"),
    ("next to", "à côté de", frozenset({"furniture"}), "ADV ADP"),
)  # fmt: skip
COUNTRIES = {  # in, from
    "France": ("en France", "de France"),
    "Italy": ("en Italie", "de Italie"),
    "Spain": ("en Espagne", "de Espagne"),
    "Germany": ("en Allemagne", "de Allemagne"),
    "Japan": ("au Japon", "du Japon"),
    "Canada": ("au Canada", "du Canada"),
    "Portugal": ("au Portugal", "du Portugal"),
    "Paris": ("à Paris", "de Paris"),
    "London": ("à Londres", "de Londres"),
    "Geneva": ("à Genève", "de Genève"),
    "Athens": ("à Athènes", "de Athènes"),
}  # fmt: skip

# Set phrases: English, its parts of speech, then French with the English words each French word renders (by place,
# from 0).
_DAYS = (
    "Monday lundi, Tuesday mardi, Wednesday mercredi, Thursday jeudi, Friday vendredi, Saturday samedi, "
    "Sunday dimanche"
)
_MONTHS = (
    "January janvier, February février, March mars, April avril, June juin, July juillet, "
    "September septembre, October octobre, November novembre, December décembre"
)
_HOURS = [(word, nombre) for word, nombre in NUMBERS.items() if word not in ("twelve", "twenty")]
_SEASONS = (
    ("in spring", "ADP NOUN", "au0 printemps1"),
    ("in summer", "ADP NOUN", "en0 été1"),
    ("in autumn", "ADP NOUN", "en0 automne1"),
    ("in winter", "ADP NOUN", "en0 hiver1"),
)
_IN_A_MONTH = tuple(
    (f"in {en}", "ADP PROPN", f"en0 {fr}1") for en, fr in (pair.split() for pair in _MONTHS.split(", "))
)
_ON_A_DAY = tuple(
    (f"on {en}", "ADP PROPN", f"{fr}01") for en, fr in (pair.split() for pair in _DAYS.split(", "))
)
_AT_AN_HOUR = tuple((f"at {en} o'clock", "ADP NUM NOUN", f"à0 {fr}1 heures2") for en, fr in _HOURS)
TIMES = {
    PRESENT: (
        ("today", "NOUN", "aujourd'hui0"), ("now", "ADV", "maintenant0"),
        ("every day", "DET NOUN", "chaque0 jour1"), ("every week", "DET NOUN", "chaque0 semaine1"),
        ("in the morning", "ADP DET NOUN", "le01 matin2"), ("in the evening", "ADP DET NOUN", "le01 soir2"),
        ("at noon", "ADP NOUN", "à0 midi1"), ("at midnight", "ADP NOUN", "à0 minuit1"),
        *_SEASONS, *_AT_AN_HOUR,
    ),
    PAST: (
        ("yesterday", "NOUN", "hier0"), ("last night", "ADJ NOUN", "hier0 soir1"),
        ("last week", "ADJ NOUN", "la1 semaine1 dernière0"),
        ("last year", "ADJ NOUN", "la1 année1 dernière0"),
        ("two days ago", "NUM NOUN ADV", "il2 y2 a2 deux0 jours1"),
        ("three weeks ago", "NUM NOUN ADV", "il2 y2 a2 trois0 semaines1"),
        *_ON_A_DAY, *_IN_A_MONTH,
    ),
    FUTURE: (
        ("tomorrow", "NOUN", "demain0"), ("tonight", "NOUN", "ce0 soir0"),
        ("next week", "ADJ NOUN", "la1 semaine1 prochaine0"),
        ("next year", "ADJ NOUN", "la1 année1 prochaine0"),
        ("in two days", "ADP NUM NOUN", "dans0 deux1 jours2"),
        ("in three weeks", "ADP NUM NOUN", "dans0 trois1 semaines2"),
        *_ON_A_DAY, *_IN_A_MONTH,
    ),
}  # fmt: skip
OFTEN = {"often": "souvent", "always": "toujours", "sometimes": "parfois", "rarely": "rarement"}
MANNERS = {"slowly": "lentement", "quickly": "rapidement", "quietly": "doucement", "patiently": "patiemment"}
DENIALS = {"not": ("pas", "PART"), "never": ("jamais", "ADV"), "no longer": ("plus", "ADV ADV")}
GRADES = {"more": "plus", "less": "moins", "as": "aussi"}
BETTER = agreeing("meilleur")
CONJUNCTIONS = {  # `when` also asks, and English-EWT tags both alike
    "and": ("et", "CCONJ"), "but": ("mais", "CCONJ"), "because": ("parce que", "SCONJ"),
    "when": ("quand", "ADV"), "while": ("pendant que", "SCONJ"), "if": ("si", "SCONJ"),
}  # fmt: skip
WEATHER = {"rains": "pleut", "snows": "neige"}
