"""Comparing: the same data and budget for all, and nothing done twice."""

import json
import statistics
from dataclasses import replace
from xml.etree import ElementTree

import pytest
import torch
from helpers.command_lines import AtOnce
from helpers.comparisons import CPU, VARIANTS, asked, entry, refuse, table, without_times, words
from helpers.runs import (
    TINY,
    recipe_for,
    texts,  # noqa: F401 (fixtures)
)

from heedful.cli.compare import CompareOptions, asked_of
from heedful.cli.main import main
from heedful.compare import significance as noise
from heedful.compare import trials
from heedful.compare.comparison import (
    BUILT_IN,
    ModelVariant,
    built_in_variants,
    check,
    read_variant,
)
from heedful.compare.cost import LiveMemory, cost_of, counted, flops_rule
from heedful.compare.report import SAME, report_text, rows_of
from heedful.compare.results import compared
from heedful.compare.trials import TrialRecord
from heedful.errors import BadInput, NotFinite
from heedful.runs import setup, trainer, training
from heedful.tasks import find_task

# Variants


def test_a_variant_is_a_name_and_settings():
    assert read_variant(
        "rotary: model.positions=rotary train.learning_rate=1e-4", "translate"
    ) == ModelVariant("rotary", {"model.positions": "rotary", "train.learning_rate": "1e-4"})
    assert read_variant("base", "lm") == ModelVariant("base")
    assert (
        read_variant("model.width=64 train.learning_rate=0.1", "lm").name
        == "model.width=64 train.learning_rate=0.1"
    )
    assert read_variant("a b/c: model.width=64", "lm").folder == "a-b-c"
    assert read_variant("../..", "lm").folder == "variant" and read_variant("..x", "lm").folder == "x"


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("", "--variant takes"),
        (": model.width=3", "--variant takes"),
        ("x" * 61, "at most 60 characters"),
        (
            "a: model.widht=3",
            'variant a: lm with gpt2 has no setting "model.widht"; did you mean "model.width"',
        ),
        ('a: train.learning_rate="3', "a quote is opened and not closed"),
        ("a: gone", "variant a: gone is neither part.name=value nor a run"),
    ],
)
def test_a_variant_that_is_none_is_one_sentence(text, sentence):
    with pytest.raises(BadInput, match=sentence):
        read_variant(text, "lm")


