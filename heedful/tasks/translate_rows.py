"""Rows of sentence pairs: padded, one pair a row, or packed, several pairs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..data.batch import Tensors
from ..data.packing import Fitted
from ..data.plan import BucketPlan, RowPlan
from ..data.store import Store
from ..errors import BadInput
from ..parts.places import At, Lengths, Places
from ..parts.positions.base import Tree
from ..parts.view import right_padded
from ..train.loss import NOTHING
from .recipe.settings import TrainSettings
from .task import pad
from .translate_data import TextPair, TokenTree, Vocabs, encoded, trees_of


@dataclass(frozen=True)
class PairBatch(Tensors):
    """Some sentence pairs, padded at the end."""

    source_BS: Tensor
    source_lengths_B: Tensor
    target_BT: Tensor  # begins with bos
    answers_BT: Tensor  # ends with eos; NOTHING in the padding
    count: int  # target tokens, eos included
    ids: tuple[int, ...] = ()
    heads_BW: Tensor | None = None  # of the source's words, where positions come from syntax; -1 is the root
    words_BS: Tensor | None = None  # the word that each token of the source belongs to

    @property
    def source_places(self) -> Places:
        """Where the tokens of the source stand: in rows of so many, or in a tree."""
        if self.heads_BW is None:
            return Lengths(self.source_lengths_B)
        index_BS = right_padded(self.source_lengths_B, self.source_BS.shape[1])
        return At(Tree(index_BS, self.heads_BW, self.words_BS))


@dataclass(frozen=True)
class PackedPairs(Tensors):
    """Rows of sentence pairs that do not see each other: pair n of a source row is pair n of the target's."""

    source_BS: Tensor
    source_documents_BS: Tensor  # which pair; -1 in the padding
    target_BT: Tensor
    target_documents_BT: Tensor
    answers_BT: Tensor
    count: int
    ids: tuple[int, ...] = ()


def collate(
    sources: Sequence[np.ndarray],
    targets: Sequence[np.ndarray],
    bos: int,
    eos: int,
    padding: int,
    ids: Sequence[int] = (),
    trees: Sequence[TokenTree] = (),
) -> PairBatch:
    """Token ids of sentence pairs, and the trees of the sources if they are needed, to a batch."""
    lengths = torch.tensor([len(row) for row in sources])
    inputs = [np.concatenate(([bos], row)) for row in targets]
    answers = [np.concatenate((row, [eos])) for row in targets]
    count = sum(map(len, answers))
    return PairBatch(
        pad(sources, padding),
        lengths,
        pad(inputs, padding),
        pad(answers, NOTHING),
        count,
        tuple(map(int, ids)),
        *stack_trees(trees),
    )


def side_by_side(
    rows: Sequence[Sequence[tuple[np.ndarray, np.ndarray]]],
    length: int,
    bos: int,
    eos: int,
    padding: int,
    ids: Sequence[int] = (),
) -> PackedPairs:
    """Rows of (source, target) tokens to a batch, whose rows all have `length` places."""
    shape = len(rows), length
    source, target, answers = np.full(shape, padding), np.full(shape, padding), np.full(shape, NOTHING)
    of_source, of_target = np.full(shape, -1), np.full(shape, -1)
    for b, row in enumerate(rows):
        s = t = 0
        for n, (read, written) in enumerate(row):
            here, there = slice(s, s + len(read)), slice(t, t + len(written) + 1)
            source[b, here], of_source[b, here] = read, n
            target[b, there], of_target[b, there] = np.concatenate(([bos], written)), n
            answers[b, there] = np.concatenate((written, [eos]))
            s, t = here.stop, there.stop
    count = int((of_target >= 0).sum())
    made = [torch.from_numpy(table) for table in (source, of_source, target, of_target, answers)]
    return PackedPairs(made[0], made[1], made[2], made[3], made[4], count, tuple(map(int, ids)))


def stack_trees(trees: Sequence[TokenTree]) -> tuple[Tensor, ...]:
    """Trees as (heads, words) of a batch; padding hangs on nothing. None are none."""
    if not trees:
        return ()
    return tuple(pad([np.asarray(getattr(tree, name)) for tree in trees], -1) for name in ("heads", "words"))


# Two ways to make rows of pairs.


class PaddedRows:
    """A pair a row, and pairs of like length in a batch."""

    def __init__(
        self, train: Store, vocab: Vocabs, lengths: list[np.ndarray], longest: int, t: TrainSettings
    ) -> None:
        self.train, self.vocab = train, vocab
        self.plan = BucketPlan(lengths, t.batch_tokens, t.seed, longest)
        self.left_out = self.plan.left_out

    def padding(self) -> float:
        return self.plan.padding()

    def batch(self, ids: np.ndarray) -> PairBatch:
        return batch_of(self.train, self.vocab, ids)


class PackedRows:
    """Pairs side by side in rows of one length."""

    def __init__(
        self, train: Store, vocab: Vocabs, lengths: list[np.ndarray], longest: int, t: TrainSettings
    ) -> None:
        self.train, self.vocab = train, vocab
        sizes = np.maximum(*lengths)
        self.kept = np.flatnonzero(sizes <= longest)
        self.left_out = len(sizes) - len(self.kept)
        if not len(self.kept):
            raise BadInput(
                f"no pair is left to train on: {len(sizes)} of {len(sizes)} are over {longest} tokens"
            )
        self.fitted = Fitted(sizes[self.kept], longest)
        self.real = sum(int(side[self.kept].sum()) for side in lengths)
        self.plan = RowPlan(self.fitted.rows, max(1, t.batch_tokens // longest), t.seed)

    def padding(self) -> float:
        return 1 - self.real / (2 * self.fitted.rows * self.fitted.length)

    def batch(self, rows: np.ndarray) -> PackedPairs:
        pairs = [self.kept[self.fitted.pieces(row)].tolist() for row in rows.tolist()]
        store, v = self.train, self.vocab
        texts = [[(store.row("source", i), store.row("target", i)) for i in some] for some in pairs]
        every = [i for some in pairs for i in some]
        return side_by_side(texts, self.fitted.length, v.bos, v.eos, v.pad, every)


def batch_of(store: Store, vocab: Vocabs, ids: np.ndarray) -> PairBatch:
    rows = {name: [store.row(name, int(i)) for i in ids] for name in ("source", "target")}
    trees = [
        TokenTree(store.row("words", int(i)), store.row("heads", int(i)).astype(np.int64) - 1)
        for i in (ids if "heads" in store.fields else ())
    ]
    return collate(rows["source"], rows["target"], vocab.bos, vocab.eos, vocab.pad, ids.tolist(), trees)


def numbers(vocab: Vocabs, pairs: list[TextPair]) -> PairBatch:
    """Sentence pairs as a batch."""
    sources, targets = encoded(vocab, pairs)
    return collate(
        [np.array(s) for s in sources],
        [np.array(t) for t in targets],
        vocab.bos,
        vocab.eos,
        vocab.pad,
        trees=trees_of(vocab, [source for source, _ in pairs]),
    )
