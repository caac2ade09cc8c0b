"""Instructions: the right response is right, the wrong one is wrong, and nothing held out is learned from."""

import hashlib
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from heedful.corpora import facts, instructions
from heedful.corpora.instructions import KINDS, Instruction
from heedful.corpora.instructions.clauses import TENSES, NamedThing, ShortClause, chosen
from heedful.corpora.instructions.judge import REWARDS, WEIGHTS, judge
from heedful.corpora.phrasebook import is_held_out, lexicon
from heedful.corpora.quiz import ASKED
from heedful.data.vocab import train_vocab
from heedful.errors import BadInput

LEARNED = list(instructions.split("train"))
HELD_OUT = {name: list(instructions.split(name)) for name in ("valid", "test", "combinations")}
TRIED = [row for rows in HELD_OUT.values() for row in rows]


def of_kind(kind: str) -> list[Instruction]:
    return [row for row in TRIED if row.kind == kind]


def test_the_splits_have_their_sizes_and_all_kinds():
    found = {"train": LEARNED, **HELD_OUT}
    assert {name: len(rows) for name, rows in found.items()} == instructions.SIZES
    for rows in found.values():
        assert len(set(Counter(row.kind for row in rows).values())) == 1
        assert {row.kind for row in rows} == set(KINDS)


def test_the_rows_are_the_same_on_every_machine():
    said = "".join(f"{row.prompt}\n{row.response}\n{row.rejected}\n" for row in HELD_OUT["valid"])
    assert hashlib.sha256(said.encode()).hexdigest()[:16] == "fb56e601cb112a9b"


def test_no_instruction_is_in_two_splits_nor_twice_in_one():
    prompts = [row.prompt for row in (*LEARNED, *TRIED)]
    assert len(set(prompts)) == len(prompts)


def test_no_clause_of_training_is_held_out_in_any_kind():
    """A sentence to translate is not one whose words were counted, and not in another tense either."""

    def sentences(rows):
        kept = [row for row in rows if row.kind in ("translate", "tense")]
        bare = {row.prompt.split(": ")[1] for row in rows if row.kind in ("count", "reverse")}
        said = {row.prompt.split(": ")[1] for row in kept} | {r.response for r in kept if r.kind == "tense"}
        return bare | {text.lower().rstrip(".") for text in said}

    assert not sentences(LEARNED) & sentences(TRIED)


def test_words_that_meet_in_combinations_never_meet_in_training():
    singular = {form: noun.singular for noun in instructions.NOUNS for form in (noun.singular, noun.plural)}
    adjectives = {adjective.word for adjective in instructions.ADJECTIVES}

    def met(rows):
        words = [re.findall(r"\w+", row.prompt) for row in rows if row.kind != "answer"]
        pairs = [(a, singular[b]) for said in words for a, b in pairwise(said) if a in adjectives]
        return sum(is_held_out(*pair) for pair in pairs)

    assert met(LEARNED) == 0 and met(HELD_OUT["combinations"]) > 50


def test_words_are_few_and_every_held_out_word_is_learned():
    counts = Counter(
        word for row in LEARNED for word in re.findall(r"[\w-]+", f"{row.prompt} {row.response}")
    )
    tried = {word for row in TRIED for word in re.findall(r"[\w-]+", f"{row.prompt} {row.response}")}
    assert len(counts) < 400 and min(counts[word] for word in tried) >= 5


def test_a_vocabulary_of_words_gives_every_response_back():
    vocab = train_vocab("word", (f"{row.prompt} {row.response}" for row in LEARNED), 1000)
    said = [row.response for row in TRIED]
    assert [vocab.decode(ids) for ids in vocab.encode_batch(said)] == said
    assert vocab.size < 450


# What is right


CLAUSE = ShortClause(
    NamedThing(*chosen("king", {noun.singular: noun for noun in lexicon.NOUNS}), False, "a", None),
    *chosen("eat", {verb.name: verb for verb in lexicon.TRANSITIVE}),
    NamedThing(
        *chosen("apple", {noun.singular: noun for noun in lexicon.NOUNS}),
        True,
        "some",
        *chosen("small", {adjective.word: adjective for adjective in lexicon.ADJECTIVES}),
    ),
)


def test_a_clause_is_said_in_every_tense_and_in_french():
    said = [(CLAUSE.said(tense).source, CLAUSE.said(tense).target) for tense in TENSES]
    assert said == [
        ("A king eats some small apples.", "Un roi mange de petites pommes."),
        ("A king ate some small apples.", "Un roi a mangé de petites pommes."),
        ("A king is going to eat some small apples.", "Un roi va manger de petites pommes."),
    ]
    assert CLAUSE.combinations == (("small", "apple"), ("eat", "apple"))


