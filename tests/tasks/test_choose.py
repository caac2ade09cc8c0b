"""Choosing, and GPT-1's structured inputs to a decoder: each beside a computation of its own, row by row."""

import json

import pytest
import torch
import torch.nn.functional as F
import transformers
from helpers.classify_cases import CPU, TINY, Quiet, files, models, origin_of  # noqa: F401 (fixtures)
from helpers.recipes import without_sizes
from helpers.small_runs import small_run  # noqa: F401 (fixtures)
from helpers.tuning_cases import WAYS

import heedful
from heedful.cli.main import main
from heedful.corpora import quiz
from heedful.data.questions import MultipleChoice, read_choices
from heedful.data.report import Report
from heedful.data.vocab import Vocab
from heedful.errors import BadInput
from heedful.models import bert, gpt2
from heedful.models.base.shells import classifier
from heedful.runs import setup, trainer
from heedful.tasks import choose, classify, recipe
from heedful.tasks.origin import ForeignVocab

ITEMS = [
    ([7, 8, 9, 10], [[11, 12], [13], [14, 15, 16]], 2),
    ([17], [[18], [19, 20]], 0),
    ([9, 8, 7], [[21], [22, 23], [24], [25]], 3),
]
SIZE = {
    "vocab": 30,
    "context": 24,
    "layers": 2,
    "width": 12,
    "ffn_width": 20,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}


def encoder():
    torch.manual_seed(0)
    return bert.build(
        bert.BertConfig(**SIZE, heads=3, prediction_heads=("pooled", "classify"), labels=1)
    ).eval()


def decoder(labels: int = 1):
    torch.manual_seed(0)
    config = gpt2.GPT2Config(**SIZE, heads=3)
    return classifier(gpt2.build(config), config, labels).eval()


# Files and the built-in quiz


def test_choices_are_read_and_bad_lines_told(tmp_path):
    good = {"context": "a b", "choices": ["c", "d"], "answer": 1}
    bad = [
        {"choices": ["c"]},
        {"choices": "cd"},
        {"choices": ["c", 3]},
        {"answer": 2},
        {"answer": "1"},
        {"answer": True},
        {"context": None},
        {"choices": ["c", " "]},
    ]
    (tmp_path / "a").write_text("".join(json.dumps(good | more) + "\n" for more in ({}, *bad, {})))
    report = Report()
    assert list(read_choices(tmp_path / "a", report)) == [MultipleChoice("a b", ("c", "d"), 1)] * 2
    assert report.counts.total() == len(bad)
    with pytest.raises(BadInput, match='a:2: "choices" is .*, where 2 to 1000 texts are expected'):
        list(read_choices(tmp_path / "a", Report("refuse")))


def test_the_quiz_has_one_true_statement_and_one_that_is_true_of_somebody_else():
    for row in quiz.choices("valid"):
        assert len(set(row.choices)) == 4
        told = [
            next(
                i
                for i, (a, b) in enumerate(zip(choice.split(), row.choices[0].split() + [""], strict=False))
                if a != b
            )
            for choice in row.choices[1:]
        ]
        values = [
            " ".join(choice.rstrip(".").split()[min(told) :]).removesuffix(" Medal") for choice in row.choices
        ]
        there = [value in row.context for value in values]
        assert there[row.answer] and sum(there) >= 2
    answers = [row.answer for row in quiz.choices("test")]
    assert {answers.count(place) > 90 for place in range(4)} == {True}


# Rows and losses


