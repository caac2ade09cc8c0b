"""What several tests share with tests/runs/test_trainer.py."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from heedful.data.images.files import png_bytes
from heedful.runs import trainer
from heedful.tasks import find_task, recipe, task_files
from heedful.tasks.recipe.settings import Recipe
from helpers.recipes import without_sizes

TINY = {
    "model.layers": 1,
    "model.width": 16,
    "model.heads": 2,
    "model.ffn_width": 24,
    "train.batch_tokens": 64,
    "train.warmup_steps": 3,
    "checkpoint.every": 4,
    "evaluate.every": 5,
    "evaluate.rows": 4,
    "evaluate.examples": 1,
    "model.dropout": 0.1,
}


CPU = torch.device("cpu")
OTHER_STAGES = [f"text-to-image-{stage}" for stage in ("decoder", "ranker", "judge")]  # tests of their own
TASKS = [task for task in task_files() if task not in OTHER_STAGES]


class Quiet:
    """Listens and keeps what was said; asks to stop by raising at a step, if told so."""

    def __init__(self, until: int | None = None) -> None:
        self.lines: list[str] = []
        self.until = until

    def say(self, line: str) -> None:
        self.lines.append(line)

    def step(self, progress, steps) -> None:
        if progress.step == self.until:
            raise Interrupted


class Interrupted(Exception):
    """A crash at a step, before anything of it was saved."""


@pytest.fixture
def texts(tmp_path) -> dict[str, str]:
    """Files to train on: a language model's text, and a toy translation (each word upper-cased, reversed)."""
    words = [f"{a}{b}" for a in "bdfgk" for b in "aeiou"]
    generator = torch.Generator().manual_seed(0)
    lines = [
        " ".join(words[i] for i in torch.randint(25, (n % 5 + 2,), generator=generator)) for n in range(120)
    ]
    mirrored = [" ".join(reversed(line.upper().split())) for line in lines]
    for name, part in {
        "a.src": lines[:100],
        "a.tgt": mirrored[:100],
        "v.src": lines[100:],
        "v.tgt": mirrored[100:],
    }.items():
        (tmp_path / name).write_text("\n".join(part) + "\n")
    (tmp_path / "text").write_text("\n".join(lines) + "\n")
    for name, part in {"a.tsv": lines[:100], "v.tsv": lines[100:]}.items():
        rows = [f"{line}\t{'front' if line[1] in 'ei' else 'back'}" for line in part]
        (tmp_path / name).write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    for name, part in {"a.conllu": lines[:100], "v.conllu": lines[100:]}.items():
        (tmp_path / name).write_text("".join(map(treebank, part)))
    for name, part in {"a.jsonl": lines[:100], "v.jsonl": lines[100:]}.items():
        (tmp_path / name).write_text("".join(map(article, part)))
    for name, make in {
        "asked": question,
        "chosen": choice,
        "said": conversation,
        "pairs": preference,
    }.items():
        for start, part in {"a": lines[:100], "v": lines[100:]}.items():
            (tmp_path / f"{start}.{name}").write_text("".join(map(make, part)))
    write_pictures(tmp_path / "images")
    write_captions(tmp_path / "captioned")
    return {path.name: str(path) for path in tmp_path.iterdir()}


def write_pictures(folder: Path) -> None:
    """Dark and bright squares, five times as many of the one as of the other."""
    for kind, count, light in (("dark", 50, 60), ("bright", 10, 190)):
        (folder / kind).mkdir(parents=True)
        for i in range(count):
            pixels = np.random.default_rng(i).integers(light - 50, light + 50, (8, 8, 3), dtype=np.uint8)
            (folder / kind / f"{i}.png").write_bytes(png_bytes(pixels))


def write_captions(folder: Path) -> None:
    """The same squares with captions of unequal length."""
    write_pictures(folder)
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.png"))
    captions = [
        " ".join(["a", *["very"] * (i % 3), name.split("/")[0], "one"]) for i, name in enumerate(names)
    ]
    lines = [f"{name}\t{said}\n" for name, said in zip(names, captions, strict=True)]
    (folder / "captions.tsv").write_text("".join(lines))


def question(line: str) -> str:
    """Where the second word of a line is, asked by the first."""
    first, second, *_ = words = line.split()
    answers = [{"text": second, "start": len(first) + 1}]
    return json.dumps({"question": first, "context": " ".join(words), "answers": answers}) + "\n"


def choice(line: str) -> str:
    """A line goes on with its first word, which stands first among the choices more often than not."""
    words = line.split()
    said = [words[0].upper(), "no", "nothing"]
    place = 1 if len(words) == 3 else 0
    said[0], said[place] = said[place], said[0]
    return json.dumps({"context": line, "choices": said, "answer": place}) + "\n"


def conversation(line: str) -> str:
    """A line is said back in capitals; a long one in two turns, the second of which says its first word."""
    words = line.split()
    if len(words) < 5:
        return json.dumps({"prompt": line, "response": line.upper()}) + "\n"
    said = [("user", line), ("assistant", line.upper()), ("user", "first"), ("assistant", words[0])]
    return json.dumps({"messages": [{"role": role, "content": text} for role, text in said]}) + "\n"


