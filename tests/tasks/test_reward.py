"""Reward: the head is read at the end of a response, only differences are learned, and exports are equal."""

import json
from pathlib import Path

import pytest
import torch
import transformers as hf
from helpers import tiny
from helpers.chat_cases import CHATML, folder, tell  # noqa: F401 (fixtures)
from helpers.runs import (
    CPU,
    Quiet,
    recipe_for,
    texts,  # noqa: F401 (fixtures)
)

import heedful
from heedful.cli.main import main
from heedful.corpora import instructions
from heedful.data.pairs import PreferencePair, read_pairs
from heedful.data.report import Report
from heedful.errors import BadInput
from heedful.models.base.shells import classifier, keeps_packed_rows
from heedful.parts.places import Lengths, Packed
from heedful.runs import trainer
from heedful.tasks import recipe
from heedful.tasks.preference_data import PairRows, PairTokens, by_pair, pair_losses
from heedful.tasks.preference_scores import by_length_alone, pair_scores
from heedful.tasks.reward import loss_of, rewards_of
from heedful.tasks.reward_scores import RewardModel

PAIRS = [
    PairTokens([3, 4, 5, 6], [7, 8, 1], [9, 1]),
    PairTokens([9, 3], [10, 1], [4, 11, 12, 1]),
    PairTokens([11, 12, 13], [4, 14, 15, 16, 1], [17, 1]),
]


@pytest.fixture(params=[name for name in tiny.DECODERS if name != "mixture"])
def model(request):
    return reward_model(request.param)


def reward_model(name: str):
    torch.manual_seed(1)
    _, config = tiny.DECODERS[name]
    return classifier(tiny.build(tiny.DECODERS[name]), config, 1, 0.0, bias=False).double().eval()


# The loss


def reward_alone(model, prompt, response) -> torch.Tensor:
    """The same by hand: the head on the last vector of a row of its own."""
    hidden_1TD = model.decoder.hidden(torch.tensor([[*prompt, *response]]))
    return (hidden_1TD[0, -1] * model.linear.weight[0]).sum()


def loss_alone(model, one: PairTokens) -> torch.Tensor:
    good, bad = reward_alone(model, one.prompt, one.chosen), reward_alone(model, one.prompt, one.rejected)
    return torch.log(1 + torch.exp(bad - good))


def test_pairs_together_equal_single_ones(model):
    rows = PairRows(PAIRS, 9, keeps_packed_rows(model))
    batch = rows.batch(range(rows.apart.rows))
    assert batch.count == 3 and sorted(batch.ids) == [0, 1, 2]
    together = loss_of(model, batch)
    together.total.backward()
    found = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    alone = sum(loss_alone(model, one) for one in PAIRS)
    alone.backward()
    assert torch.allclose(together.nll, alone, rtol=1e-10) and "linear.weight" in found
    for name, weight in model.named_parameters():
        assert (weight.grad is None) == (name not in found)
        if name in found:
            assert torch.allclose(weight.grad, found[name], rtol=1e-7, atol=1e-10), name


def test_each_reward_is_that_of_its_response_whatever_stands_beside_it(model):
    for some in (PAIRS, PAIRS[::-1], PAIRS[1:]):
        rows = PairRows(some, 12, keeps_packed_rows(model))
        batch = rows.batch(range(rows.apart.rows))
        hidden_BTD = model.decoder.hidden(batch.tokens_BT, Packed(batch.documents_BT))
        for sides in zip(batch.ids, *by_pair(rewards_of(model, hidden_BTD, batch)), strict=True):
            one = some[sides[0]]
            for response, found in zip(one.sides, sides[1:], strict=True):
                assert torch.allclose(found, reward_alone(model, one.prompt, response), rtol=1e-9)


def test_only_the_ends_of_responses_are_read():
    model = reward_model("modern")
    batch = PairRows(PAIRS, 9).batch([0])
    vectors = model.decoder.hidden(batch.tokens_BT, Packed(batch.documents_BT)).detach().requires_grad_()
    sides = by_pair(rewards_of(model, vectors, batch))
    pair_losses(*sides)[0].backward()
    used = (vectors.grad != 0).any(-1).flatten()
    assert used.nonzero().flatten().tolist() == sorted(batch.ends_N.tolist())


def test_padding_changes_nothing():
    model = reward_model("modern")
    ids = torch.tensor([[3, 4, 5, 1]])
    padded = torch.tensor([[3, 4, 5, 1, 9, 9], [3, 4, 5, 1, 0, 0]])
    expected = model(ids, Lengths(torch.tensor([4])))
    assert torch.allclose(model(padded, Lengths(torch.tensor([4, 4]))), expected.expand(2, 1))


def test_a_share_of_wrong_pairs_mixes_the_loss_of_both_orders():
    chosen, rejected = torch.tensor([0.5, -2.0]).double(), torch.tensor([1.0, 0.25]).double()
    smoothed, plain = pair_losses(chosen, rejected, 0.2)
    turned = pair_losses(rejected, chosen)[1]
    assert torch.allclose(smoothed, 0.8 * plain + 0.2 * turned)


