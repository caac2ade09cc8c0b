"""Hugging Face data sets by name: a stand-in for the package shows how it is called."""

import dataclasses
import importlib
import json
import subprocess
import sys
import types

import pytest
from helpers.runs import CPU, TINY, Quiet, state_of

from heedful.data import datasets
from heedful.data.documents import read_documents, read_texts
from heedful.data.lines import read_parallel
from heedful.data.report import Report
from heedful.data.tables import read_table
from heedful.errors import BadInput
from heedful.runs import trainer
from heedful.tasks import recipe


@dataclasses.dataclass
class Value:
    dtype: str


@dataclasses.dataclass
class ClassLabel(Value):
    names: list[str]


class Image:
    """A feature that is no text, and that must never be decoded."""


class Dataset:
    """As much of the package's own as is used; rows that are handed out are counted."""

    def __init__(self, rows: list[dict], features: dict, package: types.ModuleType) -> None:
        self.rows, self.features, self.package = rows, features, package

    def flatten(self) -> "Dataset":
        flat: dict = {}
        for name, feature in self.features.items():
            inner = {f"{name}.{key}": f for key, f in feature.items()} if isinstance(feature, dict) else {}
            flat |= inner or {name: feature}
        rows = [{name: at(row, name) for name in flat} for row in self.rows]
        return Dataset(rows, flat, self.package)

    def select_columns(self, names: list[str]) -> "Dataset":
        features = {name: self.features[name] for name in names}
        return Dataset([{name: row[name] for name in names} for row in self.rows], features, self.package)

    def iter(self, batch_size: int):
        assert not any(isinstance(feature, Image) for feature in self.features.values())
        for start in range(0, len(self.rows), batch_size):
            some = self.rows[start : start + batch_size]
            self.package.read += len(some)
            yield {name: [row[name] for row in some] for name in self.features}


def at(row: dict, name: str):
    for part in name.split("."):
        row = row[part]
    return row


FEATURES = {
    "text": Value("string"),
    "label": ClassLabel("int64", ["back", "front"]),
    "translation": {"en": Value("string"), "fr": Value("string")},
    "picture": Image(),
    "score": Value("float64"),
    "id": Value("int32"),
}


def row(number: int, text: str | None) -> dict:
    pair = {"en": text, "fr": None if text is None else text.upper()}
    more = {"picture": b"\0", "score": 0.5, "id": number}
    return {"text": text, "label": number % 2, "translation": pair, **more}


WORDS = [f"{a}{b}" for a in "bdfgk" for b in "aeiou"]
TEXTS = [" ".join(WORDS[(7 * n + 3 * i) % 25] for i in range(n % 5 + 2)) for n in range(80)]


@pytest.fixture
def package(monkeypatch):
    """A package with the data sets "toy" (train and validation) and "single" (one split)."""
    found = types.ModuleType("datasets")
    found.__version__, found.calls, found.read = "4.3.0", [], 0  # type: ignore[attr-defined]
    parts = {"train": TEXTS[:70], "validation": TEXTS[70:]}
    single = ["ba", None, "", "a\0b", "be bi\nbo", "x" * 10_001]
    sets = {
        "toy": {split: [row(n, text) for n, text in enumerate(texts)] for split, texts in parts.items()},
        "single": {"train": [row(n, text) for n, text in enumerate(single)]},
    }

    def load_dataset(name, config=None, *, split=None):
        """Without the other options: whoever passes one more, such as leave to run code, fails."""
        found.calls.append(("load_dataset", name, config, split))
        if name not in sets:
            raise FileNotFoundError(f"Dataset '{name}'\ndoesn't exist on the Hub")
        splits = {key: Dataset(rows, FEATURES, found) for key, rows in sets[name].items()}
        if split == "train[:3]":
            return Dataset(sets[name]["train"][:3], FEATURES, found)
        return splits if split is None else splits[split]

    def load_from_disk(path):
        found.calls.append(("load_from_disk", path))
        return {key: Dataset(rows, FEATURES, found) for key, rows in sets["toy"].items()}

    found.load_dataset, found.load_from_disk = load_dataset, load_from_disk
    monkeypatch.setitem(sys.modules, "datasets", found)
    datasets.opened.cache_clear()
    yield found
    datasets.opened.cache_clear()


def refused(read, *said: str) -> None:
    with pytest.raises(BadInput) as caught:
        read()
    assert str(caught.value).isprintable() and all(what in str(caught.value) for what in said), caught.value


# Names


