"""Embed: one vector for each text, from the last layer's vectors of its tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..decode.prompts import pad
from ..decode.step import at_last
from ..errors import BadInput
from ..interop.loaded import IN_WORDS, TEXT_KINDS
from ..models.base.shells import Decoder, DecoderClassifier, Encoder, EncoderDecoder
from ..parts.places import Lengths
from .batches import finite, in_batches
from .classify import RunClassifier
from .texts import Tokenized, listed_texts, usable
from .wording import judged, table_of, tokenize, tokenize_by

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from ..interop.hf.sentences import Sentences
    from .model import Model

Pool = Callable[[Tensor, Tensor], Tensor]  # vectors [B, T, D] of tokens and lengths [B], to [B, D]
POOLINGS = ("mean", "class")
PART = {
    EncoderDecoder: "encoder",
    Encoder: "encoder",
    DecoderClassifier: "decoder",
}  # whose vectors are taken


def can(model: Model) -> bool:
    """Whether it reads texts, and needs no trees for that."""
    return model.kind in TEXT_KINDS and not model.reads_trees


def embed(
    model: Model,
    texts: str | Iterable[str],
    *,
    pooling: str | None = None,
    normalize: bool | None = None,
    batch: int = 32,
) -> Tensor:
    """Turn texts into vectors: one vector of the last layer for each text.

    Args:
        texts: A string, or several.
        pooling: "mean" of all tokens; or "class", the token that stands for all: [CLS] of an encoder, the
            last one of a decoder that classifies. None: as the folder's sentence-transformers files say,
            and "mean" without them.
        normalize: Scale to length 1, so that the product of two vectors is their cosine. None: as those
            files say, and not without them.
        batch: Texts computed at once.

    Returns:
        A tensor in fp32 on the CPU: [D] for a string, [N, D] for several.

    Raises:
        BadInput: The model reads no plain texts.

    Example:
        >>> model = heedful.load("runs/demo")
        >>> model.embed("My aunts are curious.").shape
        torch.Size([32])
        >>> one, other = model.embed(["My aunts are curious.", "He runs."], normalize=True)
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
    if model.task == "reward":
        return model.classifier.encode(texts, [None] * len(texts))
    if model.task == "choose":
        vocab: Any = vocab_of(Path(model.folder), model.recipe)
    else:
        assert isinstance(model.classifier, RunClassifier)
        vocab = model.classifier.vocab
    return [replace(row, ids=[vocab.bos, *row.ids, vocab.eos]) for row in tokenize_by(vocab, texts)]


def embedded(
    model: Model, texts: list[Tokenized], pooling: str | None, normalize: bool | None, batch: int
) -> Tensor:
    """[N, D] in fp32, on the CPU. Defaults: the folder's settings, else the mean, not normalized."""
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
    return finished(vectors_ND, model.sentences, normalize)


def finished(vectors_ND: Tensor, said: Sentences | None, normalize: bool | None) -> Tensor:
    """Vectors normalized and cut as the folder says. What the call says of their length comes last."""
    unit = torch.nn.functional.normalize
    if said is not None:
        whole_ND = unit(vectors_ND, dim=-1) if normalize is None and said.normalize else vectors_ND
        vectors_ND = whole_ND[:, : said.truncate_dim]
    return unit(vectors_ND, dim=-1) if normalize else vectors_ND


# Pooling: the vectors of a text's tokens become one.


def poolings_of(asked: str | None, said: Sentences | None, last: bool) -> list[Pool]:
    """The pooling of the call, or those of the folder, or the mean. Vectors of several stand side by side.

    last: the token that stands for all is a text's last one.
    """
    if asked == "class":
        return [at_last if last else at_first]
    if asked is None and said is not None:
        return [POOLS[name] for name in said.poolings]
    return [mean_over_real]


def real_tokens(hidden_BTD: Tensor, lengths_B: Tensor) -> Tensor:
    """[B, T, 1]: which are tokens, and not padding."""
    slots_T = torch.arange(hidden_BTD.shape[1], device=hidden_BTD.device)
    return (slots_T < lengths_B[:, None])[..., None]


def at_first(hidden_BTD: Tensor, lengths_B: Tensor) -> Tensor:
    """The first token's."""
    return hidden_BTD[:, 0]


def mean_over_real(hidden_BTD: Tensor, lengths_B: Tensor) -> Tensor:
    """The mean of each row's real tokens."""
    real_BT1 = real_tokens(hidden_BTD, lengths_B)
    count_B1 = real_BT1.sum(1)  # one vector may stand for all of them
    return hidden_BTD.masked_fill(~real_BT1, 0).sum(1) / count_B1


def over_root(hidden_BTD: Tensor, lengths_B: Tensor) -> Tensor:
    """The sum over a row's tokens, divided by the root of their number."""
    return mean_over_real(hidden_BTD, lengths_B) * real_tokens(hidden_BTD, lengths_B).sum(1).sqrt()


def largest(hidden_BTD: Tensor, lengths_B: Tensor) -> Tensor:
    """Of each feature the largest among a row's tokens."""
    return hidden_BTD.masked_fill(~real_tokens(hidden_BTD, lengths_B), -torch.inf).amax(1)


def later_weighs_more(hidden_BTD: Tensor, lengths_B: Tensor) -> Tensor:
    """A mean in which the n-th token counts n times."""
    places_T = torch.arange(1, hidden_BTD.shape[1] + 1, device=hidden_BTD.device)
    weights_BT1 = real_tokens(hidden_BTD, lengths_B) * places_T[None, :, None]
    return (hidden_BTD.masked_fill(weights_BT1 == 0, 0) * weights_BT1).sum(1) / weights_BT1.sum(1)


POOLS: dict[str, Pool] = {  # by sentence-transformers' names
    "cls": at_first,
    "mean": mean_over_real,
    "max": largest,
    "mean_sqrt_len_tokens": over_root,
    "weightedmean": later_weighs_more,
    "lasttoken": at_last,
}