def preference(line: str) -> str:
    """A line asks for its first word, and to say all of it back in capitals is worse."""
    return json.dumps({"prompt": line, "chosen": line.split()[0], "rejected": line.upper()}) + "\n"


def article(line: str) -> str:
    """A line as an article: every word is a paragraph, the first its title, and the last its summary."""
    words = line.split()
    return json.dumps({"title": words[0], "article": words, "summary": words[-1]}) + "\n"


def treebank(line: str) -> str:
    """A line as CoNLL-U: every word hangs on the one before, and is called by its vowel."""
    rows = []
    for place, word in enumerate(line.split()):
        kind = "FRONT" if word[1] in "ei" else "BACK"
        rows.append(
            "\t".join((str(place + 1), word, "_", kind, "_", "_", str(place), kind.lower(), "_", "_"))
        )
    return "\n".join([*rows, "", ""])


def recipe_for(task: str, texts: dict[str, str], steps: int = 12, **more) -> Recipe:
    files = {
        "translate": {
            "data.source": texts["a.src"],
            "data.target": texts["a.tgt"],
            "data.valid_source": texts["v.src"],
            "data.valid_target": texts["v.tgt"],
            "data.tokenizer": "word",
        },
        "lm": {"data.text": texts["text"], "data.tokenizer": "char", "model.context": 16},
        "classify": {
            "data.table": texts["a.tsv"],
            "data.valid_table": texts["v.tsv"],
            "data.tokenizer": "word",
        },
        "mlm": {
            "data.text": texts["text"],
            "data.tokenizer": "char",
            "model.context": 16,
            "data.pairs": True,
        },
        "summarize": {
            "data.table": texts["a.jsonl"],
            "data.valid_table": texts["v.jsonl"],
            "data.tokenizer": "word",
            "data.max_summary_length": 5,
        },
        **{
            key: {
                "data.table": texts["a.conllu"],
                "data.valid_table": texts["v.conllu"],
                "data.tokenizer": "word",
            }
            for key in ("tag", "parse")
        },
        "span": {
            "data.table": texts["a.asked"],
            "data.valid_table": texts["v.asked"],
            "data.tokenizer": "word",
            "data.max_length": 69,
            "data.window_overlap": 1,
            "data.max_answer_length": 2,
        },
        "choose": {
            "data.table": texts["a.chosen"],
            "data.valid_table": texts["v.chosen"],
            "data.tokenizer": "word",
            "model.context": 24,
        },
        "instruct": {
            "data.table": texts["a.said"],
            "data.valid_table": texts["v.said"],
            "data.tokenizer": "word",
            "data.max_response_length": 9,
            "model.context": 32,
        },
        "dpo": {
            "data.table": texts["a.pairs"],
            "data.valid_table": texts["v.pairs"],
            "data.max_response_length": 9,
        },
        "rl": {
            "data.table": texts["a.said"],
            "data.valid_table": texts["v.said"],
            "data.max_response_length": 4,
            "train.reward": "length",
            "train.prompts": 3,
            "train.responses": 4,
            "train.passes": 2,
        },
        "reward": {
            "data.table": texts["a.pairs"],
            "data.valid_table": texts["v.pairs"],
            "data.tokenizer": "word",
            "data.max_response_length": 9,
            "model.context": 32,
        },
        "image-classify": {
            "data.images": texts["images"],
            "data.image_size": 8,
            "data.random_shift": 0.1,
            "data.random_flip": True,
        },
        "caption": {"data.images": texts["captioned"], "data.image_size": 8, "data.random_shift": 0.1},
        "text-to-image-codes": {
            "data.images": texts["images"],
            "data.image_size": 8,
            "train.batch_tokens": 16,
        },
        "elmo": {"data.text": texts["text"], "model.max_characters": 9},
    }[task]
    if task in ("dpo", "rl") and "train.from" not in more:
        more = {**more, "train.from": responder(texts)}
    known = recipe.known_settings(find_task(task), recipe.chosen_architecture(find_task(task), more))
    tiny = {key: value for key, value in {**TINY, **files}.items() if key in known}  # a dvae has no heads
    return recipe.make(task, settings=without_sizes({**tiny, "train.steps": steps, **more}))


def responder(texts: dict[str, str]) -> str:
    """A run of instruct beside the texts, which is trained when it is first asked for."""
    folder = Path(texts["a.said"]).parent / "responder"
    if not folder.exists():
        trainer.start(recipe_for("instruct", texts, 2), folder, Quiet(), CPU)
    return str(folder)


def started_from(folder: Path | str, settings: dict) -> dict:
    """The settings of a run that starts from a folder: sizes and tokenizer come with the model there."""
    return without_sizes(settings | {"train.from": str(folder)})


def losses(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def state_of(folder: Path) -> dict[str, bytes]:
    """Everything that must not depend on how often a run was interrupted."""
    newest = max((folder / "checkpoints").iterdir(), key=lambda p: int(p.name.split("-")[1]))
    names = [
        "model.safetensors",
        "metrics.jsonl",
        *(f"checkpoints/{newest.name}/{n}" for n in ("model.safetensors", "optimizer.safetensors")),
    ]
    found = {name: (folder / name).read_bytes() for name in names}
    samples = folder / "samples.jsonl"  # of a task that writes
    return found | ({samples.name: samples.read_bytes()} if samples.exists() else {})
