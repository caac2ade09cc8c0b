"""Alignment: which source word a target word came from, read off cross-attention and compared with the gold one.

The row that *predicts* word j looks at its source: with the target shifted right, that is row j, not j + 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..models.shells import EncoderDecoder
from ..parts.observe import watch
from ..text.phrasebook import Pair, words
from ..text.vocab import Vocab
from .metrics import alignment_error_rate
from .translate import collate

Links = set[tuple[int, int]]


def cross_attention(model: EncoderDecoder, vocab: Vocab, source: str, target: str) -> Tensor:
    """Weights [layer and head, T, S] of one pair, target tokens (end of sentence included) by source tokens."""
    ids = vocab.encode_batch([source, target])
    batch = collate([np.array(ids[0])], [np.array(ids[1])], vocab.bos, vocab.eos, vocab.pad)
    device = model.encoder.inputs.tokens.weight.device
    batch = batch.to(device)
    with torch.no_grad(), watch(model) as trace:
        model(batch.source_BS, batch.target_BT, batch.source_lengths_B)
    layers = [weights[0] for path, weights in trace.weights().items() if ".cross." in path]
    return torch.cat(layers).float().cpu()


def word_of_token(vocab: Vocab, text: str) -> list[int]:
    """Which word of `words(text)` each token belongs to, by where both stand in the text."""
    ends, at = [], 0
    for word in words(text):
        at = text.index(word, at) + len(word)
        ends.append(at)
    spans = vocab.tokenizer.encode(text, add_special_tokens=False).offsets
    return [next((w for w, end in enumerate(ends) if stop <= end), len(ends) - 1) for _, stop in spans]


def links_of(weights_TS: Tensor, source_words: Sequence[int], target_words: Sequence[int]) -> Links:
    """Each target word to the source word it looks at most: weights of a word's tokens are added up."""
    S, T = max(source_words) + 1, max(target_words) + 1
    table = torch.zeros(T, S)
    for t, target in enumerate(target_words):
        for s, source in enumerate(source_words):
            table[target, source] += weights_TS[t, s]
    return {(int(row.argmax()), t) for t, row in enumerate(table)}


def error_rates(model: EncoderDecoder, vocab: Vocab, pairs: Sequence[Pair]) -> Tensor:
    """Mean alignment error of every layer and head."""
    model.eval()
    rates = []
    for pair in pairs:
        weights = cross_attention(model, vocab, pair.source, pair.target)
        sides = word_of_token(vocab, pair.source), word_of_token(vocab, pair.target)
        gold = set(pair.alignment)
        rates.append([alignment_error_rate(links_of(head, *sides), gold) for head in weights])
    return torch.tensor(rates).mean(0)


def word_for_word(train: Sequence[Pair], pairs: Sequence[Pair]) -> float:
    """What a dictionary gets right to the letter: every word replaced by its most frequent partner, in place."""
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
