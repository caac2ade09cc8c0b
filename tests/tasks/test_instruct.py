"""Instruct: only responses are learned, conversations in a row are apart, and chat templates are kept."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from helpers import tiny
from helpers.chat_cases import CHATML, MISTRAL, SHAPES, folder, tell  # noqa: F401 (fixtures)
from helpers.runs import (
    CPU,
    Quiet,
    conversation,
    recipe_for,
    texts,  # noqa: F401 (fixtures)
)

import heedful
from heedful.cli.main import main
from heedful.corpora import instructions
from heedful.data.conversations import read_conversations
from heedful.data.report import Report
from heedful.errors import BadInput
from heedful.interop.gguf.write import write as write_gguf
from heedful.interop.hf.chat import Chat
from heedful.interop.hf.chat_files import read_chat
from heedful.models.base.shells import keeps_packed_rows
from heedful.runs import trainer
from heedful.tasks import recipe
from heedful.tasks.instruct import ResponseEvaluator
from heedful.tasks.instruct_data import (
    PLAIN,
    ModelTemplate,
    PlainTemplate,
    ResponseRow,
    ResponseRows,
    ResponseTokens,
    responses_in,
    with_end,
)
from heedful.tasks.lm import loss_of
from heedful.train.loss import NOTHING
from heedful.use.conversation import Conversation

SAID = [
    ResponseTokens([3, 4, 5, 6], [7, 8, 1]),
    ResponseTokens([9, 3], [10, 1]),
    ResponseTokens([11, 12, 13], [4, 14, 15, 16, 1]),
    ResponseTokens([17], [18, 1]),
]
TURNS = (
    ("user", " What is a mat? "),
    ("assistant", "A rug."),
    ("user", "And a cat?"),
    ("assistant", "Here."),
)


@pytest.fixture(params=[name for name in tiny.DECODERS if name != "mixture"])
def model(request):
    return tiny.build(tiny.DECODERS[request.param])


# The loss


def single_loss(model, one: ResponseTokens) -> torch.Tensor:
    """The same by hand: the sum over the response's tokens, each from all before it."""
    ids = torch.tensor([[*one.prompt, *one.response]])
    scores = model(ids[:, :-1])[0]
    start = len(one.prompt) - 1
    return F.cross_entropy(scores[start:], torch.tensor(one.response), reduction="sum")


def test_packed_conversations_equal_single_ones(model):
    rows = ResponseRows(SAID, 11, keeps_packed_rows(model))
    batch = rows.batch(range(rows.apart.rows))
    assert rows.apart.rows < len(SAID) or not keeps_packed_rows(model)
    assert batch.count == sum(len(one.response) for one in SAID)
    packed = loss_of(model, batch)
    packed.nll.backward()
    together = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.zero_grad()
    alone = sum(single_loss(model, one) for one in SAID)
    alone.backward()
    assert torch.allclose(packed.nll, alone, rtol=1e-10)
    for name, weight in model.named_parameters():
        assert torch.allclose(weight.grad, together[name], rtol=1e-8, atol=1e-10), name


class FromVectors:
    """A model whose vectors are given, so that one can ask for their gradient."""

    def __init__(self, model, batch) -> None:
        self.head, self.inputs, self.modules = model.head, model.inputs, model.modules
        found = model.hidden(batch.tokens_BT, heedful.parts.places.Packed(batch.documents_BT))
        self.vectors = found.detach().requires_grad_()

    def hidden(self, *args, **more):
        return self.vectors


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_gradient_of_prompts_and_padding_is_exactly_zero(smoothing):
    model = tiny.build(tiny.DECODERS["modern"])
    rows = ResponseRows(SAID, 13)
    batch = rows.batch(range(rows.apart.rows))
    stub = FromVectors(model, batch)
    loss_of(stub, batch, smoothing).total.backward()
    here = batch.answers_BT != NOTHING
    assert (stub.vectors.grad[~here] == 0).all() and (stub.vectors.grad[here] != 0).any(-1).all()
    assert int(here.sum()) == batch.count < int((batch.documents_BT >= 0).sum())


