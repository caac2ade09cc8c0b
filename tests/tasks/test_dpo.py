"""DPO: the paper's loss against a reference that is computed once, and responses that become better."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from helpers import tiny
from helpers.chat_cases import CHATML, folder, tell  # noqa: F401 (fixtures)
from helpers.runs import (
    CPU,
    Interrupted,
    Quiet,
    losses,
    recipe_for,
    responder,
    state_of,
    texts,  # noqa: F401 (fixtures)
)

import heedful
from heedful.cli.main import main
from heedful.corpora import instructions
from heedful.data.vocab import read_vocab
from heedful.errors import BadInput
from heedful.interop.formats import load
from heedful.models.base.shells import keeps_packed_rows
from heedful.parts.lora import adapters
from heedful.runs import setup, trainer
from heedful.tasks import own_responses, recipe
from heedful.tasks.dpo import implicit_scores, loss_of
from heedful.tasks.instruct_data import PlainTemplate
from heedful.tasks.own_responses import responses_of
from heedful.tasks.preference_data import PairRow, PairRows, PairTokens
from heedful.tasks.reference import FILE, logprobs_of, response_logprobs
from heedful.train.preference import dpo_loss

PAIRS = [
    PairTokens([3, 4, 5, 6], [7, 8, 1], [9, 1]),
    PairTokens([9, 3], [10, 1], [4, 11, 12, 1]),
    PairTokens([11, 12, 13], [4, 14, 15, 16, 1], [17, 1]),
]
BETA = 0.3


@pytest.fixture(params=[name for name in tiny.DECODERS if name != "mixture"])
def model(request):
    return tiny.build(tiny.DECODERS[request.param])


# The loss


def logprob_alone(model, prompt, response) -> torch.Tensor:
    """log pi(y | x) by hand: token by token, each from a pass of its own."""
    ids, total = [*prompt], torch.zeros((), dtype=torch.float64)
    for token in response:
        scores_V = model(torch.tensor([ids]))[0, -1].double()
        total = total + scores_V[token] - torch.logsumexp(scores_V, 0)
        ids.append(token)
    return total


def loss_alone(model, reference, one: PairTokens, beta: float) -> torch.Tensor:
    """Equation 7, with nothing of heedful's."""
    ratios = [
        logprob_alone(model, one.prompt, side) - logprob_alone(reference, one.prompt, side).detach()
        for side in one.sides
    ]
    return -torch.log(1 / (1 + torch.exp(-beta * (ratios[0] - ratios[1]))))


def two_models(name: str):
    """A model that learns, and one that it does not equal."""
    return tiny.build(tiny.DECODERS[name]), moved(tiny.build(tiny.DECODERS[name]))


def moved(model):
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.05 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return model


def test_pairs_together_equal_single_ones_token_by_token(model):
    rows = PairRows(PAIRS, 9, keeps_packed_rows(model))
    batch = rows.batch(range(rows.apart.rows))
    reference = torch.linspace(-9, -3, 6, dtype=torch.float64)
    together = loss_of(model, batch, reference, BETA)
    together.total.backward()
    found = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    alone = torch.zeros((), dtype=torch.float64)
    for place, number in enumerate(batch.ids):
        one = PAIRS[number]
        sides = [logprob_alone(model, one.prompt, side) for side in one.sides]
        ratios = [side - reference[2 * place + n] for n, side in enumerate(sides)]
        alone = alone - torch.log(torch.sigmoid(BETA * (ratios[0] - ratios[1])))
    alone.backward()
    assert torch.allclose(together.nll, alone, rtol=1e-9) and together.count == 3
    for name, weight in model.named_parameters():
        assert torch.allclose(weight.grad, found[name], rtol=1e-7, atol=1e-10), name


def test_it_is_the_papers_loss_against_a_second_model():
    model, reference = two_models("llama")
    rows = PairRows(PAIRS, 9)
    batch = rows.batch(range(rows.apart.rows))
    before = response_logprobs(reference, batch).detach()
    found = loss_of(model, batch, before, BETA)
    expected = sum(loss_alone(model, reference, one, BETA) for one in PAIRS)
    assert torch.allclose(found.total, expected, rtol=1e-9)
    now = response_logprobs(model, batch)
    assert torch.allclose(found.total, dpo_loss(now[::2], now[1::2], before[::2], before[1::2], BETA).sum())


def test_the_gradient_of_prompts_and_padding_is_exactly_zero():
    model = tiny.build(tiny.DECODERS["modern"])
    batch = PairRows(PAIRS, 24).batch([0])
    assert batch.count == 3
    vectors = model.hidden(batch.tokens_BT, heedful.parts.places.Packed(batch.documents_BT))
    vectors = vectors.detach().requires_grad_()

    class FromVectors:
        head, inputs, modules = model.head, model.inputs, model.modules

        def hidden(self, *args, **more):
            return vectors

    loss_of(FromVectors(), batch, torch.zeros(6, dtype=torch.float64), BETA).total.backward()
    here = batch.answers_BT >= 0
    assert (vectors.grad[~here] == 0).all() and (vectors.grad[here] != 0).any(-1).all()
    assert int(here.sum()) == sum(len(side) for one in PAIRS for side in one.sides)


