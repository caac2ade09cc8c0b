"""Questions whose answers stand in a text: files, windows, spans, scores, runs, and the built-in quiz."""

import json
import math
import re
import string
from collections import Counter
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
import transformers
from helpers.classify_cases import (
    CPU,
    Quiet,
    files,  # noqa: F401 (fixtures)
    origin_of,  # noqa: F401 (fixtures)
)
from helpers.small_runs import small_run  # noqa: F401 (fixtures)

import heedful
from heedful.cli.main import main
from heedful.corpora import quiz
from heedful.data.questions import Question, read_choices, read_questions
from heedful.data.report import Report
from heedful.data.vocab import Vocab, train_vocab
from heedful.errors import BadInput
from heedful.interop.loaded import Loaded
from heedful.models import bert
from heedful.runs import trainer
from heedful.tasks import recipe, span, span_windows
from heedful.tasks.metrics import squad_exact, squad_f1
from heedful.tasks.span_windows import LONGEST_QUESTION, WindowLayout

TEXT = "The red fox saw two dogs. Old dogs, they said, sleep."


def asked(
    question: str = "Who sleeps?", text: str = "dogs", start: int = 30, context: str = TEXT
) -> Question:
    return Question(question, context, ((text, start),))


def line(**more) -> str:
    made = {"question": "Who?", "context": TEXT, "answers": [{"text": "fox", "start": 8}], **more}
    return json.dumps(made) + "\n"


# Files


def test_questions_are_read_from_objects_and_from_tables(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        line() + line(answers=[{"text": "dogs", "start": 20}, {"text": "two dogs", "start": 16}])
    )
    rows = list(read_questions(tmp_path / "a.jsonl"))
    assert rows == [
        Question("Who?", TEXT, (("fox", 8),)),
        Question("Who?", TEXT, (("dogs", 20), ("two dogs", 16))),
    ]
    (tmp_path / "a.tsv").write_text(f"start\tquestion\tcontext\tanswer\n8\tWho?\t{TEXT}\tfox\n")
    assert list(read_questions(tmp_path / "a.tsv")) == rows[:1]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"answers": []}, '"answers" is [], where a list of answers is expected'),
        ({"answers": [{"text": "fox"}]}, '"start" is None, where a place'),
        ({"answers": [{"text": "fox", "start": 9}]}, "'ox ' stands at 9 of the context, and not 'fox'"),
        ({"answers": [{"text": "fox", "start": -3}]}, '"start" is -3'),
        ({"answers": [{"text": "fox", "start": True}]}, '"start" is True'),
        ({"answers": ["fox"]}, '"text" is None'),
        ({"context": ""}, '"context" is empty'),
        ({"question": 7}, '"question" is 7, where a text is expected'),
    ],
)
def test_a_bad_line_is_counted_and_can_be_found(more, told, tmp_path):
    (tmp_path / "a.jsonl").write_text(line() + line(**more) + "{\n" + line())
    report = Report()
    assert len(list(read_questions(tmp_path / "a.jsonl", report))) == 2 and report.counts.total() == 2
    with pytest.raises(BadInput) as caught:
        list(read_questions(tmp_path / "a.jsonl", Report("refuse")))
    assert f"a.jsonl:2: {told}" in str(caught.value)


def test_the_first_object_must_have_every_name(tmp_path):
    (tmp_path / "a").write_text('{"question": "a", "contexts": "b", "answers": []}\n')
    with pytest.raises(BadInput, match='no "context"; did you mean "contexts"'):
        list(read_questions(tmp_path / "a"))
    (tmp_path / "b").write_text("context\tchoices\n")
    with pytest.raises(BadInput, match="has no JSON objects, one a line"):
        list(read_choices(tmp_path / "b"))


# The built-in quiz


