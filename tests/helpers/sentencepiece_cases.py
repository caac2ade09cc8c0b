"""Folders with small SentencePiece models of every family, and their tokenizers in transformers."""

import io
import json
import random
import warnings

import pytest
import sentencepiece
import tokenizers as tk
import transformers as hf

from heedful.interop.hf.probes import ACCENTS, EMOJI, PLAIN, SCRIPTS
from heedful.interop.hf.tokenizer import read_tokenizer

LINES = [text for text in (*PLAIN, *ACCENTS, *SCRIPTS, *EMOJI[:3]) if text] * 3
LINES += [
    f"the {a} {b} on the {c}, {n} times"
    for n, (a, b, c) in enumerate(zip(*[["cat", "dog", "bird", "mat"] * 6] * 3, strict=True))
]


def train(path, **options):
    """A small SentencePiece model of the lines above."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=out,
        hard_vocab_limit=False,
        minloglevel=2,
        num_threads=1,
        **options,
    )
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(out.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())


def byte_level(folder, special, size=331):
    """vocab.json and merges.txt of a small GPT-2 or RoBERTa."""
    tokenizer = tk.Tokenizer(tk.models.BPE())
    tokenizer.pre_tokenizer = tk.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tk.pre_tokenizers.ByteLevel.alphabet()
    trainer = tk.trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    folder.mkdir()
    tokenizer.model.save(str(folder))


MADE = {
    "t5": ("spiece.model", {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "vocab_size": 403}),
    "albert": (
        "spiece.model",
        {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "vocab_size": 407}
        | {"control_symbols": ["[CLS]", "[SEP]"], "user_defined_symbols": ["[MASK]", "(", '"']},
    ),
    "deberta": (
        "spm.model",
        {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, "vocab_size": 401}
        | {"pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]"},
    ),
    "xlm-roberta": ("sentencepiece.bpe.model", {"vocab_size": 403}),
    "camembert": ("sentencepiece.bpe.model", {"vocab_size": 409}),
    "llama": (
        "tokenizer.model",
        {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity", "vocab_size": 709}
        | {"remove_extra_whitespaces": False, "split_digits": True, "allow_whitespace_only_pieces": True},
    ),
}
SPECIAL = {
    "roberta": ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
    "gpt2": ["<|endoftext|>"],
    "qwen2": ["<|endoftext|>"],
    "deberta_v1": ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"],
}
THEIRS = {
    "t5": hf.T5Tokenizer, "albert": hf.AlbertTokenizer, "deberta": hf.DebertaV2Tokenizer,
    "xlm-roberta": hf.XLMRobertaTokenizer, "camembert": hf.CamembertTokenizer,
    "llama": hf.LlamaTokenizer, "roberta": hf.RobertaTokenizer, "gpt2": hf.GPT2Tokenizer,
    "qwen2": hf.Qwen2Tokenizer, "deberta_v1": hf.DebertaTokenizer, "mpnet": hf.MPNetTokenizer,
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder of each family, and the sentencepiece package's own reader of it."""
    root, processors = tmp_path_factory.mktemp("made"), {}
    for name, (file, options) in MADE.items():
        processors[name] = train(root / name / file, **options)
    for name, special in SPECIAL.items():
        byte_level(root / name, special)
        (root / name / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": THEIRS[name].__name__})
        )
    (root / "mpnet").mkdir()
    (root / "mpnet" / "vocab.txt").write_text("\n".join(word_pieces()) + "\n")
    marian = root / "marian"
    processors["source"] = train(marian / "source.spm", vocab_size=397)
    processors["target"] = train(marian / "target.spm", vocab_size=301, character_coverage=0.98)
    (marian / "vocab.json").write_text(
        json.dumps(numbered(processors["source"], processors["target"], more=[">>fra<<", "<pad>"]))
    )
    return root, processors


def word_pieces():
    """A vocabulary of MPNet: special tokens, words, and every character at a word's start and inside one."""
    words = sorted({word for line in LINES for word in line.lower().split() if word.isascii()})
    letters = sorted({letter for word in words for letter in word})
    pieces = [*words, *letters, *(f"##{letter}" for letter in letters)]
    return ["<s>", "<pad>", "</s>", "[UNK]", *dict.fromkeys(pieces), "<mask>"]


def numbered(*processors, more=("<pad>",)):
    """Marian's vocabulary: </s> and <unk> first, <pad> last, and in between the pieces of both files,
    mixed."""
    pieces = {p.id_to_piece(n) for p in processors for n in range(3, p.get_piece_size())} - {*more}
    names = ["</s>", "<unk>", *random.Random(7).sample(sorted(pieces), len(pieces)), *more]
    return {name: number for number, name in enumerate(names)}


def both(folder, name, **said):
    """Ours and theirs, of a folder that says so."""
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": THEIRS[name].__name__} | said)
    )
    theirs = THEIRS[name].from_pretrained(folder)
    return read_tokenizer(folder, len(theirs)), theirs


def theirs_of_marian(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it recommends sacremoses, which it then does not use
        return hf.MarianTokenizer.from_pretrained(folder)
