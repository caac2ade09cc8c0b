"""Settings of a training run: dataclasses of numbers and names, with ranges and defaults. No torch here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from ...models.base.settings import MANY, Count, Part, Range, Share

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
class DataSettings:
    """Where examples come from and how they become numbers."""

    corpus: str = ""  # a built-in one: phrasebook, stories, pylib, facts, shapes
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
    # classify, translate: rows of texts, tab-separated under a header or JSON objects; tag, parse: a
    # treebank, CoNLL-U; span, choose: JSON objects with questions and answers, or with choices.
    table: str = ""
    valid_table: str = ""
    source_column: str = "source"  # summarize: "" for article, source, document or text, whichever is there
    target_column: str = "target"  # summarize: "" for summary, target or highlights
    title_column: str = "title"  # summarize: of articles that have one; "" to leave it out
    # summarize: the order in which paragraphs are read up to data.max_length, and how long a summary may be.
    extract: Literal["first", "tf-idf"] = "first"
    max_summary_length: Annotated[int, Range(1, 1_000_000)] = 128
    sources: Annotated[int, Range(1, 10_000)] = 4  # facts: of each article; the more, the longer it is
    # translate: pairs side by side in rows of `max_length` tokens, which do not see each other: no padding to
    # speak of, and all batches of one shape.
    packed: bool = False
    joint: bool = True  # translate: one vocabulary and one matrix of embeddings for both sides
    text_column: str = ""  # classify: without it, "sentence" or "text", whichever is there; lm, mlm: "text"
    pair_column: str = ""  # a second text, to be judged together with the first
    # classify, by a decoder: pairs of which neither text comes first (similarity) are read in both orders.
    both_orders: bool = False
    label_column: str = "label"
    # classify, phrasebook: what is told apart; translation: whether the second text translates the first.
    label: Literal["number", "tense", "mood", "translation"] = "number"
    tokenizer: Literal["bpe", "wordpiece", "char", "word", "spaced"] = "bpe"
    vocab_size: Annotated[int, Range(8, 1_000_000)] = 8000
    lowercase: bool = False
    # In tokens; longer examples are left out (classify, summarize: cut) and counted.
    max_length: Annotated[int, Range(1, 1_000_000)] = 256
    # span: tokens that windows of a long text have in common, and tokens of an answer at most.
    window_overlap: Annotated[int, Range(0, 1_000_000)] = 64
    max_answer_length: Annotated[int, Range(1, 1_000_000)] = 30
    bad_lines: Literal["drop", "refuse"] = "drop"
    # Pictures: a folder by class, one of IDX files, or one with captions; without held-out ones, one in ten.
    images: str = ""
    valid_images: str = ""
    image_size: Annotated[int, Range(4, 1024)] = 32  # pixels a side, to which every picture is brought
    resize: Literal["crop", "pad", "stretch"] = "crop"  # how, if it is no square
    color: bool = True  # red, green and blue, or gray
    # What a pixel from 0 to 1 becomes: less the mean, over the deviation.
    mean: Annotated[float, Range(0, 1)] = 0.5
    std: Annotated[float, Range(0, 1, "(]")] = 0.5
    # In training, at random: moved by at most this share of a side, made larger or smaller, left for right,
    random_shift: Part = 0.0
    random_zoom: Part = 0.0
    random_flip: bool = False
    random_erase: Part = 0.0  # and a square of at most this share of a side painted over


@dataclass(frozen=True)
class ModelSettings:
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
    # In training, how many times an even share of the tokens an expert takes, others being dropped; 0: it
    # takes all.
    capacity: Annotated[float, Range(0, 1_000_000)] = 0.0
    # Before the Transformer: the recurrent cell, Luong's score and whether his decoder reads what it saw
    # last, and how many words a convolution sees.
    cell: Literal["rnn", "gru", "lstm"] = "lstm"
    score: Literal["dot", "general", "concat"] = "general"
    input_feeding: bool = True
    kernel: Annotated[int, Range(1, 100)] = 3
    # elmo: what a word is read by, at most so many letters of it, and how many filters read them (0: four
    # times the width).
    input: Literal["characters", "pieces"] = "characters"
    letters: Annotated[int, Range(7, 1000)] = 50
    filters: Annotated[int, Range(0, 1 << 16)] = 0
    # tag, classify, from an elmo: a norm of each layer before they are mixed, and the mix beside the output
    # as well.
    mix_norm: bool = False
    at_output: bool = False
    # For long texts. xl: hidden states that a segment sees of those before it, in training, and while it is
    # evaluated and writes; 0: as many as a segment has, and as in training.
    memory: Annotated[int, Range(0, 1 << 20)] = 0
    recall: Annotated[int, Range(0, 1 << 20)] = 0
    # sparse: who sees whom, how layers or heads share it, the stride (0: near the root of the context), and
    # how many tokens of each block all see (0: an eighth).
    pattern: Literal["strided", "fixed", "window"] = "strided"
    turns: Literal["interleaved", "merged", "heads"] = "merged"
    stride: Annotated[int, Range(0, 1 << 20)] = 0
    tail: Annotated[int, Range(0, 1 << 20)] = 0
    # dmca: layers in turn local, compressed (m) or full, the block of the local ones, whether they see the
    # one before, and what is compressed.
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
    # caption: what the decoder sees of a picture: a grid of patches, or one vector: the class token's, or the
    # patches' mean.
    sees: Literal["grid", "class", "mean"] = "grid"
    # text-to-image. Codes: how many there are; each stands for a patch.
    codes: Annotated[int, Range(2, 1 << 16)] = 1024
    reach: Annotated[int, Range(0, 1000)] = 2  # cells that the decoder's last layer sees in every direction

    def pick(self, *names: str, **renamed: str) -> dict[str, Any]:
        """Some settings by their names, as arguments of a config, which may call them by another name."""
        return {
            theirs: getattr(self, ours)
            for theirs, ours in {**dict(zip(names, names, strict=True)), **renamed}.items()
        }


@dataclass(frozen=True)
class TrainSettings:
    """How it is trained."""

    steps: Count = 10000
    # Instead of steps: as many as fit, from a rate measured before the first.
    minutes: Annotated[float, Range(0, 1_000_000)] = 0.0
    batch_tokens: Annotated[int, Range(1, 1_000_000_000)] = 4096  # target tokens a step, about
    accumulation_steps: Annotated[int, Range(1, 10_000)] = 1  # micro-batches a step
    # The peak. With schedule noam: a factor before the paper's rate, 1 unless it is set.
    learning_rate: Annotated[float, Range(0, 10, "(]")] = 1e-3
    warmup_steps: Annotated[int, Range(0, MANY)] = (
        400  # steps; unless it is set, at most a quarter of them all
    )
    schedule: Literal["noam", "cosine", "linear", "wsd", "constant"] = "cosine"
    min_lr_ratio: Share = 0.05  # where the schedule ends, as a share of the rate
    optimizer: Literal["adamw", "muon"] = "adamw"
    weight_decay: Annotated[float, Range(0, 10)] = 0.01
    beta2: Part = 0.98
    max_grad_norm: Annotated[float, Range(0, 1_000_000)] = 1.0
    label_smoothing: Part = 0.1
    word_dropout: Part = 0.0  # tag, parse: the share of the pieces of words that is hidden in each step
    # The model to start from, a run or a Hugging Face folder; tag, classify: or an elmo, whose vectors are
    # read.
    from_: str = ""
    # What of it learns: the whole model; a new head, the rest being as it was; or LoRA: thin matrices beside
    # some layers of each block (query, key, value, out, gate, up, down, with commas between them), and a new
    # head.
    tune: Literal["whole", "head", "lora"] = "whole"
    lora_rank: Annotated[int, Range(1, 1 << 16)] = 8
    lora_alpha: Annotated[float, Range(0, 1_000_000, "(]")] = 16.0
    lora_dropout: Part = 0.0
    lora_layers: str = "query,value"
    mix_l2: Annotated[float, Range(0, 1000)] = 0.001  # tag, classify, from an elmo: what |w|^2 of a mix costs
    # Classify, from a decoder: what its language-model loss counts (GPT-1's lambda). Summarize, by a decoder:
    # what the loss of the article's own tokens counts (Liu et al. 2018: as much as the summary's).
    lm_loss_weight: Annotated[float, Range(0, 1000)] = 0.5
    # text-to-image: what is trained. Codes: where the temperature ends and after which share of the steps,
    # and what the divergence from even use counts, and after which share of the steps it does. Decoder: what
    # the caption's loss counts.
    stage: Literal["codes", "decoder", "ranker", "judge"] = "codes"
    final_temperature: Annotated[float, Range(0, 1, "(]")] = 0.0625
    temperature_decay_fraction: Share = 0.7
    kl_weight: Annotated[float, Range(0, 1000)] = 0.1
    kl_warmup_fraction: Share = 0.005
    text_loss_weight: Share = 0.125
    ema_decay: Part = (
        0.0  # the decay of a moving average of the weights, such as 0.999: the average is tried and kept
    )
    average_checkpoints: Annotated[int, Range(0, 1000)] = (
        0  # at the end: the mean of so many checkpoints' weights
    )
    activation_checkpointing: bool = (
        False  # blocks compute again in the backward pass what they would have to keep
    )
    compile: bool = False
    fsdp: bool = False  # under torchrun: each process keeps a part of the weights (FSDP), not all
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    seed: Annotated[int, Range(0, 2**63 - 1)] = 0


@dataclass(frozen=True)
class CheckpointSettings:
    """When state is saved, and how much is kept."""

    every: Count = 500
    keep: Annotated[int, Range(1, 1_000_000)] = 2


@dataclass(frozen=True)
class EvaluateSettings:
    """When the model is tried on held-out examples."""

    every: Count = 500
    examples: Annotated[int, Range(0, 10_000)] = 3  # shown each time
    rows: Annotated[int, Range(1, 1_000_000_000)] = 500  # held-out rows tried each time
    patience: Annotated[int, Range(0, 1_000_000)] = 0  # stop after so many evaluations that were no better


@dataclass(frozen=True)
class Recipe:
    """Everything."""

    task: str
    data: DataSettings = field(default_factory=DataSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    train: TrainSettings = field(default_factory=TrainSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    evaluate: EvaluateSettings = field(default_factory=EvaluateSettings)


LORA_LAYERS = ("query", "key", "value", "out", "gate", "up", "down")


def lora_layers(t: TrainSettings) -> tuple[str, ...]:
    """The layers that LoRA stands beside, in the order of a block."""
    named = {name.strip() for name in t.lora_layers.split(",")} - {""}
    return (*(name for name in LORA_LAYERS if name in named), *sorted(named - set(LORA_LAYERS)))