def test_a_prompt_that_is_learned_from_nowhere_changes_nothing_but_what_follows():
    """Other answers in a prompt's place would be another loss: there are none."""
    batch = ResponseRows(SAID, 11).batch([0, 1])
    for row in range(2):
        for place in range(11):
            answer = int(batch.answers_BT[row, place])
            assert answer == NOTHING or place + 1 == 11 or answer in (1, int(batch.tokens_BT[row, place + 1]))


# Rows and templates


def test_every_response_follows_all_that_was_said_before():
    rows = list(responses_in(TURNS))
    assert [row.response for row in rows] == ["A rug.", "Here."]
    assert [len(row.before) for row in rows] == [1, 3] and rows[1].asked == "And a cat?"
    assert list(responses_in(TURNS[1:])) == [ResponseRow(TURNS[1:3], "Here.")]


def test_the_plain_template_is_what_its_jinja_says():
    chat = Chat("here", {"default": PLAIN}, {})
    system = (("system", "Be brief."), *TURNS)
    for row in [*responses_in(TURNS), *responses_in(system)]:
        prompt, response = PlainTemplate().texts(row)
        before = [{"role": role, "content": said} for role, said in row.before]
        assert chat.one(before, True) == prompt
        assert (
            chat.one([*before, {"role": "assistant", "content": row.response}], False)
            == prompt + response + "\n"
        )
    assert PlainTemplate().texts(next(responses_in(TURNS))) == ("User: What is a mat?\nAssistant:", " A rug.")


@pytest.mark.parametrize("shape", [name for name in SHAPES if name != "others"])
def test_a_response_follows_the_prompt_that_a_chat_would_give(shape):
    chat = Chat("here", {"default": SHAPES[shape]}, {"bos_token": "<s>", "eos_token": "</s>"})
    for row in responses_in(TURNS):
        prompt, response = ModelTemplate(chat).texts(row)
        assert prompt == chat.one([{"role": role, "content": said} for role, said in row.before], True)
        assert response.strip().startswith(row.response) and len(response) < len(row.response) + 20


def test_a_conversation_that_a_template_refuses_is_reported(folder, tmp_path):
    chat = Chat("here", {"default": SHAPES["llama2"]}, {"bos_token": "<s>", "eos_token": "</s>"})
    row = ResponseRow((("user", "a"), ("user", "b")), "c")
    assert "roles must take turns" in ModelTemplate(chat).texts(row).why


def test_a_response_ends_once():
    assert with_end([5, 6], 1) == [5, 6, 1] and with_end([5, 1, 7, 1], 1) == [5, 1]


# Files


def read(path: Path, lines: list[object]) -> tuple[list, Report]:
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    report = Report()
    return list(read_conversations(path, report=report)), report


def test_conversations_are_read_in_both_forms(tmp_path):
    messages = [{"role": role, "content": said} for role, said in TURNS]
    found, report = read(
        tmp_path / "x", [{"messages": messages}, {"prompt": "a", "response": "b", "more": 1}]
    )
    assert found == [TURNS, (("user", "a"), ("assistant", "b"))] and not report.counts
    found, _ = read(tmp_path / "y", ["prompt\tresponse", "a\tb"])
    assert found == [(("user", "a"), ("assistant", "b"))]


def test_bad_conversations_are_counted_by_what_is_wrong(tmp_path):
    said = {"role": "user", "content": "a"}
    bad = [
        {"messages": "a"},
        {"messages": [said, {"role": "tool", "content": "b"}]},
        {"messages": [said]},
        {"messages": [{"role": "assistant", "content": "a"}]},
        {"messages": [said, {"role": "assistant", "content": 7}]},
        {"prompt": "a"},
        {"prompt": "a", "response": " "},
        "{",
    ]
    found, report = read(tmp_path / "x", [{"prompt": "a", "response": "b"}, *bad])
    assert len(found) == 1 and report.counts.total() == len(bad)
    assert report.counts["without a response"] == 3


# Runs


def started(texts, tmp_path, **more):
    trainer.start(recipe_for("instruct", texts, **more), tmp_path / "run", Quiet(), CPU)
    return tmp_path / "run"