def test_the_quiz_is_right_to_the_letter_the_same_everywhere_and_asks_for_nobody_twice():
    found = {split: list(quiz.questions(split)) for split in ("valid", "test", "long")}
    for split, rows in found.items():
        assert len(rows) == {"valid": 300, "test": 500, "long": 200}[split]
        for row in rows:
            ((text, start),) = row.answers
            assert row.context[start : start + len(text)] == text and row.context.count(text) == 1
            name = re.search(r"[A-Z]\w+ [A-Z]\w+", row.question[1:])[0]
            before = row.context[:start].rpartition(". ")[2] + row.context[start:].partition(".")[0]
            assert name in before  # the sentence of the answer is about the person
    assert found["valid"] == list(quiz.questions("valid"))
    people = {
        split: {re.search(r"[A-Z]\w+ [A-Z]\w+", row.question[1:])[0] for row in rows}
        for split, rows in found.items()
    }
    assert not people["valid"] & people["test"] and not people["valid"] & people["long"]
    mean = {split: sum(len(row.context) for row in rows) / len(rows) for split, rows in found.items()}
    assert mean["long"] > 2 * mean["valid"]


# Windows and spans


def vocab() -> Vocab:
    return train_vocab("word", [TEXT, "Who sleeps? What did they say?"], 100)


@pytest.mark.parametrize("kind", ["word", "bpe", "char", "wordpiece"])
def test_the_tokens_of_an_answer_say_the_answer(kind):
    words = train_vocab(kind, [TEXT, "Who sleeps?"], 300)
    for text, start in (("fox", 8), ("two dogs", 16), ("Old dogs, they", 26), ("sleep", 47), ("The", 0)):
        (item,) = span_windows.tokenize_questions(words, [asked(text=text, start=start)])
        (places,) = words.places([TEXT])
        found = span.found_in(TEXT, places, (0.0, item.first, item.last, 1.0))
        assert (found.text, found.start, found.end) == (text, start, start + len(text))


def test_windows_overlap_cover_everything_and_the_last_ends_where_the_text_does():
    rooms = WindowLayout(longest=20, overlap=4, special=3)
    for question, context in ((5, 12), (5, 13), (2, 40), (70, 9)):
        if question == 70:
            rooms = WindowLayout(longest=80, overlap=4, special=3)
        room, starts = rooms.room(question), rooms.starts(question, context)
        assert room == rooms.longest - 3 - min(question, LONGEST_QUESTION)
        covered = {n for start in starts for n in range(start, min(start + room, context))}
        assert covered == set(range(context)) and all(b - a == room - 4 for a, b in pairwise(starts))
        assert starts[-1] + room >= context and (len(starts) == 1) == (context <= room)
    little = WindowLayout(longest=75, overlap=37, special=3)  # beside a question of 64, a room of 8
    assert little.starts(64, 20) == [0, 4, 8, 12]


def test_a_window_without_the_answer_points_at_the_class_token():
    words, rooms = vocab(), WindowLayout(longest=72, overlap=2, special=3)
    (item,) = span_windows.tokenize_questions(words, [asked(text="dogs, they said", start=30)])
    small = WindowLayout(longest=3 + len(item.question) + 6, overlap=2, special=3)
    starts = small.starts(len(item.question), len(item.context))
    made = span_windows.collate(words, span.encoder_row, small, [(item, start) for start in starts])
    whole = span_windows.collate(words, span.encoder_row, rooms, [(item, 0)])
    before = 2 + len(item.question)
    assert (whole.starts_B, whole.ends_B) == (before + item.first, before + item.last)
    for row, start in enumerate(starts):
        here = start <= item.first and item.last < start + 6
        assert (made.starts_B[row] == 0) == (not here) and (made.ends_B[row] == 0) == (not here)
        if here:
            place = int(made.starts_B[row])
            assert made.tokens_BT[row, place] == item.context[item.first]
        opened = made.open_BT[row].nonzero()[:, 0].tolist()
        size = min(6, len(item.context) - start)
        assert opened == [0, *range(before, before + size)]
    assert 0 in made.starts_B
    parts = [start <= item.first < start + 6 <= item.last for start in starts]
    assert any(parts)  # a window that has a part of the answer has none


