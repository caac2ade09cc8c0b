"""Models to look at and to examine: tiny ones of every family with a tokenizer, and runs of every task."""

from __future__ import annotations

import random
from pathlib import Path

import tokenizers as tk
import torch

import heedful
from heedful.interop.loaded import Loaded
from heedful.models import bert, gpt1, gpt2, llama, t5, transformer
from heedful.runs import trainer
from heedful.tasks import recipe
from helpers import tiny
from helpers.runs import CPU, TINY, Quiet, started_from
from helpers.tokenizer_cases import byte_level, trained, word_bpe, word_piece


def unigram():
    """As T5's: a text ends in </s>, and a space is a ▁."""
    special = ["<pad>", "</s>", "<unk>"]
    return trained(
        tk.models.Unigram(),
        tk.trainers.UnigramTrainer(
            vocab_size=130, unk_token="<unk>", special_tokens=special, show_progress=False
        ),
        pre_tokenizer=tk.pre_tokenizers.Metaspace(),
        post_processor=tk.processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)]),
        decoder=tk.decoders.Metaspace(),
    )


def gpt1_words():
    tokenizer = word_bpe()
    tokenizer.decoder = tk.decoders.BPEDecoder(suffix="</w>")
    return tokenizer


STARTS = {"pad": 0, "eos": 1, "decoder_start": 0}
IMPORTED = {
    "gpt1": (
        gpt1_words,
        gpt1,
        gpt1.GPT1Config,
        {"context": 41, "layers": 2, "heads": 3, "ffn_width": 48},
        {},
    ),
    "gpt2": (
        byte_level,
        gpt2,
        gpt2.GPT2Config,
        {"context": 41, "layers": 2, "heads": 3, "ffn_width": 20},
        {},
    ),
    "llama": (
        byte_level,
        llama,
        llama.LlamaConfig,
        {"context": 41, "layers": 2, "heads": 6, "kv_heads": 2, "key_width": 4, "ffn_width": 20},
        {},
    ),
    "bert": (
        word_piece,
        bert,
        bert.BertConfig,
        {"context": 41, "layers": 2, "heads": 3, "ffn_width": 20, "prediction_heads": ("masked_lm",)},
        {},
    ),
    "t5": (
        unigram,
        t5,
        t5.T5Config,
        {"layers": 2, "decoder_layers": 3, "heads": 3, "key_width": 5, "ffn_width": 20},
        STARTS,
    ),
    "transformer": (
        unigram,
        transformer,
        transformer.TransformerConfig,
        {
            "layers": 2,
            "decoder_layers": 3,
            "heads": 3,
            "decoder_heads": 2,
            "ffn_width": 20,
            "decoder_ffn_width": 14,
            "sinusoid_layout": "halves",
            "output_bias": True,
        },
        STARTS,
    ),
}


def imported(name: str, seed: int = 11) -> Loaded:
    """A model of a family as from a Hugging Face folder, with its kind of tokenizer."""
    make, file, config, sizes, special = IMPORTED[name]
    tokenizer = make()
    sizes = {"vocab": tokenizer.get_vocab_size(), "width": 12, **sizes}
    if name == "transformer":
        sizes["target_vocab"] = sizes["vocab"]
    c = config(**sizes)
    model = tiny.build((file, c), torch.float32, seed)
    return Loaded(name, c, model, tokenizer, dict(special))


def saved(name: str, folder: Path) -> Path:
    """The same as a Hugging Face folder."""
    heedful.save(imported(name), folder)
    return folder


# Runs


def write_files(folder: Path) -> dict[str, str]:
    """A toy translation (each word upper-cased, their order turned round), a text, and texts with labels."""
    rng = random.Random(0)
    words = [f"{a}{b}" for a in "bdfgk" for b in "aeiou"]
    lines = [" ".join(rng.choices(words, k=n % 5 + 2)) for n in range(137)]
    turned = [" ".join(reversed(line.upper().split())) for line in lines]
    labeled = [f"{line}\t{'front' if line[1] in 'ei' else 'back'}" for line in lines]
    texts = {
        "a.src": lines[:100],
        "a.tgt": turned[:100],
        "v.src": lines[100:],
        "v.tgt": turned[100:],
        "text": lines,
        "a.tsv": ["sentence\tlabel", *labeled[:100]],
        "v.tsv": ["sentence\tlabel", *labeled[100:]],
    }
    for name, some in texts.items():
        (folder / name).write_text("\n".join(some) + "\n")
    return {path.name: str(path) for path in folder.iterdir()}


class Runs:
    """Runs of every task, each made when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "files").mkdir()
        files = write_files(folder / "files")
        pairs = {"data.source": files["a.src"], "data.target": files["a.tgt"], "data.tokenizer": "word"}
        pairs |= {"data.valid_source": files["v.src"], "data.valid_target": files["v.tgt"]}
        table = {"data.table": files["a.tsv"], "data.valid_table": files["v.tsv"], "data.tokenizer": "word"}
        table |= {"model.context": 12, "train.steps": 60, "train.learning_rate": 1e-2}
        text = {
            "data.text": files["text"],
            "model.context": 16,
            "train.steps": 40,
            "train.learning_rate": 1e-2,
        }
        self.kinds = {
            "translate": (
                "translate",
                pairs | {"train.steps": 100, "train.learning_rate": 1e-2, "model.dropout": 0.0},
            ),
            "separate": (
                "translate",
                pairs | {"data.joint": False, "train.steps": 60, "train.learning_rate": 1e-2},
            ),
            "lm": ("lm", text | {"data.tokenizer": "char"}),
            "bytes": ("lm", text | {"data.tokenizer": "bpe", "data.vocab_size": 290}),
            "mlm": ("mlm", text | {"data.tokenizer": "char"}),
            "classify": ("classify", table),
            "decoder": (
                "classify",
                table | {"train.from": "lm", "train.steps": 150, "train.lm_loss_weight": 0.0},
            ),
        }

    def __call__(self, kind: str) -> Path:
        path = self.folder / kind
        if not path.exists():
            task, settings = self.kinds[kind]
            settings = TINY | {"evaluate.every": 1000, "checkpoint.every": 1000} | settings
            if "train.from" in settings:
                settings = started_from(self(settings["train.from"]), settings)
            with torch.enable_grad():
                trainer.start(recipe.make(task, settings=settings), path, Quiet(), CPU)
        return path
