"""Vocabularies: texts to numbers and back, by Hugging Face `tokenizers`.

    bpe         bytes merged by frequency: any text, exactly
    char        one token a character of the training text
    wordpiece   the longest known pieces of a word, left to right
    word        whole words and punctuation
    spaced      what stands between spaces: words of a text that somebody has cut into words already

In `word`, `spaced` and `wordpiece` a token keeps the space before it (" cat", "."), so that decoding gives
back the text with its white space made single. A text never becomes a special token, whatever it says.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import BadInput
from ..files import MEGABYTE, inside, naming, objects, one_line, read_text, short
from ..models import nearest

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPECIALS = ("[PAD]", "[BOS]", "[EOS]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
BYTES = 256
LARGEST = 1_000_000  # tokens; the library sets memory aside for as many as it is asked for
LONGEST = 1_000_000  # characters of one text: the library takes up to 600 bytes for each
AT_ONCE = 1 << 16  # characters
LIMIT = 128 * MEGABYTE  # characters of a tokenizer.json

# A word with the space before it; letters keep their accents and vowel signs; punctuation stands alone.
WORDS = r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]"
BETWEEN_SPACES = r" ?\S+"
SPACES = r"\s+"

Texts = TypeVar("Texts")  # one text, or several that belong together

LONG_WORD = 1000  # characters: learning merges takes the square of it, and some "words" are genomes


class Vocab:
    """A vocabulary: texts to numbers and back. `train_vocab` learns one, `read_vocab` reads one.

    The first seven tokens are special. A text never becomes one of them, whatever it says.

    Args:
        text: What `to_json` gave.

    Attributes:
        kind: "bpe", "wordpiece", "char", "word" or "spaced".
        size: Number of tokens, special ones included.
        lower: Whether texts are lowercased.
        tokenizer: The `tokenizers.Tokenizer` that does the work.
        pad: Number of the padding token; `bos`, `eos`, `unk`, `cls`, `sep` and `mask` are the others.

    Example:
        >>> vocab = train_vocab("word", ["the cat sat", "the dog sat"], size=20)
        >>> vocab.encode_batch(["the dog"])
        [[8, 10]]
        >>> vocab.decode([8, 10, vocab.eos]), len(vocab)
        ('the dog', 11)
        >>> vocab.places(["the dog"])
        [[(0, 3), (3, 7)]]
        >>> vocab.unknown_rate(["the fish"])
        0.5
        >>> Vocab.from_json(vocab.to_json()).hash == vocab.hash
        True
    """

    pad, bos, eos, unk, cls, sep, mask = range(len(SPECIALS))

    def __init__(self, text: str) -> None:
        self._text = text
        self.tokenizer, self.kind, self.lower = read_ours(text)
        self.size: int = self.tokenizer.get_vocab_size()

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Encode texts.

        Args:
            texts: The texts.

        Returns:
            Token numbers of each text, without special tokens.

        Raises:
            BadInput: A text is longer than a million characters.
        """
        refuse_long(texts)
        found: list[list[int]] = []
        for group in groups(texts):
            with no_panic("a text cannot be tokenized (has it half a character?)"):
                encodings = self.tokenizer.encode_batch_fast(group, add_special_tokens=False)
            found.extend(encoding.ids for encoding in encodings)
        return found

    def places(self, texts: list[str]) -> list[list[tuple[int, int]]]:
        """Where each token of each text stands in it.

        Args:
            texts: The texts.

        Returns:
            (first character, one past the last) of each token of each text.
        """
        refuse_long(texts)
        found: list[list[tuple[int, int]]] = []
        for group in groups(texts):
            with no_panic("a text cannot be tokenized (has it half a character?)"):
                encodings = self.tokenizer.encode_batch(group, add_special_tokens=False)
            found.extend(encoding.offsets for encoding in encodings)
        return found

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token numbers. Special tokens have none.

        Args:
            ids: Token numbers.

        Returns:
            The text.
        """
        with no_panic("token numbers cannot be turned into text"):
            return self.tokenizer.decode(list(ids), skip_special_tokens=True)

    def unknown_rate(self, texts: Iterable[str]) -> float:
        """The share of tokens that stand for something unknown.

        Args:
            texts: Texts to try.

        Returns:
            A share from 0 to 1.
        """
        unknown = total = 0
        texts = iter(texts)
        while some := list(islice(texts, 1000)):
            for ids in self.encode_batch(some):
                unknown += ids.count(self.unk)
                total += len(ids)
        return unknown / max(total, 1)

    def to_json(self) -> str:
        """The vocabulary as tokenizer.json has it.

        Returns:
            JSON that `from_json` and the library `tokenizers` read.
        """
        return self._text

    @classmethod
    def from_json(cls, text: str) -> Vocab:
        """A vocabulary from its JSON.

        Args:
            text: What `to_json` gave.

        Returns:
            `Vocab`.

        Raises:
            BadInput: The tokenizer is not one of heedful's.
        """
        return cls(text)

    @property
    def hash(self) -> str:
        """SHA-256 of the JSON: two vocabularies with the same hash give the same numbers."""
        return hashlib.sha256(self._text.encode()).hexdigest()

    def __len__(self) -> int:
        return self.size

    def __reduce__(self) -> Any:
        return Vocab, (self._text,)


def refuse_long(texts: list[str]) -> None:
    for number, text in enumerate(texts, 1):
        if len(text) > LONGEST:
            raise BadInput(
                f"text {number} has {len(text)} characters; at most {LONGEST} are tokenized at once: cut it"
            )


def groups(texts: Iterable[Texts], size_of: Callable[[Any], int] = len) -> Iterator[list[Texts]]:
    """Texts in lists of few characters, since the library needs a hundred times their memory."""
    group: list[Texts] = []
    size = 0
    for text in texts:
        if group and size + size_of(text) > AT_ONCE:
            yield group
            group, size = [], 0
        group.append(text)
        size += size_of(text)
    if group:
        yield group


@contextmanager
def no_panic(what: str) -> Iterator[None]:
    """Make the library's faults ours; its panics are not even Exceptions.

    A reader's faults pass as they are.
    """
    try:
        yield
    except (BadInput, OSError, MemoryError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise BadInput(one_line(f"{what}: {error}")) from error


# The kinds


def blank(kind: str, lower: bool) -> Tokenizer:
    """A tokenizer of a kind that has learned nothing."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    steps: list[Any] = [normalizers.Lowercase()] if lower else []
    if kind == "bpe":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
    elif kind == "char":
        tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))  # without merges, every character stays alone
        tokenizer.decoder = decoders.Fuse()
    else:
        tokenizer = Tokenizer(word_pieces({}) if kind == "wordpiece" else models.WordLevel(unk_token="[UNK]"))
        steps += [normalizers.Replace(Regex(SPACES), " "), normalizers.Strip(), normalizers.Prepend(" ")]
        pattern = BETWEEN_SPACES if kind == "spaced" else WORDS
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
        tokenizer.decoder = decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    if steps:
        tokenizer.normalizer = normalizers.Sequence(steps)
    return tokenizer


