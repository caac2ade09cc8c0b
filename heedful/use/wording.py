"""Wording: between texts and the numbers that a folder's model reads and writes.

A run of heedful's own reads what its task was trained on. A Hugging Face folder says by its tokenizer what
stands before and after a text ([CLS] and [SEP], T5's </s>, LLaMA's <s>), and by its configs which tokens
begin and end one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.articles import article_of
from ..data.extract import text_of
from ..data.letters import SpelledVocab
from ..data.vocab import groups, no_panic, read_vocab
from ..data.vocab import refuse_long as refuse_endless
from ..errors import BadInput
from ..files import inside, naming, present, read_json
from ..interop.hf.chat import Prompt
from ..interop.hf.generation_settings import CONFIG, tokens_in
from ..models.base.shells import shells_of

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

    from ..interop.loaded import Loaded
    from ..tasks.summarize import SummaryData
from .texts import LONGEST, Tokenized, fault_of

MASK = "[MASK]"
MASKS = (MASK, "<mask>")  # as vocabularies spell it: BERT's and RoBERTa's
TAIL = 8  # tokens of a prompt that are enough to see how the text goes on
HALF = "\ufffd"  # what a decoder writes for a part of a character
UNKNOWN = ("[UNK]", "<unk>", "<UNK>")  # what stands for everything that a vocabulary does not know


class Wording(ABC):
    """What a text becomes before a model is given it, and what its numbers mean afterwards."""

    ends: list[int]  # tokens after which nothing follows

    def __init__(self, loaded: Loaded, folder: str) -> None:
        if loaded.tokenizer is None:
            raise BadInput(
                f"{folder} has no tokenizer, so its model reads no text: put its tokenizer.json there"
            )
        self.folder, self.special = folder, loaded.special
        self.reads: Tokenizer = loaded.tokenizer
        self.writes: Tokenizer = loaded.target_tokenizer or loaded.tokenizer

    # To numbers.

    @abstractmethod
    def source(self, texts: list[str], spans: bool = False) -> list[Tokenized]:
        """What an encoder-decoder's encoder reads. spans: keep where each token stands."""

    @abstractmethod
    def prompt(self, texts: list[str]) -> list[Tokenized]:
        """What a decoder goes on from; empty where a text is and the model knows no beginning of its own."""

    @property
    @abstractmethod
    def begin(self) -> int | None:
        """What stands before the first word of a text, if the model was trained with it there."""

    @property
    def start(self) -> int:
        """What the decoder of an encoder-decoder is given first."""
        found = self.special.get("decoder_start", self.special.get("bos"))
        if found is None:
            raise BadInput(
                f"{self.folder} names no token to begin writing with: "
                f"its config.json lacks decoder_start_token_id"
            )
        return found

    def target(self, texts: list[str]) -> list[list[int]]:
        """What would have to be written, without the end of sentence."""
        return [row.ids for row in tokenize(self.writes, texts)]

    def sentence(self, texts: list[str]) -> list[Tokenized]:
        """What an encoder alone reads: [CLS] text [SEP]."""
        first, last = self.around
        return [replace(row, ids=[first, *row.ids, last]) for row in tokenize(self.reads, texts)]

    def blanked(self, text: str) -> Tokenized:
        """The same of a text with blanks."""
        first, last = self.around
        ids, unknown = [first], []
        for n, piece in enumerate(self.around_blanks(text)):
            ids += [self.mask] * (n > 0) + piece.ids
            unknown += piece.unknown
        return Tokenized(text, [*ids, last], unknown)

    def around_blanks(self, text: str) -> list[Tokenized]:
        """The texts around the blanks. Where tokens carry the space before them, so does a blank."""
        pieces = text.split(MASK)
        if self.carries_spaces:
            pieces = [*(piece.removesuffix(" ") for piece in pieces[:-1]), pieces[-1]]
        return tokenize(self.reads, pieces)

    @property
    def around(self) -> tuple[int, int]:
        return self.named("[CLS]"), self.named("[SEP]")

    @property
    def mask(self) -> int:
        known = [token for token in MASKS if self.reads.token_to_id(token) is not None]
        return self.named(known[0] if known else MASK)

    @property
    def carries_spaces(self) -> bool:
        """Bytes merged by frequency: a word and the space before it are one token."""
        return type(self.reads.decoder).__name__ == "ByteLevel"

    def named(self, token: str) -> int:
        """The number of a token that the model cannot do without."""
        number = self.reads.token_to_id(token)
        if number is None:
            raise BadInput(f"the tokenizer of {self.folder} has no {token}, which its model needs here")
        return number

    def beginning(self, prefix: str) -> list[int]:
        """What a translation is made to begin with."""
        ids = tokenize(self.writes, [prefix])[0].ids if prefix else []
        if self.unknown in ids:
            raise BadInput(f'not all of "{prefix}" is in the vocabulary, so no translation can begin with it')
        return ids

    def banned(self, words: Iterable[str]) -> list[list[int]]:
        """Token sequences of words, at the beginning of a text and inside it."""
        found: dict[tuple[int, ...], None] = {}
        for word in words:
            if not word.strip():
                raise BadInput("an empty word cannot be forbidden: leave it out")
            for ids in (row.ids for row in tokenize(self.writes, [word, f" {word}"])):
                if not ids or self.unknown in ids:
                    raise BadInput(f'"{word}" is not in the vocabulary, so the model cannot write it anyway')
                found[tuple(ids)] = None
        return [list(ids) for ids in found]

    @property
    def unknown(self) -> int | None:
        """The number of whatever the vocabulary does not know."""
        name = getattr(self.writes.model, "unk_token", None)
        return None if name is None else self.writes.token_to_id(name)

    # To text.

    def text(self, ids: Sequence[int], prompt: Sequence[int] = ()) -> str:
        """What tokens say, after a prompt if there was one; special tokens say nothing."""
        tail, said = self.tail(prompt)
        found = added(said, self.decoded([*tail, *ids]))
        return self.decoded(ids) if found is None else found

    def tail(self, prompt: Sequence[int]) -> tuple[list[int], str]:
        """The last tokens of a prompt and their text, which does not begin inside a character if it can."""
        if not prompt:
            return [], ""
        for n in range(TAIL, TAIL + 4):  # a character has at most four bytes, and each may be a token
            text = self.decoded(prompt[-n:])
            if not text.startswith(HALF):
                return list(prompt[-n:]), text
        return list(prompt[-TAIL:]), self.decoded(prompt[-TAIL:])

    def decoded(self, ids: Sequence[int]) -> str:
        with no_panic("token numbers cannot be turned into text"):
            return self.writes.decode(list(ids), skip_special_tokens=True)

    def names(self, ids: Iterable[int]) -> list[str]:
        """Each token as the vocabulary spells it; a model may have more numbers than its vocabulary."""
        return [self.writes.id_to_token(number) or f"<{number}>" for number in ids]

    def word(self, number: int) -> str:
        """A token as one reads it."""
        return self.decoded([number]) or self.names([number])[0]


