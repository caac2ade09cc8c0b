"""Recipes: exactly what was asked of a training run, defaults filled in. Numbers and names only; no torch here.

Values come from, in rising order: the task's defaults, the size, a recipe file, `--set part.name=value`, options.
"""

from __future__ import annotations

import typing
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cache
from reprlib import repr as short  # a hostile value may be a megabyte long
from typing import Annotated, Any, Literal

from ..errors import BadInput
from ..models import nearest

TEXTS = ("translate", "lm", "mlm", "classify", "tag", "span", "choose", "parse", "summarize")
PICTURES = ("image-classify", "caption", "text-to-image")
TASKS = (*TEXTS, *PICTURES)
TUNED = (
    "translate",
    "lm",
    "mlm",
    "classify",
    "tag",
    "span",
    "choose",
)  # tasks that can start from any model of their kind


@dataclass(frozen=True)
class Range:
    """The numbers that a setting can be, with its ends as in mathematics: "[)" is without the last."""

    least: float
    most: float
    ends: Literal["[]", "[)", "(]"] = "[]"

    def __contains__(self, number: float) -> bool:
        above = number > self.least or (number == self.least and self.ends[0] == "[")
        below = number < self.most or (number == self.most and self.ends[1] == "]")
        return above and below

    def __str__(self) -> str:
        if self.ends == "[]":
            return f"from {self.least:,} to {self.most:,}"
        words = {"[": "of at least", "(": "above", "]": "at most", ")": "below"}
        return f"{words[self.ends[0]]} {self.least:,} and {words[self.ends[1]]} {self.most:,}"


MANY = 10**12  # what nobody reaches
Count = Annotated[int, Range(1, MANY)]
Share = Annotated[float, Range(0, 1)]
Part = Annotated[float, Range(0, 1, "[)")]  # a share that leaves something


@dataclass(frozen=True)
class Data:
    """Where examples come from and how they become numbers."""

    corpus: str = ""  # a built-in one: phrasebook, pylib, facts, shapes
    source: str = ""  # files with one sentence a line
    target: str = ""
    valid_source: str = ""
    valid_target: str = ""
    trees: str = ""  # translate, where positions come from syntax: the sources' trees, CoNLL-U
    valid_trees: str = ""
    text: str = ""  # a file or folder, for language models
    valid_text: str = ""  # without it, the last 10 % of the text
    # lm: one long text, or documents side by side in rows, which do not see each other.
    pack: Literal["stream", "documents"] = "stream"
    pairs: bool = False  # mlm: also tell whether one span of text follows another
    # classify, translate: rows of texts, tab-separated under a header or JSON objects; tag, parse: a treebank, CoNLL-U;
    # span, choose: JSON objects with questions and answers, or with choices.
    table: str = ""
    valid_table: str = ""
    source_column: str = "source"  # summarize: "" for article, source, document or text, whichever is there
    target_column: str = "target"  # summarize: "" for summary, target or highlights
    title_column: str = "title"  # summarize: of articles that have one; "" to leave it out
    # summarize: the order in which paragraphs are read up to data.longest, and how long a summary may be.
    extract: Literal["first", "tf-idf"] = "first"
    longest_summary: Annotated[int, Range(1, 1_000_000)] = 128
    sources: Annotated[int, Range(1, 10_000)] = 4  # facts: of each article; the more, the longer it is
    # translate: pairs side by side in rows of `longest` tokens, which do not see each other: no padding to speak of, and
    # all batches of one shape.
    packed: bool = False
    joint: bool = True  # translate: one vocabulary and one matrix of embeddings for both sides
    text_column: str = ""  # classify: without it, "sentence" or "text", whichever is there; lm, mlm: "text"
    pair_column: str = ""  # a second text, to be judged together with the first
    # classify, by a decoder: pairs of which neither text comes first (similarity) are read in both orders.
    both_orders: bool = False
    label_column: str = "label"
    vocab: Literal["bpe", "wordpiece", "char", "word", "spaced"] = "bpe"
    vocab_size: Annotated[int, Range(8, 1_000_000)] = 8000
    lower: bool = False
    # In tokens; longer examples are left out (classify, summarize: cut) and counted.
    longest: Annotated[int, Range(1, 1_000_000)] = 256
    # span: tokens that windows of a long text have in common, and tokens of an answer at most.
    overlap: Annotated[int, Range(0, 1_000_000)] = 64
    longest_answer: Annotated[int, Range(1, 1_000_000)] = 30
    bad_lines: Literal["drop", "refuse"] = "drop"
    # Pictures: a folder by class, one of IDX files, or one with captions; without held-out ones, one in ten.
    images: str = ""
    valid_images: str = ""
    image: Annotated[int, Range(4, 1024)] = 32  # pixels a side, to which every picture is brought
    fit: Literal["crop", "pad", "stretch"] = "crop"  # how, if it is no square
    color: bool = True  # red, green and blue, or gray
    # What a pixel from 0 to 1 becomes: less the mean, over the deviation.
    mean: Annotated[float, Range(0, 1)] = 0.5
    deviation: Annotated[float, Range(0, 1, "(]")] = 0.5
    # In training, by lot: moved by at most this share of a side, made larger or smaller, left for right,
    shift: Part = 0.0
    zoom: Part = 0.0
    flip: bool = False
    erase: Part = 0.0  # and a square of at most this share of a side painted over