def test_the_best_span_is_the_best_of_all_by_hand():
    torch.manual_seed(4)
    for longest in (1, 2, 3, 9):
        start, end = torch.randn(9), torch.randn(9)
        start[[1, 2]] = end[[1, 2]] = -math.inf  # the question
        score, i, j = span.best_span(start, end, longest)
        every = {(a, b): start[a] + end[b] for a in range(1, 9) for b in range(a, min(9, a + longest))}
        assert (i, j) == max(every, key=every.__getitem__) and score == pytest.approx(float(every[i, j]))


def model_of(words: int, seed: int = 0) -> bert.WithHeads:
    torch.manual_seed(seed)
    size = {"vocab": words, "context": 96, "layers": 2, "width": 12, "heads": 3, "ffn_width": 20}
    return bert.build(
        bert.BertConfig(**size, dropout=0.0, attention_dropout=0.0, prediction_heads=("span",))
    ).eval()


def test_the_loss_is_the_mean_of_two_cross_entropies_over_the_context_and_the_class_token():
    words, rooms = vocab(), WindowLayout(longest=90, overlap=3, special=3)
    model = model_of(words.size)
    items = span_windows.tokenize_questions(
        words, [asked(), asked("What did the old dogs say?", "red fox", 4)]
    )
    made = span_windows.collate(words, span.encoder_row, rooms, [(item, 0) for item in items])
    expected = 0.0
    for row, item in enumerate(items):
        length = int(made.lengths_B[row])
        out = model(
            made.tokens_BT[row : row + 1, :length], segments_BT=made.segments_BT[row : row + 1, :length]
        )["span"][0]
        before = 2 + len(item.question)
        places = [0, *range(before, before + len(item.context))]
        for side, right in ((0, item.first), (1, item.last)):
            expected += F.cross_entropy(out[places, side], torch.tensor(1 + right)) / 2
    loss = span.loss_of(model, made)
    torch.testing.assert_close(loss.total, expected)
    assert loss.count == 2 and torch.equal(loss.total, loss.nll)
    smoothed = span.loss_of(model, made, 0.1)
    assert smoothed.total != loss.total and torch.equal(smoothed.nll, loss.nll)
    loss.total.backward()
    padding = torch.arange(made.tokens_BT.shape[1]) >= made.lengths_B[:, None]
    made.tokens_BT[padding] = 3
    torch.testing.assert_close(span.loss_of(model, made).total, loss.total)


def test_answers_of_a_long_text_come_from_the_best_window():
    """By hand, window by window, with Hugging Face's model of the same weights."""
    words, firsts = vocab(), set()
    for seed in range(4):
        firsts.add(best_window_begins(words, model_of(words.size, seed)))
    assert len(firsts) > 1  # it is not always the same one


def best_window_begins(words: Vocab, model: bert.WithHeads) -> int:
    context = (
        f"{TEXT} What did they say? They said two old dogs sleep. Who saw the red dogs, they said. What fox?"
    )
    row = asked(context=context)
    rooms = WindowLayout(longest=3 + 3 + 9, overlap=4, special=3)
    reader = span.SpanReader(words, span.encoder_row, rooms, 4)
    with torch.no_grad():
        (found,), _, windows = span.read_answers(model, reader, [row], 3)
    config = transformers.BertConfig(
        **{
            key: value
            for key, value in bert.write_config(
                bert.BertConfig(
                    vocab=words.size,
                    context=96,
                    layers=2,
                    width=12,
                    heads=3,
                    ffn_width=20,
                    prediction_heads=("span",),
                )
            ).items()
            if key not in ("id2label", "label2id")
        }
    )
    theirs = transformers.BertForQuestionAnswering(config).eval()
    table = bert.names(bert.BertConfig(prediction_heads=("span",)))
    theirs.load_state_dict(table.to_theirs(dict(model.named_parameters())), strict=False)
    (item,) = span_windows.tokenize_questions(words, [row])
    best, n = (-math.inf, 0, 0, 0), len(item.question)
    starts = rooms.starts(n, len(item.context))
    assert windows == len(starts) > 2
    for start in starts:
        part = item.context[start : start + rooms.room(n)]
        ids = torch.tensor([[words.cls, *item.question, words.sep, *part, words.sep]])
        kinds = torch.tensor([[0] * (n + 2) + [1] * (len(part) + 1)])
        with torch.no_grad():
            out = theirs(input_ids=ids, token_type_ids=kinds)
        for i in range(len(part)):
            for j in range(i, min(len(part), i + 4)):
                score = float(out.start_logits[0, n + 2 + i] + out.end_logits[0, n + 2 + j])
                best = max(best, (score, start + i, start + j, start))
    assert found.score == pytest.approx(best[0], abs=1e-5)
    places = words.places([context])[0]
    assert found == span.found_in(context, places, (found.score, best[1], best[2], found.probability))
    return best[3]


