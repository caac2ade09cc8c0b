"""Presets: what differs from the defaults of the settings, by task, size, architecture, corpus and stage."""

from __future__ import annotations

from typing import Any

TREEBANK: dict[str, Any] = {  # a treebank is small: much is hidden and dropped
    "model.activation": "gelu",
    "model.dropout": 0.2,
    "data.vocab_size": 4000,
    "data.bad_lines": "refuse",
    "train.optimizer": "muon",
    "train.learning_rate": 6e-3,
    "train.weight_decay": 0.1,
    "train.label_smoothing": 0.05,
    "train.word_dropout": 0.2,
    "train.warmup_steps": 200,
    "train.steps": 4000,
    "evaluate.every": 250,
}
TASK_DEFAULTS: dict[str, dict[str, Any]] = {
    "translate": {"model.architecture": "transformer"},
    "lm": {"model.activation": "gelu_tanh", "train.label_smoothing": 0.0, "train.weight_decay": 0.1},
    "mlm": {
        "model.activation": "gelu",
        "model.norm": "post",
        "train.label_smoothing": 0.0,
        "train.learning_rate": 5e-4,
        "train.schedule": "linear",
    },
    "classify": {
        "model.activation": "gelu",
        "model.norm": "post",
        "train.label_smoothing": 0.0,
        "train.learning_rate": 3e-4,
        "train.schedule": "linear",
        "train.steps": 1000,
        "train.warmup_steps": 100,
        "train.batch_tokens": 2048,
        "evaluate.every": 100,
        "checkpoint.every": 250,
    },
    "tag": TREEBANK,
    "span": {
        "model.activation": "gelu",
        "model.norm": "post",
        "train.label_smoothing": 0.0,
        "train.learning_rate": 3e-4,
        "train.schedule": "linear",
        "train.steps": 4000,
        "train.warmup_steps": 200,
    },
    "choose": {
        "model.activation": "gelu",
        "model.norm": "post",
        "train.label_smoothing": 0.0,
        "train.learning_rate": 3e-4,
        "train.schedule": "linear",
        "train.steps": 4000,
        "train.warmup_steps": 200,
    },
    "parse": TREEBANK,
    "summarize": {
        "model.architecture": "transformer",
        "data.source_column": "",
        "data.target_column": "",
        "data.max_length": 512,
        "train.lm_loss_weight": 1.0,
    },
    "image-classify": {
        "model.activation": "gelu",
        "model.dropout": 0.0,
        "data.bad_lines": "refuse",
        "data.random_shift": 0.1,
        "train.optimizer": "muon",
        "train.learning_rate": 6e-3,
        "train.weight_decay": 0.05,
        "train.warmup_steps": 100,
        "train.steps": 2000,
        "evaluate.every": 250,
    },
    "caption": {
        "model.activation": "gelu",
        "model.dropout": 0.0,
        "data.bad_lines": "refuse",
        "data.tokenizer": "word",
        "data.vocab_size": 10000,
        "data.lowercase": True,
        "data.max_length": 64,
        "train.optimizer": "muon",
        "train.learning_rate": 6e-3,
        "train.weight_decay": 0.05,
        "train.label_smoothing": 0.0,
        "train.warmup_steps": 100,
        "train.steps": 2000,
        "train.batch_tokens": 2048,
        "evaluate.every": 250,
    },
    "text-to-image": {
        "model.activation": "gelu",
        "model.dropout": 0.0,
        "data.bad_lines": "refuse",
        "data.tokenizer": "word",
        "data.vocab_size": 4000,
        "data.lowercase": True,
        "data.max_length": 12,
        "train.label_smoothing": 0.0,
        "train.warmup_steps": 100,
        "evaluate.every": 1000,
    },
}
# The architectures of each task; the first is the default.
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
BEFORE = ("rnn", "gru", "lstm", "seq2seq", "bahdanau", "luong", "convs2s")
ARCHITECTURE_DEFAULTS: dict[str, dict[str, Any]] = {
    "elmo": {
        "model.layers": 2,
        "data.tokenizer": "word",
        "train.optimizer": "adamw",
        "train.learning_rate": 4e-3,
        "train.weight_decay": 0.01,
    },
    **{name: {"model.layers": 2} for name in BEFORE},
    "bahdanau": {"model.layers": 1},
    "convs2s": {"model.layers": 4},
    "mixture_dmca": {"model.layers": 5, "model.every": 5},  # experts in one layer (Liu et al. 2018)
}
# For published models, which are large and know much already (BERT's advice: 2 to 5e-5).
FINE_TUNING: dict[str, Any] = {"train.learning_rate": 5e-5}
# For a head over a model that stays as it is, and for adapters beside its layers: what is new learns faster.
TUNING: dict[str, dict[str, Any]] = {
    "head": {"train.optimizer": "adamw", "train.learning_rate": 1e-3},
    "lora": {"train.optimizer": "adamw", "train.learning_rate": 5e-4},
}
# For a recurrent network that reads ELMo's vectors, and what it has no use for.
FEATURES: dict[str, Any] = {
    "model.layers": 2,
    "train.optimizer": "adamw",
    "train.learning_rate": 4e-3,
    "train.weight_decay": 0.01,
}
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
        "train.learning_rate": 1e-3,
        "train.batch_tokens": 1024,
        "train.steps": 1500,
        "train.ema_decay": 0.995,
        "evaluate.every": 500,
    },
    "decoder": {
        "train.optimizer": "muon",
        "train.learning_rate": 2e-3,
        "train.batch_tokens": 2048,
        "train.steps": 2800,
        "evaluate.every": 700,
    },
    "ranker": {
        "train.optimizer": "muon",
        "train.learning_rate": 4e-3,
        "train.batch_tokens": 2080,
        "train.steps": 2000,
    },
    "judge": {"train.learning_rate": 2e-3, "train.batch_tokens": 2048, "train.steps": 5000},
}
STAGE_SIZES: dict[str, dict[str, tuple[int, int, int, int]]] = {  # layers, width, heads, hidden
    "codes": {
        "tiny": (1, 96, 4, 96),
        "small": (1, 128, 4, 128),
        "base": (2, 256, 4, 256),
        "large": (4, 512, 4, 512),
    },
    "decoder": {
        "tiny": (4, 96, 4, 384),
        "small": (6, 256, 4, 1024),
        "base": (12, 512, 8, 2048),
        "large": (24, 1024, 16, 4096),
    },
    "ranker": {
        "tiny": (2, 96, 3, 384),
        "small": (4, 192, 4, 768),
        "base": (6, 512, 8, 2048),
        "large": (12, 768, 12, 3072),
    },
    "judge": {
        "tiny": (3, 16, 4, 16),
        "small": (3, 32, 4, 32),
        "base": (3, 64, 4, 64),
        "large": (4, 128, 4, 128),
    },
}


