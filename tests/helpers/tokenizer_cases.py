"""Small tokenizers of every kind, and texts that tell tokenizers apart."""

import json
import math

import pytest
import tokenizers as tk
import torch

import heedful
from heedful.interop.loaded import Loaded
from heedful.models import gpt2

TEXT = """The cat sat on the mat. It's the cat's mat, isn't it? We'll see; they've seen 3 of 1234 mats.
Là-bas, l'été, où la forêt dort; Grüße aus Köln! Привет, мир. 猫坐在垫子上。 def cat(x): return x + 1\n"""


AWKWARD = [
    "", " ", "   ", "a", "The cat sat", "  the   cat  ", "cat\tsat\n\nmat\r\nend ", "THE CAT'S",
    "ÉTÉ été e\u0301te\u0301", "Grüße ẞ ß İ ı", "ﬁne ① ½ ² ﷺ", "猫坐在垫子上。ねこ고양이",
    "👩‍👩‍👧‍👦🏳️‍🌈 👍🏽", "مرحبا שלום", "\u200b\u00a0\u2028\u3000x", "\0\x01\x7f\x1b[31mred",
    "\ufeffcat \ufffd", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢", "a" * 500, "!" * 50, "1234567890 3.14 1,000", "don't DON'T 'll",
    "cat<|endoftext|>mat <|EndOfText|>", "[CLS] the [MASK] sat [SEP] [mask] [UNK]",
    "<unk> the</w> ##at", "x\u0300\u0301\u0302",
]  # fmt: skip


def trained(model, trainer, **parts):
    """A small tokenizer trained on TEXT."""
    tokenizer = tk.Tokenizer(model)
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    tokenizer.train_from_iterator([TEXT] * 3, trainer)
    return settled(tokenizer)


def settled(tokenizer):
    """The same pieces, numbered by length and letters: a trainer numbers them by the order of hashes."""
    whole = json.loads(tokenizer.to_str())
    model, special = whole["model"], {token["content"]: token["id"] for token in whole["added_tokens"]}

    def rank(piece):
        return special.get(piece, len(special)), len(piece), piece

    if model["type"] == "Unigram":  # and scores by frequency: those of a trainer differ in their last digits
        pieces = sorted((piece for piece, _ in model["vocab"]), key=rank)
        model["vocab"] = [(piece, math.log(1 + TEXT.count(piece.strip("▁ "))) - 9) for piece in pieces]
    elif whole["decoder"] is None or whole["decoder"]["type"] != "ByteLevel":  # of which alphabets are sorted
        model["vocab"] = {piece: i for i, piece in enumerate(sorted(model["vocab"], key=rank))}
        model["merges"] = sorted(model["merges"], key=lambda pair: rank("".join(pair)))
    return tk.Tokenizer.from_str(json.dumps(whole))


def byte_level(split=None):
    """As GPT-2's, or cut by another pattern first, as LLaMA 3's."""
    bytes_only = tk.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)
    pieces = split and tk.pre_tokenizers.Split(tk.Regex(split), "isolated")
    return trained(
        tk.models.BPE(),
        tk.trainers.BpeTrainer(
            vocab_size=330,
            special_tokens=["<|endoftext|>"],
            initial_alphabet=tk.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
        pre_tokenizer=tk.pre_tokenizers.Sequence([pieces, bytes_only]) if split else bytes_only,
        decoder=tk.decoders.ByteLevel(),
    )


# As a trainer finds them in TEXT; its choice among equals depends on the order of hashes.
PIECES = """
[PAD] [UNK] [CLS] [SEP] [MASK] ! ' ( ) + , - . 1 2 3 4 : ; ? a b c d e f g h i k l m n o r s t u v w
x y ß в е и м п р т 。 上 在 坐 垫 子 猫 ##2 ##3 ##4 ##a ##e ##f ##h ##l ##n ##o ##r ##s ##t ##u ##y ##ß
##в ##е ##и ##р ##т 12 1234 au aus ba bas cat de def dor dort et ete for foret gr gruß gruße is isn
it ko koln la ll mat mats of on ou ret retur return sat se see seen th the they ve we ми мир пр прив
привет ##34 ##at ##et ##ln ##or ##ur ##uß ##ет ##ив
"""


def word_piece():
    """As BERT's."""
    vocab = {piece: number for number, piece in enumerate(PIECES.split())}
    tokenizer = tk.Tokenizer(tk.models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.add_special_tokens(list(vocab)[:5])
    tokenizer.normalizer = tk.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = tk.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tk.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.decoder = tk.decoders.WordPiece()
    return tokenizer


def word_bpe():
    """As GPT-1's."""
    return trained(
        tk.models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"),
        tk.trainers.BpeTrainer(
            vocab_size=150, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False
        ),
        normalizer=tk.normalizers.BertNormalizer(),
        pre_tokenizer=tk.pre_tokenizers.BertPreTokenizer(),
    )


def unigram():
    """As T5's."""
    return trained(
        tk.models.Unigram(),
        tk.trainers.UnigramTrainer(
            vocab_size=120, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False
        ),
        normalizer=tk.normalizers.Sequence(
            [tk.normalizers.NFKC(), tk.normalizers.Replace(tk.Regex(" {2,}"), " ")]
        ),
        pre_tokenizer=tk.pre_tokenizers.Metaspace(),
        decoder=tk.decoders.Metaspace(),
    )


@pytest.fixture
def model(tmp_path):
    """A folder with a small GPT-2 that knows 400 tokens."""
    torch.manual_seed(0)
    config = gpt2.GPT2Config(vocab=400, context=11, layers=2, width=12, heads=3, ffn_width=20)
    loaded = Loaded("gpt2", config, gpt2.build(config).eval(), byte_level(), {"bos": 0, "eos": 0})
    heedful.save(loaded, tmp_path / "model")
    return tmp_path / "model"
