"""Summarizing: both forms of a model, what is minimized and judged, and the command from file to lines."""

import io
import json
import math
import sys
from pathlib import Path

import pytest
import torch
from helpers.runs import (
    CPU,
    TINY,
    Interrupted,
    Quiet,
    recipe_for,
    state_of,
    texts,  # noqa: F401 (fixtures)
)
from helpers.small_runs import (
    ARTICLES,
    small_run,  # noqa: F401 (fixtures)
)

from heedful import load
from heedful.cli.main import main
from heedful.compare.comparison import Comparison, ModelVariant
from heedful.data.articles import Article
from heedful.data.vocab import train_vocab
from heedful.models import dmca, mixture_dmca, transformer
from heedful.parts.experts import Experts
from heedful.runs import trainer
from heedful.tasks import find_task, recipe, summarize, summary_forms
from heedful.tasks.summarize import written
from heedful.tasks.summary_forms import DecoderForm, EncoderDecoderForm
from heedful.train.loss import NOTHING

LETTERS = "abcdefghijklm"


VOCAB = train_vocab("word", [" ".join(LETTERS)], 40)


V = VOCAB.size


SOURCES, TARGETS = [[7, 8, 9, 10, 11], [12, 7], [9, 9, 13, 8]], [[14, 8], [10, 11, 12], [7]]


SIZES = {"vocab": V, "context": 40, "width": 12, "heads": 3, "ffn_width": 20, "dropout": 0.0}


DECODERS = {
    "t-d": (dmca, dmca.DMCAConfig(**SIZES, layers=2, layer_pattern="f")),
    "t-dmca": (dmca, dmca.DMCAConfig(**SIZES, layers=5, block=4)),
    "t-dmca, experts": (
        mixture_dmca,
        mixture_dmca.MixtureDMCAConfig(**SIZES, layers=5, block=4, experts=5, moe_every=5),
    ),
}


T_ED = transformer.TransformerConfig(
    vocab=V,
    target_vocab=V,
    layers=2,
    decoder_layers=1,
    width=12,
    heads=3,
    decoder_heads=2,
    ffn_width=20,
    decoder_ffn_width=16,
    dropout=0.0,
)


def made(file, config, seed=3):
    """A model whose every weight matters."""
    torch.manual_seed(seed)
    model = file.build(config).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.3)
    return model


def log_probabilities(model, row):
    """Of every token of a row but its first, from one plain pass."""
    scores = model(torch.tensor([row[:-1]]))[0].log_softmax(-1)
    return [float(scores[i, token]) for i, token in enumerate(row[1:])]


# One row: article, separator, summary


def test_a_row_is_the_article_the_separator_and_the_summary_and_all_of_it_is_predicted():
    batch = DecoderForm().batch(VOCAB, SOURCES, TARGETS, [4, 0, 2])
    sep, eos, pad = VOCAB.sep, VOCAB.eos, VOCAB.pad
    assert batch.tokens_BT.tolist() == [
        [7, 8, 9, 10, 11, sep, 14, 8],
        [12, 7, sep, 10, 11, 12, pad, pad],
        [9, 9, 13, 8, sep, 7, pad, pad],
    ]
    assert batch.answers_BT[0].tolist() == [8, 9, 10, 11, sep, 14, 8, eos]
    assert batch.answers_BT[1].tolist() == [7, sep, 10, 11, 12, eos, NOTHING, NOTHING]
    assert batch.summaries_BT[0].tolist() == [NOTHING] * 5 + [14, 8, eos]
    assert batch.summaries_BT[2].tolist() == [NOTHING] * 4 + [7, eos, NOTHING, NOTHING]
    assert batch.count == 8 + 6 + 6 and batch.ids == (4, 0, 2)