@pytest.mark.parametrize(
    "name, parts",
    [
        ("hf:imdb", ("imdb", "", "", "")),
        ("hf:a/b:c-d@train#text", ("a/b", "c-d", "train", "text")),
        ("hf:a@train[10%:90%]+test", ("a", "", "train[10%:90%]+test", "")),
        ("hf:a:b#translation.en", ("a", "b", "", "translation.en")),
        ("hf:../my set/x.y@all#two words", ("../my set/x.y", "", "all", "two words")),
        ("hf:a:b:c@d", ("a", "b:c", "d", "")),
    ],
)
def test_a_name_has_up_to_four_parts(name, parts):
    assert datasets.parse(name) == parts


@pytest.mark.parametrize("name", ["hf:", "hf:@train", "hf:#a", "hf:a@", "hf:a#", "hf:a:", "hf::b"])
def test_what_is_no_name_is_refused(name):
    refused(lambda: list(read_texts(name)), name, "hf:NAME[:CONFIG][@SPLIT][#COLUMN]")


# Reading


def test_the_package_is_asked_for_exactly_what_the_name_says(package, tmp_path):
    list(read_texts("hf:toy:plain@train#text"))
    list(read_texts("hf:toy:plain@train[:3]"))
    assert package.calls == [
        ("load_dataset", "toy", "plain", "train"),
        ("load_dataset", "toy", "plain", "train[:3]"),
    ]
    list(read_texts("hf:toy:plain@train#translation.fr"))
    assert len(package.calls) == 2  # what was opened is read again
    (tmp_path / "dataset_dict.json").write_text("{}")
    list(read_texts(f"hf:{tmp_path}@validation"))
    assert package.calls[2:] == [("load_from_disk", str(tmp_path))]
    refused(lambda: list(read_texts(f"hf:{tmp_path}:plain@train")), "no configuration plain")


def test_rows_are_documents(package):
    assert ["".join(document) for document in read_documents("hf:toy@validation")] == TEXTS[70:]
    assert "".join(read_texts("hf:toy@validation#translation.fr")) == "\n".join(TEXTS[70:]).upper()
    report = Report()
    assert list(read_texts("hf:single#text", report=report)) == ["ba\n", "be bi\nbo\n", "x" * 10_001]
    assert report.counts == {"with NUL": 1}  # a row that says nothing is no document, and no fault
    assert report.firsts["with NUL"][0][:2] == ("hf:single#text", 4)
    refused(
        lambda: list(read_texts("hf:single#text", report=Report("refuse"))),
        "hf:single#text:4: character 2 is NUL",
    )


def test_rows_are_read_a_few_at_a_time(package, monkeypatch):
    monkeypatch.setattr(datasets, "AT_ONCE", 2)
    documents = read_documents("hf:toy@train")
    assert [next(iter(next(documents))) for _ in range(3)] == TEXTS[:3]
    assert package.read == 4


def test_columns_are_read_in_step(package, tmp_path):
    report = Report()
    pairs = list(read_parallel("hf:toy@train#translation.en", "hf:toy@train#translation.fr", report=report))
    assert pairs == [(text, text.upper()) for text in TEXTS[:70]] and not report.counts
    (tmp_path / "a.fr").write_text("".join(f"{n}\n" for n in range(10)))
    mixed = list(read_parallel("hf:toy@validation#text", tmp_path / "a.fr"))
    assert mixed == [(text, str(n)) for n, text in enumerate(TEXTS[70:])]
    refused(
        lambda: list(read_parallel("hf:toy@train#text", tmp_path / "a.fr")), "has 70 lines", "a.fr has 10"
    )
    refused(lambda: list(read_parallel("hf:toy@train", tmp_path / "a.fr")), "hf:toy@train: ", "#COLUMN")
    report = Report()
    assert list(read_parallel("hf:single#text", "hf:single#text", report=report)) == [
        (text, text) for text in ("ba", "be bi\nbo")
    ]
    assert report.counts == {"empty": 2, "with NUL": 1, "too long": 1}


def test_tables_take_whole_rows_and_labels_have_names(package):
    rows = list(read_table("hf:toy@validation", ["text", "label", "id", "translation.fr"]))
    assert rows[1] == (TEXTS[71], "front", "1", TEXTS[71].upper()) and len(rows) == 10
    refused(lambda: list(read_table("hf:toy@train#text", ["text"])), "leave out #COLUMN")
    refused(lambda: list(read_table("hf:toy@train", ["txt"])), 'no "txt"; did you mean "text"')
    refused(lambda: list(read_table("hf:toy@train", ["picture"])), 'no "picture"')  # no text, so not there


def test_a_label_that_is_none_stays_a_number():
    assert [datasets.label(value, ["a", "b"]) for value in (0, 1, -1, 2, None, "x")] == [
        "a",
        "b",
        -1,
        2,
        None,
        "x",
    ]
    assert datasets.label(1, None) == 1