def test_scores_of_pairs():
    scores = pair_scores(torch.tensor([0.0, 2.0, -1.0]).numpy())
    expected = torch.log1p(torch.exp(-torch.tensor([0.0, 2.0, -1.0]).double()))
    assert torch.allclose(torch.from_numpy(scores["loss"]), expected)
    assert scores["accuracy"].tolist() == [0, 1, 0] and scores["margin"].tolist() == [0, 2, -1]


# Files


def read(path: Path, lines: list[object]) -> tuple[list, Report]:
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    report = Report()
    return list(read_pairs(path, ("prompt", "chosen", "rejected"), report)), report


def said(*texts: str) -> list[dict]:
    return [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]


def test_pairs_are_read_in_all_forms(tmp_path):
    expected = PreferencePair((("user", "a"),), "b", "c")
    plain = {"prompt": "a", "chosen": "b", "rejected": "c"}
    whole = {"prompt": "a", "chosen": said("a", "b"), "rejected": said("a", "c")}
    answers = {"chosen": said("", "b")[1:], "rejected": said("", "c")[1:]}
    listed = {"prompt": said("a"), **answers}
    found, report = read(tmp_path / "x", [plain, whole, listed, {"prompt": "a", **answers}])
    assert found == [expected] * 4 and not report.counts
    found, _ = read(tmp_path / "y", ["prompt\tchosen\trejected", "a\tb\tc"])
    assert found == [expected]
    longer = {"chosen": said("a", "b", "c", "d"), "rejected": said("a", "b", "c", "e")}
    ((pair,), _) = read(tmp_path / "z", [longer])
    assert [text for _, text in pair.before] == ["a", "b", "c"] and (pair.chosen, pair.rejected) == ("d", "e")


def test_bad_pairs_are_counted_by_what_is_wrong(tmp_path):
    good = {"prompt": "a", "chosen": "b", "rejected": "c"}
    bad = [
        {"chosen": "b", "rejected": "c"},
        {"prompt": "a", "chosen": "b"},
        {"prompt": "a", "chosen": 7, "rejected": "c"},
        {"prompt": "a", "chosen": "b", "rejected": " b "},
        {"chosen": said("a", "b"), "rejected": said("x", "c")},
        {"chosen": said("a", "b"), "rejected": "c"},
        {"chosen": said("a", "b", "c"), "rejected": said("a", "b", "d")},
        {"chosen": [{"role": "tool", "content": "b"}], "rejected": said("a", "c")},
        "{",
    ]
    found, report = read(tmp_path / "x", [good, *bad])
    assert len(found) == 1 and report.counts.total() == len(bad)
    assert report.counts["with equal responses"] == 1 and report.counts["of two conversations"] == 2
    found, report = read(
        tmp_path / "y", ["prompt\tchosen\trejected", "a\tb", "a\tb\tb", "a\tb\tc", "x\ty\ty"]
    )
    assert len(found) == 1
    assert [line for _, line, _ in report.firsts["with equal responses"]] == [3, 5]


def test_equal_responses_and_long_ones_are_left_out_of_a_run(texts, tmp_path):
    path = Path(texts["a.pairs"])
    more = [
        {"prompt": "ba", "chosen": "be", "rejected": "be "},
        {"prompt": "ba", "chosen": "zz", "rejected": "yy"},
    ]
    path.write_text(path.read_text() + "".join(json.dumps(one) + "\n" for one in more))
    talk = Quiet()
    settings = {"data.max_response_length": 4, "data.vocab_size": 30}
    trainer.start(recipe_for("reward", texts, 1, **settings), tmp_path / "run", talk, CPU)
    (line,) = [line for line in talk.lines if "dropped" in line]
    assert "with equal responses" in line  # as text, and as unknown words
    (line,) = [line for line in talk.lines if line.startswith("data: ")]
    assert "left out, which are too long" in line


# Runs


@pytest.fixture
def learned(texts, tmp_path):
    """A run that has learned that short responses are better."""
    more = {"train.learning_rate": 1e-2, "train.batch_tokens": 512, "evaluate.every": 30, "evaluate.rows": 20}
    trainer.start(recipe_for("reward", texts, 60, **more), tmp_path / "run", Quiet(), CPU)
    return tmp_path / "run"


def test_a_reward_model_is_evaluated_and_judges_texts(learned, capsys):
    assert main(["evaluate", str(learned), "--json"]) in (0, None)
    told = json.loads(capsys.readouterr().out)
    assert told["metrics"]["accuracy"] == 1.0 and told["unit"] == "pairs" and told["metrics"]["margin"] > 1
    assert told["baselines"]["accuracy"] == {"name": "always the shorter response", "score": 1.0}
    judge = RewardModel.load(learned)
    asked = (("user", "ba be bi"),)
    good, bad = judge.scores([(asked, "ba"), (asked, "BA BE BI")])
    assert good > bad + 1
    model = heedful.load(learned)
    assert model.classify(["ba be bi"], ["ba"])[0] == pytest.approx(good, abs=1e-5)
    assert model.classify("User: ba be bi\nAssistant: ba") == pytest.approx(good, abs=1e-5)
    with pytest.raises(BadInput, match="a response has .* tokens, and"):
        judge.scores([(asked, "ba " * 40)])


