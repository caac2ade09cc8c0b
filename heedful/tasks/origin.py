"""The origin of fine-tuning: a run or a Hugging Face folder, whose sizes, tokenizer and weights are taken.

What was found there is written into the run (from.json), so that a run that has a checkpoint goes on without
it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..data.vocab import Vocab, no_panic, read_vocab
from ..errors import BadInput
from ..files import inside, naming, one_line, present, read_json, read_text, write_json, write_text
from ..interop.formats import load
from ..interop.hf.chat_files import OF_RUN, as_kept
from ..interop.hf.tokenizer import LIMIT, TARGET_TOKENIZER, TOKENIZER, guarded, read_tokenizer, read_whole
from ..interop.loaded import Loaded
from ..interop.run.read import FROM, weights_hash
from ..interop.run_folder import is_run
from ..models import family
from ..models.base.shells import Decoder, DecoderClassifier, EncoderDecoder, WithHeads
from ..models.base.skeleton import config_with_head, config_with_heads, skeleton
from .recipe.settings import Recipe
from .spelling import vocab_as_read
from .task import VocabLike

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# What each task can start from, and how that is said.
READERS = (WithHeads, Decoder), "only encoders like BERT and decoders like GPT-2 can be started from here"
ENCODERS = (WithHeads,), "only an encoder like BERT can be started from here"
DECODERS = (Decoder,), "a language model goes on from a decoder like GPT-2"
TRANSLATORS = (EncoderDecoder,), "a translator goes on from an encoder-decoder like Marian"
Fitting = tuple[tuple[type[nn.Module], ...], str]
FOR_A_TASK = ("classify", "tag", "span")  # heads that begin anew, whatever they were taught before


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


def find_origin(folder: str, run: Path, fitting: Fitting = READERS) -> Origin:
    """The model in `folder`, looked at once; afterwards what the run has written down of it."""
    if not (run / FROM).is_file():
        loaded = load(folder)
        source_of(loaded, folder, fitting)
        origin = Origin(
            str(Path(folder).absolute()),
            weights_hash(Path(folder)),
            loaded.architecture,
            loaded.config,
            loaded.special,
        )
        write_text(run / TOKENIZER, tokenizer_text(loaded, Path(folder)))
        if loaded.target_tokenizer is not None:
            write_text(run / TARGET_TOKENIZER, tokenizer_text(loaded, Path(folder), TARGET_TOKENIZER))
        if loaded.chat is not None and fitting is DECODERS:
            write_json(run / OF_RUN, as_kept(loaded.chat))
        write_json(run / FROM, asdict(origin))
    with naming(run / FROM):
        return read_origin(read_json(inside(run, FROM)))


def starting_from(fitting: Fitting) -> Callable[[Recipe, Path, Callable[[str], None]], Origin]:
    """How a task finds the model to start from, of one of these kinds."""
    return lambda recipe, run, say: find_origin(recipe.train.from_, run, fitting)


def read_origin(found: dict[str, Any]) -> Origin:
    try:
        kind = type(next(iter(family(found["architecture"]).PRESETS.values())))
        sizes = {name: tuple(v) if isinstance(v, list) else v for name, v in found["config"].items()}
        return Origin(**{**found, "config": kind(**sizes)})
    except (KeyError, TypeError, AttributeError):
        raise BadInput("this does not describe a model to start from: start another run") from None


def kind_of(origin: Origin) -> type[nn.Module]:
    """What sort of model it is: an encoder with heads, a decoder or an encoder-decoder."""
    return type(skeleton(origin.architecture, origin.config))


def with_head(origin: Origin, head: str, labels: int = 2) -> Any:
    """The config of an encoder with a new head, and with pooling where the family's head reads it."""
    try:
        return config_with_head(origin.architecture, origin.config, head, labels)
    except (ValueError, TypeError):
        raise no_head(origin, head) from None


def with_heads(origin: Origin, heads: tuple[str, ...], labels: int = 2) -> Any:
    """The config of an encoder with these heads."""
    try:
        return config_with_heads(origin.architecture, origin.config, heads, labels)
    except (ValueError, TypeError):
        raise no_head(origin, " and ".join(heads)) from None


def no_head(origin: Origin, head: str) -> BadInput:
    told = f"{origin.folder} is a {origin.architecture}, which has no head {head}"
    return BadInput(one_line(f"{told}: start from another model"))