def added(before: str, whole: str) -> str | None:
    """What a text has gained, even if it ended inside a character; None if it is another text."""
    for known in (before, before.rstrip(HALF)):
        if whole.startswith(known):
            return whole[len(known) :]
    return None


class RunWording(Wording):
    """A run's: texts as they are, for the task puts nothing around them."""

    def __init__(self, loaded: Loaded, folder: str) -> None:
        super().__init__(loaded, folder)
        self.ends = [loaded.special["eos"]] if "eos" in loaded.special else []

    def source(self, texts: list[str], spans: bool = False) -> list[Tokenized]:
        return tokenize(self.reads, texts, spans=spans)

    def prompt(self, texts: list[str]) -> list[Tokenized]:
        return tokenize(self.reads, texts)

    def around_blanks(self, text: str) -> list[Tokenized]:
        """A text gets a space before its first word. What follows a blank is none, so a mark precedes it."""
        if self.carries_spaces:
            return super().around_blanks(text)
        before, *others = text.split(MASK)
        first, *after = tokenize(self.reads, [before, *(f",{piece}" for piece in others)])
        marks = [
            not unknown_ids(self.reads).isdisjoint(row.ids[:1]) for row in after
        ]  # whether it is unknown
        cut = [
            replace(row, ids=row.ids[1:], unknown=row.unknown[mark:])
            for row, mark in zip(after, marks, strict=True)
        ]
        return [first, *cut]

    @property
    def begin(self) -> int | None:
        return None  # language models are trained on windows of a text, which begin anywhere


