"""Settings of a training run: dataclasses of numbers and names, with ranges, help and defaults.

Each task puts together its own from these (`class TranslateData(TableSettings)`), changes a default by naming
it again, and adds what it alone has. So a task has the settings that it uses, and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from ...models.base.settings import MANY, Count, Part, Range, Share

# Data


@dataclass(frozen=True)
class DataSettings:
    """Where examples come from."""

    corpus: Annotated[str, "built-in corpus"] = ""
    bad_lines: Annotated[Literal["drop", "refuse"], "what to do with lines that cannot be used"] = "drop"

    def config_fields(self) -> dict[str, Any]:
        """Fields of a Config that follow from these settings."""
        return {}


@dataclass(frozen=True)
class TokenSettings(DataSettings):
    """How texts become tokens."""

    tokenizer: Annotated[
        Literal["bpe", "wordpiece", "char", "word", "spaced"], "kind of vocabulary to learn"
    ] = "bpe"
    vocab_size: Annotated[int, Range(8, 1_000_000), "tokens in the vocabulary, at most"] = 8000
    lowercase: Annotated[bool, "lowercase all texts"] = False
    max_length: Annotated[int, Range(1, 1_000_000), "tokens of an example, at most"] = 256


@dataclass(frozen=True)
class TableSettings(TokenSettings):
    """Rows of a table: tab-separated columns under a header, or JSON objects; or a treebank."""

    table: Annotated[str, "file to learn from"] = ""
    valid_table: Annotated[str, "the same, held out"] = ""


@dataclass(frozen=True)
class RunningText(DataSettings):
    """One long text, or many documents."""

    text: Annotated[str, "text file, folder of them, or JSON lines; the last tenth is held out"] = ""
    valid_text: Annotated[str, "held-out file or folder; without it, the last 10 % of the text"] = ""
    text_column: Annotated[str, 'key of the text in JSON lines; "" is "text"'] = ""
    tokenizer: Annotated[
        Literal["bpe", "wordpiece", "char", "word", "spaced"], "kind of vocabulary to learn"
    ] = "bpe"
    vocab_size: Annotated[int, Range(8, 1_000_000), "tokens in the vocabulary, at most"] = 8000
    lowercase: Annotated[bool, "lowercase all texts"] = False


@dataclass(frozen=True)
class TextInRows(RunningText):
    """Running text that is cut into rows of equal length."""

    max_length: Annotated[int, Range(0, 1 << 20), "tokens in a row; 0: as many as the model's context"] = 0


@dataclass(frozen=True)
class PictureSettings(DataSettings):
    """Pictures from a folder, and what they are brought to."""

    bad_lines: Annotated[Literal["drop", "refuse"], "what to do with files that cannot be read"] = "refuse"
    images: Annotated[str, "folder of images with captions.tsv (name, tab, caption) or captions.jsonl"] = ""
    valid_images: Annotated[str, "the same, held out (default: one in ten of --images)"] = ""
    image_size: Annotated[int, Range(4, 1024), "pixels along a side"] = 32
    resize: Annotated[Literal["crop", "pad", "stretch"], "how a picture becomes a square"] = "crop"
    color: Annotated[bool, "three color channels, not one gray"] = True

    def config_fields(self) -> dict[str, Any]:
        return {**super().config_fields(), "image_size": self.image_size, "channels": 3 if self.color else 1}


@dataclass(frozen=True)
class NormalizedPictures(PictureSettings):
    """Pixels from 0 to 1, less a mean and over a standard deviation."""

    mean: Annotated[Share, "subtracted from every pixel"] = 0.5
    std: Annotated[float, Range(0, 1, "(]"), "divides every pixel"] = 0.5


@dataclass(frozen=True)
class AugmentedPictures(NormalizedPictures):
    """Pictures that are moved at random while a model learns from them."""

    random_shift: Annotated[Part, "maximum random shift, as a fraction of the side"] = 0.0
    random_zoom: Annotated[Part, "maximum random zoom, in or out"] = 0.0
    random_flip: Annotated[bool, "mirror half of the pictures"] = False


# Training

Schedule = Literal["noam", "cosine", "linear", "wsd", "constant"]
LearningRate = Annotated[float, Range(0, 10, "(]"), "peak learning rate; with noam, a factor of its rate"]
Optimizer = Annotated[Literal["adamw", "muon"], "muon: Muon for matrices, AdamW for the rest"]
WarmupSteps = Annotated[int, Range(0, MANY), "steps of linear warm-up"]
Steps = Annotated[Count, "optimizer steps"]
BatchTokens = Annotated[int, Range(1, 1_000_000_000), "target tokens in a step, about"]
WeightDecay = Annotated[float, Range(0, 10), "decoupled weight decay"]
EmaDecay = Annotated[Part, "decay of a moving average of the weights, which is evaluated and saved; 0: none"]


@dataclass(frozen=True)
class TrainSettings:
    """How a model is trained."""

    steps: Steps = 10000
    minutes: Annotated[float, Range(0, 1_000_000), "instead of steps: train for so long; 0: by steps"] = 0.0
    batch_tokens: BatchTokens = 4096
    accumulation_steps: Annotated[int, Range(1, 10_000), "micro-batches in a step"] = 1
    optimizer: Optimizer = "adamw"
    learning_rate: LearningRate = 1e-3
    warmup_steps: WarmupSteps = 400
    schedule: Annotated[Schedule, "learning rate after the warm-up"] = "cosine"
    min_lr_ratio: Annotated[Share, "where the schedule ends, as a share of the peak"] = 0.05
    weight_decay: WeightDecay = 0.01
    beta2: Annotated[Part, "Adam's second decay"] = 0.98
    max_grad_norm: Annotated[float, Range(0, 1_000_000), "clip gradients to this norm"] = 1.0
    ema_decay: EmaDecay = 0.0
    average_checkpoints: Annotated[int, Range(0, 1000), "average so many checkpoints at the end"] = 0
    activation_checkpointing: Annotated[bool, "recompute activations to save memory"] = False
    compile: Annotated[bool, "use torch.compile"] = False
    parallel: Annotated[str, "under torchrun: auto (by memory), ddp, fsdp or hsdp, as in fsdp,tensor=2"] = (
        "auto"
    )
    precision: Annotated[Literal["fp32", "bf16", "fp16"], "matrix products"] = "fp32"
    seed: Annotated[int, Range(0, 2**63 - 1), "weights and order of examples"] = 0


@dataclass(frozen=True)
class SmoothedTraining(TrainSettings):
    """Training of classes, be they tokens or labels."""

    label_smoothing: Annotated[Part, "share of the target spread over all classes"] = 0.1


LORA_LAYERS = ("query", "key", "value", "out", "gate", "up", "down")


@dataclass(frozen=True)
class StartedTraining(TrainSettings):
    """Training that may start from a model that is there."""

    from_: Annotated[str, "run or Hugging Face folder to start from (--from)"] = ""
    tune: Annotated[Literal["whole", "head", "lora"], "what learns then (--tune)"] = "whole"
    lora_rank: Annotated[int, Range(1, 1 << 16), "rank of the adapters"] = 8
    lora_alpha: Annotated[float, Range(0, 1_000_000, "(]"), "adapter output is scaled by alpha / rank"] = 16.0
    lora_dropout: Annotated[Part, "dropout before the adapters"] = 0.0
    lora_layers: Annotated[str, f"layers with adapters, of {','.join(LORA_LAYERS)}"] = "query,value"


@dataclass(frozen=True)
class FineTuning(SmoothedTraining, StartedTraining):
    """The same of classes, be they tokens or labels."""


@dataclass(frozen=True)
class ReadingTraining(FineTuning):
    """Training of an encoder that reads texts, as BERT is fine-tuned."""

    steps: Steps = 4000
    learning_rate: LearningRate = 3e-4
    warmup_steps: WarmupSteps = 200
    schedule: Annotated[Schedule, "learning rate after the warm-up"] = "linear"
    label_smoothing: Annotated[Part, "share of the target spread over all classes"] = 0.0


# What differs for the built-in corpora, whose vocabulary is small and whose sentences never end.
SMALL_CORPUS: dict[str, Any] = {
    "data.tokenizer": "word",
    "data.vocab_size": 4000,
    "model.dropout": 0.0,
    "model.positions": "sinusoidal+rotary",
    "train.label_smoothing": 0.0,
    "train.optimizer": "muon",
    "train.learning_rate": 4e-3,
    "train.warmup_steps": 150,
    "train.batch_tokens": 1024,
    "train.steps": 3000,
}
PHRASEBOOK = SMALL_CORPUS | {"evaluate.rows": 200}
STORIES = {"data.tokenizer": "word", "data.vocab_size": 4000, "model.dropout": 0.0, "model.context": 128}
FACTS = SMALL_CORPUS | {"evaluate.rows": 100}


def lora_layers(t: StartedTraining) -> tuple[str, ...]:
    """The layers that LoRA stands beside, in the order of a block."""
    named = {name.strip() for name in t.lora_layers.split(",")} - {""}
    return (*(name for name in LORA_LAYERS if name in named), *sorted(named - set(LORA_LAYERS)))


# The rest of a recipe


@dataclass(frozen=True)
class CheckpointSettings:
    """When state is saved, and how much is kept."""

    every: Annotated[Count, "steps between checkpoints"] = 500
    keep: Annotated[int, Range(1, 1_000_000), "checkpoints to keep"] = 2


@dataclass(frozen=True)
class EvaluateSettings:
    """When the model is tried on held-out examples."""

    every: Annotated[Count, "steps between evaluations"] = 500
    examples: Annotated[int, Range(0, 10_000), "examples to show"] = 3
    rows: Annotated[int, Range(1, 1_000_000_000), "held-out rows to try each time, at most"] = 500
    patience: Annotated[
        int, Range(0, 1_000_000), "stop after so many evaluations without a best; 0: never"
    ] = 0
    choose_by: Annotated[
        Literal["metric", "loss"], "which evaluation is the best: the task's metric, or the held-out loss"
    ] = "metric"


@dataclass(frozen=True)
class ModelSettings:
    """An architecture, and the settings of its Config. An empty architecture is that of the model to start
    from, whose sizes come along."""

    architecture: str = ""
    sizes: Mapping[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.sizes:
            raise AttributeError(f"{self.architecture or 'the model to start from'} has no setting {name}")
        return self.sizes[name]


@dataclass(frozen=True)
class Recipe:
    """Everything that decides what a run does. `make` makes one, and `start` follows it.

    Attributes:
        task: Name of the task.
        data: Settings of the data, such as `recipe.data.text`: the task's own dataclass.
        model: The architecture and its settings, such as `recipe.model.layers`.
        train: Settings of training, such as `recipe.train.steps`: the task's own dataclass.
        checkpoint: When checkpoints are saved, and how many are kept.
        evaluate: When the model is tried on held-out examples.
        given: The settings that somebody chose; all others may still be chosen from the data and the device.
            None: all of them are fixed, as in recipe.json of a run that has begun.

    Example:
        >>> from heedful.tasks.recipe import make
        >>> recipe = make("lm", settings={"train.steps": 100})
        >>> recipe.model.architecture, recipe.train.steps, recipe.checkpoint.every
        ('gpt2', 100, 500)
    """

    task: str
    data: Any
    model: ModelSettings
    train: Any
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    evaluate: EvaluateSettings = field(default_factory=EvaluateSettings)
    given: frozenset[str] | None = None