@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_scores_and_losses_are_those_of_single_rows(name):
    model, layout = (
        (encoder(), classify.encoder_row) if name == "encoder" else (decoder(), classify.decoder_row)
    )
    made = choose.collate(Vocab, layout, 20, ITEMS)
    assert made.rows_BK.tolist() == [[0, 1, 2, -1], [3, 4, -1, -1], [5, 6, 7, 8]] and made.count == 3
    expected = aside = 0.0
    for text, choices, answer in ITEMS:
        scores, losses = [], []
        for choice in choices:
            v = Vocab
            if name == "encoder":
                ids = torch.tensor([[v.cls, *text, v.sep, *choice, v.sep]])
                kinds = torch.tensor([[0] * (len(text) + 2) + [1] * (len(choice) + 1)])
                scores.append(model(ids, segments_BT=kinds)["classify"][0, 0])
                continue
            ids = torch.tensor([[v.bos, *text, v.sep, *choice, v.eos]])  # start, delimiter, extract
            scores.append(model.linear(model.decoder.hidden(ids)[0, -1])[0])
            losses.append(F.cross_entropy(model.decoder(ids)[0, :-1], ids[0, 1:]))
        expected += F.cross_entropy(torch.stack(scores), torch.tensor(answer))
        aside += sum(losses) / len(choices)
    if name == "encoder":
        loss = choose.encoder_loss(model, made)
    else:
        loss = choose.decoder_loss(model, made, lm_weight=0.3)
        torch.testing.assert_close(loss.nll, choose.decoder_loss(model, made, lm_weight=0.0).total)
    torch.testing.assert_close(loss.nll, expected)
    torch.testing.assert_close(loss.total, expected + 0.3 * aside)
    loss.total.backward()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in model.parameters())


def test_the_order_of_the_choices_does_not_matter_and_smoothing_is_over_those_that_are_there():
    model = encoder()
    turned = [(text, choices[::-1], len(choices) - 1 - answer) for text, choices, answer in ITEMS]
    one, other = (choose.collate(Vocab, classify.encoder_row, 20, items) for items in (ITEMS, turned))
    torch.testing.assert_close(choose.encoder_loss(model, one).total, choose.encoder_loss(model, other).total)
    scores = choose.encoder_scores(model, one)
    smoothed, _ = choose.choice_losses(scores, one, 0.1)
    expected = 0.0
    for row, (_, choices, answer) in zip(scores, ITEMS, strict=True):
        log = row[: len(choices)].log_softmax(-1)
        expected -= 0.9 * log[answer] + 0.1 * log.mean()
    torch.testing.assert_close(smoothed, expected)


def test_an_encoder_chooses_as_hugging_faces_does():
    model = encoder()
    config = transformers.BertConfig(
        vocab_size=30,
        max_position_embeddings=24,
        num_hidden_layers=2,
        hidden_size=12,
        num_attention_heads=3,
        intermediate_size=20,
        layer_norm_eps=1e-12,
    )
    theirs = transformers.BertForMultipleChoice(config).eval()
    table = bert.names(bert.BertConfig(prediction_heads=("pooled", "classify"), labels=1))
    theirs.load_state_dict(table.to_theirs(dict(model.named_parameters())), strict=True)
    made = choose.collate(Vocab, classify.encoder_row, 20, ITEMS[2:])
    mask = torch.arange(made.tokens_NT.shape[1]) < made.lengths_N[:, None]
    with torch.no_grad():
        other = theirs(
            input_ids=made.tokens_NT[None],
            attention_mask=mask[None].long(),
            token_type_ids=made.segments_NT[None],
        ).logits
        assert (choose.encoder_scores(model, made) - other).abs().max() < 1e-5


# Similarity: both orders, the two last states added

PAIRS = [([7, 8, 9, 10, 11], [14, 15]), ([16], [17, 18, 19]), ([9, 8], [20])]


def test_similarity_judges_the_sum_of_both_orders_and_averages_their_language_losses():
    model = decoder(5)
    made = classify.collate_both_orders(Vocab, classify.decoder_row, 20, PAIRS, [0, 4, 2])
    expected = aside = 0.0
    for (a, b), label in zip(PAIRS, [0, 4, 2], strict=True):
        rows = [torch.tensor([[Vocab.bos, *x, Vocab.sep, *y, Vocab.eos]]) for x, y in ((a, b), (b, a))]
        state = sum(model.decoder.hidden(row)[0, -1] for row in rows)
        expected += F.cross_entropy(model.linear(state), torch.tensor(label))
        aside += sum(F.cross_entropy(model.decoder(row)[0, :-1], row[0, 1:]) for row in rows) / 2
    loss = classify.decoder_loss(model, made, lm_weight=0.5)
    torch.testing.assert_close(loss.nll, expected)
    torch.testing.assert_close(loss.total, expected + 0.5 * aside)
    assert loss.count == made.count == 3 and len(made.tokens_BT) == 6


