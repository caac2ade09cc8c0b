"""Stories: they hang together, are the same everywhere, and what follows what can be decided."""

import hashlib
import random
import re
from collections import Counter, defaultdict

import pytest

from heedful.corpora import stories
from heedful.corpora.stories import ShortStory, plots
from heedful.corpora.stories.coherence import can_follow
from heedful.errors import BadInput

HELD_OUT = [*stories.split("valid"), *stories.split("test")]
FREELY = re.IGNORECASE
NAMES = {row["name"]: row["gender"] for row in plots.rows("person")}


def test_the_splits_have_their_sizes():
    assert {name: len(list(stories.split(name))) for name in stories.SPLITS} == stories.SIZES


def test_a_story_follows_from_its_split_and_number_alone():
    kept = list(stories.split("valid"))
    assert [stories.story("valid", number).text for number in (499, 7, 0)] == [
        kept[number].text for number in (499, 7, 0)
    ]
    everything = "".join(story.text for story in kept)
    assert hashlib.sha256(everything.encode()).hexdigest()[:16] == "a5539b59448ad3e2"
    assert kept[0].text == (
        "One evening, Henry played with a ball in the house of Clara.\n"
        "The ball hit the brown lamp that stood in the attic.\n"
        "The lamp fell down and broke into pieces.\n"
        "He was ashamed and hid the ball.\n"
        "Henry went to Clara and said that he had broken the brown lamp.\n"
        "Clara only said that a ball does not belong into the attic.\n"
    )


def test_no_story_and_no_cast_of_training_is_held_out():
    learned = list(stories.split("train"))
    assert not {story.text for story in learned} & {story.text for story in HELD_OUT}
    about = [{story.about for story in some} for some in (learned, HELD_OUT)]
    assert not about[0] & about[1] and len(about[1]) > 800


def test_all_words_of_held_out_stories_occur_in_training():
    def words(some):
        return Counter(word for story in some for word in re.findall(r"\w+", story.text))

    learned, asked = words(stories.split("train")), words(HELD_OUT)
    assert min(learned[word] for word in asked) > 30 and len(learned) > 700


def test_every_plot_step_and_wording_is_told():
    told = {(s.plot.name, s.step) for story in stories.split("train") for s in story.sentences}
    assert told == {(plot.name, step) for plot in plots.PLOTS for step in range(len(plot.steps))}
    assert min(Counter(story.sentences[0].plot.name for story in HELD_OUT).values()) > 30


def test_sentences_are_written_as_people_write_them():
    for story in HELD_OUT:
        for sentence in story.sentences:
            assert re.fullmatch(r"[A-Z][\w ,:'-]*[.!]", sentence.text), sentence.text
            assert not re.search(r"\ba [aeiou]|\ban (?!hour)[^aeiou]|  |\{|\}", sentence.text), sentence.text


def test_pronouns_have_the_gender_of_the_one_they_stand_for():
    """Two people of different gender are in a story, so a pronoun tells which is meant."""
    for story in HELD_OUT:
        names = {name for name in re.findall(r"[A-Z]\w+", story.text) if name in NAMES}
        assert sorted(NAMES[name] for name in names) == ["f", "m"], story.text
        assert "name" in {field.column for field, _ in story.sentences[0].says if field.role == "hero"}
        for sentence in story.sentences:
            for field, value in sentence.says:
                if field.pronoun:
                    assert re.search(rf"\b{plots.PRONOUNS[value][field.pronoun]}\b", sentence.text, FREELY)


def test_what_a_sentence_says_stands_in_it():
    for story in HELD_OUT:
        for sentence in story.sentences:
            text = sentence.text.lower()
            assert all(value.lower() in text for field, value in sentence.says if not field.pronoun)


def test_no_sentence_belongs_to_two_places_of_plots():
    places = defaultdict(set)
    for story in stories.split("train"):
        for sentence in story.sentences:
            places[sentence.text].add((sentence.plot.name, sentence.step))
    assert all(len(found) == 1 for found in places.values())


def test_what_followed_could_follow():
    for story in HELD_OUT:
        for cut in range(1, len(story.sentences)):
            assert can_follow(story.sentences[:cut], story.sentences[cut:])
            assert can_follow(story.sentences[cut - 1 : cut], story.sentences[cut : cut + 1])


def test_what_is_of_another_story_can_hardly_ever_follow():
    """So whether B follows A can be decided: 99.9 of 100 times from one sentence of each."""
    draw = random.Random(7)
    tried, confused = 10_000, 0
    for _ in range(tried):
        a, b = (draw.choice(HELD_OUT).sentences for _ in range(2))
        i, j = draw.randrange(1, len(a)), draw.randrange(1, len(b))
        confused += a is not b and can_follow(a[i - 1 : i], b[j : j + 1])
    assert confused / tried < 0.005


def changed(story: ShortStory, old: str, new: str) -> tuple[stories.StorySentence, ...]:
    """The sentences of a story that has another word in one role."""
    return tuple(
        stories.StorySentence(
            s.text.replace(old, new), s.plot, s.step, tuple((f, new if v == old else v) for f, v in s.says)
        )
        for s in story.sentences
    )


def test_another_person_thing_gender_or_order_cannot_follow():
    story = next(s for s in HELD_OUT if s.about.startswith("meal Henry pie") and len(s.sentences) == 6)
    friend = next(value for field, value in story.sentences[0].says if field == ("friend", "name", ""))
    before, after = story.sentences[:3], story.sentences[3:]
    assert can_follow(before, after)
    assert not can_follow(before, changed(story, "Henry", "Adam")[3:])
    assert not can_follow(before, changed(story, friend, "Zoe")[3:])
    assert not can_follow(before, changed(story, "apples", "onions")[3:])
    assert not can_follow(before, changed(story, "tin", "pot")[3:])  # a pie is not baked in a pot
    assert not can_follow(before, changed(story, "m", "f")[4:])
    assert not can_follow(before, story.sentences[5:])
    assert not can_follow(before, story.sentences[2:])


def test_most_of_what_is_said_is_said_twice():
    """A hidden word can often be read from the rest of its story: how often it is there, or follows."""
    known = total = 0
    for story in HELD_OUT:
        for sentence in story.sentences:
            others = [s for s in story.sentences if s is not sentence]
            for field, value in sentence.says:
                if field.role == "time":
                    continue
                said = {f.column: v for s in others for f, v in s.says if f.role == field.role}
                rows = [r for r in sentence.plot.roles[field.role] if all(r[c] == v for c, v in said.items())]
                known += {row[field.column] for row in rows} == {value} if said else False
                total += 1
    assert known / total > 0.85


def test_an_unknown_split_is_refused_with_the_nearest_name():
    with pytest.raises(BadInput, match="stories has no split 'tain'; did you mean 'train'"):
        stories.split("tain")