def test_rewards_of_many_equal_those_of_each_alone(learned):
    judge = RewardModel.load(learned)
    rows = [
        ((("user", "ba be bi bo"[: 3 * n + 2]),), "BA BE BO"[: 3 * m + 2]) for n in range(4) for m in range(3)
    ]
    together = judge.scores(rows)
    assert together == pytest.approx([judge.scores([row])[0] for row in rows], abs=1e-5)
    assert len(set(together)) > 6


def test_a_prompt_that_is_too_long_keeps_its_end(learned):
    judge = RewardModel.load(learned)
    ids = judge.tokens([heedful.tasks.instruct_data.ResponseRow((("user", "ba be " * 30),), "ba")])[0]
    assert len(ids) == judge.room == 32 and ids[-1] == judge.end


@pytest.mark.parametrize("tune", ["whole", "lora", "head"])
@pytest.mark.parametrize("template", [None, CHATML])
def test_an_exported_reward_model_is_that_of_transformers(tune, template, folder, texts, tmp_path):
    if template is not None:
        tell(folder, template)
    more = {
        "train.from": str(folder),
        "train.tune": tune,
        "data.max_length": 200,
        "data.max_response_length": 99,
    }
    trainer.start(recipe_for("reward", texts, 3, **more), tmp_path / "run", Quiet(), CPU)
    heedful.save(heedful.load(tmp_path / "run"), tmp_path / "saved")
    theirs = hf.AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved").eval()
    assert theirs.config.num_labels == 1 and theirs.config.problem_type == "regression"
    judge, again = RewardModel.load(tmp_path / "run"), RewardModel.load(tmp_path / "saved")
    rows = [((("user", "ba be bi"),), "ba"), ((("user", "du"),), "DU du du")]
    read = judge.tokens([heedful.tasks.instruct_data.ResponseRow(*row) for row in rows])
    with torch.no_grad():
        expected = [float(theirs(torch.tensor([ids])).logits[0, 0]) for ids in read]
    assert judge.scores(rows) == pytest.approx(expected, abs=1e-5)
    assert again.scores(rows) == pytest.approx(expected, abs=1e-5)
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path / "saved")
    asked = [{"role": "user", "content": "ba be bi"}]
    prompt = tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=False)
    assert read[0][: len(tokenizer(prompt)["input_ids"]) - 1] == tokenizer(prompt)["input_ids"][:-1]
    assert tokenizer(prompt)["input_ids"][-1] == read[0][-1] == judge.end


def test_export_makes_a_certificate(learned, tmp_path, capsys):
    assert main(["export", str(learned), str(tmp_path / "out")]) in (0, None)
    told = capsys.readouterr().out
    assert "the same model in transformers" in told and "classify: " in told and "chat: " in told
    assert (tmp_path / "out" / "chat_template.jinja").is_file()


def test_a_language_model_is_tuned_and_becomes_a_reward_model(texts, tmp_path):
    trainer.start(recipe_for("instruct", texts, 2), tmp_path / "sft", Quiet(), CPU)
    more = {"train.from": str(tmp_path / "sft")}
    trainer.start(recipe_for("reward", texts, 2, **more), tmp_path / "run", Quiet(), CPU)
    assert (tmp_path / "run" / "chat.json").read_bytes() == (tmp_path / "sft" / "chat.json").read_bytes()
    model = heedful.load(tmp_path / "run")
    assert model.model.linear.bias is None and model.model.linear.out_features == 1
    assert "classify" in model.can and "generate" not in model.can
    assert model.embed("ba be").shape == (16,)


def test_a_model_with_other_heads_is_no_reward_model(texts, tmp_path):
    trainer.start(recipe_for("instruct", texts, 1), tmp_path / "sft", Quiet(), CPU)
    with pytest.raises(BadInput, match="is no reward model"):
        RewardModel.load(tmp_path / "sft")


# The built-in corpus


def test_the_corpus_is_evaluated_by_flaw(monkeypatch, tmp_path, capsys):
    for name, size in {"train": 60, "valid": 30, "test": 25}.items():
        monkeypatch.setitem(instructions.SIZES, name, size)
    instructions.drawn.cache_clear()
    settings = {"model.layers": 1, "model.width": 16, "train.steps": 3, "evaluate.every": 3}
    trainer.start(recipe.make("reward", "tiny", "instructions", settings), tmp_path / "run", Quiet(), CPU)
    assert main(["evaluate", str(tmp_path / "run"), "--split", "test"]) in (0, None)
    told = capsys.readouterr().out
    flaws = {row.flaw for row in instructions.split("test")}
    assert all(f"\n  {flaw} " in told for flaw in flaws) and "instructions, split test" in told
    instructions.drawn.cache_clear()


def test_the_length_alone_is_a_baseline():
    class Lengths:
        def lengths(self, name):
            return {"chosen": torch.tensor([3, 4, 2]), "rejected": torch.tensor([2, 2, 9])}[name].numpy()

    told, share = by_length_alone(Lengths(), PAIRS)
    assert told == "always the longer response" and share == pytest.approx(2 / 3)
