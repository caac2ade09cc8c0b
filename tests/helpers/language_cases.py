"""Tiny translators of many languages: NLLB, mBART and mBART-50, as transformers writes them."""

import io

import pytest
import sentencepiece
import torch
import transformers as hf

TEXTS = ["the cat sat on the mat", "je suis étudiant", "größe, straße  und fluß!"]
CODES = {
    "nllb": ["deu_Latn", "eng_Latn", "fra_Latn"],
    "mbart": ["de_DE", "en_XX", "fr_XX"],
    "mbart50": ["de_DE", "en_XX", "fr_XX"],
}
CLASSES = {"nllb": hf.NllbTokenizer, "mbart": hf.MBartTokenizer, "mbart50": hf.MBart50Tokenizer}


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """{kind: a SentencePiece file}."""
    found = {}
    for kind in ("bpe", "unigram"):
        made = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXTS * 30), model_writer=made, vocab_size=70, model_type=kind,
            unk_id=0, bos_id=1, eos_id=2, pad_id=-1, minloglevel=2, hard_vocab_limit=kind == "bpe",
        )  # fmt: skip
        found[kind] = tmp_path_factory.mktemp(kind) / "sentencepiece.bpe.model"
        found[kind].write_bytes(made.getvalue())
    return found


def network(kind, tokens, folder):
    """A tiny model that knows so many tokens, and knows each language."""
    torch.manual_seed(3)
    sizes = {
        "vocab_size": tokens, "d_model": 12, "encoder_layers": 1, "decoder_layers": 2,
        "encoder_attention_heads": 3, "decoder_attention_heads": 2, "encoder_ffn_dim": 14,
        "decoder_ffn_dim": 10, "max_position_embeddings": 40, "pad_token_id": 1, "eos_token_id": 2,
        "forced_eos_token_id": None,
    }  # fmt: skip
    many = kind in ("nllb", "m2m100")
    config = (hf.M2M100Config if many else hf.MBartConfig)(**sizes, decoder_start_token_id=2)
    model = (hf.M2M100ForConditionalGeneration if many else hf.MBartForConditionalGeneration)(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.4 + (weight.ndim == 1) * weight)
    model.eval().save_pretrained(folder)
    return model


@pytest.fixture
def translator(pieces, tmp_path):
    """The folder of a tiny translator, with its model and its tokenizer as transformers loads them."""

    def make(kind, **settings):
        folder = tmp_path / kind
        folder.mkdir()
        source = pieces["bpe" if kind == "nllb" else "unigram"]
        (folder / source.name).write_bytes(source.read_bytes())
        named = {"extra_special_tokens": CODES[kind]} if kind == "nllb" else {}  # others name them all
        tokenizer = CLASSES[kind].from_pretrained(folder, **named, **settings)
        (folder / source.name).unlink()
        tokenizer.save_pretrained(folder)
        return folder, network(kind, len(tokenizer), folder), tokenizer

    return make