def test_log_probabilities_do_not_depend_on_what_stands_beside(model):
    expected = [
        [logprob_alone(model, one.prompt, one.sides[side]).item() for one in PAIRS] for side in range(2)
    ]
    for length in (9, 20):
        rows = PairRows(PAIRS, length, keeps_packed_rows(model))
        found = logprobs_of(model, rows, ([row] for row in range(rows.apart.rows)))
        assert torch.allclose(torch.from_numpy(found).double(), torch.tensor(expected).double(), rtol=1e-5)


def test_implicit_rewards():
    found, before = torch.tensor([[-1.0, -4.0], [-3.0, -2.0]]).numpy(), torch.zeros(2, 2).numpy() - 2
    scores = implicit_scores(found, before, 0.5)
    assert scores["chosen"].tolist() == [0.5, -1.0] and scores["margin"].tolist() == [1.0, -1.0]
    assert scores["accuracy"].tolist() == [1, 0]


# Runs


def started(texts, tmp_path, name="run", steps=3, **more) -> Path:
    trainer.start(recipe_for("dpo", texts, steps, **more), tmp_path / name, Quiet(), CPU)
    return tmp_path / name


@pytest.mark.parametrize("tune", ["whole", "lora"])
def test_the_first_loss_is_ln_2_and_the_reference_is_the_model_that_it_began_from(tune, texts, tmp_path):
    more = {"train.tune": tune, "model.dropout": 0.0}
    asked = recipe_for("dpo", texts, 1, **more)
    run = started(texts, tmp_path, steps=1, **more)
    assert losses(run)[0]["loss"] == pytest.approx(math.log(2), abs=1e-5)
    job = setup.make_job(asked, run, Quiet())
    model = setup.new_model(job, asked, CPU)
    job.begin(model)
    again = load(responder(texts)).model
    assert bool(adapters(model)) == (tune == "lora")
    kept = heedful.interop.hf.weights.headers(run / FILE)
    found = dict(heedful.interop.hf.weights.read_tensors(kept))["learned"]
    batch = job.batches(0)[0]
    for one in (model.eval(), again.eval()):
        with torch.no_grad():
            expected = response_logprobs(one, batch).view(-1, 2).T
        assert torch.allclose(found[:, list(batch.ids)], expected, rtol=1e-5, atol=1e-5)


def test_adapters_that_have_learned_are_off_in_the_reference(texts, tmp_path):
    """The model moves away, and with its adapters off it is the reference still."""
    more = {"train.tune": "lora", "train.learning_rate": 1e-2, "model.dropout": 0.0}
    run = started(texts, tmp_path, steps=6, **more)
    job = setup.make_job(recipe_for("dpo", texts, 6, **more), run, Quiet())
    batch, merged, base = job.batches(0)[0], load(run).model, load(responder(texts)).model
    with torch.no_grad():
        rewards = response_logprobs(merged, batch) - response_logprobs(base, batch)
        loss = job.loss(merged, batch)
    assert rewards.abs().max() > 0.01 and float(loss.nll) / loss.count < math.log(2)


def test_a_run_goes_on_with_the_same_reference_bit_for_bit(texts, tmp_path, monkeypatch):
    whole = started(texts, tmp_path, "whole", 9)
    with pytest.raises(Interrupted):
        trainer.start(recipe_for("dpo", texts, 9), tmp_path / "cut", Quiet(until=6), CPU)
    before = (tmp_path / "cut" / FILE).read_bytes()
    shutil.rmtree(responder(texts))  # nobody asks for it again
    trainer.resume(tmp_path / "cut", Quiet(), CPU)
    assert (tmp_path / "cut" / FILE).read_bytes() == before == (whole / FILE).read_bytes()
    assert state_of(tmp_path / "cut") == state_of(whole)


def test_a_changed_reference_is_noticed(texts, tmp_path):
    with pytest.raises(Interrupted):
        trainer.start(recipe_for("dpo", texts, 9), tmp_path / "run", Quiet(until=6), CPU)
    path = tmp_path / "run" / FILE
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(BadInput, match=f"{FILE} is damaged: delete it"):
        trainer.resume(tmp_path / "run", Quiet(), CPU)
    path.unlink()
    assert trainer.resume(tmp_path / "run", Quiet(), CPU).finished
    other = started(texts, tmp_path, "other", 2, **{"data.max_response_length": 3})
    (other / FILE).replace(path)
    edit = json.loads((tmp_path / "run" / "recipe.json").read_text())
    edit["train"]["steps"] = 12
    (tmp_path / "run" / "recipe.json").write_text(json.dumps(edit))
    with pytest.raises(BadInput, match="is about other pairs or another model"):
        trainer.resume(tmp_path / "run", Quiet(), CPU)