def stage_settings(stage: str, size: str) -> dict[str, Any]:
    """What differs for a stage of text-to-image, and its size."""
    names = ("layers", "width", "heads", "hidden")
    sizes = zip(names, STAGE_SIZES[stage][size], strict=True)
    return STAGE_DEFAULTS[stage] | {f"model.{name}": number for name, number in sizes}


CORPUS_DEFAULTS: dict[str, dict[str, Any]] = {
    "phrasebook": {
        "data.tokenizer": "word",
        "data.vocab_size": 4000,
        "model.dropout": 0.0,
        "train.label_smoothing": 0.0,
        "model.positions": "sinusoidal+rotary",
        "train.optimizer": "muon",
        "train.learning_rate": 4e-3,
        "train.warmup_steps": 150,
        "train.batch_tokens": 1024,
        "train.steps": 3000,
        "evaluate.rows": 200,
    },
    "stories": {
        "data.tokenizer": "word",
        "data.vocab_size": 4000,
        "model.dropout": 0.0,
        "model.context": 128,
    },
    "pylib": {"data.vocab_size": 4000},
    "facts": {
        "data.tokenizer": "word",
        "data.vocab_size": 4000,
        "model.dropout": 0.0,
        "train.label_smoothing": 0.0,
        "model.positions": "sinusoidal+rotary",
        "train.optimizer": "muon",
        "train.learning_rate": 4e-3,
        "train.warmup_steps": 150,
        "train.batch_tokens": 1024,
        "train.steps": 3000,
        "evaluate.rows": 100,
    },
}
# With the learning rate of other tasks, a masked language model learns the frequencies of words and no more.
MASKED: dict[str, Any] = {
    "train.optimizer": "adamw",
    "train.learning_rate": 1e-3,
    "train.warmup_steps": 200,
    "train.batch_tokens": 2048,
    "model.context": 64,
}
CORPUS_TASK_DEFAULTS: dict[tuple[str, str], dict[str, Any]] = {
    ("phrasebook", "mlm"): MASKED,
    ("stories", "mlm"): MASKED,
    ("phrasebook", "classify"): {"train.steps": 600},
}
# The demo: as much as two cores learn of the phrasebook in a few minutes. Narrow and deep beats wide and
# shallow there, and small steps in great number beat large ones. Sinusoids alone: other tools have such a
# model, and rotary positions beside them, which learn as much in two thirds of the steps, they have not.
DEMO: dict[str, Any] = {
    "model.layers": 3,
    "model.width": 64,
    "model.hidden": 256,
    "model.positions": "sinusoidal",
    "train.batch_tokens": 512,
    "train.learning_rate": 8e-3,
    "train.steps": 4500,
    "train.ema_decay": 0.997,
    "evaluate.every": 1500,
}