@pytest.mark.parametrize(
    "wrong, sentence",
    [
        (asked(ModelVariant("a")), "a comparison needs two variants or more"),
        (asked(ModelVariant("a"), ModelVariant("a", {"model.width": 8})), 'two variants are called "a"'),
        (
            asked(ModelVariant("a b"), ModelVariant("a/b", {"model.width": 8})),
            'two variants are called "a-b"',
        ),
        (asked(ModelVariant("a"), ModelVariant("b")), "variants a and b are the same"),
        (
            asked(ModelVariant("a"), ModelVariant("b", {"data.tokenizer": "char"})),
            "variant b sets data.tokenizer, but all variants read the same",
        ),
        (
            asked(ModelVariant("a"), ModelVariant("b", {"train.seed": 3})),
            "variant b sets train.seed, but all variants have the same seeds",
        ),
        (asked(ModelVariant("a"), ModelVariant("b", {"train.steps": 3})), "the same budget"),
        (asked(ModelVariant("a"), ModelVariant("b", {"evaluate.rows": 3})), "are evaluated in the same way"),
        (
            asked(ModelVariant("a"), ModelVariant("b", {"model.experts": 3})),
            'variant b: translate with transformer has no setting "model.experts"; it is for --architecture ',
        ),
        (
            asked(ModelVariant("a"), ModelVariant("b", {"model.norm": "post"}), seeds=0),
            "--seeds is from 1 to 100, not 0",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(wrong, sentence):
    with pytest.raises(BadInput, match=sentence):
        check(wrong)


def test_a_shared_setting_may_concern_some_variants_only_but_not_none():
    mixed = asked(
        ModelVariant("plain"),
        ModelVariant("mixture", {"model.architecture": "mixture_transformer"}),
        base={"model.experts": 4},
    )
    check(mixed)
    assert mixed.recipe(mixed.variants[1]).model.experts == 4
    assert mixed.recipe(mixed.variants[0]).model.architecture == "transformer"
    other = asked(
        ModelVariant("a", {"model.positions": "rotary"}),
        ModelVariant("b", {"model.norm": "post"}),
        base={"model.experts": 4},
    )
    with pytest.raises(
        BadInput, match='variant a: translate with transformer has no setting "model.experts"'
    ):
        check(other)


def test_a_variant_can_take_the_settings_of_a_run(texts, tmp_path):
    trainer.start(
        recipe_for("lm", texts, 1, **{"train.learning_rate": 0.017}), tmp_path / "old", Quiet(), CPU
    )
    found = read_variant(f"old: {tmp_path / 'old'} model.width=8", "lm").settings
    assert (
        found["train.learning_rate"] == 0.017
        and found["model.width"] == "8"
        and found["model.ffn_width"] == 24
    )
    assert not any(key.startswith(("data.", "evaluate.", "train.steps", "train.seed")) for key in found)
    with pytest.raises(BadInput, match="is a run of lm, not of translate"):
        read_variant(f"old: {tmp_path / 'old'}", "translate")


class Quiet:
    def __init__(self):
        self.lines, self.steps = [], []

    def say(self, line):
        self.lines.append(line)

    def step(self, progress, steps):
        self.steps.append((progress.step, steps))


def test_history_has_the_architectures_and_positions_of_the_lectures():
    told = {variant.name: variant.settings for variant in built_in_variants("history")}
    known = find_task("translate").architectures
    before = [told[name]["model.architecture"] for name in ("RNN", "RNN with attention", "ConvS2S")]
    assert set(before) < set(known)
    assert {"Transformer, none", "Transformer, sinusoidal", "Transformer, structural"} < told.keys()
    found = asked_of(CompareOptions(what="history"), CPU)
    assert {found.recipe(v).data.corpus for v in found.variants} == {"phrasebook"}
    assert {found.recipe(v).train.steps for v in found.variants} == {BUILT_IN["history"].steps}
    longer = asked_of(CompareOptions(what="history", steps=7, variant=("x: model.norm=post",)), CPU)
    assert longer.variants[-1].name == "x"


# Weighing


def test_counted_flops_are_those_of_the_arithmetic(texts, tmp_path):
    asked = recipe_for("translate", texts, 3, **{"model.dropout": 0.0})
    job = setup.make_job(asked, tmp_path, Quiet())
    model = setup.new_model(job, asked, CPU)
    batch = job.batches(0)[0]
    by_rule = flops_rule(model, job, asked)(batch)
    assert by_rule == pytest.approx(
        counted(model, job, batch), rel=0.02
    )  # padding of the target is not scored


def test_a_model_without_a_rule_is_counted(texts, tmp_path, monkeypatch):
    asked = recipe_for("lm", texts, 3)
    job = setup.make_job(asked, tmp_path, Quiet())
    expected = cost_of(asked, job, CPU)
    monkeypatch.setattr("heedful.compare.cost.costs", refuse)
    assert cost_of(asked, job, CPU).flops == pytest.approx(expected.flops, rel=0.02)
    assert expected.tokens == 64 and expected.parameters == expected.active > 0
    assert expected.memory > 16 * expected.parameters  # weights, gradients and two moments, in fp32


def test_memory_counts_each_storage_while_it_lives():
    there = torch.zeros(100)
    with LiveMemory([there]) as alive:
        a = torch.ones(1000)
        assert alive.now == 4400
        b = a.view(10, 100)
        del a
        c = b + 1
        assert alive.now == 8400
        del b, c
        torch.ones(1)
    assert alive.most == 8400 and alive.now == 404


# Whole comparisons


def test_a_comparison_from_start_to_end(texts, tmp_path, capsys):
    folder = tmp_path / "compare"
    assert main(words(texts, folder, *VARIANTS, "--seeds", "2", "--metric", "loss")) == 0
    out, err = capsys.readouterr()
    assert "2 variants x 2 seeds = 4 trials" in err and "post, seed 1 (4 of 4): 6 steps" in err
    assert out.splitlines()[0].split()[:2] == ["variant", "loss"] and "Tukey's test" in out
    rows = table(folder)
    assert {row["variant"] for row in rows} == {"base", "post"}
    assert [row["against_the_best"] == "best" for row in rows] == [True, False]
    assert float(rows[0]["loss"]) <= float(rows[1]["loss"])
    lines = table(folder, "trials.csv")
    assert sorted((line["variant"], line["seed"]) for line in lines) == [
        (v, s) for v in ("base", "post") for s in "01"
    ]
    mine = [float(line["loss"]) for line in lines if line["variant"] == rows[0]["variant"]]
    assert float(rows[0]["loss"]) == statistics.fmean(mine)
    low, high = noise.interval(mine)
    assert (float(rows[0]["low"]), float(rows[0]["high"])) == (max(0, low), high)
    picture = ElementTree.parse(folder / "plot.svg").getroot()
    assert sum(element.tag.endswith("circle") for element in picture.iter()) == 4
    result = compared(folder, "loss")
    assert [row.name for row in result.rows] == [row["variant"] for row in rows]
    assert result.text() in out and result.svg() == (folder / "plot.svg").read_text()
    assert result.as_json()["variants"][0]["loss"] == float(rows[0]["loss"])
    shown = result._repr_html_()
    assert [one.tag for one in ElementTree.fromstring(shown)] == ["style", "svg", "pre"]
    assert "light-dark(" in shown and "http" not in shown
    with pytest.raises(BadInput, match="holds no comparison"):
        compared(tmp_path)
    with pytest.raises(BadInput, match='no trial in .* has the metric "accuracy" yet'):
        compared(folder, "accuracy")
    found = [
        json.loads((folder / f"runs/{v}-{s}/recipe.json").read_text())
        for v in ("base", "post")
        for s in (0, 1)
    ]
    assert len({(f["facts"]["data"], f["facts"]["vocab"], f["facts"]["held-out data"]) for f in found}) == 1
    assert (folder / "runs/post-1/tokenizer.json").samefile(folder / "data/plain/tokenizer.json")
    assert main(["evaluate", str(folder / "runs/post-1")]) == 0  # a model like any other


def test_the_same_seed_has_the_same_order_in_every_variant(texts, tmp_path):
    comparison = asked(ModelVariant("a"), ModelVariant("b", {"model.norm": "post"}), base=base_of(texts))
    for seed in (0, 1):
        orders = []
        for variant in comparison.variants:
            job = setup.make_job(comparison.recipe(variant, seed), tmp_path, Quiet())
            orders.append([batch.ids for step in range(5) for batch in job.batches(step)])
        assert orders[0] == orders[1]


def base_of(texts):
    pairs = {
        "data.source": "a.src",
        "data.target": "a.tgt",
        "data.valid_source": "v.src",
        "data.valid_target": "v.tgt",
    }
    return TINY | {key: texts[name] for key, name in pairs.items()}


def test_a_second_run_trains_nothing_and_tells_the_same(texts, tmp_path, capsys, monkeypatch):
    line = words(texts, tmp_path / "c", *VARIANTS, "--seeds", "2")
    assert main(line) == 0
    first = capsys.readouterr().out
    files = {path: path.read_bytes() for path in (tmp_path / "c").rglob("*") if path.is_file()}
    monkeypatch.setattr(trainer, "start", refuse)
    monkeypatch.setattr(trials, "cost_of", refuse)
    for again in (line, ["compare", "--resume", str(tmp_path / "c")]):
        assert main(again) == 0
        out, err = capsys.readouterr()
        assert out == first and "4 of them finished" in err
        assert {path: path.read_bytes() for path in (tmp_path / "c").rglob("*") if path.is_file()} == files


def test_what_was_interrupted_goes_on_and_ends_the_same(texts, tmp_path, capsys, monkeypatch):
    line = words(texts, tmp_path / "whole", *VARIANTS, "--seeds", "2")
    assert main(line) == 0
    with monkeypatch.context() as patched:
        patched.setattr(training, "Stop", AtOnce)
        capsys.readouterr()
        assert main(words(texts, tmp_path / "twice", *VARIANTS, "--seeds", "2")) == 75
        out, err = capsys.readouterr()
        assert out == "" and err.endswith(f"continue with `heedful compare --resume {tmp_path / 'twice'}`\n")
        assert not (tmp_path / "twice/table.csv").exists()
    (tmp_path / "twice/records.jsonl").write_text('{"variant": "base", "se')  # as a kill leaves it
    assert main(["compare", "--resume", str(tmp_path / "twice")]) == 0
    for name in ("table.csv", "trials.csv"):
        both = [table(tmp_path / which, name) for which in ("whole", "twice")]
        assert without_times(both[0]) == without_times(both[1])


def test_seeds_and_variants_can_be_added(texts, tmp_path, capsys):
    folder = tmp_path / "c"
    assert main(words(texts, folder, *VARIANTS, "--seeds", "1")) == 0
    out, _ = capsys.readouterr()
    assert "one seed cannot show a significant difference" in out and SAME in out
    more = ["--variant", "wide: model.width=24"]
    assert main(words(texts, folder, *VARIANTS, *more, "--seeds", "2")) == 0
    out, err = capsys.readouterr()
    assert "6 trials, 2 of them finished" in err and err.count("measuring") == 1
    assert len(table(folder)) == 3


@pytest.mark.parametrize("kind", ["tokens", "flops"])
def test_a_budget_of_tokens_or_flops_makes_steps_of_each(kind, texts, tmp_path, capsys):
    variants = [
        "--variant",
        "narrow: model.width=8",
        "--variant",
        "wide: model.width=32 train.batch_tokens=32",
    ]
    amount = {"tokens": 500, "flops": 1e7}[kind]
    line = words(
        texts, tmp_path / "c", *variants, f"--{kind}", str(amount), "--seeds", "1", task="lm", steps=None
    )
    assert main(line) == 0
    found = {row["variant"]: row for row in table(tmp_path / "c")}
    for row in found.values():
        assert float(row[kind]) == pytest.approx(amount, rel=0.5 / int(row["steps"]) + 1e-9)
    assert found["narrow"]["steps"] != found["wide"]["steps"]


def test_a_variant_that_fails_has_a_row_and_the_others_go_on(texts, tmp_path, capsys, monkeypatch):
    start = trainer.start

    def begin(asked, *args, **more):
        if asked.model.norm == "post" and asked.train.seed == 1:
            raise NotFinite("step 3: the loss is nan")
        return start(asked, *args, **more)

    monkeypatch.setattr(trainer, "start", begin)
    assert main(words(texts, tmp_path / "c", *VARIANTS, "--seeds", "2")) == 0
    out, err = capsys.readouterr()
    assert "failed: step 3: the loss is nan" in err and "post, seed 1: step 3: the loss is nan" in out
    post = next(row for row in table(tmp_path / "c") if row["variant"] == "post")
    assert (post["seeds"], post["failed"], post["low"]) == ("1", "1", "")


def test_json_has_every_pair(texts, tmp_path, capsys):
    more = ["--variant", "wide: model.width=24", "--seeds", "2", "--json"]
    assert main(words(texts, tmp_path / "c", *VARIANTS, *more)) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["metric"] == "bleu" and not found["lower_is_better"] and len(found["pairs"]) == 3
    assert {pair["distinguishable"] for pair in found["pairs"]} <= {True, False}


@pytest.mark.parametrize("task", ["mlm", "classify", "tag", "parse", "summarize"])
def test_every_task_can_be_compared(task, texts, tmp_path, capsys):
    ending = {"classify": "tsv", "summarize": "jsonl"}.get(task, "conllu")
    files = [
        "--data",
        texts[f"a.{ending}"],
        "--valid-data",
        texts[f"v.{ending}"],
        "--set=data.tokenizer=word",
    ]
    if task == "mlm":
        files = ["--text", texts["text"], "--set=model.context=16", "--set=data.tokenizer=char"]
    sizes = [f"--set={key}={value}" for key, value in TINY.items()]
    more = ["--variant", "base", "--variant", "narrow: model.width=8", "--steps", "2", "--seeds", "1"]
    assert main(["compare", task, *files, *sizes, *more, "--run", str(tmp_path / "c")]) == 0
    shown = {
        "mlm": "loss",
        "classify": "accuracy",
        "tag": "accuracy",
        "parse": "UAS",
        "summarize": "ROUGE-L",
    }[task]
    assert capsys.readouterr().out.split()[:2] == ["variant", shown]


@pytest.mark.parametrize(
    "more, sentence",
    [
        (["--steps", "7"], "holds a comparison with another base"),
        (["--tokens", "70"], "--steps and --tokens are two budgets: give one of them"),
        (["--set", "model.layers=2"], "holds a comparison with another base"),
        (["--variant", "post: model.norm=pre model.width=8"], 'two variants are called "post"'),
        (["--metric", "blue"], 'translate has no metric "blue"; did you mean "bleu"?'),
    ],
)
def test_another_comparison_is_not_mixed_in(more, sentence, texts, tmp_path, capsys):
    folder = tmp_path / "c"
    assert main(words(texts, folder, *VARIANTS, "--seeds", "1", steps=2)) == 0
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    capsys.readouterr()
    line = words(texts, folder, *VARIANTS, "--seeds", "1", *more, steps=None if more[0] == "--steps" else 2)
    assert main(line) == 2
    assert sentence in capsys.readouterr().err
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_variant_of_the_same_name_with_other_settings_is_refused(texts, tmp_path, capsys):
    assert main(words(texts, tmp_path / "c", *VARIANTS, "--seeds", "1", steps=2)) == 0
    other = ["--variant", "base", "--variant", "post: model.norm=post model.width=8", "--seeds", "1"]
    assert main(words(texts, tmp_path / "c", *other, steps=2)) == 2
    assert (
        "has a variant post with other settings (model.width): give this one another name"
        in capsys.readouterr().err
    )


def test_a_shared_setting_that_no_architecture_has_is_refused():
    variants = (ModelVariant("a"), ModelVariant("b", {"model.architecture": "luong"}))
    with pytest.raises(BadInput, match="none of these variants has a setting model.experts: leave it out"):
        check(asked(*variants, base={"model.experts": 4}))


def test_a_comparison_in_vain_leaves_nothing(texts, tmp_path, capsys):
    folder = tmp_path / "new" / "c"
    line = words(texts, folder, *VARIANTS, "--set", "data.max_length=1")
    assert main(line) == 2
    assert not folder.parent.exists() and capsys.readouterr().err.startswith("measuring base\nerror: ")


# The report


def test_a_trial_is_judged_by_the_best_of_the_metric_that_is_asked_for(tmp_path):
    evaluations = [(5, 8.0, 40.0), (10, 2.0, 10.0), (15, 3.0, 20.0)]
    lines = [{"step": step, "valid_loss": loss, "valid_bleu": bleu} for step, loss, bleu in evaluations]
    log = "".join(json.dumps(line) + "\n" for line in [{"step": 1, "loss": 0.5}, *lines])
    (tmp_path / "metrics.jsonl").write_text(log)
    assert trials.best_scores(tmp_path, ("loss", "bleu")) == {"loss": 2.0, "bleu": 40.0}


def test_the_table_calls_noise_noise_and_names_what_is_worse():
    figures = {"good": [9.0, 9.1, 9.0, 9.2], "alike": [9.1, 9.0, 9.1, 9.1], "bad": [2.0, 2.1, 2.2, 2.0]}
    records = [
        TrialRecord(n, s, {"bleu": v}, 10, 1.0) for n, row in figures.items() for s, v in enumerate(row)
    ]
    rows = rows_of([entry("bad"), entry("alike", 60), entry("good"), entry("none")], records, "bleu")
    assert [row.name for row in rows] == ["alike", "good", "bad", "none"] or [row.name for row in rows] == [
        "good",
        "alike",
        "bad",
        "none",
    ]
    best, other = rows[0].name, rows[1].name
    assert (
        rows[1].verdict.startswith(f"{SAME} from {best} (p ") and rows[0].verdict == "best" and other != best
    )
    assert rows[2].verdict.startswith("worse (p ") and rows[3].verdict == "failed"
    lines = report_text(rows, 4, "translate").splitlines()
    assert "active" in lines[0] and "60" in next(line for line in lines if line.startswith("alike"))
    loss = [replace(record, scores={"loss": record.scores["bleu"]}) for record in records]
    assert rows_of([entry("bad"), entry("good")], loss, "loss")[0].name == "bad"