FITTED = {
    "model.width": 32,
    "model.ffn_width": 64,
    "train.learning_rate": 1e-2,
    "train.batch_tokens": 256,
    "evaluate.every": 80,
    "evaluate.rows": 12,
}


@pytest.fixture
def learned(tmp_path):
    """A run that knows twelve instructions by heart."""
    lines = ["ba be", "be bi bo", "bo bu", "bu ba", "da de", "de di do", "do du", "du da", "fa fe fi fo fu"]
    for name in ("a.said", "v.said"):
        (tmp_path / name).write_text("".join(map(conversation, lines)))
    files = {"data.table": str(tmp_path / "a.said"), "data.valid_table": str(tmp_path / "v.said")}
    sizes = {"model.layers": 2, "model.heads": 2, "model.context": 64, "data.max_response_length": 9}
    settings = {
        **files,
        **sizes,
        **FITTED,
        "data.tokenizer": "word",
        "train.steps": 160,
        "evaluate.examples": 1,
    }
    talk = Quiet()
    trainer.start(recipe.make("instruct", settings=settings), tmp_path / "run", talk, CPU)
    return tmp_path / "run"


def test_a_model_that_has_learned_answers_in_a_chat_and_elsewhere(learned, tmp_path, capsys):
    assert main(["evaluate", str(learned), "--json", "--output", str(tmp_path / "said")]) in (0, None)
    told = json.loads(capsys.readouterr().out)
    assert told["metrics"]["exact"] == 1.0 and told["unit"] == "responses" and "reward" not in told["metrics"]
    assert (tmp_path / "said").read_text().splitlines()[:2] == ["BA BE", "BE BI BO"]
    model = heedful.load(learned)
    assert model.chat_prompt("ba be") == "User: ba be\nAssistant:"
    talk = Conversation(model, {})
    for said, expected in (("fa fe fi fo fu", "FA FE FI FO FU"), ("first", "fa")):
        talk.say(said)
        assert "".join(talk.answer()).strip() == expected
    heedful.save(model, tmp_path / "saved")
    assert read_chat(tmp_path / "saved").template == PLAIN
    theirs = hf.AutoTokenizer.from_pretrained(tmp_path / "saved")
    told = theirs.apply_chat_template([{"role": "user", "content": "ba be"}], add_generation_prompt=True)
    assert told["input_ids"] == model.wording.prompt([model.chat_prompt("ba be")])[0].ids


def test_a_run_goes_on_from_a_run_and_keeps_its_template(learned, tmp_path):
    settings = {
        "data.table": str(tmp_path / "a.said"),
        "data.valid_table": str(tmp_path / "v.said"),
        "train.from": str(learned),
        "train.steps": 2,
        "train.learning_rate": 1e-5,
        "data.max_response_length": 9,
    }
    talk = Quiet()
    trainer.start(recipe.make("instruct", settings=settings), tmp_path / "again", talk, CPU)
    assert any("held-out loss" in line and "exact match 100.0%" in line for line in talk.lines), talk.lines
    assert (tmp_path / "again" / "chat.json").read_bytes() == (learned / "chat.json").read_bytes()


@pytest.mark.parametrize("tune", ["whole", "lora"])
@pytest.mark.parametrize("kind", ["folder", "gguf"])
def test_a_chat_model_is_tuned_by_its_own_template(kind, tune, folder, texts, tmp_path):
    tell(folder, CHATML)
    origin = folder
    if kind == "gguf":
        (tmp_path / "gguf").mkdir()
        write_gguf(heedful.load(folder).loaded, tmp_path / "gguf")
        origin = tmp_path / "gguf" / "model.gguf"
    more = {"train.from": str(origin), "train.tune": tune, "train.steps": 2, "data.max_length": 200}
    run = started(texts, tmp_path, **more)
    model = heedful.load(run)
    assert model.loaded.chat.template == CHATML
    assert "<|im_start|>user\nba<|im_end|>" in model.chat_prompt("ba")
    stored = heedful.data.store.Store.mapped(run / "data")
    start, end, last = 3, 4, 1  # <|im_start|>, <|im_end|>, </s>
    assert stored.row("prompt", 0).tolist().count(start) == 3
    assert stored.row("response", 0).tolist()[-2:] == [end, last]
    if tune == "lora":
        assert (run / "adapter" / "chat_template.jinja").read_text() == CHATML