@dataclass(frozen=True)
class Model:
    """Sizes of the model; what they are the sizes of is the task's choice."""

    layers: Annotated[int, Range(1, 1000)] = 4
    width: Annotated[int, Range(1, 1 << 16)] = 256
    heads: Annotated[int, Range(1, 1 << 10)] = 4
    hidden: Annotated[int, Range(1, 1 << 20)] = 1024
    context: Annotated[int, Range(2, 1 << 20)] = 256  # tokens a language model sees at once
    dropout: Part = 0.1
    # Those of each task are in ARCHITECTURES.
    architecture: Literal[
        "gpt2",
        "modern",
        "mixture",
        "transformer",
        "rnn",
        "gru",
        "lstm",
        "seq2seq",
        "bahdanau",
        "luong",
        "convs2s",
        "xl",
        "sparse",
        "dmca",
        "mixture_dmca",
        "linear",
        "elmo",
    ] = "gpt2"
    # A mixture: experts in a layer, those that a token is sent to, and that one layer in so many has them.
    experts: Annotated[int, Range(1, 4096)] = 8
    chosen: Annotated[int, Range(1, 4096)] = 2
    every: Annotated[int, Range(1, 1000)] = 1
    gate: Literal["noisy", "switch"] = "noisy"
    balance: Annotated[float, Range(0, 1000)] = 0.01  # what an uneven load costs
    # In training, how many times an even share of the tokens an expert takes, others being dropped; 0: it takes all.
    capacity: Annotated[float, Range(0, 1_000_000)] = 0.0
    # Before the Transformer: the recurrent cell, Luong's score and whether his decoder reads what it saw last, and how
    # many words a convolution sees.
    cell: Literal["rnn", "gru", "lstm"] = "lstm"
    score: Literal["dot", "general", "concat"] = "general"
    input_feeding: bool = True
    kernel: Annotated[int, Range(1, 100)] = 3
    # elmo: what a word is read by, at most so many letters of it, and how many filters read them (0: four times the width).
    input: Literal["characters", "pieces"] = "characters"
    letters: Annotated[int, Range(7, 1000)] = 50
    filters: Annotated[int, Range(0, 1 << 16)] = 0
    # tag, classify, from an elmo: a norm of each layer before they are mixed, and the mix beside the output as well.
    mix_norm: bool = False
    at_output: bool = False
    # For long texts. xl: hidden states that a segment sees of those before it, in training, and while it is evaluated
    # and writes; 0: as many as a segment has, and as in training.
    memory: Annotated[int, Range(0, 1 << 20)] = 0
    recall: Annotated[int, Range(0, 1 << 20)] = 0
    # sparse: who sees whom, how layers or heads share it, the stride (0: near the root of the context), and how many
    # tokens of each block all see (0: an eighth).
    pattern: Literal["strided", "fixed", "window"] = "strided"
    turns: Literal["interleaved", "merged", "heads"] = "merged"
    stride: Annotated[int, Range(0, 1 << 20)] = 0
    tail: Annotated[int, Range(0, 1 << 20)] = 0
    # dmca: layers in turn local, compressed (m) or full, the block of the local ones, whether they see the one before,
    # and what is compressed.
    kinds: Literal["lm", "l", "m", "f"] = "lm"
    block: Annotated[int, Range(1, 1 << 20)] = 256
    look_back: bool = False
    compressed: Literal["kv", "input"] = "kv"
    norm: Literal["pre", "post"] = "pre"
    positions: Literal[
        "sinusoidal",
        "rotary",
        "sinusoidal+rotary",
        "shaw",
        "structural-absolute",
        "structural-relative",
        "structural",
    ] = "sinusoidal"  # translate
    clip: Annotated[int, Range(1, 1000)] = 16  # shaw, structural: greater distances count as this one
    scope: Literal["edge", "path"] = (
        "edge"  # structural: related are words one edge apart, or all on one path
    )
    activation: Literal["relu", "gelu", "gelu_tanh", "silu"] = "relu"
    patch: Annotated[int, Range(1, 256)] = 4  # pixels along a side of a patch of a picture
    pool: Literal["class", "mean"] = (
        "class"  # what is read off a picture: a token of its own, or all patches' mean
    )
    # caption: what the decoder sees of a picture: a grid of patches, or one vector: the class token's, or the patches' mean.
    sees: Literal["grid", "class", "mean"] = "grid"
    # text-to-image. Codes: how many there are; each stands for a patch.
    codes: Annotated[int, Range(2, 1 << 16)] = 1024
    reach: Annotated[int, Range(0, 1000)] = 2  # cells that the decoder's last layer sees in every direction