def source_of(loaded: Loaded, folder: str, fitting: Fitting = READERS) -> nn.Module:
    """The part of a loaded model that is worth taking over: an encoder with its heads, a decoder, or both."""
    model = loaded.model.decoder if isinstance(loaded.model, DecoderClassifier) else loaded.model
    text = hasattr(loaded.config, "vocab")  # ViT has heads too, but reads no words
    kinds, told = fitting
    if not text or not isinstance(model, kinds):
        raise BadInput(one_line(f"{folder} is a {loaded.architecture}: {told}"))
    return model


def taken(origin: Origin, model: nn.Module) -> set[str]:
    """Names of the new model's weights that the old one has too; heads for labels are new."""
    old = skeleton(origin.architecture, origin.config)
    prefix = "decoder." if isinstance(old, Decoder) and isinstance(model, DecoderClassifier) else ""
    names = {prefix + name for name, _ in old.named_parameters()}
    fresh = tuple(f"heads.{head}." for head in FOR_A_TASK)
    return {name for name, _ in model.named_parameters() if name in names and not name.startswith(fresh)}


def begin(model: nn.Module, origin: Origin) -> None:
    """Copy every weight that the old model and the new one have in common; heads for labels stay fresh, and
    so do the vectors of words that the old one has not."""
    check_same(origin)
    source = source_of(load(origin.folder), origin.folder, ((WithHeads, Decoder, EncoderDecoder), ""))
    prefix = "decoder." if isinstance(model, DecoderClassifier) else ""
    found, both = dict(source.named_parameters()), taken(origin, model)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name in both:
                old = found[name.removeprefix(prefix)]
                weight[: len(old)].copy_(old)


def check_same(origin: Origin) -> None:
    """Refuse another model than the one that was looked at."""
    if weights_hash(Path(origin.folder)) != origin.sha256:
        raise BadInput(
            one_line(f"{origin.folder} has other weights than when this run was begun: start another")
        )


# Its tokenizer


def tokenizer_text(loaded: Loaded, folder: Path, name: str = TOKENIZER) -> str:
    """The tokenizer as JSON, byte for byte that of a run; name: which of its two, where it has two."""
    tokenizer = loaded.tokenizer if name == TOKENIZER else loaded.target_tokenizer
    if tokenizer is None:
        raise BadInput(one_line(f"{folder} has no tokenizer, without which its model knows no word"))
    own = is_run(folder) and present(folder / name)
    return read_text(inside(folder, name), LIMIT) if own else tokenizer.to_str()


def vocabulary(run: Path, origin: Origin, reads: bool = False) -> VocabLike:
    """The tokenizer taken over, which lies in the run: heedful's own kind, or another. reads: it is for texts
    that an encoder-decoder reads."""
    text = read_text(inside(run, TOKENIZER), LIMIT)
    try:
        return vocab_as_read(Vocab.from_json(text), origin.config)
    except BadInput:
        tokenizer = read_tokenizer(run, origin.config.vocab)
        assert tokenizer is not None
        kind = ForeignSourceVocab if reads else ForeignVocab
        made = kind(tokenizer, text, origin.special, origin.folder)
        # A text for a chat model may hold what its template writes.
        tokenizer.encode_special_tokens = not present(run / OF_RUN)
        return made


def target_vocabulary(run: Path, origin: Origin) -> VocabLike | None:
    """The tokenizer of what is written, if the model has one for it."""
    if not present(run / TARGET_TOKENIZER):
        return None
    path = inside(run, TARGET_TOKENIZER)
    text = read_text(path, LIMIT)
    try:
        return Vocab.from_json(text)
    except BadInput:
        rows = getattr(origin.config, "target_vocab", origin.config.vocab)
        tokenizer = guarded(path, rows, lambda: read_whole(path))
        return ForeignVocab(tokenizer, text, origin.special, origin.folder)


def vocab_of(run: Path, recipe: Recipe) -> Any:
    """The vocabulary of a run, whether it learned one or took one over."""
    if not recipe.train.from_:
        return read_vocab(run / TOKENIZER)
    inside(run, FROM)  # missing, it would be made again, and a run is not to be changed
    return vocabulary(run, find_origin(recipe.train.from_, run))


