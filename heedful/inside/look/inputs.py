"""One input as the model gets it: a text as tokens, and what an encoder-decoder writes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import nn

from ...data.pieces import labels
from ...data.trees import Parsed, words_of_pieces
from ...data.vocab import SPECIALS, Vocab, no_panic
from ...decode.filters import forbidden
from ...decode.greedy import greedy
from ...decode.step import step_of
from ...errors import BadInput
from ...interop.loaded import Loaded
from ...models.base.classifying import is_taught_here
from ...models.base.shells import DecoderClassifier, EncoderDecoder, WithHeads, needs_tree
from ...parts.places import IN_ORDER, Lengths, Places
from ...tasks.translate import with_trees
from ...tasks.translate_data import TokenTree
from .layers import inputs_of, kinds_of, rows_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer


MOST = 256  # tokens: a picture of more cannot be read


@dataclass(frozen=True)
class InputTokens:
    """The tokens of one input. Of an encoder-decoder also what the decoder reads, and what each of it
    predicts."""

    text: str
    ids: list[int]
    read: list[int] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    translation: str = ""


def given(loaded: Loaded, text: str, target: str | None = None, most: int = MOST) -> InputTokens:
    """A text as tokens; of an encoder-decoder with its target, or with what the model itself writes.

    most: tokens of either; longer ones are refused.
    """
    model, ids = reading(loaded, text), tokens_of(loaded, text)
    refuse_size(len(ids), "the text", most)
    if not isinstance(model, EncoderDecoder):
        if target is not None:
            raise BadInput(
                f"--target is for encoder-decoders, and this {loaded.architecture} is none: leave it out"
            )
        return InputTokens(text, ids)
    start, eos = ends_of(loaded)
    written = loaded.target_tokenizer or loaded.tokenizer
    if target is None:
        answers = own_translation(loaded, model, ids, start, eos, most)
    else:
        answers = [*encode(written, target, False, rows_of(model.decoder)), eos]
    refuse_size(len(answers), "the target" if target is not None else "the translation", most)
    words = answers[:-1] if answers and answers[-1] == eos else answers
    said = target if target is not None else decode(written, words)
    return InputTokens(text, ids, [start, *answers[:-1]], answers, said)


def reading(loaded: Loaded, text: str) -> nn.Module:
    """The model as it reads this text: one whose positions come from syntax has the text's tree."""
    model = loaded.model
    if not needs_tree(model):
        if isinstance(text, Parsed):
            raise BadInput(f"this {loaded.architecture} reads no trees: leave out --trees")
        return model
    if not isinstance(text, Parsed):
        raise BadInput(
            "this model reads sentences with their trees: give --trees, a CoNLL-U file as `heedful parse` "
            "writes it, whose first sentence is the text"
        )
    assert isinstance(model, EncoderDecoder) and loaded.tokenizer is not None
    pieces = loaded.tokenizer.encode(str(text), add_special_tokens=False).offsets
    return with_trees(model, [TokenTree(words_of_pieces(text, pieces), text.heads)])


def places_for(model: nn.Module, ids: Sequence[int]) -> Places:
    """Where the tokens of a source stand: trees come with lengths."""
    if not needs_tree(model):
        return IN_ORDER
    return Lengths(torch.tensor([len(ids)], device=next(model.parameters()).device))


def tokens_of(loaded: Loaded, text: str) -> list[int]:
    """What the model reads of a text, special tokens included."""
    tokenizer, model = loaded.tokenizer, loaded.model
    embedding = inputs_of(model)
    if hasattr(loaded.config, "vocab") and not kinds_of(model):
        raise BadInput(f"this {loaded.architecture} has no attention to look at")
    if embedding is None:
        raise BadInput(f"a {loaded.architecture} reads images, not text: give an image file")
    own = tokenizer is not None and is_own(tokenizer)
    ids = encode(tokenizer, text, not own, embedding.tokens.weight.shape[0])
    if tokenizer is None:
        return ids
    if not own:
        return finished(loaded, tokenizer, ids)
    if isinstance(model, WithHeads):
        return [Vocab.cls, *ids, Vocab.sep]
    return [Vocab.bos, *ids, Vocab.eos] if isinstance(model, DecoderClassifier) else ids


