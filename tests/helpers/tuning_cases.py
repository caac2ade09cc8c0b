"""What several tests share with tests/tasks/test_tuning.py."""

import pytest

import heedful
from heedful.runs import trainer
from heedful.tasks import recipe
from helpers.classify_cases import CPU, TINY, Quiet, asked, files, job_of, origin_of  # noqa: F401 (fixtures)

WAYS = {"whole": {}, "head": {"train.tune": "head"}, "lora": {"train.tune": "lora", "train.lora_rank": 3}}


@pytest.fixture
def lora_run(origin_of, files, tmp_path):
    settings = {"train.from": str(origin_of("bert")), **WAYS["lora"], "train.steps": 2}
    trainer.start(asked(files, **settings), tmp_path / "lora", Quiet(), CPU)
    return tmp_path / "lora"


PAIRS = [(f"the {a} {b}", f"le {a} {b}") for a in ("cat", "dog", "fish") for b in ("sleeps", "eats", "swims")]


TREE = (
    "1\tthe\t_\tDET\t_\t_\t2\tdet\t_\t_\n"
    "2\t{}\t_\tNOUN\t_\t_\t3\tnsubj\t_\t_\n"
    "3\t{}\t_\tVERB\t_\t_\t0\troot\t_\t_\n\n"
)


FEW = {
    "train.steps": 4,
    "train.warmup_steps": 1,
    "evaluate.every": 2,
    "checkpoint.every": 2,
    "evaluate.examples": 1,
    "train.batch_tokens": 60,
}


@pytest.fixture
def texts(files, tmp_path):
    (tmp_path / "src").write_text("".join(f"{a}\n" for a, _ in PAIRS))
    (tmp_path / "tgt").write_text("".join(f"{b}\n" for _, b in PAIRS))
    (tmp_path / "trees").write_text("".join(TREE.format(*a.split()[1:]) for a, _ in PAIRS))
    return {**files, **{name: str(tmp_path / name) for name in ("src", "tgt", "trees")}}


def data_for(task: str, texts: dict[str, str]) -> dict[str, str]:
    if task == "translate":
        named = {"source": "src", "target": "tgt", "valid_source": "src", "valid_target": "tgt"}
        return {f"data.{name}": texts[file] for name, file in named.items()}
    if task == "tag":
        return {"data.table": texts["trees"], "data.valid_table": texts["trees"]}
    return {"data.text": texts["book"], "data.max_length": 12}


@pytest.fixture
def translator(texts, tmp_path):
    """Makes a translator to start from: a run, or what it is saved as."""

    def make(kind: str):
        sizes = {key: value for key, value in TINY.items() if key != "model.context"}
        joint = {"data.joint": kind != "separate"}
        made = recipe.make("translate", settings={**sizes, **data_for("translate", texts), **joint})
        trainer.start(made, tmp_path / "first", Quiet(), CPU)
        if kind != "saved":
            return tmp_path / "first"
        heedful.save(heedful.load(tmp_path / "first"), tmp_path / "saved")
        return tmp_path / "saved"

    return make
