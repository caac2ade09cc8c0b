"""Alignment: which source word a target word came from, by cross-attention, compared with gold links.

The row that *predicts* word j looks at its source: with the target shifted right, that is row j, not j + 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..corpora import phrasebook
from ..corpora.phrasebook.pair import Pair, words
from ..data.vocab import Vocab
from ..models.base.shells import EncoderDecoder
from ..parts.places import Lengths
from ..parts.watch import watch
from .metrics import alignment_error_rate
from .task import chunks
from .translate_data import TextPair, Vocabs, encoded, sides
from .translate_rows import collate

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Links = set[tuple[int, int]]


def cross_attention(model: EncoderDecoder, vocab: Vocabs, source: str, target: str) -> Tensor:
    """Attention weights [layer and head, T, S] of one pair; the target includes the end of the sentence."""
    return next(cross_attentions(model, vocab, [(source, target)]))


def cross_attentions(model: EncoderDecoder, vocab: Vocabs, pairs: Sequence[TextPair]) -> Iterator[Tensor]:
    """The same of each of several pairs, which are done together."""
    device = model.encoder.inputs.tokens.weight.device
    for some in chunks(pairs, 64):
        sources, targets = encoded(vocab, some)
        read, written = ([np.array(ids) for ids in side] for side in (sources, targets))
        batch = collate(read, written, vocab.bos, vocab.eos, vocab.pad).to(device)
        with torch.no_grad(), watch(model) as trace:
            model(batch.source_BS, batch.target_BT, Lengths(batch.source_lengths_B))
        layers = [weights for path, weights in trace.weights().items() if ".cross." in path]
        every = torch.cat(layers, dim=1).float().cpu()
        for weights, source, target in zip(every, sources, targets, strict=True):
            yield weights[:, : len(target) + 1, : len(source)]


def word_of_token(vocab: Vocab | Tokenizer, text: str) -> list[int]:
    """Which word of `words(text)` each token belongs to, by where both stand in the text."""
    tokenizer = vocab.tokenizer if isinstance(vocab, Vocab) else vocab
    ends, at = [], 0
    for word in words(text):
        at = text.index(word, at) + len(word)
        ends.append(at)
    spans = tokenizer.encode(text, add_special_tokens=False).offsets
    return [next((w for w, end in enumerate(ends) if stop <= end), len(ends) - 1) for _, stop in spans]


def links_of(weights_TS: Tensor, source_words: Sequence[int], target_words: Sequence[int]) -> Links:
    """Each target word to the source word it looks at most: weights of a word's tokens are added up."""
    S, T = max(source_words) + 1, max(target_words) + 1
    known_TS = weights_TS[: len(target_words), : len(source_words)]
    by_word = torch.zeros(len(target_words), S).index_add(1, torch.tensor(source_words), known_TS)
    table = torch.zeros(T, S).index_add(0, torch.tensor(target_words), by_word)
    return {(source, t) for t, source in enumerate(table.argmax(-1).tolist())}


def error_rates(model: EncoderDecoder, vocab: Vocabs, pairs: Sequence[Pair]) -> Tensor:
    """Mean alignment error of every layer and head."""
    model.eval()
    read, written = sides(vocab)
    rates = []
    found = cross_attentions(model, vocab, [(pair.source, pair.target) for pair in pairs])
    for pair, weights in zip(pairs, found, strict=True):
        places = word_of_token(read, pair.source), word_of_token(written, pair.target)
        gold = set(pair.alignment)
        rates.append([alignment_error_rate(links_of(head, *places), gold) for head in weights])
    return torch.tensor(rates).mean(0)


def token_links(gold: Links, source_words: Sequence[int], target_words: Sequence[int]) -> Links:
    """(target token, source token) wherever their words are linked: the cells of a picture."""
    return {
        (t, s)
        for t, target in enumerate(target_words)
        for s, source in enumerate(source_words)
        if (source, target) in gold
    }


def find_pair(source: str) -> Pair | None:
    """A sentence pair of the phrasebook with its gold alignment; None if there is no such sentence."""
    found = (pair for split in phrasebook.SPLITS for pair in phrasebook.split(split) if pair.source == source)
    return next(found, None)


def word_for_word(train: Sequence[Pair], pairs: Sequence[Pair]) -> float:
    """Exact match of word-for-word translation: every word replaced by its most frequent partner."""
    seen: dict[str, Counter[str]] = {}
    for pair in train:
        source, target = words(pair.source), words(pair.target)
        for s, t in pair.alignment:
            seen.setdefault(source[s].lower(), Counter())[target[t].lower()] += 1
    best = {word: counts.most_common(1)[0][0] for word, counts in seen.items()}
    right = 0
    for pair in pairs:
        found = [best.get(word.lower(), word.lower()) for word in words(pair.source)]
        right += found == [word.lower() for word in words(pair.target)]
    return right / max(1, len(pairs))