# Scores


def squad_script(found: str, expected: str) -> tuple[float, float]:
    """SQuAD's evaluation script, in its own words."""

    def normalize(s):
        s = "".join(ch for ch in s.lower() if ch not in set(string.punctuation))
        return " ".join(re.sub(r"\b(a|an|the)\b", " ", s).split())

    mine, right = normalize(found).split(), normalize(expected).split()
    common = Counter(mine) & Counter(right)
    same = sum(common.values())
    f1 = 0.0
    if same:
        precision, recall = same / len(mine), same / len(right)
        f1 = 2 * precision * recall / (precision + recall)
    return float(normalize(found) == normalize(expected)), f1


def test_scores_are_squads():
    texts = ["the Cat", "cat!", "a cat and a dog", "dog", "U.S.", "US", "an", "", "two  dogs", "cat cat dog"]
    for found in texts:
        for expected in texts:
            exact, f1 = squad_script(found, expected)
            assert squad_exact(found, expected) == exact
            if set(found.split()) - {"an"} and set(expected.split()) - {"an"}:
                assert squad_f1(found, expected) == pytest.approx(f1)
    assert squad_f1("an", "") == 1 and squad_f1("cat", "the") == 0
    row = Question("?", TEXT, (("fox", 8), ("red fox", 4)))
    assert span.squad_scores(["a red fox"], [row]) == {"exact": 1.0, "f1": 1.0}
    assert span.squad_scores(["red"], [row])["f1"] == pytest.approx(2 / 3)


# Runs


def test_a_run_answers_in_python_and_on_the_command_line(small_run, tmp_path, monkeypatch, capsys):
    folder = small_run("span")
    model = heedful.load(folder)
    found = model.answer(["who sleeps ?", "who eats ?"], ["the dog eats . the cat sleeps ."] * 2)
    assert (
        found == ["cat", "dog"] and (found[1].start, found[1].end) == (4, 7) and 0 < found[0].probability <= 1
    )
    assert model.answer("who eats ?", "the dog eats . the cat sleeps .", batch=1) == "dog"
    (tmp_path / "text").write_text("the dog eats . the cat sleeps .\n")
    assert main(["answer", folder, "--context", str(tmp_path / "text"), "who", "sleeps", "?"]) == 0
    assert capsys.readouterr().out == "cat\n"
    lines = b"who eats ?\tthe dog eats . the cat sleeps .\n\nwho eats ?\n"
    monkeypatch.setattr(
        "sys.stdin",
        type("In", (), {"buffer": __import__("io").BytesIO(lines), "isatty": lambda self: False})(),
    )
    assert main(["answer", folder, "--json"]) == 0
    out, err = capsys.readouterr()
    rows = [json.loads(row) for row in out.splitlines()]
    assert [row.get("answer") for row in rows] == ["dog", None, None] and rows[0]["start"] == 4
    assert "line 3: the question has no text after a tab" in err
    assert main(["evaluate", folder, "--json", "--output", str(tmp_path / "out")]) == 0
    scores = json.loads(capsys.readouterr().out)["metrics"]
    assert scores["exact"] == scores["f1"] == 1 and len((tmp_path / "out").read_text().splitlines()) > 10
    assert main(["doctor", folder]) == 0