@dataclass(frozen=True)
class Train:
    """How it is trained."""

    steps: Count = 10000
    # Instead of steps: as many as fit, from a rate measured before the first.
    minutes: Annotated[float, Range(0, 1_000_000)] = 0.0
    batch_tokens: Annotated[int, Range(1, 1_000_000_000)] = 4096  # target tokens a step, about
    accumulate: Annotated[int, Range(1, 10_000)] = 1  # micro-batches a step
    rate: Annotated[float, Range(0, 10, "(]")] = 1e-3
    warmup: Annotated[int, Range(0, MANY)] = 400  # steps; unless it is set, at most a quarter of them all
    schedule: Literal["noam", "cosine", "linear", "wsd", "constant"] = "cosine"
    floor: Share = 0.05  # where the schedule ends, as a share of the rate
    optimizer: Literal["adamw", "muon"] = "adamw"
    decay: Annotated[float, Range(0, 10)] = 0.01
    beta2: Part = 0.98
    clip: Annotated[float, Range(0, 1_000_000)] = 1.0
    smoothing: Part = 0.1
    hide: Part = 0.0  # tag, parse: the share of the pieces of words that is hidden in each step
    # The model to start from, a run or a Hugging Face folder; tag, classify: or an elmo, whose vectors are read.
    from_folder: str = ""
    # What of it learns: the whole model; a new head, the rest being as it was; or LoRA: thin matrices beside some layers of
    # each block (query, key, value, out, gate, up, down, with commas between them), and a new head.
    tune: Literal["whole", "head", "lora"] = "whole"
    lora_rank: Annotated[int, Range(1, 1 << 16)] = 8
    lora_alpha: Annotated[float, Range(0, 1_000_000, "(]")] = 16.0
    lora_dropout: Part = 0.0
    lora_layers: str = "query,value"
    mix_penalty: Annotated[float, Range(0, 1000)] = (
        0.001  # tag, classify, from an elmo: what |w|^2 of a mix costs
    )
    # Classify, from a decoder: what its language-model loss counts (GPT-1's lambda). Summarize, by a decoder: what the
    # loss of the article's own tokens counts (Liu et al. 2018: as much as the summary's).
    lm_weight: Annotated[float, Range(0, 1000)] = 0.5
    # text-to-image: what is trained. Codes: where the temperature ends and after which share of the steps, and what the
    # divergence from even use counts, and after which share of the steps it does. Decoder: what the caption's loss counts.
    stage: Literal["codes", "decoder", "ranker", "judge"] = "codes"
    coldest: Annotated[float, Range(0, 1, "(]")] = 0.0625
    cooling: Share = 0.7
    divergence: Annotated[float, Range(0, 1000)] = 0.1
    rise: Share = 0.005
    text_weight: Share = 0.125
    ema: Part = (
        0.0  # the decay of a moving average of the weights, such as 0.999: the average is tried and kept
    )
    average: Annotated[int, Range(0, 1000)] = 0  # at the end: the mean of so many checkpoints' weights
    recompute: bool = False  # blocks compute again in the backward pass what they would have to keep
    compile: bool = False
    shard: bool = False  # under torchrun: each process keeps a part of the weights (FSDP), not all
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    seed: Annotated[int, Range(0, 2**63 - 1)] = 0


@dataclass(frozen=True)
class Checkpoint:
    """When state is saved, and how much is kept."""

    every: Count = 500
    keep: Annotated[int, Range(1, 1_000_000)] = 2


@dataclass(frozen=True)
class Evaluate:
    """When the model is tried on held-out examples."""

    every: Count = 500
    examples: Annotated[int, Range(0, 10_000)] = 3  # shown each time
    rows: Annotated[int, Range(1, 1_000_000_000)] = 500  # held-out rows tried each time
    patience: Annotated[int, Range(0, 1_000_000)] = 0  # stop after so many evaluations that were no better


@dataclass(frozen=True)
class Recipe:
    """Everything."""

    task: str
    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    train: Train = field(default_factory=Train)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    evaluate: Evaluate = field(default_factory=Evaluate)


# What differs from the defaults above, by task and by size.