def is_foreign(vocab: object) -> bool:
    """Whether a vocabulary, or that of a source, came with a model that is not heedful's own."""
    return isinstance(getattr(vocab, "source", vocab), ForeignVocab)


def special_of(vocab: object) -> dict[str, int]:
    """What a run's config.json is to say of the tokens of a vocabulary that came along."""
    return vocab.special if isinstance(vocab, ForeignVocab) else {}


class ForeignVocab:
    """A tokenizer that is not heedful's own."""

    kind = "a vocabulary of its own"
    lower = False

    def __init__(self, tokenizer: Tokenizer, text: str, special: dict[str, int], folder: str) -> None:
        tokenizer.encode_special_tokens = True  # a text that says [SEP] is only a text
        self.tokenizer, self.hash = tokenizer, hashlib.sha256(text.encode()).hexdigest()
        self.special = dict(special)
        self.size: int = 1 + max(tokenizer.get_vocab(with_added_tokens=True).values())
        self.pad = special.get("pad", 0)  # any number: padding is told by lengths
        self.cls, self.sep = self.bos, self.eos = ends_of(tokenizer, special, folder)
        self.unk, self.mask = (number_of(tokenizer, some) for some in (UNKNOWN, MASKS))
        self.between = between(tokenizer, self.sep)

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Token numbers of each text, without special tokens."""
        with no_panic("a text cannot be tokenized"):
            return [e.ids for e in self.tokenizer.encode_batch(texts, add_special_tokens=False)]

    def places(self, texts: list[str]) -> list[list[tuple[int, int]]]:
        """Where each token of each text stands in it: its first character, and the one after its last."""
        with no_panic("a text cannot be tokenized"):
            return [e.offsets for e in self.tokenizer.encode_batch(texts, add_special_tokens=False)]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token numbers; special tokens have none."""
        with no_panic("token numbers cannot be turned into text"):
            return self.tokenizer.decode(list(ids), skip_special_tokens=True)

    def ordinary(self) -> list[bool]:
        """For every number, whether it is a word and not a token with a meaning of its own."""
        words = [True] * self.size
        for number, token in self.tokenizer.get_added_tokens_decoder().items():
            words[number] = words[number] and not token.special
        for number in {self.cls, self.sep, self.pad, self.unk, self.mask} - {NO_TOKEN}:
            words[number] = False
        return words


class ForeignSourceVocab(ForeignVocab):
    """The same for texts that an encoder-decoder reads, with what its tokenizer puts around them."""

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Token numbers of each text, with special tokens."""
        with no_panic("a text cannot be tokenized"):
            return [e.ids for e in self.tokenizer.encode_batch(texts, add_special_tokens=True)]


NO_TOKEN = -1  # stands for none
UNKNOWN, MASKS = ("[UNK]", "<unk>"), ("[MASK]", "<mask>")
FIRST, LAST = ("[CLS]", "<s>"), ("[SEP]", "</s>")


def number_of(tokenizer: Tokenizer, names: Collection[str]) -> int:
    """The number of the first of these tokens that a vocabulary has."""
    found = (tokenizer.token_to_id(name) for name in names)
    return next((number for number in found if number is not None), NO_TOKEN)


def between(tokenizer: Tokenizer, sep: int) -> list[int]:
    """The tokens that the tokenizer puts between two texts: one [SEP] for BERT, two </s> for RoBERTa."""
    made = tokenizer.encode("a", "a", add_special_tokens=True)
    owners = [n for n, owner in enumerate(made.sequence_ids) if owner is not None]
    second = [n for n in owners if made.sequence_ids[n] == 1]
    if not second:
        return [sep]
    last = max((n for n in owners if n < second[0]), default=second[0])
    return made.ids[last + 1 : second[0]] or [sep]


def ends_of(tokenizer: Tokenizer, special: dict[str, int], folder: str) -> tuple[int, int]:
    """The tokens that begin and end a text: BERT's [CLS] and [SEP], RoBERTa's <s> and </s>, or, GPT-2 having
    only one, that one for both."""
    for names in zip(FIRST, LAST, strict=True):
        a, b = (tokenizer.token_to_id(name) for name in names)
        if a is not None and b is not None:
            return a, b
    last = special.get("eos")
    first = special.get("bos", last)
    if first is None or last is None:
        raise BadInput(
            one_line(f"{folder} names no token that ends a text: neither [SEP] nor an eos_token_id")
        )
    return first, last
