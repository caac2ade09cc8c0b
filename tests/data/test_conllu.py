"""CoNLL-U: a treebank is read as the format says, one sentence at a time, and what is broken is named."""

import gzip
import tracemalloc

import pytest
from helpers.treebanks import BUSH, RANGES, row

from heedful.data.conllu import MOST_WORDS, Sentence, Surface, check_tree, in_cycle, read_sentences, written
from heedful.data.report import Report
from heedful.errors import BadInput

ALL = ("tags", "heads", "relations")


def read(tmp_path, lines, need=ALL, report=None):
    path = tmp_path / "a.conllu"
    path.write_text("\n".join(lines) + "\n")
    return list(read_sentences(path, need=need, report=report))


def test_sentences_are_read_as_they_stand(tmp_path):
    first, second = read(tmp_path, [*BUSH, "", "", *RANGES])
    assert first.forms == ("Bush", "held", "a", "talk", "with", "Sharon") and len(first) == 6
    assert first.heads == (1, -1, 3, 1, 1, 4) and first.text == "Bush held a talk with Sharon"
    assert first.tags[:2] == ("PROPN", "VERB") and first.relations[:2] == ("nsubj", "root")
    assert (first.line, second.line) == (3, 13)
    assert second.forms == ("do", "n't", "parle", "de", "le", "roi")
    assert second.surfaces == (Surface("don't", 0, 1), Surface("du", 3, 4))
    assert second.heads == (2, 2, -1, 5, 5, 2)


def test_compressed_files_and_crlf_are_read_alike(tmp_path):
    plain = read(tmp_path, BUSH)
    assert [s.forms for s in read(tmp_path, [*BUSH, " \t", *BUSH[2:]])] == 2 * [
        plain[0].forms
    ]  # a blank line, too
    path = tmp_path / "b.gz"
    path.write_bytes(gzip.compress("\r\n".join([*BUSH, ""]).encode()))
    assert list(read_sentences(path)) == plain


def test_what_is_written_is_read_back(tmp_path):
    for sentence in read(tmp_path, [*BUSH, "", *RANGES]):
        (tmp_path / "c").write_text(written(sentence, [f"text = {sentence.text}"] if sentence.text else []))
        (back,) = read_sentences(tmp_path / "c")
        assert back == Sentence(**{**vars(sentence), "line": back.line})
    bare = written(Sentence(("a\tb", "c")), ["sent_id = 7\n8"])
    assert bare == "# sent_id = 7 8\n1\ta b\t_\t_\t_\t_\t_\t_\t_\t_\n2\tc\t_\t_\t_\t_\t_\t_\t_\t_\n\n"