TREEBANK: dict[str, Any] = {  # a treebank is small: much is hidden and dropped
    "model.activation": "gelu", "model.dropout": 0.2, "data.vocab_size": 4000, "data.bad_lines": "refuse",
    "train.optimizer": "muon", "train.rate": 6e-3, "train.decay": 0.1, "train.smoothing": 0.05, "train.hide": 0.2,
    "train.warmup": 200, "train.steps": 4000, "evaluate.every": 250,
}  # fmt: skip
TASK_DEFAULTS: dict[str, dict[str, Any]] = {
    "translate": {"model.architecture": "transformer"},
    "lm": {"model.activation": "gelu_tanh", "train.smoothing": 0.0, "train.decay": 0.1},
    "mlm": {
        "model.activation": "gelu", "model.norm": "post", "train.smoothing": 0.0, "train.rate": 5e-4,
        "train.schedule": "linear",
    },
    "classify": {
        "model.activation": "gelu", "model.norm": "post", "train.smoothing": 0.0, "train.rate": 3e-4,
        "train.schedule": "linear", "train.steps": 1000, "train.warmup": 100, "train.batch_tokens": 2048,
        "evaluate.every": 100, "checkpoint.every": 250,
    },
    "tag": TREEBANK,
    "span": {
        "model.activation": "gelu", "model.norm": "post", "train.smoothing": 0.0, "train.rate": 3e-4,
        "train.schedule": "linear", "train.steps": 4000, "train.warmup": 200,
    },
    "choose": {
        "model.activation": "gelu", "model.norm": "post", "train.smoothing": 0.0, "train.rate": 3e-4,
        "train.schedule": "linear", "train.steps": 4000, "train.warmup": 200,
    },
    "parse": TREEBANK,
    "summarize": {
        "model.architecture": "transformer", "data.source_column": "", "data.target_column": "", "data.longest": 512,
        "train.lm_weight": 1.0,
    },
    "image-classify": {
        "model.activation": "gelu", "model.dropout": 0.0, "data.bad_lines": "refuse", "data.shift": 0.1,
        "train.optimizer": "muon", "train.rate": 6e-3, "train.decay": 0.05, "train.warmup": 100, "train.steps": 2000,
        "evaluate.every": 250,
    },
    "caption": {
        "model.activation": "gelu", "model.dropout": 0.0, "data.bad_lines": "refuse", "data.vocab": "word",
        "data.vocab_size": 10000, "data.lower": True, "data.longest": 64, "train.optimizer": "muon", "train.rate": 6e-3,
        "train.decay": 0.05, "train.smoothing": 0.0, "train.warmup": 100, "train.steps": 2000, "train.batch_tokens": 2048,
        "evaluate.every": 250,
    },
    "text-to-image": {
        "model.activation": "gelu", "model.dropout": 0.0, "data.bad_lines": "refuse", "data.vocab": "word",
        "data.vocab_size": 4000, "data.lower": True, "data.longest": 12, "train.smoothing": 0.0, "train.warmup": 100,
        "evaluate.every": 1000,
    },
}  # fmt: skip

# Settings that only some tasks have a use for.
ONLY_FOR: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("data.source", "data.target", "data.valid_source", "data.valid_target", "data.joint", "data.trees",
         "data.valid_trees", "model.scope", "data.packed"), ("translate",)
    ),
    **dict.fromkeys(
        ("data.source_column", "data.target_column", "model.positions", "model.clip"), ("translate", "summarize")
    ),
    **dict.fromkeys(("data.title_column", "data.extract", "data.longest_summary", "data.sources"), ("summarize",)),
    **dict.fromkeys(("data.text", "data.valid_text"), ("lm", "mlm")),
    **dict.fromkeys(
        ("data.table", "data.valid_table"), ("translate", "classify", "tag", "span", "choose", "parse", "summarize")
    ),
    "data.longest": (
        "translate", "classify", "tag", "span", "choose", "parse", "summarize", "caption", "text-to-image",
    ),
    **dict.fromkeys(("data.overlap", "data.longest_answer"), ("span",)),
    "train.hide": ("tag", "parse"),
    **dict.fromkeys(("data.pair_column", "data.label_column", "data.both_orders"), ("classify",)),
    **dict.fromkeys(
        ("train.mix_penalty", "model.mix_norm", "model.at_output"), ("classify", "tag")
    ),
    "train.from_folder": (*TUNED, "image-classify", "text-to-image"),
    **dict.fromkeys(
        ("train.tune", "train.lora_rank", "train.lora_alpha", "train.lora_dropout", "train.lora_layers"), TUNED
    ),
    "train.lm_weight": ("classify", "choose", "summarize"),
    "data.text_column": ("lm", "mlm", "classify"),
    "data.pack": ("lm",),
    "model.architecture": ("translate", "lm", "summarize"),
    "data.pairs": ("mlm",),
    "model.norm": ("translate", "mlm", "classify", "tag", "span", "choose", "parse", "summarize"),
    "model.context": ("lm", "mlm", "classify", "span", "choose"),
    **dict.fromkeys(("data.vocab", "data.vocab_size", "data.lower"), (*TEXTS, "caption", "text-to-image")),
    **dict.fromkeys(
        ("data.images", "data.valid_images", "data.image", "data.fit", "data.color", "data.mean", "data.deviation",
         "data.shift", "data.zoom", "data.flip", "model.patch"), PICTURES
    ),
    **dict.fromkeys(("data.erase", "model.pool"), ("image-classify",)),
    "model.sees": ("caption",),
    **dict.fromkeys(
        ("model.codes", "model.reach", "train.stage", "train.coldest", "train.cooling",
         "train.divergence", "train.rise", "train.text_weight"), ("text-to-image",)
    ),
}  # fmt: skip

# Each task's architectures, the first being its own; and settings that only some of them have a use for.
ARCHITECTURES = {
    "lm": (
        "gpt2",
        "modern",
        "mixture",
        "rnn",
        "gru",
        "lstm",
        "xl",
        "sparse",
        "dmca",
        "mixture_dmca",
        "linear",
        "elmo",
    ),
    "translate": ("transformer", "mixture", "seq2seq", "bahdanau", "luong", "convs2s"),
    "summarize": (
        "transformer",
        "mixture",
        "dmca",
        "mixture_dmca",
        "seq2seq",
        "bahdanau",
        "luong",
        "convs2s",
    ),
}
ONLY_IN: dict[str, tuple[str, ...]] = dict.fromkeys(
    ("model.experts", "model.chosen", "model.every", "model.gate", "model.balance", "model.capacity"),
    ("mixture", "mixture_dmca"),
)