def is_own(tokenizer: Tokenizer) -> bool:
    """A vocabulary that heedful learned: tasks add its special tokens, and are not to find them there
    already."""
    return all(tokenizer.token_to_id(token) == number for number, token in enumerate(SPECIALS))


def finished(loaded: Loaded, tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    """Special tokens that a published tokenizer leaves to the model's code."""
    eos = loaded.special.get("eos")
    if isinstance(loaded.model, EncoderDecoder) and eos is not None and ids[-1:] != [eos]:
        return [*ids, eos]
    end = tokenizer.token_to_id("<|endoftext|>")  # GPT-2's only one, at both ends of a text to classify
    if is_taught_here(loaded.model) and end is not None:
        return [end, *ids, end]
    return ids


def encode(tokenizer: Tokenizer | None, text: str, special: bool, rows: int) -> list[int]:
    """Token numbers. A model without a tokenizer is given the numbers themselves."""
    if tokenizer is not None:
        with no_panic("the text cannot be tokenized"):
            return list(tokenizer.encode(text, add_special_tokens=special).ids)
    words = text.split()
    if not words or not all(word.isascii() and word.isdigit() and int(word) < rows for word in words):
        raise BadInput(
            f'this model has no tokenizer: give token numbers from 0 to {rows - 1}, such as "5 3 8"'
        )
    return [int(word) for word in words]


def decode(tokenizer: Tokenizer | None, ids: Sequence[int]) -> str:
    if tokenizer is None:
        return " ".join(map(str, ids))
    with no_panic("token numbers cannot be turned into text"):
        return tokenizer.decode(list(ids), skip_special_tokens=True)


def refuse_size(count: int, what: str, most: int = MOST) -> None:
    if not count:
        raise BadInput(f"{what} has no tokens: there is nothing to look at")
    if count > most:
        raise BadInput(f"{what} has {count} tokens, and at most {most} are shown: give a shorter one")


def ends_of(loaded: Loaded) -> tuple[int, int]:
    """The tokens that a target begins and ends with."""
    start = loaded.special.get("decoder_start", loaded.special.get("bos"))
    eos = loaded.special.get("eos")
    if start is None or eos is None:
        raise BadInput(
            "this model does not say which tokens begin and end a target: add decoder_start_token_id and "
            "eos_token_id to its config.json"
        )
    return start, eos


@torch.no_grad()
def own_translation(
    loaded: Loaded, model: nn.Module, ids: list[int], start: int, eos: int, most: int = MOST
) -> list[int]:
    """The tokens that the model writes, always taking the most likely; the end of sentence included, if it
    comes."""
    device = next(loaded.model.parameters()).device
    source_1S, start_11 = (torch.tensor([row], device=device) for row in (ids, [start]))
    padded = loaded.architecture == "transformer" and start == loaded.special.get("pad")
    never = [forbidden([start])] if padded else []  # Marian begins with its padding, and never writes it
    lengths = torch.tensor([len(ids)], device=device) if needs_tree(model) else None
    step = step_of(model, source_1S, lengths)  # type: ignore[arg-type]
    longest = min(2 * len(ids) + 20, most)
    return greedy(step, start_11, longest=longest, eos=eos, filters=never)[0].tokens


def axes(loaded: Loaded, words: InputTokens, which: str) -> tuple[list[str], list[str]]:
    """The words of queries and of keys. Cross-attention is of the word being written, not of the one before
    it."""
    source = labels(loaded.tokenizer, words.ids)
    written = loaded.target_tokenizer or loaded.tokenizer
    if which == "cross":
        return labels(written, words.answers), source
    if which == "self" and words.read:
        read = labels(written, words.read)
        return read, read
    return source, source