@pytest.mark.parametrize("name", DECODERS)
@torch.no_grad()
def test_the_loss_is_of_every_token_and_a_model_is_judged_by_the_summary_alone(name):
    model, form = made(*DECODERS[name]), DecoderForm()
    batch = form.batch(VOCAB, SOURCES, TARGETS, [])
    rows = [[*s, VOCAB.sep, *t, VOCAB.eos] for s, t in zip(SOURCES, TARGETS, strict=True)]
    told = [log_probabilities(model, row) for row in rows]
    summaries = -sum(sum(each[-len(t) - 1 :]) for each, t in zip(told, TARGETS, strict=True))
    every = -sum(map(sum, told))
    whole, judged = form.loss(model, batch, 0.0), form.nll(model, batch)
    assert (whole.count, judged.count) == (20, 9)
    assert float(whole.nll) == pytest.approx(every)
    assert float(judged.nll) == pytest.approx(summaries)
    balance = float(whole.total - whole.nll) / 20  # of experts, for each token
    assert (balance > 0) == (name == "t-dmca, experts")
    for weight, count in ((0.25, 20), (0.0, 9)):
        form = DecoderForm(weight)
        batch = form.batch(VOCAB, SOURCES, TARGETS, [])
        part = form.loss(model, batch, 0.0)
        expected = summaries + weight * (every - summaries) + count * balance
        assert float(part.total) == pytest.approx(expected) and part.count == batch.count == count
        assert float(part.nll) == pytest.approx(every if weight else summaries)


@torch.no_grad()
def test_padding_and_neighbors_change_no_loss():
    for form, model in (
        (DecoderForm(), made(*DECODERS["t-dmca, experts"])),
        (EncoderDecoderForm(), made(transformer, T_ED)),
    ):
        together = form.nll(model, form.batch(VOCAB, SOURCES, TARGETS, []))
        alone = [
            form.nll(model, form.batch(VOCAB, [s], [t], [])) for s, t in zip(SOURCES, TARGETS, strict=True)
        ]
        assert float(together.nll) == pytest.approx(sum(float(one.nll) for one in alone))
        assert together.count == sum(one.count for one in alone) == 9


def test_one_layer_of_t_dmca_has_experts_and_each_token_is_sent_to_some_of_them():
    model = made(*DECODERS["t-dmca, experts"]).train()
    kinds = [isinstance(block.feed_forward.layer, Experts) for block in model.stack.blocks]
    assert kinds == [False, False, False, False, True]
    form = DecoderForm()
    loss = form.loss(model, form.batch(VOCAB, SOURCES, TARGETS, []), 0.0)
    assert (
        loss.expert_load_LE.shape == (1, 5) and int(loss.expert_load_LE.sum()) == 2 * 20
    )  # padding is sent to nobody
    loss.total.backward()
    gate = model.stack.blocks[-1].feed_forward.layer.gate
    assert gate.noise.grad.abs().sum() > 0 and gate.weight.grad.abs().sum() > 0
    assert float(loss.total.detach()) > float(loss.nll.detach())  # an uneven load costs


# Writing


def naive(model, prompt, longest):
    """The likeliest token after all that stands there, computed from the start each time."""
    row = list(prompt)
    while len(row) - len(prompt) < longest:
        row.append(int(model(torch.tensor([row]))[0, -1].argmax()))
        if row[-1] == VOCAB.eos:
            break
    return row[len(prompt) :]


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("length", [5, 6, 7])
@torch.no_grad()
def test_cached_equals_uncached_at_every_length_modulo_three(name, length):
    model, source = made(*DECODERS[name]), [7 + i % 9 for i in range(length)]
    expected = naive(model, [*source, VOCAB.sep], 11)
    words = [token for token in expected if token != VOCAB.eos]
    for rows in ([source], [source, [8], source + [9, 9, 9]]):  # alone and among others
        found = written(DecoderForm(), model, VOCAB, rows, 11)
        assert found[0] == VOCAB.decode(words)


# From file to run