ONLY_IN |= {
    **dict.fromkeys(("model.memory", "model.recall"), ("xl",)),
    **dict.fromkeys(("model.pattern", "model.turns", "model.stride", "model.tail"), ("sparse",)),
    **dict.fromkeys(
        ("model.kinds", "model.block", "model.look_back", "model.compressed"), ("dmca", "mixture_dmca")
    ),
}
ONLY_IN |= dict.fromkeys(("model.input", "model.letters", "model.filters"), ("elmo",))
ALONE = ("dmca", "mixture_dmca")  # decoders that read an article and write its summary in one row
OWN_ACTIVATION = ("sparse",)

# What came before the Transformer: settings of cells and windows, what it has no use for, and what differs for it.
ONLY_FOR |= dict.fromkeys(
    ("model.cell", "model.score", "model.input_feeding", "model.kernel"), ("translate", "summarize")
)
ONLY_IN |= {
    "model.cell": ("seq2seq", "luong"), "model.score": ("luong",), "model.input_feeding": ("luong",),
    "model.kernel": ("convs2s",),
}  # fmt: skip
BEFORE = ("rnn", "gru", "lstm", "seq2seq", "bahdanau", "luong", "convs2s")
IDLE_BEFORE = (
    "model.heads", "model.hidden", "model.norm", "model.activation", "model.positions", "train.recompute", "train.compile",
)  # fmt: skip
IDLE_IN_ELMO = (
    "model.heads",
    "model.norm",
    "model.activation",
    "train.recompute",
    "train.compile",
    "data.pack",
)
ARCHITECTURE_DEFAULTS: dict[str, dict[str, Any]] = {
    "elmo": {
        "model.layers": 2,
        "data.vocab": "word",
        "train.optimizer": "adamw",
        "train.rate": 4e-3,
        "train.decay": 0.01,
    },
    **{name: {"model.layers": 2} for name in BEFORE},
    "bahdanau": {"model.layers": 1},
    "convs2s": {"model.layers": 4},
    "mixture_dmca": {"model.layers": 5, "model.every": 5},  # experts in one layer (Liu et al. 2018)
}

# For published models, which are large and know much already (BERT's advice: 2 to 5e-5).
FINE_TUNING: dict[str, Any] = {"train.rate": 5e-5}

# For a head over a model that stays as it is, and for adapters beside its layers: what is new learns faster.
TUNING: dict[str, dict[str, Any]] = {
    "head": {"train.optimizer": "adamw", "train.rate": 1e-3},
    "lora": {"train.optimizer": "adamw", "train.rate": 5e-4},
}
LORA = ("train.lora_rank", "train.lora_alpha", "train.lora_dropout", "train.lora_layers")

# For a recurrent network that reads ELMo's vectors, and what it has no use for.
FEATURES: dict[str, Any] = {
    "model.layers": 2, "train.optimizer": "adamw", "train.rate": 4e-3, "train.decay": 0.01,
}  # fmt: skip
IDLE_FEATURES = ("model.heads", "model.hidden", "model.norm", "model.activation", "train.hide")
OF_FEATURES = ("model.mix_norm", "model.at_output", "train.mix_penalty")

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"model.layers": 2, "model.width": 128, "model.heads": 4, "model.hidden": 512},
    "small": {"model.layers": 4, "model.width": 256, "model.heads": 4, "model.hidden": 1024},
    "base": {"model.layers": 6, "model.width": 512, "model.heads": 8, "model.hidden": 2048},
    "large": {"model.layers": 6, "model.width": 1024, "model.heads": 16, "model.hidden": 4096},
}

# text-to-image: what differs by stage, and the sizes of each.
STAGES = ("codes", "decoder", "ranker")  # in the order in which they are trained
STAGE_DEFAULTS: dict[str, dict[str, Any]] = {
    "codes": {
        "train.rate": 1e-3, "train.batch_tokens": 1024, "train.steps": 1500, "train.ema": 0.995, "evaluate.every": 500,
    },
    "decoder": {
        "train.optimizer": "muon", "train.rate": 2e-3, "train.batch_tokens": 2048, "train.steps": 2800, "evaluate.every": 700,
    },
    "ranker": {"train.optimizer": "muon", "train.rate": 4e-3, "train.batch_tokens": 2080, "train.steps": 2000},
    "judge": {"train.rate": 2e-3, "train.batch_tokens": 2048, "train.steps": 5000},
}  # fmt: skip
STAGE_SIZES: dict[str, dict[str, tuple[int, int, int, int]]] = {  # layers, width, heads, hidden
    "codes": {"tiny": (1, 96, 4, 96), "small": (1, 128, 4, 128), "base": (2, 256, 4, 256), "large": (4, 512, 4, 512)},
    "decoder": {
        "tiny": (4, 96, 4, 384), "small": (6, 256, 4, 1024), "base": (12, 512, 8, 2048), "large": (24, 1024, 16, 4096),
    },
    "ranker": {
        "tiny": (2, 96, 3, 384), "small": (4, 192, 4, 768), "base": (6, 512, 8, 2048), "large": (12, 768, 12, 3072),
    },
    "judge": {"tiny": (3, 16, 4, 16), "small": (3, 32, 4, 32), "base": (3, 64, 4, 64), "large": (4, 128, 4, 128)},
}  # fmt: skip
ONLY_AT = {
    **dict.fromkeys(
        ("model.codes", "train.coldest", "train.cooling", "train.divergence", "train.rise"), ("codes",)
    ),
    **dict.fromkeys(("model.reach", "train.text_weight", "train.from_folder"), ("decoder",)),
    **dict.fromkeys(("model.heads", "model.hidden", "model.activation"), ("decoder", "ranker")),
    **dict.fromkeys(("data.vocab", "data.vocab_size", "data.lower", "data.longest"), ("decoder", "ranker")),
    "model.patch": ("codes", "ranker"),
    "train.smoothing": ("judge",),
    **dict.fromkeys(("data.mean", "data.deviation"), ("ranker", "judge")),
    **dict.fromkeys(("data.shift", "data.zoom", "data.flip"), ()),
}  # fmt: skip


