"""Small runs that have learned a few sentences by heart, so that their answers are known."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

import pytest
import torch

from heedful.runs import trainer
from heedful.tasks import recipe
from helpers.runs import CPU, Quiet, started_from

PAIRS = {
    "i am a student": "je suis étudiant",
    "i am a teacher": "je suis professeur",
    "the cat sleeps": "le chat dort",
    "the dog sleeps": "le chien dort",
    "the cat eats": "le chat mange",
    "the dog eats a fish": "le chien mange un poisson",
}
SENTENCE = "the cat sat on the mat. the dog ate the fish. "
FILMS = {
    "a good film": "positive",
    "a very good story": "positive",
    "good": "positive",
    "fine and good": "positive",
}
FILMS |= {
    "a bad film": "negative",
    "a very bad story": "negative",
    "bad": "negative",
    "dull and bad": "negative",
}

ARTICLES = {
    "the cat sat on the mat. the dog ate the fish.": "cat and dog",
    "i am a student. the cat sleeps.": "a student",
    "i am a teacher. the dog sleeps.": "a teacher",
}

SIZES = {
    "model.layers": 1,
    "model.width": 16,
    "model.heads": 2,
    "model.ffn_width": 24,
    "model.dropout": 0.0,
    "train.batch_tokens": 64,
    "train.warmup_steps": 3,
    "train.optimizer": "adamw",
    "train.learning_rate": 2e-2,
    "train.ema_decay": 0.0,
    "train.label_smoothing": 0.0,
    "data.tokenizer": "word",
    "evaluate.rows": 4,
    "evaluate.examples": 1,
}


def write_files(folder: Path) -> dict[str, str]:
    """What the runs learn."""
    table = ["sentence\tlabel", *(f"{text}\t{label}" for text, label in FILMS.items())]
    pairs = [f"{text}\t{text}\t{label}" for text, label in FILMS.items()]
    texts = {
        "src": PAIRS,
        "tgt": PAIRS.values(),
        "films.tsv": table,
        "text": [SENTENCE * 3] * 40,
        "pairs.tsv": ["text\tsecond\tlabel", *pairs],
        "trees.conllu": treebank(),
        "asked.jsonl": asked(),
        "chosen.jsonl": chosen(),
        "articles.jsonl": [json.dumps({"article": text, "summary": lead}) for text, lead in ARTICLES.items()],
    }
    for name, lines in texts.items():
        (folder / name).write_text("\n".join(lines) + "\n")
    return {name: str(folder / name) for name in texts}


ANIMALS, DOINGS = ("cat", "dog", "fish"), ("sleeps", "eats", "swims")


def asked() -> list[str]:
    """Who does what, asked of two animals that do different things."""
    rows = []
    for (a, doing), (b, other) in permutations(
        [*zip(ANIMALS, DOINGS, strict=True), *zip(ANIMALS, DOINGS[::-1], strict=True)], 2
    ):
        if a != b and doing != other:
            text = f"the {a} {doing} . the {b} {other} ."
            rows += [
                {"question": f"who {doing} ?", "context": text, "answers": [{"text": a, "start": 4}]},
                {
                    "question": f"who {other} ?",
                    "context": text,
                    "answers": [{"text": b, "start": text.rindex(b)}],
                },
            ]
    return [json.dumps(row) for row in rows]


def chosen() -> list[str]:
    """Which animal it was."""
    rows = []
    for a, b in permutations(ANIMALS, 2):
        for doing in DOINGS:
            said = [f"it is a {animal}" for animal in sorted((a, b))]
            rows.append(
                {"context": f"the {a} {doing} .", "choices": said, "answer": said.index(f"it is a {a}")}
            )
    return [json.dumps(row) for row in rows]


TREEBANK = """1 the DET 2 det 2 cat NOUN 3 nsubj 3 sleeps VERB 0 root
1 the DET 2 det 2 dog NOUN 3 nsubj 3 eats VERB 0 root 4 a DET 5 det 5 fish NOUN 3 obj
1 the DET 2 det 2 dog NOUN 3 nsubj 3 sleeps VERB 0 root
1 sleep VERB 0 root
"""


def treebank() -> list[str]:
    """As CoNLL-U: of each word its number, form, tag, head and relation are known."""
    lines = []
    for sentence in TREEBANK.splitlines():
        cells = sentence.split()
        for number, form, tag, head, relation in zip(*(cells[i::5] for i in range(5)), strict=True):
            lines.append(f"{number}\t{form}\t_\t{tag}\t_\t_\t{head}\t{relation}\t_\t_")
        lines.append("")
    return lines


def kinds(files: dict[str, str]) -> dict[str, tuple[str, dict]]:
    """Each run: its task and its settings."""
    pairs = {"data.source": files["src"], "data.target": files["tgt"], "data.packed": False}
    pairs |= {"train.steps": 100, "train.learning_rate": 1e-2}
    pairs |= {"data.valid_source": files["src"], "data.valid_target": files["tgt"]}
    text = {"data.text": files["text"], "data.tokenizer": "char", "model.context": 24}
    learned = {"train.steps": 150, "train.batch_tokens": 384, "model.width": 24}
    filled = {"train.steps": 300, "train.batch_tokens": 768, "model.width": 32, "train.learning_rate": 1e-2}
    table = {"data.table": files["films.tsv"], "data.valid_table": files["films.tsv"], "train.steps": 30}
    second = {
        "data.table": files["pairs.tsv"],
        "data.valid_table": files["pairs.tsv"],
        "data.pair_column": "second",
    }
    trees = {
        "data.table": files["trees.conllu"],
        "data.valid_table": files["trees.conllu"],
        "train.steps": 80,
    }
    articles = {
        "data.table": files["articles.jsonl"],
        "data.valid_table": files["articles.jsonl"],
        "data.max_summary_length": 5,
        "train.steps": 60,
    }
    few = {"train.steps": 2}

    def given(name: str) -> dict[str, str]:
        return {"data.table": files[name], "data.valid_table": files[name]}

    return {
        "demo": ("translate", pairs),
        "bytes": ("translate", pairs | few | {"data.tokenizer": "bpe", "data.vocab_size": 300}),
        "separate": ("translate", pairs | few | {"data.joint": False}),
        "lm": ("lm", text | learned),
        "draft": ("lm", text | {"model.width": 12, "train.steps": 12}),
        "lm-bytes": ("lm", text | few | {"data.tokenizer": "bpe", "data.vocab_size": 300}),
        "mlm": ("mlm", text | filled | {"data.tokenizer": "word"}),
        "mlm-bytes": ("mlm", text | few | {"data.tokenizer": "bpe", "data.vocab_size": 300}),
        "mlm-chars": ("mlm", text | few),
        "classify": ("classify", table | {"model.context": 12}),
        "parse": (
            "parse",
            trees | {"train.word_dropout": 0.0, "train.weight_decay": 0.0, "train.learning_rate": 1e-2},
        ),
        "span": (
            "span",
            given("asked.jsonl")
            | {
                "train.steps": 400,
                "train.batch_tokens": 1500,
                "model.width": 32,
                "model.heads": 4,
                "model.layers": 2,
                "train.learning_rate": 5e-3,
                "data.max_length": 96,
            },
        ),
        "choose": (
            "choose",
            given("chosen.jsonl")
            | {
                "train.steps": 150,
                "train.batch_tokens": 2000,
                "model.width": 32,
                "model.heads": 4,
                "model.layers": 2,
                "train.learning_rate": 3e-3,
            },
        ),
        "summarize": ("summarize", articles),
        "summarize-row": ("summarize", articles | {"model.architecture": "dmca", "train.steps": 150}),
        "classify-pairs": ("classify", table | second | few | {"model.context": 12}),
        "classify-decoder": ("classify", table | few | {"train.from": "lm", "data.tokenizer": "char"}),
    }


def make_runs(folder: Path, steps: int | None = None):
    """A function that gives the folder of a run, which is trained when it is first asked for.

    steps: how long, where what the runs have learned does not matter.
    """
    files = write_files(folder)

    def make(name: str) -> str:
        path = folder / "runs" / name
        if not path.exists():
            task, settings = kinds(files)[name]
            settings = SIZES | settings | ({} if steps is None else {"train.steps": steps})
            settings |= {"evaluate.every": settings["train.steps"]}
            if "train.from" in settings:
                settings = started_from(make(settings["train.from"]), settings)
            with torch.enable_grad():
                trainer.start(recipe.make(task, settings=settings), path, Quiet(), CPU)
        return str(path)

    return make


@pytest.fixture(scope="session")
def small_run(tmp_path_factory):
    return make_runs(tmp_path_factory.mktemp("small"))


SOURCES = [*PAIRS, "the cat", "a fish eats the dog and the cat and i am a teacher"]


def lines(*texts: str) -> str:
    """Texts as lines of stdin."""
    return "".join(f"{text}\n" for text in texts)
