"""Packing: documents share rows and nothing else; their places follow from the data; little is padding."""

import json
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
import torch
from helpers import tiny
from helpers.runs import CPU, TINY, Interrupted, Quiet, losses, state_of
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.corpora import pylib
from heedful.data import packing
from heedful.data.packing import Packing
from heedful.data.plan import RowPlan
from heedful.data.store import Store
from heedful.data.vocab import Vocab
from heedful.errors import BadInput
from heedful.runs import trainer
from heedful.tasks import lm, recipe
from heedful.tasks.recipe.settings import Recipe
from heedful.train.loss import NOTHING

END = Vocab.eos


def stream_of(documents: list[list[int]]) -> np.ndarray:
    return np.array([token for document in documents for token in (*document, END)], np.uint16)


def sizes_in(stream: np.ndarray) -> np.ndarray:
    """Tokens of each document, its end included."""
    return np.diff(np.flatnonzero(stream == END), prepend=-1)


def documents_of(sizes: list[int]) -> list[list[int]]:
    """Documents of given sizes; no token of the text is the end."""
    numbers = np.random.default_rng(len(sizes)).integers(END + 1, tiny.VOCAB, sum(sizes)).tolist()
    at = np.cumsum([0, *sizes])
    return [numbers[a:b] for a, b in pairwise(at)]


# Rows


