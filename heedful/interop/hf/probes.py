"""Probe texts: what two tokenizers must agree about before one may stand in for the other.

Ordinary sentences seldom tell two tokenizers apart. Accents in two spellings, scripts without spaces, emoji
of several characters, control characters, runs of whitespace and very long words do.
"""

from __future__ import annotations

PLAIN = (
    "", "a", "The cat sat on the mat.",
    "It's the cat's mat, isn't it? We'll see; they've seen 3 of 1234 mats.",
    "DON'T SHOUT, don't shout, Don't Shout", "1234567890 3.14 1,000 -7e-3 0x1F 50% $9.99",
    "state-of-the-art (2017) [1]", "e-mail@example.org https://example.org/a?b=c&d=%20#e",
    "def cat(x): return x ** 2 + 1  # a comment", "“quotes” ‘single’ «guillemets» – dash — dash … ·",
    '``old quotes\'\' "straight"', "a.b.c...d,,,e!!!f???",
)  # fmt: skip

ACCENTS = (
    "L'été, où la forêt dort; ça va, naïve Zoë?", "L'e\u0301te\u0301, ou\u0300 la fore\u0302t dort",
    "Grüße aus Köln, ẞ ß, ÄÖÜ äöü", "İstanbul ıssız, I i İ ı", "Zażółć gęślą jaźń", "Ångström, Å Å Å",
    "x\u0300\u0301\u0302\u0303 q\u0323\u0307", "Tiếng Việt có dấu", "Ελληνικά: όλα τα ΤΌΝΟΥΣ ς σ",
    "Привет, мир! Ёлка и ёж; й и\u0306", "ﬁne ﬂow ﬃ ① ② ½ ² ₃ Ⅷ ℃ ㎏ ﷺ ℡ ™",
    "ＦＵＬＬ　ｗｉｄｔｈ １２３", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝒎𝒂𝒕𝒉 𝟙𝟚𝟛",
)  # fmt: skip

SCRIPTS = (
    "猫坐在垫子上。我爱自然语言处理，", "吾輩は猫である。名前はまだ無い。カタカナ ｶﾀｶﾅ ﾊﾟ",
    "고양이가 매트에 앉았다. ᄀ\u1161\u11a8", "𠀀𠮷野家 㐀 豈 豈", "مرحبا بالعالم، كيف الحال؟ لا ﻻ",
    "שלום עולם, מָה שְׁלוֹמְךָ", "नमस्ते दुनिया क्षत्रिय", "สวัสดีชาวโลก", "ကမ္ဘာ မြန်မာ", "ሰላም ልዑል",
    "a猫b犬c", "English и русский 和 中文",
)  # fmt: skip

EMOJI = (
    "😀", "hello 😀 world", "👍🏽👍🏿 👋🏻", "👩‍👩‍👧‍👦 👨🏽‍🚀 🏳️‍🌈 🏴‍☠️", "🇫🇷🇯🇵🇺🇸 🇫",
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "1️⃣ #️⃣ ❤️ ❤ ☺︎",
    "❤️‍🔥 🤷🏾‍♀️", "\u200d\ufe0f\U0001f3fd", "¯\\_(ツ)_/¯ ʕ•ᴥ•ʔ",
)  # fmt: skip

CONTROLS = (
    "\0", "a\0b", "\x01\x02\x1f\x7f\x80\x9f", "\x1b[31mred\x1b[0m", "bell\a back\b feed\f tab\v",
    "\ufeffmark at the start", "mark\ufeffinside", "\u200b\u200c\u200d\u2060 zero \u200bwidth",
    "\u202eright to left\u202c", "soft\u00adhyphen", "\ufffd \ufffe \uffff",
    "\ue000 \U000f0000 \U0010ffff", "\u061c\u180e\u034f", "\u0085next\u2028line\u2029end",
)  # fmt: skip

SPACES = (
    " ", "  ", "     ", "\t", "\n", "\r\n", "\n\n\n", " a", "a ", "  a  b   c    ", "a\tb\t\tc",
    "line\nline\n\nline\r\nline\rend\n", "\u00a0hard\u00a0\u00a0space", "\u3000wide\u3000",
    "\u2002\u2003\u2009\u202f thin", "\u1680ogham", "\t \n \t", "if x:\n    if y:\n\t\treturn\n", "▁",
    "▁a ▁▁ b▁", "a ▁ b", "_ __ ___",
)  # fmt: skip

LONG = (
    "a" * 333, "ab" * 151,
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft", "!" * 77,
    " " * 65, "\n" * 33, "9" * 41, "猫" * 57, "👩‍👩‍👧‍👦" * 9, "e\u0301" * 63, "x" + "\u0300" * 59,
    "word " * 67, "aB1!" * 29, "x" * 101 + " y",
)  # fmt: skip

# What vocabularies themselves hold: as a part of a text it must mean the same to both.
MARKS = (
    "<s> </s> <unk> <pad> <mask>", "a</s>b", "[CLS] the [MASK] sat [SEP] [UNK]",
    "<|endoftext|>a<|endoftext|>", "<0x0A> <0xE2>", "##at @@ the</w> Ġthe Ċ",
    "<extra_id_0> x <extra_id_1>", ">>fra<< hello", "<|im_start|>user\nhello<|im_end|>",
    "[INST] hi [/INST]",
)  # fmt: skip


def corpus() -> list[str]:
    """The texts, always the same ones in the same order."""
    return [*PLAIN, *ACCENTS, *SCRIPTS, *EMOJI, *CONTROLS, *SPACES, *LONG, *MARKS]