def test_what_cannot_be_answered_is_one_sentence(small_run, tmp_path, capsys):
    folder = small_run("span")
    cases = {
        "question 1 is empty": lambda: heedful.load(folder).answer(" ", "the cat"),
        "context 2 is empty": lambda: heedful.load(folder).answer(["a", "b"], ["the cat", ""]),
        "texts go together two by two": lambda: heedful.load(folder).answer(["a", "b"], ["the cat"]),
        "which cannot answer; it can": lambda: heedful.load(small_run("classify")).answer("a", "b"),
        "which cannot classify; it can answer": lambda: heedful.load(folder).classify("a"),
    }
    for told, do in cases.items():
        with pytest.raises(BadInput, match=told):
            do()
    assert main(["answer", folder, "--context", str(tmp_path / "gone"), "who"]) == 2
    assert "gone is missing" in capsys.readouterr().err
    for settings, told in (
        ({"data.corpus": "pylib"}, "span has no built-in corpus"),
        ({}, "give --data and --valid-data, files of questions"),
        ({"data.corpus": "facts", "data.max_length": 30}, "beside a question of up to 64 tokens"),
    ):
        with pytest.raises(BadInput, match=told):
            trainer.start(recipe.make("span", settings=settings), tmp_path / "run", Quiet(), CPU)


def test_a_hugging_face_folder_answers_too(origin_of, tmp_path):
    source = heedful.load(origin_of("bert"))
    config = bert.BertConfig(
        vocab=source.config.vocab,
        context=100,
        layers=1,
        width=12,
        heads=2,
        ffn_width=20,
        prediction_heads=("span",),
    )
    heedful.save(Loaded("bert", config, bert.build(config).eval(), source.tokenizer, {}), tmp_path / "saved")
    model = heedful.load(tmp_path / "saved")
    assert model.can == ("answer", "embed", "look")
    text = " ".join(["the food was fine"] * 60)
    found = model.answer("was the food great", text)
    assert text[found.start : found.end] == found and len(found.split()) <= 30


@pytest.mark.parametrize("way", ["whole", "head", "lora"])
def test_every_way_starts_from_an_encoder(way, origin_of, tmp_path):
    rows = [
        line(question="who was", context="the food was fine", answers=[{"text": "fine", "start": 13}])
    ] * 8
    (tmp_path / "a").write_text("".join(rows))
    settings = {
        "data.table": str(tmp_path / "a"),
        "data.valid_table": str(tmp_path / "a"),
        "train.from": str(origin_of("bert")),
        "train.tune": way,
        "train.steps": 30,
        "train.learning_rate": 0.05,
        "evaluate.every": 30,
        "train.warmup_steps": 1,
        "data.window_overlap": 2,
    }
    if way == "whole":
        settings["train.learning_rate"] = 5e-3
    folder = tmp_path / "bert"
    config = json.loads((folder / "config.json").read_text())
    weights = heedful.load(folder)
    larger = bert.BertConfig(**{**vars(weights.config), "context": 90})
    heedful.save(Loaded("bert", larger, bert.build(larger), weights.tokenizer, {}), tmp_path / "wide")
    assert config["max_position_embeddings"] == 20
    with pytest.raises(BadInput, match="leaves no room for a text"):
        trainer.start(recipe.make("span", settings=settings), tmp_path / "no", Quiet(), CPU)
    settings["train.from"] = str(tmp_path / "wide")
    outcome = trainer.start(recipe.make("span", settings=settings), tmp_path / "run", Quiet(), CPU)
    assert outcome.best.scores["loss"] < outcome.job.baselines["loss"][1]
    assert heedful.load(tmp_path / "run").answer("who was", "the food was fine") in "the food was fine"
