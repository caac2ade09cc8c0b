"""Files altered at random."""

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

import heedful
from helpers.refusals import at_most


def small_tokenizer():
    """A tokenizer with one of everything, and no more tokens than the smallest of the models."""
    vocab = {token: number for number, token in enumerate(["<s>", "</s>", "a", "b", "c", "ab", "abc", "Ġ"])}
    tokenizer = Tokenizer(models.BPE(vocab, [("a", "b"), ("ab", "c")]))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("``", '"')])
    split = pre_tokenizers.Split(Regex(r"\s+"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return tokenizer


def loads_or_says_why(folder):
    """True if it loads; False if it is refused in one line that names the folder; anything else is a
    failure."""
    try:
        with at_most(5):
            heedful.load(folder)
    except heedful.BadInput as error:
        said = str(error)
        assert str(folder) in said and said.isprintable() and len(said) <= 2000
        return False
    return True


def mutate(data, rng):
    """A few bytes flipped, put in, taken out or moved, or the end cut off; seldom nothing."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        at, length = rng.randrange(len(data) + 1), rng.choice([1, 1, 2, 7, 300])
        kind = rng.choice(["flip", "set", "put in", "take out", "repeat", "cut", "digit"])
        if kind == "flip" and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == "set":
            data[at : at + length] = bytes(rng.choice([0, 255, 127, 91, 123, 34]) for _ in range(length))
        elif kind == "put in":
            data[at:at] = rng.randbytes(length)
        elif kind == "take out":
            del data[at : at + length]
        elif kind == "repeat":
            data[at:at] = data[at : at + length] * rng.choice([1, 50])
        elif kind == "digit":
            digits = [i for i, byte in enumerate(data[:5000]) if 48 <= byte <= 57]
            if digits:
                i = rng.choice(digits)
                data[i : i + 1] = rng.choice([b"9" * 30, b"-1", b"0", b"1e9", b"null", b'"7"', b"[]", b"0.5"])
        else:
            del data[at:]
    return bytes(data)