LONG = [row(i + 1, head=i) for i in range(MOST_WORDS + 1)]
BROKEN = {  # what is wrong, the lines, which of them is named, and what is said
    "a column too few": ([row(1), "2\tb\t_"], 2, "3 columns, where CoNLL-U has 10, separated by tabs"),
    "spaces for tabs": (["1 a _ NOUN _ _ 0 root _ _"], 1, "1 columns, where CoNLL-U has 10"),
    "a number that is none": (
        [row("one")],
        1,
        "the first column is 'one', where a number, 3-4 or 2.1 is expected",
    ),
    "a number of another script": ([row("١")], 1, "where a number, 3-4 or 2.1 is expected"),
    "a word left out": ([row(1), row(3, head=1)], 2, "word '3' stands where word 2 is expected"),
    "a head that is none": ([row(1, head="root")], 1, "the head is 'root', where the number of a word"),
    "a negative head": ([row(1, head="-1")], 1, "the head is '-1', where the number of a word"),
    "a head out of range": ([row(1), row(2, head=3)], 2, "the head is word 3, and the sentence has 2"),
    "its own head": ([row(1), row(2, head=2)], 2, "word 2 is its own head"),
    "two roots": ([row(1), row(2), row(3, head=1)], 2, "a second root: word 1 is one already"),
    "no root": ([row(1, head=2), row(2, head=1)], 1, "word 1 is reached again by going from head to head"),
    "a cycle": ([row(1), row(2, head=3), row(3, head=4), row(4, head=2)], 2, "word 2 is reached again"),
    "no head": ([row(1), row(2, head="_")], 2, "the word has no head in its column"),
    "no tag": ([row(1, tag="_")], 1, "the word has no tag in its column"),
    "no relation": ([row(1, relation="_")], 1, "the word has no relation in its column"),
    "no form": ([row(1, form="")], 1, "the word has no form"),
    "a comment inside": ([row(1), "# no"], 2, "a comment stands between the words"),
    "a range past the end": (
        [row("1-3"), row(1), row(2, head=1)],
        3,
        "a range ends at word 3, and the sentence has 2",
    ),
    "a range backwards": ([row("1-1"), row(1)], 1, "1-1 must stand before word 1 and end after it"),
    "a range too late": ([row(1), row("1-2"), row(2, head=1)], 2, "1-2 must stand before word 1"),
    "ranges that overlap": (
        [row("1-2"), row(1), row("2-3"), row(2, head=1), row(3, head=1)],
        3,
        "2-3 must stand",
    ),
    "an empty node elsewhere": ([row(1), row("2.1")], 2, "an empty node of word 2 stands after word 1"),
    "a sentence without end": (
        LONG,
        MOST_WORDS + 1,
        f"more than {MOST_WORDS:,} words in a sentence: is a blank line",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_broken_is_refused_with_its_line(what, tmp_path):
    lines, at, said = BROKEN[what]
    with pytest.raises(BadInput) as caught:
        read(tmp_path, [*BUSH, "", *lines])
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}/a.conllu:{len(BUSH) + 1 + at}: ") and said in message
    assert message.isprintable() and len(message) < 300


def test_a_broken_sentence_can_be_dropped_and_is_counted_once(tmp_path):
    report = Report("drop")
    twice_broken = [row(1), "2", row("x")]
    found = read(tmp_path, [*twice_broken, "", *BUSH, "", row(1, head=5)], report=report)
    assert [sentence.forms[0] for sentence in found] == ["Bush"]
    assert report.counts.total() == 2 and "a.conllu:2" in report.sentence()


def test_what_is_not_needed_may_be_left_unsaid(tmp_path):
    lines = [row(1, "a", "DET", "_", "_"), row(2, "b", "NOUN", "_", "_")]
    (found,) = read(tmp_path, lines, need=("tags",))
    assert found.tags == ("DET", "NOUN") and found.heads == (-1, -1)
    with pytest.raises(BadInput, match="the word has no head"):
        read(tmp_path, lines, need=("heads",))
    (found,) = read(tmp_path, [row(1, tag="_", relation="_")], need=("heads",))
    assert found.tags == ("_",)
    with pytest.raises(BadInput, match="its own head"):  # what is said must still be a tree
        read(tmp_path, [row(1, head=1)], need=("tags",))


def test_heads_and_words_of_different_number_are_refused():
    with pytest.raises(BadInput, match="here: 3 words and 2 heads"):
        check_tree([-1, 0], 3, "here")
    with pytest.raises(BadInput, match="here: word 1 is reached again"):
        check_tree([1, 0, -1], 3, "here")
    check_tree([2, 0, -1], 3, "here")


def test_cycles_are_found_in_linear_time():
    n = 200_000
    assert in_cycle([-1, *range(n - 1)]) is None  # a chain, whose every word has all before it above it
    assert in_cycle([n - 1, *range(n - 1)]) is not None


def test_memory_stays_constant(tmp_path):
    """A file of many times the memory that reading it takes."""
    path = tmp_path / "long.conllu"
    block = "\n".join([*BUSH, "", ""])
    path.write_text(block * 8_000)
    tracemalloc.start()
    count = sum(1 for _ in read_sentences(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 8_000 and peak < 1 << 20 < path.stat().st_size
