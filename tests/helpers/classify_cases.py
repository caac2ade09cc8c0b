"""What several tests share with tests/tasks/test_classify.py."""

import json

import pytest
import torch

import heedful
from heedful.interop.loaded import Loaded
from heedful.models import bert, gpt2, vit
from heedful.models.base.shells import classifier
from heedful.runs import trainer
from heedful.runs.setup import make_job
from heedful.tasks import classify, recipe
from heedful.tasks.recipe.settings import Recipe
from helpers.recipes import without_sizes

CPU = torch.device("cpu")


WORDS = {"good": ["fine", "great", "sweet"], "bad": ["awful", "poor", "sour"], "so so": ["plain", "usual"]}


TINY = {
    "model.layers": 1,
    "model.width": 12,
    "model.heads": 3,
    "model.ffn_width": 20,
    "model.context": 24,
    "train.steps": 4,
    "train.batch_tokens": 80,
    "train.warmup_steps": 1,
    "evaluate.every": 2,
    "checkpoint.every": 2,
    "data.tokenizer": "word",
    "evaluate.examples": 2,
}


class Quiet:
    """Listens, and stops at a step if told so."""

    def __init__(self, until: int | None = None) -> None:
        self.lines: list[str] = []
        self.until = until

    def say(self, line: str) -> None:
        self.lines.append(line)

    def step(self, progress, steps) -> None:
        if progress.step == self.until:
            raise InterruptedError


def rows(count: int, start: int = 0) -> list[tuple[str, str]]:
    kinds = list(WORDS)
    found = []
    for i in range(start, start + count):
        label = kinds[i % 3]
        word = WORDS[label][i // 3 % len(WORDS[label])]
        found.append((" ".join(["the", "food"] * (i % 4) + ["was", word]), label))
    return found


@pytest.fixture
def files(tmp_path) -> dict[str, str]:
    train, valid = rows(60), rows(21, 60)
    (tmp_path / "train.tsv").write_text("sentence\tlabel\n" + "".join(f"{a}\t{b}\n" for a, b in train))
    (tmp_path / "valid.tsv").write_text("sentence\tlabel\n" + "".join(f"{a}\t{b}\n" for a, b in valid))
    (tmp_path / "train.jsonl").write_text(
        "".join(json.dumps({"text": a, "label": b}) + "\n" for a, b in train)
    )
    (tmp_path / "book").write_text("".join(f"{a} .\n" for a, _ in train * 6))
    return {path.name: str(path) for path in tmp_path.iterdir()}


def asked(files, **settings) -> Recipe:
    tables = {"data.table": files["train.tsv"], "data.valid_table": files["valid.tsv"]}
    return recipe.make("classify", settings=without_sizes({**TINY, **tables, **settings}))


def job_of(files, folder, **settings):
    folder.mkdir(exist_ok=True)
    return make_job(asked(files, **settings), folder, Quiet())


def models() -> dict:
    torch.manual_seed(0)
    size = {
        "vocab": 30,
        "context": 24,
        "layers": 2,
        "width": 12,
        "ffn_width": 20,
        "dropout": 0.0,
        "attention_dropout": 0.0,
    }
    encoder = bert.build(bert.BertConfig(**size, heads=3, prediction_heads=("pooled", "classify"), labels=5))
    config = gpt2.GPT2Config(**size, heads=3)
    return {
        "encoder": (encoder, classify.encoder_row, classify.encoder_loss, classify.encoder_scores),
        "decoder": (
            classifier(gpt2.build(config), config, 5),
            classify.decoder_row,
            classify.decoder_loss,
            classify.decoder_scores,
        ),
    }


@pytest.fixture
def origin_of(files, tmp_path):
    """Makes a folder to start from: a run of a task, or a Hugging Face folder with its own tokenizer."""

    def make(kind: str):
        folder = tmp_path / kind
        if kind in ("mlm", "lm"):
            settings = {**TINY, "data.text": files["book"], "model.context": 16}
            trainer.start(recipe.make(kind, settings=settings), folder, Quiet(), CPU)
            return folder
        words = ["the", "food", "was", *(word for some in WORDS.values() for word in some)]
        torch.manual_seed(3)
        size = {"context": 20, "layers": 1, "width": 12, "ffn_width": 20}
        if kind == "bert":
            tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
            config = bert.BertConfig(
                vocab=len(tokens), heads=2, prediction_heads=("pooled", "masked_lm"), **size
            )
            heedful.save(Loaded("bert", config, bert.build(config), None, {}), folder)
            (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
        elif kind == "gpt2":
            letters = sorted({letter for word in words for letter in word} | {"Ġ"})
            config = gpt2.GPT2Config(vocab=len(letters) + 1, heads=2, **size)
            end = len(letters)
            heedful.save(Loaded("gpt2", config, gpt2.build(config), None, {"bos": end, "eos": end}), folder)
            numbers = {token: i for i, token in enumerate([*letters, "<|endoftext|>"])}
            (folder / "vocab.json").write_text(json.dumps(numbers))
            (folder / "merges.txt").write_text("#version: 0.2\n")
        else:
            config = vit.ViTConfig(image_size=8, patch_size=4, layers=1, width=12, heads=3, ffn_width=20)
            heedful.save(Loaded("vit", config, vit.build(config), None, {}), folder)
        return folder

    return make
