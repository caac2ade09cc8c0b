"""Embed: one vector for each text, from the last layer's vectors of its tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..decode.prompts import pad
from ..errors import BadInput
from ..models.base.shells import Decoder, DecoderClassifier, Encoder, EncoderDecoder
from ..parts.places import Lengths
from . import translate
from .batches import finite, in_batches
from .classify import RunClassifier
from .kinds import IN_WORDS, TEXT_KINDS
from .pooling import poolings_of
from .texts import judged, listed_texts, table_of, tokenize_by, usable
from .wording import Tokenized, tokenize

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from .model import Model

POOLINGS = ("mean", "class")
PART = {
    EncoderDecoder: "encoder",
    Encoder: "encoder",
    DecoderClassifier: "decoder",
}  # whose vectors are taken


def can(model: Model) -> bool:
    """Whether it reads texts, and needs no trees for that."""
    return model.kind in TEXT_KINDS and not translate.needs_trees(model)


def embed(
    model: Model,
    texts: str | Iterable[str],
    *,
    pooling: str | None = None,
    normalize: bool | None = None,
    batch: int = 32,
) -> Tensor:
    """The last layer's vectors as one vector for each text: [D] for a string, [N, D] for several.

    texts: a string, or several. pooling: "mean" of all tokens, or "class", the one token that stands for all:
    [CLS] of an encoder, the last one of a decoder that classifies. normalize: to length 1, so that the
    product of two vectors is their cosine. batch: texts at once. Without `pooling` and `normalize`, the
    folder's sentence-transformers files decide; without those files, it is the mean, as long as it is.
    Returns a tensor in fp32, on the CPU.

    >>> model = load("runs/toy")
    >>> model.embed("i am a student").shape
    torch.Size([16])
    >>> one, other = model.embed(["i am a student", "the cat sleeps"], normalize=True)
    >>> bool(one @ one > one @ other)
    True
    """
    model.check_can("embed")
    rows, one = listed_texts(texts)
    found = embedded(model, encode(model, rows), pooling, normalize, batch)
    return found[0] if one else found


def encode(model: Model, texts: list[str]) -> list[Tokenized]:
    """Texts as the part of the model reads them whose vectors are taken."""
    if model.spelled is not None:
        ends = model.spelled.cls, model.spelled.sep
        return [replace(row, ids=[ends[0], *row.ids, ends[1]]) for row in tokenize_by(model.spelled, texts)]
    if model.sentences is not None and model.sentence_reader is not None:
        before = model.sentences.prompt
        rows = tokenize(model.sentence_reader, [before + text for text in texts], around=True)
    elif model.kind is EncoderDecoder:
        rows = model.wording.source(texts)
    elif model.kind is Encoder:
        rows = model.wording.sentence(texts)
    elif model.kind is DecoderClassifier:
        rows = classifier_rows(model, texts)
    else:
        rows = model.wording.prompt(texts)
    return judged(rows, model.model)


def sentence_reader(model: Model) -> Tokenizer | None:
    """The tokenizer of a sentence-transformers folder, which cuts long texts."""
    if model.sentences is None:
        return None
    room = [size for size in (model.sentences.longest, table_of(model.model)) if size is not None]
    return model.sentences.reader(model.wording.reads, min(room, default=None))


def classifier_rows(model: Model, texts: list[str]) -> list[Tokenized]:
    """What a decoder that classifies reads: a text between its two ends."""
    from ..tasks.choose import vocab_of

    if model.recipe is None:
        return model.wording.source(texts)
    if model.task == "choose":
        vocab: Any = vocab_of(Path(model.folder), model.recipe)
    else:
        assert isinstance(model.classifier, RunClassifier)
        vocab = model.classifier.vocab
    return [replace(row, ids=[vocab.bos, *row.ids, vocab.eos]) for row in tokenize_by(vocab, texts)]


def embedded(
    model: Model, texts: list[Tokenized], pooling: str | None, normalize: bool | None, batch: int
) -> Tensor:
    """[N, D] in fp32, on the CPU. What is not said is done as the folder says."""
    if pooling not in (None, *POOLINGS):
        raise BadInput(f'`pooling` is "mean" or "class", not {pooling!r}')
    if pooling == "class" and model.kind not in (Encoder, DecoderClassifier):
        raise BadInput(
            f'{model.folder} is {IN_WORDS[model.kind]}, without a class token: use `pooling="mean"`'
        )
    rows, spelled = [row.ids for row in usable(texts)], model.spelled
    network: Any = model.model
    part = network if model.kind is Decoder else getattr(network, PART[model.kind])
    read = part.hidden if hasattr(part, "hidden") else part
    pools = poolings_of(pooling, model.sentences, last=model.kind is DecoderClassifier)

    def do(some: list[int]) -> Sequence[Tensor]:
        tokens_BT, lengths_B = pad([rows[i] for i in some], model.device)
        given = tokens_BT if spelled is None else spelled.tokens(tokens_BT.cpu()).to(model.device)
        hidden_BTD = read(given, Lengths(lengths_B)).float()
        vectors_BD = torch.cat([pool(hidden_BTD, lengths_B) for pool in pools], -1)
        return list(finite(vectors_BD, model.folder).cpu())

    found = in_batches(rows, batch, do)
    vectors_ND = torch.stack(found) if found else torch.empty(0, len(pools) * model.config.width)
    unit = model.sentences is not None and model.sentences.normalize if normalize is None else normalize
    return torch.nn.functional.normalize(vectors_ND, dim=-1) if unit else vectors_ND