@pytest.mark.parametrize("room", [20, 7, 6])
def test_similarity_is_the_same_when_the_texts_are_exchanged(room):
    """Also where both texts are too long for a row, and an odd room would leave one of them a token more."""
    model = decoder(5)
    both = [*PAIRS[:2], ([7, 8, 9, 10, 11], [12, 13, 14, 15, 16])]
    turned = [(b, a) for a, b in both]
    one, other = (
        classify.collate_both_orders(Vocab, classify.decoder_row, room, pairs, [0, 4, 2])
        for pairs in (both, turned)
    )
    torch.testing.assert_close(classify.decoder_scores(model, one), classify.decoder_scores(model, other))
    plain = [
        classify.collate(Vocab, classify.decoder_row, room, pairs, [0, 4, 2]) for pairs in (both, turned)
    ]
    a, b = (classify.decoder_scores(model, some) for some in plain)
    assert not torch.allclose(a, b, atol=1e-6)  # which one order alone is not


def test_the_auxiliary_loss_sends_no_gradient_through_padding():
    model = decoder(5)
    made = classify.collate(Vocab, classify.decoder_row, 20, PAIRS, [0, 4, 2])
    seen = []

    def keep(module, args, out):
        out.retain_grad()
        seen.append(out)

    hook = model.decoder.inputs.register_forward_hook(keep)
    classify.decoder_loss(model, made).total.backward()
    hook.remove()
    padding = torch.arange(made.tokens_BT.shape[1]) >= made.lengths_B[:, None]
    assert padding.any() and seen[0].grad[padding].abs().max() == 0
    assert (seen[0].grad[~padding].norm(dim=-1) > 0).all()


# The three tokens that GPT-1 was given


def test_a_decoder_that_has_one_token_for_all_gets_a_start_a_delimiter_and_an_extract(
    origin_of,
    files,
    tmp_path,
):
    folder = origin_of("gpt2")
    rows = [f"the food\twas fine {i}\t{i % 2}" for i in range(12)]
    (tmp_path / "pairs").write_text("\n".join(["text\tother\tlabel", *rows]) + "\n")
    settings = {
        **TINY,
        "data.table": str(tmp_path / "pairs"),
        "data.valid_table": str(tmp_path / "pairs"),
        "data.pair_column": "other",
        "train.from": str(folder),
        "data.both_orders": True,
        "train.learning_rate": 1e-3,
    }
    asked = recipe.make("classify", settings=without_sizes(settings))
    source = heedful.load(folder)
    job = setup.make_job(asked, (tmp_path / "look").mkdir() or tmp_path / "look", Quiet())
    rows, v = source.config.vocab, job.vocab
    assert isinstance(v, ForeignVocab) and (v.bos, v.sep, v.eos) == (rows, rows + 1, rows + 2)
    assert job.config.vocab == rows + 3 and job.loss.keywords["lm_weight"] == 0.5
    (batch,) = job.batches(0)
    assert set(batch.tokens_BT[:, 0].tolist()) == {rows}
    for row, length in zip(batch.tokens_BT, batch.lengths_B.tolist(), strict=True):
        assert row[length - 1] == rows + 2 and (row[:length] == rows + 1).sum() == 1
    model = setup.new_model(job, asked, CPU)
    before = model.decoder.inputs.tokens.weight.clone()
    job.begin(model)
    after = model.decoder.inputs.tokens.weight
    assert torch.equal(after[:rows], source.model.inputs.tokens.weight) and torch.equal(
        after[rows:], before[rows:]
    )
    assert model.dropout.p == 0.1
    outcome = trainer.start(asked, tmp_path / "run", Quiet(), CPU)
    loaded = heedful.load(tmp_path / "run")
    assert outcome.finished and loaded.classify("the food", "was fine") == loaded.classify(
        "was fine", "the food"
    )
    assert main(["evaluate", str(tmp_path / "run")]) == 0


def test_with_its_weights_held_fast_a_decoder_keeps_its_own_tokens(origin_of, files, tmp_path):
    folder = origin_of("gpt2")
    settings = {
        **TINY,
        "data.table": files["train.tsv"],
        "data.valid_table": files["valid.tsv"],
        "train.from": str(folder),
    }
    for way in ("head", "lora"):
        (tmp_path / way).mkdir()
        job = setup.make_job(
            recipe.make("classify", settings=without_sizes(settings | WAYS[way])), tmp_path / way, Quiet()
        )
        end = heedful.load(folder).special["eos"]
        assert (job.vocab.bos, job.vocab.sep, job.vocab.eos) == (end, end, end)