def stage_settings(stage: str, size: str) -> dict[str, Any]:
    """What differs for a stage of text-to-image, and its size."""
    names = ("layers", "width", "heads", "hidden")
    sizes = zip(names, STAGE_SIZES[stage][size], strict=True)
    return STAGE_DEFAULTS[stage] | {f"model.{name}": number for name, number in sizes}


def check_stage(recipe: Recipe, settings: Collection[str]) -> None:
    """Refuse what a stage of text-to-image has no use for, or cannot do without."""
    if recipe.task != "text-to-image":
        return
    stage = recipe.train.stage
    for key in settings:
        fitting = ONLY_AT.get(key, (stage,))
        if stage not in fitting:
            of = f"it is for {' and '.join(fitting)}" if fitting else "captions say where things are"
            raise BadInput(f"{key} does nothing at the stage {stage} of text-to-image: {of}")


CORPUS_DEFAULTS: dict[str, dict[str, Any]] = {
    "phrasebook": {
        "data.vocab": "word", "data.vocab_size": 4000, "model.dropout": 0.0, "train.smoothing": 0.0,
        "model.positions": "sinusoidal+rotary", "train.optimizer": "muon", "train.rate": 4e-3, "train.warmup": 150,
        "train.batch_tokens": 1024, "train.steps": 3000, "evaluate.rows": 200,
    },
    "pylib": {"data.vocab_size": 4000},
    "facts": {
        "data.vocab": "word", "data.vocab_size": 4000, "model.dropout": 0.0, "train.smoothing": 0.0,
        "model.positions": "sinusoidal+rotary", "train.optimizer": "muon", "train.rate": 4e-3, "train.warmup": 150,
        "train.batch_tokens": 1024, "train.steps": 3000, "evaluate.rows": 100,
    },
}  # fmt: skip


# The demo: as much as two cores learn of the phrasebook in a few minutes. Narrow and deep beats wide and shallow there,
# and small steps in great number beat large ones. Sinusoids alone: other tools have such a model, and rotary positions beside
# them, which learn as much in two thirds of the steps, they have not.
DEMO: dict[str, Any] = {
    "model.layers": 3, "model.width": 64, "model.hidden": 256, "model.positions": "sinusoidal", "train.batch_tokens": 512,
    "train.rate": 8e-3, "train.steps": 4500, "train.ema": 0.997, "evaluate.every": 1500,
}  # fmt: skip


def make(task: str, size: str = "small", corpus: str = "", settings: dict[str, Any] | None = None) -> Recipe:
    """A recipe from its layers of values; `settings` come last: {"train.steps": 100, ...}."""
    if task not in TASKS:
        raise BadInput(f'there is no task "{task}"{nearest(task, TASKS)}')
    if size not in SIZES:
        raise BadInput(f'there is no size "{size}"{nearest(size, SIZES)}')
    recipe = Recipe(task)
    built_in = {"data.corpus": corpus} | CORPUS_DEFAULTS.get(corpus, {})
    architecture = ARCHITECTURE_DEFAULTS.get(str((settings or {}).get("model.architecture")), {})
    tagging = (
        FEATURES | {"train.hide": 0.0} if task == "tag" and (settings or {}).get("train.from_folder") else {}
    )
    tuning = TUNING.get(str((settings or {}).get("train.tune")), {})
    sizes = SIZES[size]
    if task == "text-to-image":
        stage = (settings or {}).get("train.stage", Train.stage)
        sizes = stage_settings(stage, size) if stage in tuple(STAGE_SIZES) else {}
    for layer in (TASK_DEFAULTS[task], sizes, built_in, architecture, tagging, tuning, settings or {}):
        for key, value in layer.items():
            recipe = changed(recipe, key, value)
    for key in settings or {}:
        if task not in ONLY_FOR.get(key, TASKS):
            raise BadInput(f"{key} does nothing in {task}: it is for {' and '.join(ONLY_FOR[key])}")
    check_architecture(recipe, settings or {})
    check_tuning(recipe, settings or {})
    check_features(recipe, settings or {})
    check_positions(recipe, settings or {})
    check_summaries(recipe, settings or {})
    check_stage(recipe, settings or {})
    if "train.warmup" not in (settings or {}) and not recipe.train.minutes:
        recipe = with_warmup(recipe)
    return agreeing(recipe)