KINDS = {
    "t-ed": {},
    "t-d": {"model.architecture": "dmca", "model.layer_pattern": "f"},
    "t-dmca": {
        "model.architecture": "dmca",
        "model.layers": 3,
        "model.block": 4,
        "train.lm_loss_weight": 0.5,
    },
    "experts": {
        "model.architecture": "mixture_dmca",
        "model.layers": 2,
        "model.moe_every": 2,
        "model.experts": 3,
    },
    "experts apart": {"model.architecture": "mixture_transformer", "model.experts": 3},
    "seq2seq-att": {"model.architecture": "luong"},
    "gpt2": {"model.architecture": "gpt2"},
    "bart": {"model.architecture": "bart"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_architecture_trains_resumes_to_the_same_bytes_and_loads(kind, texts, tmp_path, capsys):
    files = {"data.table": texts["a.jsonl"], "data.valid_table": texts["v.jsonl"], "data.tokenizer": "word"}
    known = recipe.known_settings(
        find_task("summarize"), KINDS[kind].get("model.architecture", "transformer")
    )
    sizes = {key: value for key, value in TINY.items() if key in known}
    more = {"data.max_summary_length": 5, "data.extract": "tf-idf", "train.steps": 6}
    asked = recipe.make("summarize", settings={**sizes, **files, **more, **KINDS[kind]})
    outcome = trainer.start(asked, tmp_path / "whole", Quiet(), CPU)
    with pytest.raises(Interrupted):
        trainer.start(asked, tmp_path / "cut", Quiet(until=5), CPU)
    trainer.resume(tmp_path / "cut", Quiet(), CPU)
    assert state_of(tmp_path / "cut") == state_of(tmp_path / "whole")
    model = load(tmp_path / "whole")
    assert model.can[0] == "summarize" and "translate" not in model.can and "generate" not in model.can
    article = Article(["fi go ku", "ba de"], "ba")
    beam, greedily = model.summarize([article, ""]), model.summarize(article, beam=1)
    assert beam[1] == "" and isinstance(greedily, str)
    rows = summarize.read_by(outcome.job.vocab, [article], "tf-idf", 512)
    assert [row.ids for row in model.wording.source([article])] == rows
    assert outcome.job.vocab.decode(rows[0]) == "ba: ba de fi go ku"
    form, network = summary_forms.form_of(asked), model.model
    assert written(form, network, outcome.job.vocab, rows, 5) == [greedily]
    assert main(["info", str(tmp_path / "whole")]) == 0
    logged = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert ("expert_shares" in logged[0]) == kind.startswith("experts")
    capsys.readouterr()
    assert main(["doctor", str(tmp_path / "whole")]) in (0, 3)
    assert "held-out loss" in capsys.readouterr().out


def test_what_is_read_is_cut_and_what_is_written_is_bounded(texts, tmp_path):
    rows = [
        {"title": "z", "article": ["a a a", "b b b", "z c c"], "summary": "a"},
        {"article": "a b c", "summary": "a b c d e f"},
        {"article": "b", "summary": ["b", "c"]},
    ]
    file = tmp_path / "three.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    files = {"data.table": str(file), "data.valid_table": str(file), "data.max_length": 4}
    asked = recipe_for("summarize", texts, 1, **files, **{"data.extract": "tf-idf"})
    talk = Quiet()
    job = trainer.start(asked, tmp_path / "run", talk, CPU).job
    batches = [batch for step in range(job.steps_per_epoch) for batch in job.batches(step)]
    pairs = [
        (job.vocab.decode(s[:n]), job.vocab.decode(t[t >= 0]))
        for batch in batches
        for s, n, t in zip(batch.source_BS, batch.source_lengths_B, batch.answers_BT, strict=True)
    ]
    assert sorted(pairs) == [("b", "b"), ("b", "c"), ("z: z c", "a")]
    assert any(line.endswith("; 1 left out, whose summary is over 5 tokens") for line in talk.lines)


def test_the_loss_is_of_the_first_reference_and_scores_take_the_best(texts, tmp_path, capsys):
    row = json.loads(Path(texts["v.jsonl"]).read_text().splitlines()[0])
    for name, summaries in {"one": ["ba"], "two": ["ba", "de fi"], "swapped": ["de fi", "ba"]}.items():
        (tmp_path / name).write_text(json.dumps({**row, "summary": summaries}) + "\n")
    trainer.start(recipe_for("summarize", texts, 2), tmp_path / "run", Quiet(), CPU)
    found = {}
    capsys.readouterr()
    for name in ("one", "two", "swapped"):
        assert main(["evaluate", str(tmp_path / "run"), "--data", str(tmp_path / name), "--json"]) == 0
        found[name] = json.loads(capsys.readouterr().out)["metrics"]
    assert found["one"]["loss"] == found["two"]["loss"] != found["swapped"]["loss"]
    assert found["two"]["rouge1"] == found["swapped"]["rouge1"] >= found["one"]["rouge1"]


# The command


@pytest.fixture(params=["summarize", "summarize-row"])
def learned(request, small_run):
    return small_run(request.param)


def answered(monkeypatch, capsysbinary, folder, lines, *options):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    code = main(["summarize", str(folder), *options])
    said = capsysbinary.readouterr()
    return code, said.out.decode(), said.err.decode()


def test_lines_and_objects_are_summarized_in_step(learned, monkeypatch, capsysbinary):
    texts, leads = list(ARTICLES), list(ARTICLES.values())
    paragraphs = {"source": texts[1].replace(". ", ".\n").split("\n"), "target": "whatever"}
    lines = [
        texts[0].encode(),
        b"",
        json.dumps({"article": texts[2]}).encode(),
        b"\xff",
        json.dumps(paragraphs).encode(),
        b"{",
        b'{"title": "cat"}',
        b'{"article": [1]}',
        b'{"article": " "}',
        b"x" * 1_000_001,
        b'{"article": "i", "title": 3}',
    ]
    code, out, err = answered(monkeypatch, capsysbinary, learned, b"\n".join(lines) + b"\n")
    assert code == 0 and out.split("\n") == [leads[0], "", leads[2], "", leads[1], *[""] * 7]
    said = [line for line in err.splitlines() if line.startswith("line ")]
    assert [line.partition(";")[0] for line in said] == [
        "line 4: not UTF-8: byte 1 of the line is no part of a character",
        "line 6: not a JSON object {...}",
        'line 7: there is no "article" or "source" or "document" or "text"',
        'line 8: "article" is [1], where a text or a list of texts is expected',
        'line 9: "article" is empty',
        "line 10: longer than 1000000 characters: cut the line",
        'line 11: "title" is 3, where a text is expected',
    ]
    code, out, _ = answered(
        monkeypatch, capsysbinary, learned, lines[2] + b"\n{\n", "--json", "--n-best", "2"
    )
    good, bad = map(json.loads, out.splitlines())
    assert good["answers"][0]["text"] == leads[2] and len(good["answers"]) == 2 and good["input"] == texts[2]
    assert bad == {"line": 2, "error": "not a JSON object {...}"}


def test_a_long_article_is_read_as_far_as_it_was_in_training(learned, monkeypatch, capsysbinary):
    text, lead = next(iter(ARTICLES.items()))
    padded = f"{text} " + "the fish " * 20_000
    model = load(learned)
    assert model.wording.source([padded])[0].ids == model.wording.source([padded[:5000]])[0].ids
    code, out, err = answered(monkeypatch, capsysbinary, learned, padded.encode())
    assert code == 0 and out.count("\n") == 1 and err == ""
    assert model.summarize(text, max_new_tokens=1).tokens[:1] == [" cat"]
    assert main(["summarize", learned, text, "--beam", "1"]) == 0
    assert capsysbinary.readouterr().out.decode() == f"{lead}\n"


def test_evaluating_tells_rouge_with_its_interval_and_writes_in_step(learned, tmp_path, capsys):
    rows = [json.dumps({"article": text, "summary": lead}) for text, lead in ARTICLES.items()]
    file = tmp_path / "mixed.jsonl"
    file.write_text("\n".join([rows[0], "{", rows[1], '{"article": "the"}']) + "\n")
    out = tmp_path / "out"
    words = ["evaluate", learned, "--data", str(file), "--output", str(out)]
    assert main([*words, "--json"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    m = found["metrics"]
    assert (m["rouge1"], m["rouge2"], m["rougeL"]) == (100.0, 100.0, 100.0)
    assert m["rougeL_interval"] == [100.0, 100.0] and found["examples"] == 2
    assert m["perplexity"] == pytest.approx(math.exp(m["loss"])) and "exact" not in m
    assert found["data"]["dropped"] == 2 and "2 lines dropped" in said.err
    assert found["baselines"]["rouge1"]["name"] == "the first paragraph"
    assert out.read_text().split("\n") == ["cat and dog", "", "a student", "", ""]
    out.unlink()
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "ROUGE-L           100.00  100.00 to 100.00; the first paragraph" in shown
    assert "decoding: beam:4|length_penalty:gnmt|length_alpha:0.6|max_new_tokens:5" in shown


def test_a_model_scores_a_summary_of_an_article(small_run):
    model, (text, lead) = load(small_run("summarize")), next(iter(ARTICLES.items()))
    right, wrong = (model.score(text, each).total for each in (lead, "a teacher"))
    assert right > wrong and model.embed(text).shape == (16,)
    assert load(small_run("summarize-row")).can == ("summarize", "embed", "look")


# The built-in corpus


@pytest.mark.parametrize("more", [{}, {"model.architecture": "dmca"}])
def test_facts_are_told_of_the_built_in_corpus(more, tmp_path, capsys, monkeypatch):
    from heedful.corpora import facts

    monkeypatch.setattr(facts, "SIZES", {"train": 30, "valid": 6, "test": 5, "long": 4})
    facts.titles.cache_clear()
    settings = (
        TINY
        | more
        | {"train.steps": 2, "data.sources": 2, "data.max_summary_length": 40, "model.dropout": 0.0}
    )
    asked = recipe.make("summarize", "tiny", "facts", settings)
    outcome = trainer.start(asked, tmp_path / "run", Quiet(), CPU)
    assert {"rouge1", "exact", "facts"} <= outcome.best.scores.keys()
    capsys.readouterr()
    for split, rows in (("test", 5), ("long", 4)):
        assert main(["evaluate", str(tmp_path / "run"), "--split", split, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["examples"] == rows and len(found["metrics"]["facts_interval"]) == 2
    assert main(["evaluate", str(tmp_path / "run"), "--split", "combinations"]) == 2
    assert "facts has no split combinations; it has valid, test, long" in capsys.readouterr().err
    facts.titles.cache_clear()


def test_variants_share_settings_that_concern_some_of_them_and_facts_are_compared_where_there_are_some(
    capsys,
):
    both = {"train.lm_loss_weight": 0.5, "model.positions": "rotary"}
    variants = ModelVariant("apart"), ModelVariant("row", {"model.architecture": "dmca"})
    apart, row = map(Comparison("summarize", "tiny", "facts", both, variants, None, 1).recipe, variants)
    assert (apart.model.positions, apart.train.lm_loss_weight) == ("rotary", 1.0)
    assert "positions" not in row.model.sizes and row.train.lm_loss_weight == 0.5
    words = [
        "compare",
        "summarize",
        "--data",
        "a",
        "--valid-data",
        "b",
        "--variant",
        "x",
        "--variant",
        "y: model.width=8",
    ]
    assert main([*words, "--metric", "facts"]) == 2
    assert 'the metric "facts" needs --corpus facts: give another --metric' in capsys.readouterr().err
