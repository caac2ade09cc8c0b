"""tokens.js tokenizes as the library `tokenizers` does: 1,000 texts in 20 scripts, by every kind."""

import json
import random
import subprocess

import pytest
from helpers.html_cases import need
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from heedful.data.vocab import KINDS, train_vocab
from heedful.errors import BadInput
from heedful.interop.hf.probes import corpus
from heedful.interop.html.page import code
from heedful.interop.html.tokenizer import SPLITS, describe_tokenizer

# The first letter of each script, and how many follow it.
SCRIPTS = {
    "latin": (0x61, 26), "greek": (0x3B1, 25), "cyrillic": (0x430, 32), "armenian": (0x561, 38),
    "hebrew": (0x5D0, 27), "arabic": (0x627, 36), "devanagari": (0x905, 53), "bengali": (0x985, 8),
    "tamil": (0xB85, 6), "telugu": (0xC05, 8), "thai": (0xE01, 46), "lao": (0xE94, 4), "tibetan": (0xF40, 8),
    "georgian": (0x10D0, 33), "hangul": (0xAC00, 11172), "hiragana": (0x3041, 86), "katakana": (0x30A1, 90),
    "han": (0x4E00, 20000), "ethiopic": (0x1200, 73), "cherokee": (0x13A0, 80),
}  # fmt: skip
BETWEEN = [
    " ",
    " ",
    " ",
    ", ",
    ". ",
    "  ",
    "\n",
    "'",
    "-",
    " 7 ",
    " 1234 ",
    "! ",
    "\t",
    "\u00a0",
    "’s ",
    "'s ",
]
CLOSING = """
const { readFileSync } = await import('node:fs');
const { cases, texts } = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const found = cases.map((spec) => {
  const reader = new Tokenizer(spec);
  return texts.map((text) => [reader.encodeWhole(text), reader.decode(reader.encodeWhole(text))]);
});
console.log(JSON.stringify(found));
"""


def texts():
    """1,000 texts: the certificate's own, and words of each script with what stands between words."""
    dice, found = random.Random(20), corpus()
    while len(found) < 1000:
        start, size = SCRIPTS[dice.choice(list(SCRIPTS))]
        words = [
            "".join(chr(start + dice.randrange(size)) for _ in range(dice.randint(1, 9)))
            for _ in range(dice.randint(1, 8))
        ]
        words = [word.capitalize() if dice.random() < 0.2 else word for word in words]
        found.append("".join(word + dice.choice(BETWEEN) for word in words))
    return found


def bert(lowercase):
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=2000, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False
    )
    made.train_from_iterator(texts()[::2], trainer)
    cls, sep = ((name, made.token_to_id(name)) for name in ("[CLS]", "[SEP]"))
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[cls, sep])
    return made


def byte_pairs(pre_tokenizer, roberta=False):
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizer
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=1500, initial_alphabet=alphabet, special_tokens=["<s>", "</s>"], show_progress=False
    )
    made.train_from_iterator(texts()[::2], trainer)
    made.add_special_tokens(
        [AddedToken("<mask>", lstrip=True, normalized=False, special=True), "<|endoftext|>"]
    )
    made.add_tokens([AddedToken("##at", normalized=True)])
    if roberta:
        made.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0), add_prefix_space=False)
    return made


def by_split(pattern):
    from tokenizers import Regex

    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def sentence_pairs():
    """As in LLaMA's first tokenizers: a sign for spaces, and bytes for what is unknown."""
    made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    replace, strip = decoders.Replace("▁", " "), decoders.Strip(" ", 1, 0)
    made.decoder = decoders.Sequence([replace, decoders.ByteFallback(), decoders.Fuse(), strip])
    names = ["<unk>", "<s>", "</s>", *(f"<0x{n:02X}>" for n in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=names, limit_alphabet=300, show_progress=False
    )
    made.train_from_iterator(texts()[::4], trainer)
    return made


MAKERS = {
    "GPT-2": lambda: byte_pairs(pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "GPT-2, spaced": lambda: byte_pairs(pre_tokenizers.ByteLevel(add_prefix_space=True), roberta=True),
    "SmolLM": lambda: byte_pairs(
        pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    ),
    "LLaMA 3": lambda: byte_pairs(by_split(SPLITS[0])),
    "Qwen 2": lambda: byte_pairs(by_split(SPLITS[1])),
    "LLaMA": sentence_pairs,
    "BERT": lambda: bert(True),
    "BERT, cased": lambda: bert(False),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """{tokenizer: (what the library says of each text, what tokens.js says)}."""
    given, made = texts(), {}
    for kind in KINDS:
        for lower in (False, True):
            vocab = train_vocab(kind, given[:400], 4000, lower)
            made[f"{kind}, lower" if lower else kind] = vocab.tokenizer
    made |= {name: make() for name, make in MAKERS.items()}
    cases = [describe_tokenizer(each.to_str(), each.encode_special_tokens) for each in made.values()]
    folder = tmp_path_factory.mktemp("tokens")
    (folder / "cases.json").write_text(json.dumps({"cases": cases, "texts": given}))
    (folder / "run.mjs").write_text(code() + CLOSING)
    command = [need("node"), str(folder / "run.mjs"), str(folder / "cases.json")]
    answers = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    library = [[[ids := each.encode(text).ids, each.decode(ids)] for text in given] for each in made.values()]
    return dict(zip(made, zip(library, answers, strict=True), strict=True))


NAMES = [name for kind in KINDS for name in (kind, f"{kind}, lower")] + list(MAKERS)


@pytest.mark.parametrize("name", NAMES)
def test_a_thousand_texts_become_the_same_tokens_and_come_back_alike(found, name):
    library, ours = found[name]
    assert len(library) == len(ours) == 1000
    wrong = [(text, a, b) for text, a, b in zip(texts(), library, ours, strict=True) if a != b]
    assert wrong == []


def test_what_has_no_javascript_is_refused_by_name():
    unigram = Tokenizer(models.Unigram([("a", -1.0), ("b", -2.0)], unk_id=0))
    with pytest.raises(BadInput, match="a unigram tokenizer has no JavaScript: export to onnx"):
        describe_tokenizer(unigram.to_str(), False)
    spoken = byte_pairs(by_split(r"(a+)+$"))
    with pytest.raises(BadInput, match="a pattern that has no JavaScript"):
        describe_tokenizer(spoken.to_str(), False)
    spaced = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    with pytest.raises(BadInput, match="a BPE tokenizer with end of word suffix has no JavaScript"):
        describe_tokenizer(spaced.to_str(), False)
