"""Every tokenizer that heedful reads gives transformers' ids on a thousand odd texts, or is refused."""

import json
import warnings

import pytest
import tokenizers as tk
import transformers as hf
from helpers.odd_texts import odd_texts
from helpers.sentencepiece_cases import LINES, MADE, byte_level, numbered, train

from heedful.errors import BadInput
from heedful.interop.hf.tokenizer import read_tokenizer
from heedful.models import model_types

LLAMA = MADE["llama"][1]
UNIGRAM = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "vocab_size": 403}
FAIRSEQ = {"unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1, "vocab_size": 401}
GEMMA = LLAMA | {"pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3, "add_dummy_prefix": False}
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
END = ["<|endoftext|>"]


def pieces(name, **options):
    """A SentencePiece file."""
    return lambda folder: train(folder / name, **options)


def merges(special):
    """vocab.json and merges.txt."""
    return lambda folder: byte_level(folder, special)


def words(special):
    """vocab.txt."""

    def make(folder):
        tokenizer = tk.Tokenizer(tk.models.WordPiece(unk_token="[UNK]"))
        tokenizer.pre_tokenizer = tk.pre_tokenizers.BertPreTokenizer()
        trainer = tk.trainers.WordPieceTrainer(vocab_size=331, special_tokens=special, show_progress=False)
        tokenizer.train_from_iterator(LINES, trainer)
        numbers = tokenizer.get_vocab()
        folder.mkdir()
        (folder / "vocab.txt").write_text("\n".join(sorted(numbers, key=numbers.get)))

    return make


def letters(folder):
    """GPT-1's vocab.json and merges.txt."""
    tokenizer = tk.Tokenizer(tk.models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = tk.pre_tokenizers.BertPreTokenizer()
    trainer = tk.trainers.BpeTrainer(
        vocab_size=331, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    folder.mkdir()
    tokenizer.model.save(str(folder))


def marian(folder):
    sides = [train(folder / f"{side}.spm", vocab_size=397) for side in ("source", "target")]
    (folder / "vocab.json").write_text(json.dumps(numbered(*sides, more=[">>fra<<", "<pad>"])))


def m2m100(folder):
    processor = train(folder / "sentencepiece.bpe.model", **FAIRSEQ)
    names = ["<s>", "<pad>", "</s>", "<unk>", *(processor.id_to_piece(n) for n in range(3, len(processor)))]
    (folder / "vocab.json").write_text(json.dumps({name: n for n, name in enumerate(names)}))


CASES = {
    "albert": pieces(MADE["albert"][0], **MADE["albert"][1]),
    "bart": merges(ROBERTA),
    "mbart": pieces("sentencepiece.bpe.model", **FAIRSEQ),
    "bert": words(BERT),
    "bloom": merges(["<unk>", "<s>", "</s>", "<pad>"]),
    "deberta-v2": pieces(MADE["deberta"][0], **MADE["deberta"][1]),
    "deberta": merges(BERT),
    "distilbert": words(BERT),
    "electra": words(BERT),
    "ernie": words(BERT),
    "gemma3_text": pieces("tokenizer.model", **GEMMA),
    "openai-gpt": letters,
    "gpt2": merges(END),
    "gpt_neox": merges(END),
    "gptj": merges(END),
    "llama": pieces("tokenizer.model", **LLAMA),
    "mistral": pieces("tokenizer.model", **LLAMA),
    "ministral": pieces("tokenizer.model", **LLAMA),
    "qwen2": merges(END),
    "qwen3": merges(END),
    "m2m_100": m2m100,
    "modernbert": merges(["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]),
    "mpnet": words(["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]),
    "opt": merges(["<s>", "<pad>", "</s>", "<unk>"]),
    "phi3": pieces("tokenizer.model", **LLAMA),
    "roberta": merges(ROBERTA),
    "xlm-roberta": pieces("sentencepiece.bpe.model", **FAIRSEQ),
    "camembert": pieces("sentencepiece.bpe.model", **FAIRSEQ),
    "t5": pieces("spiece.model", **UNIGRAM),
    "mt5": pieces("spiece.model", **UNIGRAM),
    "marian": marian,
    "pegasus": pieces("spiece.model", **UNIGRAM),
}


NAMED = dict.fromkeys(("llama", "mistral", "phi3"), "LlamaTokenizer")  # what published folders name


def compared(folder, texts):
    """Texts that are read otherwise; None where the folder is refused, by heedful or by transformers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            theirs = hf.AutoTokenizer.from_pretrained(folder)
        except Exception:  # noqa: BLE001 (it fails in many ways)
            return None, None
    try:
        ours = read_tokenizer(folder, len(theirs) + 7)
    except BadInput:
        return None, theirs
    if ours is None:
        return None, theirs
    return [text for text in texts if ours.encode(text).ids != theirs(text)["input_ids"]], theirs


@pytest.mark.slow
@pytest.mark.parametrize("model_type", CASES)
def test_a_thousand_odd_texts_are_read_alike_or_refused(model_type, tmp_path):
    folder, saved = tmp_path / "files", tmp_path / "saved"
    CASES[model_type](folder)
    texts = odd_texts(1000, seed=11)
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    different, theirs = compared(folder, texts)
    assert not different, (len(different), min(different, key=len))
    named = NAMED.get(model_type, type(theirs).__name__)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": named}))
    different, _ = compared(folder, texts)
    assert not different, (len(different), min(different, key=len))
    if theirs is not None:
        theirs.save_pretrained(saved)
        (saved / "config.json").write_text(json.dumps({"model_type": model_type}))
        different, _ = compared(saved, texts)
        assert not different, (len(different), min(different, key=len))


def test_the_sweep_has_every_family_that_reads_texts():
    assert CASES.keys() == model_types().keys() - {"vit", "deit"}