class ArticleWording(Wording):
    """A run's that summarizes: of each article, what the run has learned to read."""

    def __init__(self, loaded: Loaded, folder: str, data: SummaryData) -> None:
        super().__init__(loaded, folder)
        self.data, self.vocab = data, read_vocab(Path(folder) / "tokenizer.json")
        self.ends = [self.vocab.eos]

    def source(self, texts: list[str], spans: bool = False) -> list[Tokenized]:
        """Articles as they are read: their paragraphs in order, cut at the length of training."""
        read = [text_of(article_of(text), self.data.extract) for text in texts]
        rows = tokenize(self.vocab.tokenizer, read, longest=self.data.max_length, refuse=refuse_endless)
        return [replace(row, text=text) for row, text in zip(rows, texts, strict=True)]

    def prompt(self, texts: list[str]) -> list[Tokenized]:
        """An article and the separator, from which a decoder goes on."""
        return [replace(row, ids=[*row.ids, self.vocab.sep]) for row in self.source(texts)]

    @property
    def begin(self) -> int | None:
        return None


class FolderWording(Wording):
    """A Hugging Face folder's: what its tokenizer puts around a text belongs to it."""

    def __init__(self, loaded: Loaded, folder: str) -> None:
        super().__init__(loaded, folder)
        said = [loaded.generation or {}, read_if_there(Path(folder), CONFIG)]  # the first goes before
        vocab = getattr(loaded.config, "target_vocab", getattr(loaded.config, "vocab", 0))
        kept = tokens_in(loaded.special.get("eos"), vocab)  # where no config lies beside adapters
        self.ends = next(filter(None, (tokens_in(some.get("eos_token_id"), vocab) for some in said)), kept)
        for name in ("decoder_start", "bos"):
            found = [ids for some in said if (ids := tokens_in(some.get(f"{name}_token_id"), vocab))]
            if found:
                self.special = {name: found[0][0]} | self.special
        # What every answer begins with: BART's <s>, mBART's language.
        self.first = tokens_in(said[0].get("forced_bos_token_id"), vocab)[:1]
        self.languages = loaded.languages
        if self.languages is not None and self.languages.target is not None:
            start = self.languages.is_start
            self.first = [] if start else [self.languages.number(self.languages.target)]

    def target(self, texts: list[str]) -> list[list[int]]:
        return [[*self.first, *row] for row in super().target(texts)]

    def source(self, texts: list[str], spans: bool = False) -> list[Tokenized]:
        rows = tokenize(self.reads, texts, around=True, spans=spans)
        if self.languages is None:
            return rows
        return [replace(row, ids=self.languages.of_source(row.ids)) for row in rows]

    @property
    def around(self) -> tuple[int, int]:
        """What the tokenizer puts there itself: RoBERTa's has <s> and </s>."""
        ids = next(encoded(self.reads, [""], True)).ids
        return (ids[0], ids[1]) if len(ids) == 2 else super().around

    def prompt(self, texts: list[str]) -> list[Tokenized]:
        written = [n for n, text in enumerate(texts) if isinstance(text, Prompt)]  # by a chat template, whole
        plain = [n for n in range(len(texts)) if n not in set(written)]
        refuse_long(texts)
        whole = tokenize(self.reads, [texts[n] for n in written]) if written else []
        rows, unknown = dict(zip(written, whole, strict=True)), unknown_ids(self.reads)
        given = [texts[n] for n in plain]
        for n, encoding in zip(plain, encoded(self.reads, given, True), strict=True):
            row, ids = tokenized(texts[n], encoding, unknown), without_end(encoding)
            rows[n] = row if ids == row.ids else replace(row, ids=ids)
        begin = [] if self.begin is None else [self.begin]
        return [rows[n] if rows[n].ids else replace(rows[n], ids=begin) for n in range(len(texts))]

    @property
    def begin(self) -> int | None:
        return self.special.get("bos")