@pytest.mark.parametrize(
    "name, said",
    [
        ("hf:toy#text", ("the splits train, validation", "@SPLIT")),
        ("hf:toy@train#txt", ('no column "txt"', 'did you mean "text"')),
        ("hf:toy@train#picture", ('no column "picture" of texts', "text, label")),
        ("hf:toy@train#score", ('no column "score" of texts',)),
        ("hf:nowhere@train#text", ("Dataset 'nowhere'?doesn't exist",)),
        ("hf:toy@tset", ("tset",)),
    ],
)
def test_faults_name_the_data_set_in_one_line(package, name, said):
    refused(lambda: list(read_texts(name)), f"{name}", *said)


def test_a_split_of_a_saved_set_must_be_there(package, tmp_path):
    (tmp_path / "dataset_dict.json").write_text("{}")
    refused(lambda: list(read_texts(f"hf:{tmp_path}@tran")), 'no split "tran"; did you mean "train"')


# The package


def test_without_the_package_one_sentence_says_how_to_get_it(monkeypatch, tmp_path):
    datasets.opened.cache_clear()
    monkeypatch.setitem(sys.modules, "datasets", None)  # as if it were not installed
    said = "the package datasets is needed to read it, and not installed: pip install datasets"
    refused(lambda: list(read_texts("hf:imdb@train")), said)
    monkeypatch.delitem(sys.modules, "datasets")
    (tmp_path / "datasets").mkdir()  # a folder of that name is no package
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    refused(lambda: list(read_texts("hf:imdb@train")), said)
    sys.modules.pop("datasets", None)


@pytest.mark.parametrize("version", ["2.19.0", "3.6.0", "1.0", "", "dev"])
def test_versions_that_could_run_a_data_sets_code_are_refused(package, version):
    package.__version__ = version
    refused(lambda: list(read_texts("hf:toy@train")), "may run code", "pip install 'datasets>=4'")
    assert package.calls == []


def test_it_is_imported_only_when_asked_for(tmp_path):
    (tmp_path / "a.txt").write_text("ba be\n" * 9)
    code = f"""
import sys
from heedful.tasks import classify, lm, mlm, translate
from heedful.data.documents import read_texts
print(list(read_texts({str(tmp_path / "a.txt")!r})) != [], [m for m in sys.modules if m.endswith("datasets")])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "True []\n"


# Runs


def settings_of(task: str, name: str) -> dict[str, str]:
    """A task on a data set."""
    train, valid = f"hf:{name}@train", f"hf:{name}@validation"
    tables = {"data.table": train, "data.valid_table": valid}
    return {
        "lm": {"data.text": f"{train}#text", "data.valid_text": valid, "model.context": 8},
        "translate": {
            "data.source": f"{train}#translation.en",
            "data.target": f"{train}#translation.fr",
            "data.valid_source": f"{valid}#translation.en",
            "data.valid_target": f"{valid}#translation.fr",
        },
        "table": tables | {"data.source_column": "translation.en", "data.target_column": "translation.fr"},
        "classify": tables,
    }[task]


def own_files(task: str, folder) -> dict[str, str]:
    """The same data in files."""
    for split, texts in {"a": TEXTS[:70], "v": TEXTS[70:]}.items():
        (folder / f"{split}.en").write_text("\n".join(texts))
        (folder / f"{split}.fr").write_text("\n".join(texts).upper())
        rows = [{"text": t, "fr": t.upper(), "label": ["back", "front"][n % 2]} for n, t in enumerate(texts)]
        (folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    a, v = (lambda end: str(folder / f"a.{end}")), (lambda end: str(folder / f"v.{end}"))
    pairs = {
        "data.source": a("en"),
        "data.target": a("fr"),
        "data.valid_source": v("en"),
        "data.valid_target": v("fr"),
    }
    tables = {"data.table": a("jsonl"), "data.valid_table": v("jsonl")}
    text = {"data.text": a("jsonl"), "data.valid_text": v("jsonl"), "model.context": 8}
    return {"lm": text, "translate": pairs, "table": pairs, "classify": tables}[task]


@pytest.mark.parametrize("task", ["lm", "translate", "table", "classify"])
def test_a_run_on_a_data_set_equals_one_on_files(task, package, tmp_path):
    name = "translate" if task == "table" else task
    for settings, folder in ((settings_of(task, "toy"), "set"), (own_files(task, tmp_path), "files")):
        settings = {**TINY, **settings, "data.tokenizer": "word", "train.steps": 5}
        assert trainer.start(recipe.make(name, settings=settings), tmp_path / folder, Quiet(), CPU).finished
    assert state_of(tmp_path / "set") == state_of(tmp_path / "files")
