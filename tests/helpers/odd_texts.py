"""Odd texts at random: what people paste, and what tokenizers disagree about."""

import random
import sys
import unicodedata

WORDS = [
    "the", "cat", "sat", "on", "a", "mat", "It's", "1234", "3.14", "THE", "été", "Grüße", "naïve", "don't",
    "e-mail", "DON'T", "def", "return", "x+1",
]  # fmt: skip
SPACES = " \t\n\r\v\f\x85\xa0\u1680\u2000\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
CONTROLS = (
    "\0\x01\x07\x08\x1b\x1f\x7f\x80\x9f\xad\u061c\u180e\u202a\u202e\u2066\u2069\ufeff\ufff9\ufffd\ufffe"
)
ZERO_WIDTH = "\u200b\u200c\u200d\u2060\u034f\ufe0e\ufe0f"
QUOTES = "\"'`´‘’‚‛“”„‟«»‹›＂＇′″`'…·–—―‐‑−～~▁_<>[]{}()|\\/#@"
MARKS = [chr(n) for n in range(0x300, 0x370)] + ["\u0591", "\u064b", "\u0e31", "\u3099", "\u309a", "\u20e3"]
EMOJI = ["😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇫🇷", "1️⃣", "❤️‍🔥", "\U0001f3fd", "🏴\U000e0067\U000e007f"]
CJK = "猫坐在垫子上。豈𠀀𠮷吾輩はカタカナｶﾀｶﾅﾊﾟがか゛고양이ᄀ\u1161\u11a8가각"
SCRIPTS = "мирЁёйΕλςσΌالعربيةلاﻻשלוםनमस्तेक्षสวัสดีမြန်ሰላም"
COMPATIBLE = "ﬁﬃ①½²₃Ⅷ℃㎏ﷺ℡™ＦＵ１ｗ𝔘𝒎𝟙ªºÅÅẞßİıſǆŉ㌀㍿ﬀ⑳⒈﹏｟￥"
NAMES = [
    "<s>", "</s>", "<unk>", "<pad>", "<mask>", "[CLS]", "[SEP]", "[MASK]", "[UNK]", "<|endoftext|>", "<0x0A>",
    "<extra_id_0>", ">>fra<<", ">>x<<", "<|im_start|>", "##at", "the</w>", "Ġthe", "[INST]",
]  # fmt: skip


def odd_texts(count, seed=3):
    """So many texts, always the same ones."""
    draw = random.Random(seed)
    pools = [WORDS, SPACES, CONTROLS, ZERO_WIDTH, QUOTES, MARKS, EMOJI, CJK, SCRIPTS, COMPATIBLE, NAMES]
    return [odd_text(draw, pools) for _ in range(count)]


def odd_text(draw, pools):
    """A few pieces of a few pools, with or without spaces between them."""
    some = draw.sample(pools, draw.randint(1, 5))
    pieces = [draw.choice(draw.choice(some)) for _ in range(draw.randint(0, 14))]
    pieces += [any_character(draw) for _ in range(draw.choice([0, 0, 1, 3]))]
    draw.shuffle(pieces)
    text = draw.choice(["", " ", "", "  "]).join(pieces)
    form = draw.choice([None, None, "NFC", "NFD", "NFKD"])
    return text if form is None else unicodedata.normalize(form, text)


def any_character(draw):
    """Any that a text can have."""
    while 0xD800 <= (number := draw.randrange(sys.maxunicode if draw.random() < 0.3 else 0x3400)) < 0xE000:
        pass
    return chr(number)