def word_pieces(numbers: dict[str, int]) -> Any:
    """Longest match first; a space marks the beginning of a word, so pieces inside need no "##"."""
    from tokenizers.models import WordPiece

    return WordPiece(numbers, unk_token="[UNK]", continuing_subword_prefix="", max_input_chars_per_word=100)


def train_vocab(kind: str, texts: Iterable[str], size: int, lower: bool = False) -> Vocab:
    """Learn a vocabulary from texts. Equal texts give equal vocabularies.

    Args:
        kind: "bpe" merges bytes by frequency and spells any text; "wordpiece" takes the longest known
            pieces of a word; "word" has whole words and punctuation; "spaced" has what stands between
            spaces; "char" has characters.
        texts: Texts to learn from, read once.
        size: Number of tokens at most, special ones included.
        lower: Lowercase all texts.

    Returns:
        `Vocab`.

    Raises:
        BadInput: There is no text, no such kind, or the size does not fit the kind.

    Example:
        >>> vocab = train_vocab("bpe", ["the cat sat on the mat"] * 9, size=280)
        >>> vocab.decode(vocab.encode_batch(["the rat sat"])[0])
        'the rat sat'
    """
    if kind not in KINDS:
        raise BadInput(f'there is no vocabulary of kind "{kind}"{nearest(kind, KINDS)}')
    least = len(SPECIALS) + (BYTES if kind == "bpe" else 1)
    if not least <= size <= LARGEST:
        raise BadInput(
            f"a {kind} vocabulary has {least} to {LARGEST} tokens, not {size}: change data.vocab_size"
        )
    tokenizer = blank(kind, lower)
    with no_panic("no vocabulary can be learned from these texts"):
        KINDS[kind](tokenizer, checked(texts), size)
        tokenizer.add_special_tokens(
            list(SPECIALS)
        )  # only now: a text that spells one would teach it as a word
        return Vocab(tokenizer.to_str())


def checked(texts: Iterable[str]) -> Iterator[str]:
    """Texts of a bearable length, at least one of which says something."""
    said = False
    for text in texts:
        refuse_long([text])
        said = said or bool(text.strip())
        yield text
    if not said:
        raise BadInput("there is no text to learn a vocabulary from: is the file empty?")


def train_bpe(tokenizer: Tokenizer, texts: Iterator[str], size: int) -> None:
    from tokenizers.pre_tokenizers import ByteLevel

    learn_merges(tokenizer, texts, size, ByteLevel.alphabet())