def test_a_model_without_a_template_gets_the_plain_one(folder, texts, tmp_path):
    run = started(texts, tmp_path, **{"train.from": str(folder), "train.steps": 1, "data.max_length": 99})
    assert heedful.load(run).loaded.chat.template == PLAIN


def test_evaluation_changes_nothing_and_asks_for_the_template(learned):
    before = {path: path.stat().st_mtime_ns for path in learned.rglob("*")}
    assert main(["evaluate", str(learned)]) in (0, None)
    assert {path: path.stat().st_mtime_ns for path in learned.rglob("*")} == before
    (learned / "chat.json").unlink()
    assert main(["evaluate", str(learned)]) == 2 and not (learned / "chat.json").exists()


# The built-in corpus


@pytest.fixture
def few(monkeypatch):
    """The corpus with few rows."""
    for name, size in {"train": 60, "valid": 20, "test": 15, "combinations": 10}.items():
        monkeypatch.setitem(instructions.SIZES, name, size)
    instructions.drawn.cache_clear()
    yield
    instructions.drawn.cache_clear()


def test_the_corpus_is_judged_by_its_program(few, tmp_path, capsys):
    settings = {"model.layers": 1, "model.width": 16, "train.steps": 3, "evaluate.every": 3}
    made = recipe.make("instruct", "tiny", "instructions", settings)
    talk = Quiet()
    trainer.start(made, tmp_path / "run", talk, CPU)
    assert any("reward 0." in line for line in talk.lines)
    assert main(["evaluate", str(tmp_path / "run"), "--split", "test"]) in (0, None)
    told = capsys.readouterr().out
    assert all(f"\n  {kind} " in told for kind in instructions.KINDS) and "instructions, split test" in told
    assert main(["evaluate", str(tmp_path / "run"), "--split", "long"]) == 2


def test_right_responses_get_the_whole_reward(few):
    rows = [ResponseRow((("user", row.prompt),), row.response, row) for row in instructions.split("valid")]

    class Vocabulary:
        lower = False

    judged = ResponseEvaluator(Vocabulary, [(row, ResponseTokens([3], [4, 1])) for row in rows], 9, 5, True)
    scores = judged.scores([row.response for row in rows])
    assert scores["exact"].min() == scores["reward"].min() == 1
    wrong = judged.scores([row.instruction.rejected for row in rows])
    assert wrong["exact"].max() == 0 and 0 < wrong["reward"].max() <= 0.3


# Refusals


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"data.table": ""}, "give --data and --valid-data"),
        ({"data.valid_table": ""}, "give --data and --valid-data"),
        ({"data.max_response_length": 1}, "no response is left to learn from: all"),
        ({"model.architecture": "xl"}, "xl remembers one long text"),
    ],
)
def test_what_cannot_be_learned_is_refused(settings, sentence, texts, tmp_path):
    with pytest.raises(BadInput, match=sentence):
        started(texts, tmp_path, **settings)


def test_the_corpus_has_capitals():
    with pytest.raises(BadInput, match="leave out data.lowercase"):
        recipe.make("instruct", "tiny", "instructions", {"data.lowercase": True})


def test_a_template_that_refuses_everything_is_named(folder, texts, tmp_path):
    tell(folder, MISTRAL.replace("{{ bos_token }}", "{{ raise_exception('never') }}"))
    with pytest.raises(BadInput, match="refuses every conversation"):
        started(texts, tmp_path, **{"train.from": str(folder), "train.steps": 1})


def test_prompts_that_do_not_fit_keep_their_end():
    row = ResponseRow((("user", "x"),), "y")
    held_out = [(row, ResponseTokens(list(range(20)), [30, 31, 1]))]
    judged = ResponseEvaluator(None, held_out, 8, 5, True)
    assert judged.prompts == [[16, 17, 18, 19]]  # and five tokens of a response, of which the last is not fed
    assert judged.tokens == [replace(held_out[0][1], prompt=[14, 15, 16, 17, 18, 19])]
    assert judged.batches.batch([0]).count == 3