def test_both_orders_are_for_pairs_and_decoders(origin_of, files, tmp_path):
    table = {
        **TINY,
        "data.table": files["train.tsv"],
        "data.valid_table": files["valid.tsv"],
        "data.both_orders": True,
    }
    for number, (more, told) in enumerate(
        (
            ({}, "data.both_orders is of pairs"),
            ({"data.pair_column": "sentence"}, "a model without --from is an encoder"),
            (
                {"data.pair_column": "sentence", "train.from": str(origin_of("bert"))},
                "bert is an encoder, which sees both",
            ),
        )
    ):
        with pytest.raises(BadInput, match=told):
            trainer.start(
                recipe.make("classify", settings=without_sizes(table | more)),
                tmp_path / f"no{number}",
                Quiet(),
                CPU,
            )


# Runs


@pytest.mark.parametrize("kind", ["bert", "gpt2", "lm"])
@pytest.mark.parametrize("way", ["whole", "lora"])
def test_a_run_starts_from_either_kind_of_model_and_chooses(way, kind, origin_of, tmp_path, capsys):
    rows = [
        {"context": "the food was", "choices": ["fine", "awful", "the"][: 2 + i % 2], "answer": i % 2}
        for i in range(12)
    ]
    (tmp_path / "a").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {
        "data.table": str(tmp_path / "a"),
        "data.valid_table": str(tmp_path / "a"),
        "train.from": str(origin_of(kind)),
        "train.steps": 4,
        "evaluate.every": 2,
        "checkpoint.every": 2,
        "train.warmup_steps": 1,
        "train.batch_tokens": 90,
        "data.max_length": 20,
        **WAYS[way],
    }
    made = recipe.make("choose", settings=without_sizes(settings))
    outcome = trainer.start(made, tmp_path / "whole", Quiet(), CPU)
    assert outcome.finished
    with pytest.raises(InterruptedError):
        trainer.start(made, tmp_path / "cut", Quiet(until=3), CPU)
    trainer.resume(tmp_path / "cut", Quiet(), CPU)
    for name in ("model.safetensors", "metrics.jsonl"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    model = heedful.load(tmp_path / "whole")
    found = model.choose(["the food was", "the food"], [["fine", "awful"], ["was", "the", "fine"]])
    assert [len(one.probabilities) for one in found] == [2, 3] and found[0] in ("fine", "awful")
    assert model.choose("the food was", ["fine", "awful"]).probabilities == pytest.approx(
        found[0].probabilities, abs=1e-5
    )
    assert sum(found[1].probabilities) == pytest.approx(1) and model.embed("the food").shape == (12,)
    assert main(["evaluate", str(tmp_path / "whole"), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)["metrics"]
    assert scores["loss"] == pytest.approx(outcome.best.scores["loss"], rel=1e-4)


def test_a_run_learns_to_choose_and_says_what_it_cannot(small_run, tmp_path):
    model = heedful.load(small_run("choose"))
    chosen = model.choose(
        ["the dog eats .", "the fish swims ."],
        [["it is a cat", "it is a dog"], ["it is a fish", "it is a dog"]],
    )
    assert chosen == ["it is a dog", "it is a fish"] and [one.number for one in chosen] == [1, 0]
    assert main(["doctor", small_run("choose")]) == 0
    for told, do in {
        "text 1 has 1 choices": lambda: model.choose("the cat", ["a"]),
        "text 1 is empty": lambda: model.choose(" ", ["a", "b"]),
        "2 texts and 1 lists": lambda: model.choose(["a", "b"], [["a", "b"]]),
        "which cannot classify; it can choose": lambda: model.classify("a"),
    }.items():
        with pytest.raises(BadInput, match=told):
            do()
    for settings, told in (
        ({"data.corpus": "pylib"}, "choose has no built-in corpus"),
        ({}, "give --data and --valid-data, files of texts and choices"),
        ({"data.corpus": "facts", "data.max_length": 3}, "leaves no room for text"),
    ):
        with pytest.raises(BadInput, match=told):
            trainer.start(
                recipe.make("choose", settings=without_sizes(settings)), tmp_path / "run", Quiet(), CPU
            )