def tokenize(
    tokenizer: Tokenizer,
    texts: list[str],
    around: bool = False,
    spans: bool = False,
    longest: int | None = None,
    refuse: Callable[[list[str]], None] | None = None,
) -> list[Tokenized]:
    """The tokens of each text. around: with the special tokens of the tokenizer. longest: tokens that are
    kept.

    refuse: what raises an error about texts that are too long; without it, LONGEST is the limit.
    """
    (refuse or refuse_long)(texts)
    unknown = unknown_ids(tokenizer)
    return [
        tokenized(text, encoding, unknown, spans, longest)
        for text, encoding in zip(texts, encoded(tokenizer, texts, around), strict=True)
    ]


def tokenized(
    text: str, encoding: Encoding, unknown: set[int], spans: bool = False, longest: int | None = None
) -> Tokenized:
    """One text with its tokens and the words that are unknown."""
    ids = encoding.ids[:longest]
    words: list[str] = []
    if not unknown.isdisjoint(ids):
        for number, (a, b), special in zip(
            ids, encoding.offsets, encoding.special_tokens_mask, strict=longest is None
        ):
            if number in unknown and not special:
                words.append(text[a:b].strip() or text[a:b])
    return Tokenized(text, ids, words, encoding.offsets if spans else [])


def unknown_ids(tokenizer: Tokenizer) -> set[int]:
    """The numbers of whatever a vocabulary does not know."""
    found = {tokenizer.token_to_id(token) for token in UNKNOWN}
    return {number for number in found if number is not None}


def encoded(tokenizer: Tokenizer, texts: Sequence[str | tuple[str, str]], around: bool) -> Iterator[Encoding]:
    """Texts, or pairs of them, through a tokenizer; around: with the special tokens it puts there."""
    for group in groups(texts, lambda text: len(text) if isinstance(text, str) else sum(map(len, text))):
        with no_panic("a text cannot be tokenized (has it half a character?)"):
            found = tokenizer.encode_batch(group, add_special_tokens=around)
        yield from found


def refuse_long(texts: Sequence[str | tuple[str, str]]) -> None:
    for number, text in enumerate(texts, 1):
        if max(map(len, [text] if isinstance(text, str) else text)) > LONGEST:
            raise BadInput(f"text {number} is longer than {LONGEST} characters: cut it")


def without_end(encoding: Encoding) -> list[int]:
    """A text that is to go on: what a tokenizer puts after it is left out."""
    places = [n for n, special in enumerate(encoding.special_tokens_mask, 1) if not special]
    return encoding.ids[: places[-1]] if places else []


def read_if_there(folder: Path, name: str) -> dict[str, Any]:
    """A JSON file of a folder, if it has one."""
    if not present(folder / name):
        return {}
    with naming(folder / name):
        return read_json(inside(folder, name))


def judged(rows: Sequence[Tokenized], network: Any, least: int = 1) -> list[Tokenized]:
    """Rows with their faults: fewer tokens than `least`, or more than the model has positions for."""
    table = table_of(network)
    return [row if row.fault else replace(row, fault=fault_of(len(row.ids), table, least)) for row in rows]


def table_of(network: Any) -> int | None:
    """The longest row that a network's table of positions has room for; None: there is no end."""
    return next(iter(shells_of(network).values())).inputs.position.longest


def tokenize_by(vocab: Any, texts: list[str], spans: bool = False) -> list[Tokenized]:
    """The tokens of texts by the vocabulary of a run; one that spells words out knows every word."""
    if isinstance(vocab, SpelledVocab):
        return [Tokenized(text, ids) for text, ids in zip(texts, vocab.encode_batch(texts), strict=True)]
    return tokenize(vocab.tokenizer, texts, spans=spans, refuse=refuse_endless)
