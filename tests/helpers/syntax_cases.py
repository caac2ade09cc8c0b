"""What several tests share with tests/tasks/test_syntax.py."""

import torch

from heedful.data.conllu import Sentence
from heedful.data.vocab import train_vocab
from heedful.models import syntax
from heedful.tasks import words

D, K, L, N, B = 12, 5, 4, 6, 2


SENTENCES = [
    Sentence(
        ("The", "cat", "sleeps", "."),
        ("DET", "NOUN", "VERB", "PUNCT"),
        (1, 2, -1, 2),
        ("det", "nsubj", "root", "punct"),
    ),
    Sentence(
        ("the", "dog", "eats", "a", "fish", "."),
        ("DET", "NOUN", "VERB", "DET", "NOUN", "PUNCT"),
        (1, 2, -1, 4, 2, 2),
        ("det", "nsubj", "root", "det", "obj", "punct"),
    ),
    Sentence(("Sleep",), ("VERB",), (-1,), ("root",)),
    Sentence(("a", "fish", "sleeps"), ("DET", "NOUN", "VERB"), (1, 2, -1), ("det", "nsubj", "root")),
]


LABELS = words.Labels(
    {"DET": 4, "NOUN": 4, "PUNCT": 2, "VERB": 4}, {"det": 4, "nsubj": 3, "obj": 1, "punct": 2, "root": 4}
)


def vocab_of(kind="bpe", size=270):
    return train_vocab(kind, [" ".join(s.forms) for s in SENTENCES], size)


def model_of(vocab=300, heads=("tag", "arcs", "relations"), trained=True, **more):
    """A model whose weights are nowhere zero, if it is to look trained."""
    torch.manual_seed(5)
    config = syntax.SyntaxConfig(
        vocab=vocab,
        layers=1,
        width=D,
        heads=3,
        ffn_width=16,
        prediction_heads=heads,
        labels=L,
        relations=5,
        arc_width=7,
        relation_width=K,
        **more,
    )
    model = syntax.build(config).double().eval()
    for weight in model.heads.parameters() if trained else ():
        torch.nn.init.normal_(weight, std=0.5)
    return model
