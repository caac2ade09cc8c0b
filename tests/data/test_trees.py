"""Trees: the best one equals the best of all of them, and texts know where the words of their trees stand."""

import itertools
import pickle

import numpy as np
import pytest
from helpers.treebanks import BUSH, RANGES, row

from heedful.corpora import phrasebook
from heedful.data.conllu import Sentence, Surface, fault_in_tree, read_sentences, written
from heedful.data.report import Report
from heedful.data.trees import Parsed, best_tree, parsed, read_parsed, spans, words_of_pieces
from heedful.data.vocab import train_vocab
from heedful.errors import BadInput


def every_tree(n):
    """All trees over n words with one root: n^(n-1) of them (Cayley's, rooted)."""
    for heads in itertools.product(range(-1, n), repeat=n):
        if heads.count(-1) == 1 and fault_in_tree(heads) is None:
            yield list(heads)


def score(scores, heads):
    return sum(scores[word, head] for word, head in enumerate(heads))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_the_best_tree_is_the_best_of_all_trees(n):
    trees = list(every_tree(n))
    assert len(trees) == n ** (n - 1)
    random = np.random.default_rng(n)
    for turn in range(30):
        scores = random.normal(size=(n, n + 1)) * (0.01, 1, 100)[turn % 3]
        scores[:, n] += (0, 5, -5)[turn // 3 % 3]  # roots that are welcome, and roots that are not
        assert best_tree(scores) == max(trees, key=lambda heads: score(scores, heads))


def test_ties_and_whole_numbers_give_a_best_tree_too():
    random = np.random.default_rng(7)
    trees = list(every_tree(4))
    for _ in range(60):
        scores = random.integers(0, 3, size=(4, 5)).astype(float)
        found = best_tree(scores)
        assert found in trees
        assert score(scores, found) == max(score(scores, heads) for heads in trees)


def test_cycles_inside_cycles_are_undone():
    """0 and 1 want each other, 2 and 3 want each other, then the first two: two cycles, and one of both."""
    scores = np.zeros((4, 5))
    scores[0, 1] = scores[1, 0] = scores[2, 3] = scores[3, 2] = 10
    scores[0, 2] = scores[2, 1] = 5
    scores[3, 4] = 1
    trees = list(every_tree(4))
    assert score(scores, best_tree(scores)) == max(score(scores, heads) for heads in trees)


def test_long_sentences_have_one_root_and_no_cycle():
    random = np.random.default_rng(0)
    for n in (17, 80):
        scores = random.normal(size=(n, n + 1))
        scores[:, n] += 100  # everyone would like to be the root
        heads = best_tree(scores)
        assert fault_in_tree(heads) is None and heads.count(-1) == 1


def test_scores_that_are_none_are_refused():
    assert best_tree(np.zeros((0, 1))) == []
    for wrong in (np.zeros((2, 2)), np.full((2, 3), np.nan)):
        with pytest.raises(ValueError, match="scores of 2 words are finite and 2 x 3"):
            best_tree(wrong)


# Texts


def sentence_of(lines, tmp_path):
    (tmp_path / "s").write_text("\n".join(lines) + "\n")
    (found,) = read_sentences(tmp_path / "s")
    return found


def test_words_are_found_in_the_text(tmp_path):
    text = parsed("Bush held  a talk with Sharon ", sentence_of(BUSH, tmp_path), "x")
    assert [text[a:b] for a, b in spans(text)] == list(text.words)
    together = parsed("don't parle du roi", sentence_of(RANGES, tmp_path), "x")
    assert [together[a:b] for a, b in spans(together)] == ["do", "n't", "parle", "du", "du", "roi"]
    pieces = [(0, 2), (2, 5), (5, 8), (8, 11), (11, 14), (14, 15), (15, 18)]  # do n't _pa rle _du _ roi
    assert words_of_pieces(together, pieces) == [0, 1, 2, 2, 3, 5, 5]
    spaced = Parsed("10 000 words", ["10 000", "words"], [1, -1])
    assert spans(spaced) == [(0, 6), (7, 12)]


def test_a_text_and_another_tree_are_refused(tmp_path):
    tree = sentence_of(BUSH, tmp_path)
    for text, said in {
        "Bush holds a talk": "x: the tree has the word 'held' where the text has 'holds a talk'",
        "Bush held a talk with": "x: the tree has the word 'Sharon' where the text has ''",
        "Bush held a talk with Sharon today": "x: the tree ends before 'today': text and tree differ in "
        "length",
    }.items():
        with pytest.raises(BadInput) as caught:
            parsed(text, tree, "x")
        assert str(caught.value) == said
    with pytest.raises(BadInput, match="x: 3 words and 2 heads"):
        parsed("a b c", Sentence(("a", "b", "c"), heads=(-1, 0)), "x")


def test_a_parsed_text_is_a_string_that_survives_a_pickle():
    text = Parsed(
        "du roi", ["de", "le", "roi"], [2, 2, -1], ["ADP", "DET", "NOUN"], (), [Surface("du", 0, 1)]
    )
    assert text == "du roi" and {text: 1}["du roi"] == 1
    back = pickle.loads(pickle.dumps(text))
    assert back == text and back.sentence == text.sentence and back.sentence.text == "du roi"


@pytest.mark.parametrize("kind, size", [("bpe", 300), ("word", 50), ("wordpiece", 60), ("char", 60)])
@pytest.mark.parametrize("lower", [False, True])
def test_every_piece_inherits_the_word_that_it_stands_in(kind, size, lower):
    """By whatever vocabulary: the pieces of a word are those whose letters lie inside it."""
    pairs = [pair for pair in phrasebook.split("valid") if "'s" in pair.source or "-" in pair.source]
    texts = [Parsed(f" {pair.source}  ", phrasebook.words(pair.source), pair.heads) for pair in pairs]
    assert len(texts) > 5
    vocab = train_vocab(kind, texts, size, lower)
    for text, places in zip(texts, vocab.places(texts), strict=True):
        found = words_of_pieces(text, places)
        assert len(found) == len(vocab.encode_batch([text])[0]) and found == sorted(found)
        assert set(found) == set(range(len(text.words)))
        for (start, end), (a, b) in zip(places, [spans(text)[word] for word in found], strict=True):
            letters = [i for i in range(start, end) if not text[i].isspace()]
            assert not letters or a <= letters[0] < b


def test_the_trees_of_the_phrasebook_belong_to_its_sentences():
    for pair in phrasebook.split("long"):
        parsed(pair.source, Sentence(tuple(phrasebook.words(pair.source)), heads=pair.heads), "x")


# Three files in step


@pytest.fixture
def files(tmp_path):
    def write(sources, targets, trees):
        for name, lines in {"a.en": sources, "a.fr": targets, "a.conllu": trees}.items():
            (tmp_path / name).write_bytes(b"".join(line + b"\n" for line in lines))
        return [str(tmp_path / name) for name in ("a.en", "a.fr", "a.conllu")]

    return write


def tree(*words):
    rows = [row(i + 1, word, head=i, relation="x") for i, word in enumerate(words)]
    return "\n".join([*rows, ""]).encode()


def test_trees_keep_in_step_with_the_lines_that_say_something(files):
    sources = [b"a b", b"", b"c", b"\xff", b"d e", b"f"]
    targets = [b"A B", b"nothing", b"", b"bad", b"D E", b"F"]
    paths = files(sources, targets, [tree("a", "b"), tree("c"), tree("d", "e"), tree("f")])
    report = Report("drop")
    found = list(read_parsed(*paths, report))
    assert [(str(a), a.words, a.heads, b) for a, b in found] == [
        ("a b", ("a", "b"), (-1, 0), "A B"),
        ("d e", ("d", "e"), (-1, 0), "D E"),
        ("f", ("f",), (-1,), "F"),
    ]
    assert report.counts.total() == 3


def test_too_few_and_too_many_trees_and_wrong_ones_are_refused(files):
    def said(trees, targets=(b"A", b"B", b"C")):
        with pytest.raises(BadInput) as caught:
            list(read_parsed(*files([b"a", b"b", b"c"], targets, trees), Report("drop")))
        return str(caught.value)

    assert "has 3 lines of text and" in said([tree("a")]) and "has 1 trees" in said([tree("a")])
    assert "has 5 trees" in said([tree(x) for x in "abcde"])
    wrong = said([tree("a"), tree("x"), tree("c")])
    assert "a.conllu:3: the tree of " in wrong and "a.en:2: the tree has the word 'x'" in wrong
    assert "a.en has 3 lines and " in said([tree(x) for x in "abc"], [b"A"])
    assert "a.conllu:2: the head is word 9" in said([tree("a") + row(2, head=9).encode() + b"\n"])


def test_what_parse_writes_is_what_is_read_beside_a_text(files):
    pairs = phrasebook.split("test")[:30]
    trees = [
        written(Sentence(tuple(phrasebook.words(p.source)), heads=p.heads), [f"text = {p.source}"]).encode()
        for p in pairs
    ]
    paths = files([p.source.encode() for p in pairs], [p.target.encode() for p in pairs], trees)
    for pair, (source, target) in zip(pairs, read_parsed(*paths, Report("refuse")), strict=True):
        assert (str(source), source.heads, target) == (pair.source, pair.heads, pair.target)