def check_architecture(recipe: Recipe, settings: Collection[str]) -> None:
    """Refuse an architecture that a task does not have, and settings that the chosen one has no use for."""
    chosen, there = recipe.model.architecture, ARCHITECTURES.get(recipe.task, ())
    if there and chosen not in there:
        raise BadInput(
            f"{recipe.task} has no architecture {chosen}: model.architecture is {' or '.join(there)}"
        )
    for key in settings:
        if chosen in BEFORE and key in IDLE_BEFORE:
            raise BadInput(f"{key} does nothing in {chosen}, which came before the Transformer: leave it out")
        if chosen == "elmo" and key in IDLE_IN_ELMO:
            raise BadInput(
                f"{key} does nothing in elmo, which is recurrent and reads sentences: leave it out"
            )
        if chosen in OWN_ACTIVATION and key == "model.activation":
            raise BadInput(f"{key} does nothing in {chosen}, which has its paper's: leave it out")
        fitting = ONLY_IN.get(key)
        if fitting and chosen not in fitting:
            named = chosen if there else recipe.task
            raise BadInput(
                f"{key} does nothing in {named}: it is for model.architecture={' or '.join(fitting)}"
            )


def check_tuning(recipe: Recipe, settings: Collection[str]) -> None:
    """Refuse settings of what learns where nothing is there yet, and sizes and vocabularies where they are."""
    t = recipe.train
    if t.tune != "whole" and not t.from_folder:
        raise BadInput(
            f"train.tune={t.tune} needs a model to start from: give --from FOLDER, or leave it out"
        )
    for key in settings:
        if key in LORA and t.tune != "lora":
            raise BadInput(f"{key} does nothing without train.tune=lora: leave it out, or give that too")
        used = {"lm": "model.context", "mlm": "model.context", "choose": "model.dropout"}.get(recipe.task)
        brought = key.startswith(("model.", "data.vocab", "data.lower")) and key != used
        if t.from_folder and brought and recipe.task in ("translate", "lm", "mlm", "span", "choose"):
            raise BadInput(
                f"{key} does nothing beside --from: sizes and vocabulary come with the model there"
            )
    known = set(lora_layers(t))
    if t.tune == "lora" and (not known or not known <= set(LORA_LAYERS)):
        raise BadInput(
            f"train.lora_layers names layers of a block, with commas between them: {', '.join(LORA_LAYERS)}; not "
            f"{short(t.lora_layers)}"
        )


LORA_LAYERS = ("query", "key", "value", "out", "gate", "up", "down")


def lora_layers(t: Train) -> tuple[str, ...]:
    """The layers that LoRA stands beside, in the order of a block."""
    named = {name.strip() for name in t.lora_layers.split(",")} - {""}
    return (*(name for name in LORA_LAYERS if name in named), *sorted(named - set(LORA_LAYERS)))


def check_features(recipe: Recipe, settings: Collection[str]) -> None:
    """Refuse settings of ELMo's vectors where none are read, and settings of an encoder where they are."""
    for key in settings:
        if key in OF_FEATURES and not recipe.train.from_folder:
            raise BadInput(f"{key} does nothing without an elmo: give --from RUN, or leave it out")
        if key in IDLE_FEATURES and recipe.task == "tag" and recipe.train.from_folder:
            raise BadInput(
                f"{key} does nothing beside --from: neither an encoder that is there nor a network that reads an elmo has "
                f"a use for it"
            )


def check_positions(recipe: Recipe, settings: Collection[str]) -> None:
    """Refuse settings of distances where positions know none."""
    positions = recipe.model.positions
    for key, fitting in RELATIVE.items():
        if key in settings and positions not in fitting:
            told = f"{key} does nothing with positions {positions}"
            raise BadInput(f"{told}: it is for model.positions={' or '.join(fitting)}")


def idle_in_summary(key: str, architecture: str) -> bool:
    """Whether a setting does nothing in an architecture that summarizes."""
    if architecture in ALONE:  # which have sinusoids
        return key in ("model.positions", "model.clip")
    return key == "train.lm_weight"


def check_summaries(recipe: Recipe, settings: Collection[str]) -> None:
    """Refuse what does nothing to a summary, or cannot be had of one."""
    if recipe.task != "summarize":
        return
    architecture = recipe.model.architecture
    for key in settings:
        if idle_in_summary(key, architecture):
            others = [name for name in ARCHITECTURES["summarize"] if not idle_in_summary(key, name)]
            raise BadInput(
                f"{key} does nothing in {architecture}: it is for model.architecture={' or '.join(others)}"
            )
    if recipe.model.positions.startswith("structural"):
        raise BadInput("structural positions come from the trees of sentences, which articles have none of")


RELATIVE = {
    "model.clip": ("shaw", "structural-relative", "structural"),
    "model.scope": ("structural-relative", "structural"),
}