def test_numbers_and_orders_are_right():
    for row in of_kind("count"):
        assert int(row.response) == len(row.prompt.split(": ")[1].split())
    for row in of_kind("reverse"):
        assert row.response.split()[::-1] == row.prompt.split(": ")[1].split()


def test_a_changed_tense_changes_the_verb_alone():
    for row in of_kind("tense"):
        wanted, given = re.fullmatch(r"Change to the (\w+): (.*)", row.prompt).groups()
        assert ("going to" in row.response) == (wanted == "future") and row.response != given
        assert row.response.split()[-1] == given.split()[-1] and row.response.split()[0] == given.split()[0]


def test_an_answer_says_what_is_asked_for_and_nothing_else():
    for row in of_kind("answer"):
        *questions, text = re.split(r"(?<=\?) ", row.prompt)
        kinds = {
            kind for kind in ASKED if any(ASKED[kind].format(row.response.split()[0]) == q for q in questions)
        }
        assert len(kinds) == len(questions)
        for kind, values in instructions.VALUES.items():
            (told,) = [value for value in values if re.search(rf"\b{value}\b", text)]
            assert (kind in kinds) == bool(re.search(rf"\b{told}\b", row.response))


def test_pronouns_follow_the_person():
    he = {person.name: person.he.capitalize() for person in instructions.PEOPLE}
    for row in of_kind("answer"):
        for pronoun in re.findall(r"\. (\w+)", row.response):
            assert pronoun == he[row.response.split()[0]]


# What is wrong


def test_every_flaw_of_every_kind_occurs():
    flaws = {(row.kind, row.flaw) for row in LEARNED}
    draws = instructions.InstructionDraws(0)
    assert flaws == {(kind, flaw) for kind, draw in KINDS.items() for flaw in draw(draws).wrong}


def test_a_rejected_response_is_wrong_and_looks_alike():
    for row in LEARNED:
        assert row.rejected and row.rejected != row.response
        assert judge(row, row.rejected) <= 0.3


def test_flaws_are_what_they_are_called():
    for row in TRIED:
        right, wrong = row.response.split(), row.rejected.split()
        if row.flaw == "missing":
            assert len(wrong) < len(right)
        if row.flaw == "long":
            assert len(wrong) > len(right) and (wrong[: len(right)] == right or row.kind == "answer")
        if row.flaw == "order":
            assert wrong == right[::-1]
        if row.flaw == "language":
            assert row.prompt.endswith(row.rejected)
        if row.flaw == "fact":
            assert len(wrong) == len(right) and facts.share_right(row.rejected, row.response) < 1


# The judge


def test_only_the_right_response_gets_everything():
    for row in TRIED:
        assert judge(row, row.response) == judge(row, f" {row.response}\n") == 1.0
        assert all(reward(row, row.response) == 1.0 for reward in REWARDS.values())
        assert 0 <= judge(row, "") < judge(row, row.response)
    assert sum(WEIGHTS.values()) == pytest.approx(1) and WEIGHTS.keys() == REWARDS.keys()


ROW = Instruction("answer", "Who is Talia?", "Talia was a baker. She lived in Harlow.", "", "")
COUNT = Instruction("count", "Count the words: a b c", "3", "", "")


@pytest.mark.parametrize(
    ("row", "response", "rewards"),
    [
        (ROW, "Talia was a baker.", (0, 0.5, 0.5, 1)),
        (ROW, "She lived in Harlow. Talia was a baker.", (0, 1, 1, 1)),
        (ROW, "Talia was a cook. She lived in Harlow. Talia was a baker. No", (0, 1, 8 / 13, 0)),
        (ROW, "talia", (0, 0, 1 / 8, 0)),
        (ROW, "", (0, 0, 0, 0)),
        (COUNT, "4", (0, 0, 1, 1)),
        (COUNT, "3 words", (0, 0, 0.5, 0)),
        (replace(COUNT, kind="reverse", response="c b a"), "c b", (0, 0, 2 / 3, 1)),
        (replace(COUNT, kind="reverse", response="c b a"), "C b a.", (0, 0, 1, 0)),
    ],
)
def test_each_reward_by_hand(row, response, rewards):
    found = [REWARDS[name](row, response) for name in ("exact", "facts", "length", "format")]
    assert found == pytest.approx(rewards)
    assert judge(row, response) == pytest.approx(sum(0.1 * reward for reward in rewards[1:]))


def test_another_split_is_refused():
    with pytest.raises(BadInput, match="did you mean 'combinations'"):
        instructions.split("combination")
