"""Where fine-tuning starts: another run, or a Hugging Face folder. Its sizes, tokenizer and weights are taken over.

What was found there is written into the run (from.json), so that a run that has a checkpoint goes on without it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..errors import BadInput
from ..interop.files import inside, naming, one_line, read_json, read_text
from ..interop.load import Loaded, load
from ..interop.runs import is_run
from ..interop.tokenizer import LIMIT, TOKENIZER, read_tokenizer
from ..interop.weights import find_weights
from ..models import family
from ..models.heads import DecoderClassifier
from ..models.shells import Decoder, WithHeads
from ..text.vocab import Vocab, no_panic
from ..train.checkpoint import file_hash
from ..train.files import write_json, write_text
from .job import Words
from .spelling import spelling

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FROM = "from.json"


@dataclass(frozen=True)
class Origin:
    """What is known of the model to start from."""

    folder: str
    sha256: str  # of its weights
    architecture: str
    config: Any
    special: dict[str, int]

    @property
    def facts(self) -> dict[str, Any]:
        return {"from": {"folder": self.folder, "sha256": self.sha256}}


def find_origin(folder: str, run: Path) -> Origin:
    """The model in `folder`, looked at once; afterwards what the run has written down of it."""
    if not (run / FROM).is_file():
        loaded = load(folder)
        source_of(loaded, folder)
        origin = Origin(
            str(Path(folder).absolute()),
            weights_hash(Path(folder)),
            loaded.architecture,
            loaded.config,
            loaded.special,
        )
        write_text(run / TOKENIZER, tokenizer_text(loaded, Path(folder)))
        write_json(run / FROM, asdict(origin))
    with naming(run / FROM):
        return read_origin(read_json(inside(run, FROM)))


def read_origin(found: dict[str, Any]) -> Origin:
    try:
        kind = type(next(iter(family(found["architecture"]).PRESETS.values())))
        sizes = {name: tuple(v) if isinstance(v, list) else v for name, v in found["config"].items()}
        return Origin(**{**found, "config": kind(**sizes)})
    except (KeyError, TypeError, AttributeError):
        raise BadInput("this does not describe a model to start from: start another run") from None


def weights_hash(folder: Path) -> str:
    """SHA-256 of the weights' file; of several, of their hashes in the order of their names."""
    hashes = [file_hash(path) for path in sorted({tensor.path for tensor in find_weights(folder).values()})]
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def source_of(loaded: Loaded, folder: str) -> nn.Module:
    """The part of a loaded model that is worth taking over: an encoder with its heads, or a decoder."""
    model = loaded.model.decoder if isinstance(loaded.model, DecoderClassifier) else loaded.model
    text = hasattr(loaded.config, "vocab")  # ViT has heads too, but reads no words
    if not text or not isinstance(model, WithHeads | Decoder):
        raise BadInput(
            one_line(f"{folder} is a {loaded.architecture}: only encoders like BERT and decoders like GPT-2 can be fine-tuned")
        )  # fmt: skip
    return model


def begin(model: nn.Module, origin: Origin) -> None:
    """Copy every weight that the old model and the new one have in common; heads for labels stay fresh."""
    check_same(origin)
    source = source_of(load(origin.folder), origin.folder)
    prefix = "decoder." if isinstance(source, Decoder) else ""
    found = {prefix + name: weight for name, weight in source.named_parameters()}
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name in found and not name.startswith("heads.classify."):
                weight.copy_(found[name])


def check_same(origin: Origin) -> None:
    """Refuse another model than the one that was looked at."""
    if weights_hash(Path(origin.folder)) != origin.sha256:
        raise BadInput(
            one_line(f"{origin.folder} has other weights than when this run was begun: start another")
        )


# Its tokenizer


def tokenizer_text(loaded: Loaded, folder: Path) -> str:
    """The tokenizer as JSON, byte for byte that of a run."""
    if loaded.tokenizer is None:
        raise BadInput(one_line(f"{folder} has no tokenizer, without which its model knows no word"))
    return read_text(inside(folder, TOKENIZER), LIMIT) if is_run(folder) else loaded.tokenizer.to_str()


def vocabulary(run: Path, origin: Origin) -> Words:
    """The tokenizer taken over, which lies in the run: heedful's own kind, or another."""
    text = read_text(inside(run, TOKENIZER), LIMIT)
    try:
        return spelling(Vocab.from_json(text), origin.config)
    except BadInput:
        tokenizer = read_tokenizer(run, origin.config.vocab)
        assert tokenizer is not None
        return Borrowed(tokenizer, text, origin.special, origin.folder)


class Borrowed:
    """A tokenizer that is not heedful's own."""

    kind = "a vocabulary of its own"

    def __init__(self, tokenizer: Tokenizer, text: str, special: dict[str, int], folder: str) -> None:
        tokenizer.encode_special_tokens = True  # a text that says [SEP] is only a text
        self.tokenizer, self.hash = tokenizer, hashlib.sha256(text.encode()).hexdigest()
        self.size: int = tokenizer.get_vocab_size()
        self.pad = 0  # any number: padding is told by lengths
        self.cls, self.sep = self.bos, self.eos = ends_of(tokenizer, special, folder)

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Token numbers of each text, without special tokens."""
        with no_panic("a text cannot be tokenised"):
            return [e.ids for e in self.tokenizer.encode_batch(texts, add_special_tokens=False)]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token numbers; special tokens have none."""
        with no_panic("token numbers cannot be turned into text"):
            return self.tokenizer.decode(list(ids), skip_special_tokens=True)


def ends_of(tokenizer: Tokenizer, special: dict[str, int], folder: str) -> tuple[int, int]:
    """The tokens that begin and end a text: BERT's [CLS] and [SEP], or, GPT-2 having only one, that one for both."""
    first, last = (tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]"))
    if first is None or last is None:
        last = special.get("eos")
        first = special.get("bos", last)
    if first is None or last is None:
        raise BadInput(
            one_line(f"{folder} names no token that ends a text: neither [SEP] nor an eos_token_id")
        )
    return first, last