def test_a_run_is_evaluated_and_chats_by_the_template_that_it_came_with(folder, texts, tmp_path, capsys):
    tell(folder, CHATML)
    more = {"train.from": str(folder), "data.max_length": 200, "data.max_response_length": 99}
    run = started(texts, tmp_path, **more)
    model = heedful.load(run)
    assert model.loaded.chat.template == CHATML and "<|im_start|>user\nba" in model.chat_prompt("ba")
    assert main(["evaluate", str(run), "--json"]) in (0, None)
    told = json.loads(capsys.readouterr().out)
    assert told["unit"] == "prompts" and {"accuracy", "margin", "loss", "chosen"} <= told["metrics"].keys()
    assert "reward" not in told["metrics"]
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert main(["evaluate", str(run)]) in (0, None)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    shutil.rmtree(folder)
    assert main(["evaluate", str(run)]) == 2 and "put it back" in capsys.readouterr().err


def test_a_model_to_start_from_is_needed(texts, tmp_path):
    files = {"data.table": texts["a.pairs"], "data.valid_table": texts["v.pairs"]}
    with pytest.raises(BadInput, match="dpo goes on from a model that responds already: give --from"):
        trainer.start(recipe.make("dpo", "tiny", settings=files), tmp_path / "run", Quiet(), CPU)


# Own responses


def test_own_responses_depend_on_the_seed_and_their_row_alone(texts):
    model = heedful.load(responder(texts))
    vocab = read_vocab(Path(responder(texts)) / "tokenizer.json")
    rows = [PairRow((("user", text),), "be", "bo") for text in ("ba", "be bi bo bu", "du", "ga ge")]
    found = [responses_of(model.model, vocab, PlainTemplate(), rows, (32, 5), seed) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]
    one = responses_of(model.model, vocab, PlainTemplate(), rows[:1], (32, 5), 1)
    assert one == found[0][:1] and all(len(vocab.encode_batch([said])[0]) <= 5 for said in found[0] if said)
    right = [PairRow(row.before, said or "", "x") for row, said in zip(rows, found[0], strict=True)]
    assert responses_of(model.model, vocab, PlainTemplate(), right, (32, 5), 1) == [None] * 4


def test_own_responses_are_drawn_once_and_rejected(texts, tmp_path, monkeypatch):
    more = {"data.rejected": "own"}
    run = started(texts, tmp_path, steps=9, **more)
    own = [json.loads(line) for line in (run / "own-train.jsonl").read_text().splitlines()]
    assert len(own) == 100
    stored = heedful.data.store.Store.mapped(run / "data")
    vocab = read_vocab(run / "tokenizer.json")
    said = {vocab.decode(stored.row("rejected", i)).strip() for i in range(len(stored))}
    known = {vocab.decode(vocab.encode_batch([one])[0]).strip() for one in own if one is not None}
    assert said <= known and len(stored) <= sum(one is not None for one in own)
    with pytest.raises(Interrupted):
        trainer.start(recipe_for("dpo", texts, 9, **more), tmp_path / "cut", Quiet(until=6), CPU)
    monkeypatch.setattr(own_responses, "sample", None)
    trainer.resume(tmp_path / "cut", Quiet(), CPU)
    assert state_of(tmp_path / "cut") == state_of(run)


# The built-in corpus


def test_the_corpus_is_judged_by_its_program(monkeypatch, tmp_path, capsys):
    for name, size in {"train": 60, "valid": 20, "test": 15}.items():
        monkeypatch.setitem(instructions.SIZES, name, size)
    instructions.drawn.cache_clear()
    settings = {"model.layers": 1, "model.width": 16, "train.steps": 3, "evaluate.every": 3}
    trainer.start(recipe.make("instruct", "tiny", "instructions", settings), tmp_path / "sft", Quiet(), CPU)
    settings = {"train.from": str(tmp_path / "sft"), "train.steps": 3, "evaluate.every": 3}
    for rejected in ("given", "own"):
        asked = recipe.make("dpo", "tiny", "instructions", {**settings, "data.rejected": rejected})
        talk = Quiet()
        trainer.start(asked, tmp_path / rejected, talk, CPU)
        assert any("reward 0." in line and "margin" in line for line in talk.lines)
        assert main(["evaluate", str(tmp_path / rejected), "--split", "test"]) in (0, None)
        told = capsys.readouterr().out
        assert ("\n  flaw " in told) == (rejected == "given") and "\n  kind " in told
    instructions.drawn.cache_clear()
