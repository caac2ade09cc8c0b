"""Extract, then write: which paragraphs of a long article a model is given to read (Liu et al. 2018).

The paragraphs are put in an order, one after the other, and the first L tokens of that are read. The order is
the article's own ("first"), or that of their scores ("tf-idf"):

    score(p) = sum over words w of the title  N_w(p) log(N_d / N_dw)

N_w(p): how often w stands in p; N_d: how many paragraphs there are; N_dw: how many of them have w.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence

from .articles import Article
from .vocab import Vocab

WORD = re.compile(r"[^\W_]+")


def words(text: str) -> list[str]:
    """Runs of letters and digits, without capitals."""
    return WORD.findall(text.lower())


def tf_idf(title: str, paragraphs: Sequence[str]) -> list[float]:
    """The score of each paragraph; a word of the title in no paragraph, or in all of them, counts nothing."""
    counts = [Counter(words(paragraph)) for paragraph in paragraphs]
    weights = {}
    for word in dict.fromkeys(words(title)):
        having = sum(word in count for count in counts)
        weights[word] = math.log(len(paragraphs) / having) if having else 0.0
    return [sum(count[word] * weight for word, weight in weights.items()) for count in counts]


def in_order(article: Article) -> list[str]:
    """As they stand."""
    return list(article.paragraphs)


def by_score(article: Article) -> list[str]:
    """Best first; equal ones, and so all of an article without a title, as they stand."""
    scores = tf_idf(article.heading, article.paragraphs)
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    return [article.paragraphs[i] for i in order]


EXTRACTORS: dict[str, Callable[[Article], list[str]]] = {"first": in_order, "tf-idf": by_score}


def text_of(article: Article, how: str) -> str:
    """What there is to read of an article: its title, a colon, and its paragraphs in the order asked for."""
    said = " ".join(" ".join(paragraph.split()) for paragraph in EXTRACTORS[how](article))
    return f"{article.heading}: {said}" if article.heading else said


def read_by(vocab: Vocab, articles: Sequence[Article], how: str, longest: int) -> list[list[int]]:
    """The tokens that a model reads of each article: the first `longest`."""
    return [row[:longest] for row in vocab.encode_batch([text_of(article, how) for article in articles])]