def with_warmup(recipe: Recipe) -> Recipe:
    """The recipe with a warm-up of a quarter of its steps, if the usual one is longer: a short run must learn too."""
    usual = TASK_DEFAULTS[recipe.task] | CORPUS_DEFAULTS.get(recipe.data.corpus, {})
    if recipe.train.warmup != usual.get("train.warmup", Train.warmup):
        return recipe  # somebody chose it
    return changed(recipe, "train.warmup", min(recipe.train.warmup, recipe.train.steps // 4))


def changed(recipe: Recipe, key: str, value: Any) -> Recipe:
    """The recipe with one value changed, which may come as text; wrong names, kinds and numbers are refused."""
    part, _, name = key.partition(".")
    known = known_settings()
    if key not in known:
        raise BadInput(f"there is no setting {unknown(key, known)}")
    section = getattr(recipe, part)
    return replace(recipe, **{part: replace(section, **{name: convert(key, known[key], value)})})


@cache
def known_settings() -> dict[str, Any]:
    """{"part.name": its type with its range} of every setting."""
    return {
        f"{part}.{name}": hint
        for part, kind in typing.get_type_hints(Recipe).items()
        if part != "task"
        for name, hint in typing.get_type_hints(kind, include_extras=True).items()
    }


def unknown(key: str, known: Collection[str]) -> str:
    """A name that is none, and what was probably meant: a name of another part, or one spelled alike."""
    told = f'"{key}"' if key.isprintable() and len(key) < 100 else short(key)
    part, _, name = key.rpartition(".")
    elsewhere = [other for other in known if other.rpartition(".")[2] == name]
    if len(elsewhere) == 1:
        return f'{told}; did you mean "{elsewhere[0]}"?'
    beside = [other.removeprefix(f"{part}.") for other in known if part and other.startswith(f"{part}.")]
    if beside and not get_close_matches(name, beside):  # alike in nothing but their part
        return f"{told}; {part} has {', '.join(beside)}"
    return f"{told}{nearest(key, known)}"


def agreeing(recipe: Recipe) -> Recipe:
    """The recipe, if its settings fit together."""
    m = recipe.model
    if m.width % m.heads and m.architecture not in (*BEFORE, "elmo"):
        raise BadInput(f"model.heads must divide model.width, and {m.heads} does not divide {m.width}")
    if m.architecture in ("mixture", "mixture_dmca") and m.chosen > m.experts:
        raise BadInput(
            f"model.chosen is {m.chosen} and model.experts {m.experts}: a token is sent to no more experts than there are"
        )
    if recipe.data.packed and (
        m.architecture not in ("transformer", "mixture") or m.positions.startswith("structural")
    ):
        told = f"{m.positions} positions" if m.architecture in ("transformer", "mixture") else m.architecture
        raise BadInput(f"{told} cannot keep packed pairs apart: leave out data.packed")
    if m.architecture == "xl" and recipe.data.pack == "documents":
        raise BadInput("xl remembers one long text: data.pack is stream for it, not documents")
    if recipe.train.ema and recipe.train.average:
        raise BadInput("train.ema and train.average are two ways to do one thing: give one of them")
    return recipe


def convert(key: str, hint: Any, value: Any) -> Any:
    """A value of the kind a setting has, from text or JSON."""
    if typing.get_origin(hint) is Literal:
        choices = typing.get_args(hint)
        if value not in choices:
            raise BadInput(f"{key} must be one of {', '.join(choices)}, not {short(value)}")
        return value
    kind, limits = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint, None)
    try:
        found = READERS[kind](value)
        if limits is not None and found not in limits:
            raise ValueError
        return found
    except (ValueError, KeyError, TypeError, OverflowError):
        wanted = f"{NAMES[kind]} {limits}" if limits is not None else NAMES[kind]
        raise BadInput(f"{key} must be {wanted}, not {short(value)}") from None


def read_truth(value: Any) -> bool:
    return {"true": True, "false": False}[str(value).lower()]


def read_whole(value: Any) -> int:
    number = int(value) if isinstance(value, str) else value
    if type(number) is not int:  # True is one, too
        raise TypeError
    return number


def read_number(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    return float(value)


def read_words(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    value.encode()  # a recipe is written in UTF-8, and not every file name can be
    return value


READERS = {bool: read_truth, int: read_whole, float: read_number, str: read_words}
NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "text in UTF-8"}


def parse_settings(given: list[str]) -> dict[str, str]:
    """`part.name=value` words to a dict."""
    settings = {}
    for word in given:
        key, equals, value = word.partition("=")
        if not equals:
            raise BadInput(f"--set takes part.name=value, not {word!r}")
        settings[key.strip()] = value.strip()
    return settings


def to_json(recipe: Recipe) -> dict[str, Any]:
    return asdict(recipe)


def from_json(found: dict[str, Any]) -> Recipe:
    """A recipe read back; parts and settings that there never were are refused."""
    recipe = Recipe(found.get("task", ""))
    if recipe.task not in TASKS:
        raise BadInput(f"a recipe has no task {unknown(str(recipe.task), TASKS)}")
    parts = [part.name for part in fields(Recipe) if part.name != "task"]
    for part, section in found.items():
        if part == "task":
            continue
        if part not in parts:
            raise BadInput(f"a recipe has no part {unknown(part, parts)}")
        if not isinstance(section, dict):
            raise BadInput(f"the part {part} of a recipe must be an object {{...}}, not {short(section)}")
        for name, value in section.items():
            recipe = changed(recipe, f"{part}.{name}", value)
    return agreeing(recipe)
