"""What several tests share with tests/cli/test_random_lines.py."""

import contextlib
import shutil
from itertools import islice
from pathlib import Path

import pytest

from heedful.corpora import phrasebook
from heedful.runs import trainer, training
from heedful.tasks import recipe
from helpers.look_cases import saved
from helpers.runs import CPU, Quiet, article, treebank

# Sizes with which a run takes a moment; whatever is drawn comes after them, and is small or refused.
TINY = {
    "model.layers": 1,
    "model.width": 8,
    "model.heads": 2,
    "model.ffn_width": 12,
    "train.batch_tokens": 32,
    "train.warmup_steps": 1,
    "evaluate.rows": 2,
    "evaluate.examples": 1,
}


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """Texts, tables, a run of each task, Hugging Face folders, and folders with something wrong."""
    folder = tmp_path_factory.mktemp("world")
    with contextlib.chdir(folder):
        write_texts()
        text = {"data.text": "text", "data.tokenizer": "char", "model.context": 12}
        table = {"data.table": "table.tsv", "data.valid_table": "table.tsv", "data.tokenizer": "word"}
        pairs = {"data.source": "a.src", "data.target": "a.tgt", "data.tokenizer": "word"}
        pairs |= {"data.valid_source": "a.src", "data.valid_target": "a.tgt"}
        trees = dict.fromkeys(
            ("tag", "parse"), table | {"data.table": "a.conllu", "data.valid_table": "a.conllu"}
        )
        articles = table | dict.fromkeys(("data.table", "data.valid_table"), "a.jsonl")
        for task, settings in {
            "summarize": articles | {"data.max_summary_length": 4},
            "translate": pairs,
            "lm": text,
            "mlm": text,
            "classify": table,
            **trees,
        }.items():
            asked = recipe.make(task, settings=TINY | settings | {"train.steps": 1})
            trainer.start(asked, Path(f"run-{task}"), Quiet(), CPU)
        for name in ("gpt2", "bert"):
            saved(name, Path(f"hf-{name}"))
        write_damaged()
    return folder


def write_texts():
    words = [f"{a}{b}" for a in "bdfgk" for b in "aeiou"]
    lines = [f"the {words[i % 25]} sat {words[i * 7 % 25]}" for i in range(30)]
    Path("text").write_text("\n".join(lines) + "\n")
    Path("a.src").write_text("\n".join(lines[:9]) + "\n")
    Path("a.tgt").write_text("\n".join(line.upper() for line in lines[:9]) + "\n")
    rows = [f"{line}\t{'odd' if i % 3 else 'even'}" for i, line in enumerate(lines[:9])]
    Path("table.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    Path("a.conllu").write_text("".join(map(treebank, lines[:9])))
    Path("a.jsonl").write_text("".join(map(article, lines[:9])))
    Path("empty.txt").touch()
    Path("latin.txt").write_bytes("déjà\n".encode("latin-1") * 5)
    Path("empty").mkdir()


def write_damaged():
    """Copies of good folders, each with something wrong."""
    for good, bad in {
        "run-lm": "run-cut",
        "run-translate": "run-bare",
        "run-mlm": "run-torn",
        "hf-gpt2": "hf-odd",
        "hf-bert": "hf-mute",
    }.items():
        shutil.copytree(good, bad)
    for path in (Path("run-cut/model.safetensors"), *Path("run-torn").glob("checkpoints/*/*.safetensors")):
        path.write_bytes(path.read_bytes()[:-9])
    for name in ("model.safetensors", "model.json", "tokenizer.json"):
        Path("run-bare", name).unlink()
    Path("hf-odd/config.json").write_text('{"model_type": "gpt2", "n_embd": -1}')
    Path("hf-mute/tokenizer.json").write_text("{")


class AtOnce(training.Stop):
    """As if Ctrl-C had been pressed while the model was being built."""

    def __enter__(self):
        self.asked = "SIGINT"
        return self


def first_pages(name):
    """A phrasebook of a few sentences, whichever split is asked for."""
    return list(islice(phrasebook.pairs(3), 30))