def train_char(tokenizer: Tokenizer, texts: Iterator[str], size: int) -> None:
    """Every character in the order of code points; the most frequent ones if there are too many."""
    from tokenizers.models import BPE

    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text)
    by_count = sorted(counts, key=lambda c: (-counts[c], c))
    tokens = [*SPECIALS, *sorted(by_count[: size - len(SPECIALS)])]
    tokenizer.model = BPE({token: number for number, token in enumerate(tokens)}, [], unk_token="[UNK]")


def train_wordpiece(tokenizer: Tokenizer, texts: Iterator[str], size: int) -> None:
    """Pieces learned as for BPE: the library's own trainer of WordPiece gives other ones each time."""
    from tokenizers import Tokenizer as New
    from tokenizers.models import BPE

    learner = New(BPE(unk_token="[UNK]"))
    learner.normalizer, learner.pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer
    learn_merges(learner, texts, size, [])
    if learner.get_vocab_size() > size:
        characters = learner.get_vocab_size() - len(SPECIALS)
        raise BadInput(
            f"the texts have {characters} characters, too many for {size} wordpiece tokens: "
            f"allow more, or take bpe, which knows every character"
        )
    tokenizer.model = word_pieces(learner.get_vocab())


def train_word(tokenizer: Tokenizer, texts: Iterator[str], size: int) -> None:
    from tokenizers.trainers import WordLevelTrainer

    trainer = WordLevelTrainer(vocab_size=size, special_tokens=list(SPECIALS), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)


def learn_merges(tokenizer: Tokenizer, texts: Iterator[str], size: int, alphabet: list[str]) -> None:
    from tokenizers.trainers import BpeTrainer

    trainer = BpeTrainer(
        vocab_size=size, special_tokens=list(SPECIALS), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(map(cut_words, texts), trainer)


def cut_words(text: str) -> str:
    """Endless words in bearable parts."""
    if len(max(text.split(), key=len, default="")) <= LONG_WORD:
        return text
    return re.sub(rf"\S{{{LONG_WORD}}}", r"\g<0> ", text)


KINDS: dict[str, Callable[[Tokenizer, Iterator[str], int], None]] = {
    "bpe": train_bpe,
    "char": train_char,
    "wordpiece": train_wordpiece,
    "word": train_word,
    "spaced": train_word,
}


# Reading one back


def read_vocab(path: str | Path) -> Vocab:
    """Read the vocabulary of a run.

    Args:
        path: tokenizer.json in the folder of the run.

    Returns:
        `Vocab`.

    Raises:
        BadInput: The file is missing or damaged, or its tokenizer is not one of heedful's.

    Example:
        >>> read_vocab("runs/demo/tokenizer.json").kind
        'word'
    """
    path = Path(path)
    with naming(path):
        return Vocab.from_json(read_text(inside(path.parent, path.name), LIMIT))


def read_ours(text: str) -> tuple[Tokenizer, str, bool]:
    """The tokenizer in a JSON text, its kind, and whether it ignores capitals; foreign ones are refused."""
    from tokenizers import Tokenizer

    spec = parse(text)
    refuse_patterns({name: part for name, part in spec.items() if name != "model"})
    with no_panic("this is not a tokenizer"):
        tokenizer = Tokenizer.from_str(json.dumps(spec))  # what was checked, whatever the text says twice
        numbers = tokenizer.get_vocab().values()
    if set(numbers) != set(range(len(numbers))):
        raise BadInput("the tokens of this vocabulary are not numbered 0, 1, 2, ... without gaps")
    tokenizer.encode_special_tokens = True  # as letters
    found = shape(tokenizer)
    for kind in KINDS:
        for lower in (False, True):
            ours = blank(kind, lower)
            ours.add_special_tokens(list(SPECIALS))
            if found == shape(ours):
                return tokenizer, kind, lower
    raise BadInput("this tokenizer is not one of heedful's own vocabularies: train one with train_vocab")


def parse(text: str) -> dict[str, Any]:
    if len(text) > LIMIT:
        raise BadInput(f"the tokenizer has {len(text)} characters; at most {LIMIT} are read")
    try:
        spec = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(one_line(f"the tokenizer is not valid JSON: {error}")) from None
    if not isinstance(spec, dict):
        raise BadInput(f"the tokenizer is {short(spec)}, where an object {{...}} is expected")
    return spec


def refuse_patterns(spec: dict[str, Any]) -> None:
    """Other people's regular expressions can run for hours on a short text, so none is even compiled."""
    for node in objects(spec):
        if node.get("Regex", WORDS) not in (WORDS, BETWEEN_SPACES, SPACES):
            raise BadInput(
                f"the tokenizer splits by {short(node['Regex'])}, which heedful's vocabularies do not"
            )


def shape(tokenizer: Tokenizer) -> dict[str, Any]:
    """All there is to a tokenizer except what it has learned."""
    spec = json.loads(tokenizer.to_str())
    spec["model"] = {name: part for name, part in spec["model"].items() if name not in ("vocab", "merges")}
    return spec