@pytest.mark.parametrize("at_once", [1, 7, 1 << 22])
@settings(deadline=None)
@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 17))
def test_every_token_stands_in_one_row_and_no_row_is_too_long(at_once, sizes, length):
    stream = stream_of(documents_of(sizes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "AT_ONCE", at_once)
        found = Packing(sizes_in(stream), length)
    seen = np.zeros(len(stream), int)
    for number in range(found.rows):
        row = found.row(number)
        assert 0 < sum(size for _, size in row) <= length
        for start, size in row:
            seen[start : start + size] += 1
            before = stream[start - 1] if start else END
            assert before == END or size <= length  # begins a document, or goes on where a full piece ended
            assert END not in stream[start : start + size]
    assert (seen == (stream != END)).all()
    assert found.tokens == sum(sizes) and found.documents == sum(size > 0 for size in sizes)
    with pytest.raises(IndexError, match=f"row {found.rows} of {found.rows}"):
        found.row(found.rows)


def test_a_long_document_is_cut_where_rows_end():
    found = Packing(sizes_in(stream_of(documents_of([3, 23, 4]))), 8)
    pieces = sorted(piece for number in range(found.rows) for piece in found.row(number))
    assert pieces == [(0, 3), (4, 8), (12, 8), (20, 7), (28, 4)]


@pytest.mark.parametrize(
    "sizes, length, rows",
    [([5, 4, 3, 2, 2], 8, 2), ([8, 8, 8], 8, 3), ([1] * 50, 7, 8), ([6, 6, 6, 2, 2, 2, 5, 3], 8, 4)],
)
def test_rows_are_as_few_as_can_be_in_easy_cases(sizes, length, rows):
    assert Packing(sizes_in(stream_of(documents_of(sizes))), length).rows == rows


def test_rows_of_natural_lengths_are_nearly_full():
    sizes = np.random.default_rng(3).lognormal(4, 1, 5000).astype(int) + 1
    found = Packing(sizes_in(stream_of([[9] * size for size in sizes])), 128)
    assert found.filled > 0.995
    one_each = sizes.sum() / (128 * (-(-sizes // 128)).sum())
    assert one_each < 0.6  # what a row for every document would come to


def test_the_same_stream_is_always_packed_alike():
    """Pinned: other rows would make a resumed run another run."""
    found = Packing(sizes_in(stream_of(documents_of([3, 1, 4, 1, 5, 9, 2, 6]))), 9)
    rows = [found.row(number) for number in range(found.rows)]
    assert rows == [[(19, 9)], [(13, 5), (6, 4)], [(32, 6), (0, 3)], [(29, 2), (4, 1), (11, 1)]]


def test_many_documents_take_little_memory():
    stream = np.full(4_000_000, 9, np.uint16)
    stream[19::20] = END
    tracemalloc.start()
    try:
        found = Packing(sizes_in(stream), 256)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.documents == 200_000 and peak < 24_000_000 + 60 * found.documents
    held = sum(array.nbytes for array in vars(found).values() if isinstance(array, np.ndarray))
    assert held < 17 * found.documents  # not a list of everything


def test_an_epoch_has_every_row_once_less_the_few_left_over():
    plan = RowPlan(23, 5, 7)
    for epoch in range(3):
        rows = np.concatenate([plan.batch(epoch * plan.batches + place) for place in range(plan.batches)])
        assert len(set(rows.tolist())) == len(rows) == 20 and set(rows.tolist()) <= set(range(23))
    assert plan.batch(0).tolist() != plan.batch(plan.batches).tolist()
    assert plan.batch(10**12).tolist() == RowPlan(23, 5, 7).batch(10**12).tolist() == PINNED
    assert RowPlan(3, 8, 0).batches == 1
    with pytest.raises(BadInput, match="at least one row, not 4 of 0"):
        RowPlan(0, 4, 1)


PINNED = [19, 8, 15, 22, 1]


# Losses

SIZES = [5, 3, 8, 1, 2, 11, 4, 30]
LENGTH = 12


def rows_and_model() -> tuple[lm.Documents, list[list[int]], torch.nn.Module]:
    documents = documents_of(SIZES)
    return (
        lm.Documents(stream_of(documents), LENGTH, sizes_in(stream_of(documents))),
        documents,
        tiny.build(tiny.DECODERS["gpt2"]),
    )


def pieces(document: list[int]) -> list[list[int]]:
    """A document as separate texts, each one token longer than what is read of it."""
    whole = [*document, END]
    return [whole[at : at + LENGTH + 1] for at in range(0, len(document), LENGTH)]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_packed_rows_is_the_sum_of_the_documents_alone(smoothing):
    rows, documents, model = rows_and_model()
    found = lm.loss_of(model, rows.batch(rows.apart()), smoothing)
    alone = [
        lm.loss_of(model, lm.WindowBatch(torch.tensor([piece])), smoothing)
        for document in documents
        for piece in pieces(document)
    ]
    assert found.total.dtype == torch.float64
    torch.testing.assert_close(found.total, sum(one.total for one in alone), rtol=1e-13, atol=0)
    torch.testing.assert_close(found.nll, sum(one.nll for one in alone), rtol=1e-13, atol=0)
    assert found.count == sum(one.count for one in alone) == sum(SIZES)


def test_the_gradient_is_that_of_the_documents_alone():
    rows, documents, model = rows_and_model()
    names, weights = zip(*model.named_parameters(), strict=True)
    packed = torch.autograd.grad(lm.loss_of(model, rows.batch(rows.apart())).total, weights)
    alone = sum(
        lm.loss_of(model, lm.WindowBatch(torch.tensor([piece]))).total
        for document in documents
        for piece in pieces(document)
    )
    for name, found, expected in zip(names, packed, torch.autograd.grad(alone, weights), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12, msg=name)


def test_the_gradient_does_not_cross_documents():
    """What one document loses says nothing about how another is embedded: exactly nothing."""
    rows, _, model = rows_and_model()
    batch = rows.batch(rows.apart())
    embedded = []
    hook = model.inputs.register_forward_hook(lambda module, inputs, output: embedded.append(output))
    whose = torch.where(
        batch.documents_BT >= 0, batch.documents_BT + 100 * torch.arange(len(batch.ids))[:, None], -1
    )
    names = [int(name) for name in whose.unique() if name >= 0]
    assert len(names) == 10  # the 30 tokens are three pieces
    for name in names:
        answers = batch.answers_BT.masked_fill(whose != name, NOTHING)
        one = lm.PackedBatch(batch.tokens_BT, answers, batch.documents_BT, batch.count)
        loss = lm.loss_of(model, one).total
        (gradient_BTD,) = torch.autograd.grad(loss, embedded.pop())
        size_BT = gradient_BTD.abs().sum(-1)
        assert (size_BT[whose != name] == 0).all() and (size_BT[whose == name] > 0).all()
    hook.remove()


def test_answers_are_the_next_tokens_of_the_same_document():
    rows, documents, _ = rows_and_model()
    batch = rows.batch(rows.apart())
    predicted = sorted(batch.answers_BT[batch.answers_BT != NOTHING].tolist())
    assert predicted == sorted(token for document in documents for token in (*document[1:], END))
    padding = batch.documents_BT == -1
    assert (batch.answers_BT[padding] == NOTHING).all() and padding.sum() == rows.packing.rows * LENGTH - sum(
        SIZES
    )


# Runs


@pytest.fixture
def corpus(tmp_path) -> dict[str, str]:
    """The same documents as a folder of files and as JSON lines."""
    words = [f"{a}{b}" for a in "bdfgk" for b in "aeiou"]
    generator = torch.Generator().manual_seed(0)
    texts = [
        " ".join(words[i] for i in torch.randint(25, (n % 11 + 1,), generator=generator)) for n in range(60)
    ]
    (tmp_path / "folder").mkdir()
    for number, text in enumerate(texts):
        (tmp_path / "folder" / f"{number:03}").write_text(text)
    rows = [json.dumps({"title": "x", "text": text}) for text in texts]
    rows.insert(5, json.dumps({"text": ""}))  # a document that says nothing is none
    (tmp_path / "lines.jsonl").write_text("\n".join(rows))
    return {name: str(tmp_path / name) for name in ("folder", "lines.jsonl")}


def packed_recipe(path: str, steps: int = 12, **more) -> Recipe:
    settings = {"data.text": path, "data.tokenizer": "char", "data.pack": "documents", "model.context": 24}
    return recipe.make("lm", settings={**TINY, **settings, "train.steps": steps, **more})


@pytest.mark.parametrize("accumulate", [1, 2])
def test_packed_runs_resume_byte_for_byte(accumulate, corpus, tmp_path):
    asked = packed_recipe(corpus["folder"], **{"train.accumulation_steps": accumulate})
    trainer.start(asked, tmp_path / "whole", Quiet(), CPU)
    for step in (1, 5, 8, 11):
        folder = tmp_path / f"cut-{step}"
        with pytest.raises(Interrupted):
            trainer.start(asked, folder, Quiet(until=step), CPU)
        assert trainer.resume(folder, Quiet(), CPU).finished
        assert state_of(folder) == state_of(tmp_path / "whole")
    found = [line["loss"] for line in losses(tmp_path / "whole") if "loss" in line]
    assert found[-1] < found[0]


def test_files_of_a_folder_and_lines_of_json_are_documents(corpus, tmp_path):
    stores = []
    for name, path in corpus.items():
        talk = Quiet()
        trainer.start(packed_recipe(path, steps=1), tmp_path / f"run-{name}", talk, CPU)
        (line,) = [line for line in talk.lines if line.startswith("data: ")]
        assert "54 documents in rows of 24, " in line and line.endswith("% full")
        assert not any("dropped" in line for line in talk.lines)
        stores.append([Store.open(tmp_path / f"run-{name}" / split) for split in ("train", "valid")])
    for mine, other in zip(*stores, strict=True):
        assert np.array_equal(mine.stream("text"), other.stream("text"))
    train, valid = stores[0]
    ends = [int((store.stream("text") == END).sum()) for store in (train, valid)]
    assert ends == [54, 7]  # the document that the cut goes through is in both


def test_a_folder_as_a_stream_has_no_ends_and_a_line_end_between_files(corpus, tmp_path):
    streams = []
    for name, path in corpus.items():
        folder = tmp_path / f"run-{name}"
        trainer.start(packed_recipe(path, steps=1, **{"data.pack": "stream"}), folder, Quiet(), CPU)
        streams.append(Store.open(folder / "train").stream("text"))
    assert np.array_equal(*streams) and END not in streams[0]
    vocab = Vocab.from_json((tmp_path / "run-folder" / "tokenizer.json").read_text())
    texts = [path.read_text() for path in sorted((tmp_path / "folder").iterdir())]
    learned = vocab.decode(streams[0].tolist())
    assert "\n".join(texts).startswith(learned)
    assert len(learned.replace("\n", "")) == int(0.9 * sum(map(len, texts)))


def test_pylib_is_packed_file_by_file(tmp_path, monkeypatch):
    found = [(f"{n}.py", f"x = {n}\n" * (n % 7 + 1)) for n in range(80)]
    monkeypatch.setattr(pylib, "documents", lambda: iter(found))
    talk = Quiet()
    trainer.start(packed_recipe("", steps=1, **{"data.corpus": "pylib"}), tmp_path / "run", talk, CPU)
    count = sum(pylib.split(name) == "train" for name, _ in found)
    assert any(f"{count} documents in rows" in line for line in talk.lines)


def test_what_cannot_be_packed_is_refused(corpus, tmp_path):
    one = tmp_path / "one"
    one.write_text("\n\n")
    cases = {
        "there is no text in .*one": packed_recipe(str(one)),
        "0 held out": packed_recipe(
            corpus["folder"], **{"data.valid_text": str(one), "data.tokenizer": "word"}
        ),
    }
    for message, asked in cases.items():
        with pytest.raises(BadInput, match=message) as caught:
            trainer.start(asked, tmp_path / "none", Quiet(), CPU)
        assert "\n" not in str(caught.value)
