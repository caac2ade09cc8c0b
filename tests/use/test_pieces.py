"""Text that is pushed token by token is the text of all tokens, cut before the first stop string."""

import random

import pytest
import tokenizers as tk
from helpers.tokenizer_cases import TEXT, byte_level, unigram, word_bpe, word_piece

from heedful import Loaded
from heedful.models import gpt2
from heedful.use.pieces import TextSoFar
from heedful.use.stops import StopStrings
from heedful.use.wording import RunWording


def with_bytes():
    """As LLaMA's: what the vocabulary does not know is spelled in bytes."""
    pieces = [("<unk>", 0.0), *((f"<0x{byte:02X}>", -9.0) for byte in range(256))]
    pieces += [("▁", -2.0), *((letter, -3.0) for letter in "acehistmT.")]
    tokenizer = tk.Tokenizer(tk.models.Unigram(pieces, 0, byte_fallback=True))
    tokenizer.normalizer = tk.normalizers.Sequence(
        [tk.normalizers.Prepend("▁"), tk.normalizers.Replace(" ", "▁")]
    )
    parts = [tk.decoders.Replace("▁", " "), tk.decoders.ByteFallback(), tk.decoders.Fuse()]
    tokenizer.decoder = tk.decoders.Sequence([*parts, tk.decoders.Strip(" ", 1, 0)])
    return tokenizer


TOKENIZERS = {
    "byte level": byte_level,
    "words": word_piece,
    "words of letters": word_bpe,
    "unigram": unigram,
    "bytes": with_bytes,
}


@pytest.fixture(scope="module")
def wordings():
    config = gpt2.GPT2Config(vocab=400, context=11, layers=1, width=12, heads=3, ffn_width=20)
    model = gpt2.build(config)
    return {
        name: RunWording(Loaded("gpt2", config, model, make(), {}), "here")
        for name, make in TOKENIZERS.items()
    }


def cut(text: str, stops: list[str]) -> str:
    """The text before the stop string that is complete first, character by character."""
    for end in range(1, len(text) + 1):
        if found := [stop for stop in stops if text[:end].endswith(stop)]:
            return text[: end - max(map(len, found))]
    return text


def pushed(words, ids, prompt, stops) -> tuple[list[str], int]:
    """The pieces, and how many tokens were pushed until a stop string was complete."""
    text, pieces = TextSoFar(words, prompt, stops), []
    for count, token in enumerate(ids, 1):
        piece, stopped = text.add(token)
        pieces.append(piece)
        if stopped:
            assert text.rest() == "" and text.add(token) == ("", True)
            return pieces, count
    return [*pieces, text.rest()], len(ids) + 1


def random_ids(words, dice: random.Random, kinds: int) -> list[int]:
    """The tokens of a part of a text; or some of those tokens, or random tokens."""
    start, kind = dice.randrange(len(TEXT)), dice.randrange(kinds)
    ids = words.prompt([TEXT[start : start + dice.randint(1, 40)]])[0].ids
    if kind == 2:
        return [dice.randrange(words.writes.get_vocab_size()) for _ in ids]
    return [one for one in ids if dice.random() < 0.8] if kind == 1 else ids


@pytest.mark.parametrize("name", TOKENIZERS)
def test_what_is_pushed_is_the_whole_text_up_to_the_first_stop_string(name, wordings):
    words, dice, met = wordings[name], random.Random(name), 0
    kinds = 1 if name == "bytes" else 3  # a wrong byte there changes the characters before it
    for _ in range(150):
        ids, prompt = random_ids(words, dice, kinds), dice.choice([[], random_ids(words, dice, kinds)])
        whole, stops = words.text(ids, prompt), []
        for _ in range(dice.randint(0, 3)):
            at = dice.randrange(len(whole) + 1)
            stops += [stop] if (stop := whole[at : at + dice.randint(1, 6)]) else []
        pieces, count = pushed(words, ids, prompt, stops)
        expected = cut(whole, stops)
        assert "".join(pieces) == expected
        met += expected != whole
        if count <= len(ids) and "\ufffd" not in "".join(stops):  # not one token late
            before = words.text(ids[: count - 1], prompt)
            assert cut(before, stops) == before
    assert met > 20


def test_no_piece_ends_inside_a_character_or_holds_the_beginning_of_a_stop_string(wordings):
    words = wordings["byte level"]
    ids = words.prompt(["🙂 猫 sat.\n\nThe end"])[0].ids
    pieces, _ = pushed(words, ids, [], ["\n\nThe cat", "\n\nThe e"])
    assert "".join(pieces) == "🙂 猫 sat." and not any("\ufffd" in piece or "\n" in piece for piece in pieces)
    half = words.prompt(["a🙂"])[0].ids
    assert pushed(words, half[-2:], half[:-2], [])[0][-2:] == ["🙂", ""], "a prompt ends inside a character"


def test_of_stop_strings_the_one_that_is_complete_first_counts(wordings):
    stops = StopStrings(wordings["byte level"], ("abc", "b", "zb"))
    assert [stops.cut(text) for text in ("xabc", "xzbc", "ac", "")] == ["xa", "x", None, None]
