"""Metrics against sacreBLEU and by hand."""

import random

import pytest
import sacrebleu

from heedful.tasks.metrics import SIGNATURE, alignment_error_rate, bleu, exact_match, interval, tokens_13a

TEXTS = [
    "The cat sat on the mat.",
    'He said: "No, 3.5 % of 1,000-word texts!"',
    "L'homme ne voit pas le chat noir.",
    "a",
    "",
    "e-mail me @ a.b/c &amp; more &lt;now&gt;",
    "10-20 people (about 5,5) came...",
    "Ça coûte 3,50 € ; d'accord ?",
    "tabs\tand  spaces   here",
    "ends with number 5.",
]


def test_tokens_are_sacrebleus():
    theirs = sacrebleu.metrics.BLEU(tokenize="13a").tokenizer
    for text in TEXTS:
        assert " ".join(tokens_13a(text)) == theirs(text), text


@pytest.mark.parametrize("lower", [False, True])
def test_bleu_is_sacrebleus(lower):
    rng = random.Random(0)
    words = " ".join(TEXTS).split()
    metric = sacrebleu.metrics.BLEU(lowercase=lower)
    for size in (1, 3, 20):
        for share in (0.0, 0.3, 0.9, 1.0):
            expected = [" ".join(rng.choices(words, k=rng.randint(0, 25))) for _ in range(size)]
            found = [
                " ".join(w if rng.random() < share else rng.choice(words) for w in e.split())
                for e in expected
            ]
            assert bleu(found, expected, lower) == pytest.approx(
                metric.corpus_score(found, [expected]).score, abs=1e-9
            )
    if not lower:
        metric.corpus_score(["a"], [["a"]])
        assert str(metric.get_signature()).startswith(SIGNATURE)


def test_short_and_empty_answers_do_not_crash():
    assert bleu(["", ""], ["a b", "c"]) == 0
    assert bleu(["a"], ["a"]) == pytest.approx(sacrebleu.metrics.BLEU().corpus_score(["a"], [["a"]]).score)


def test_exact_match_and_alignment_error():
    assert exact_match(["a", "b", "c"], ["a", "x", "c"]) == pytest.approx(2 / 3)
    assert alignment_error_rate({(0, 0), (1, 1)}, {(0, 0), (1, 1)}) == 0
    assert alignment_error_rate({(0, 0), (1, 2)}, {(0, 0), (1, 1), (2, 2)}) == pytest.approx(1 - 2 / 5)
    assert alignment_error_rate(set(), set()) == 0


def test_interval_holds_the_share_and_narrows():
    low, high = interval(0.9, 100)
    assert low < 0.9 < high and interval(0.9, 10000)[1] - interval(0.9, 10000)[0] < high - low
    assert interval(1.0, 50)[1] == 1.0 and interval(0.0, 0) == (0.0, 1.0)
