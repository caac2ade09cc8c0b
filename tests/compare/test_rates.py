"""Learning rates: each variant tries several, with a seed that it is not judged by, and uses the best."""

import json

import pytest
from helpers.command_lines import AtOnce
from helpers.comparisons import CPU, VARIANTS, asked, entry, refuse, table, without_times, words
from helpers.runs import (
    texts,  # noqa: F401 (fixtures)
)

from heedful.cli.compare import CompareOptions, asked_of
from heedful.cli.main import main
from heedful.compare.comparison import RATE_SEED, ModelVariant, check, read_variant
from heedful.compare.results import compared
from heedful.compare.trials import TrialRecord, best_rate
from heedful.errors import BadInput, NotFinite
from heedful.runs import trainer, training

RATES = ["--seeds", "2", "--set", "train.learning_rate=1e-3,1e-2", "--metric", "loss"]


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_learning_rate_may_be_several():
    two = asked(
        ModelVariant("a"),
        ModelVariant("b", {"train.learning_rate": "0.5"}),
        base={"train.learning_rate": "1e-3,3e-3"},
    )
    check(two)
    assert two.rates(two.variants[0]) == (0.001, 0.003) and two.rates(two.variants[1]) == (0.5,)
    assert two.recipe(two.variants[0]).train.learning_rate == 0.001
    assert two.recipe(two.variants[0], rate=0.003).train.learning_rate == 0.003
    assert two.recipe(two.variants[1]).train.learning_rate == 0.5
    one = asked(ModelVariant("a"), ModelVariant("b", {"model.norm": "post"}))
    assert one.rates(one.variants[0]) == (one.recipe(one.variants[0]).train.learning_rate,)


@pytest.mark.parametrize(
    "value, sentence",
    [
        ("1e-3,1e-3", "takes from 1 to 10 learning rates that all differ, not 1e-3,1e-3"),
        (",".join(f"0.{n}" for n in range(10, 21)), "takes from 1 to 10 learning rates"),
        ("1e-3,", "variant a: train.learning_rate"),
        ("1e-3,fast", "variant a: train.learning_rate"),
    ],
)
def test_learning_rates_that_are_none_are_refused(value, sentence):
    with pytest.raises(BadInput, match=sentence):
        check(asked(ModelVariant("a", {"train.learning_rate": value}), ModelVariant("b")))
    if "variant a" in sentence:
        with pytest.raises(BadInput, match=sentence):
            read_variant(f"a: train.learning_rate={value}", "translate")


def test_variants_that_differ_in_what_they_try_are_not_the_same():
    check(
        asked(
            ModelVariant("a", {"train.learning_rate": "1e-3,2e-3"}),
            ModelVariant("b", {"train.learning_rate": "1e-3"}),
        )
    )


def test_history_tries_two_learning_rates():
    found = asked_of(CompareOptions(what="history"), CPU)
    assert {found.rates(variant) for variant in found.variants} == {(0.002, 0.006)}
    fixed = asked_of(CompareOptions(what="history", set=("train.learning_rate=3e-3",)), CPU)
    assert {fixed.rates(variant) for variant in fixed.variants} == {(0.003,)}


def test_the_best_is_by_the_metric_and_then_by_the_loss():
    class Tuned:
        variant, tries = ModelVariant("a"), (1.0, 2.0, 3.0)

    def tried(**scores):
        rates = zip(Tuned.tries, *scores.values(), strict=True)
        return {
            ("a", rate): TrialRecord("a", RATE_SEED, dict(zip(scores, values, strict=True)), rate=rate)
            for rate, *values in rates
        }

    assert best_rate(Tuned, tried(bleu=[3, 9, 5], loss=[1, 2, 3]), "bleu") == 2
    assert best_rate(Tuned, tried(bleu=[0, 0, 0], loss=[3, 2, 1]), "bleu") == 3
    assert best_rate(Tuned, tried(loss=[3, 1, 2]), "loss") == 2
    failed = {("a", rate): TrialRecord("a", RATE_SEED, failed="nan", rate=rate) for rate in Tuned.tries}
    assert best_rate(Tuned, failed, "loss") == 1
    assert best_rate(entry("a"), {}, "loss") is None


def test_each_variant_uses_its_best_learning_rate(texts, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "c"
    own = ["--variant", "own: model.width=8 train.learning_rate=5e-3"]
    line = words(texts, folder, *VARIANTS, *own, *RATES)
    assert main(line) == 0
    out, err = capsys.readouterr()
    assert "3 variants x 2 seeds = 6 trials" in err
    assert f"before them, 4 trials with seed {RATE_SEED} choose learning rates: 40 % of all trials" in err
    assert "base, learning rate 0.001 (1 of 10): 6 steps" in err
    tried = lines(folder / "rates.jsonl")
    assert [(r["variant"], r["rate"], r["seed"]) for r in tried] == [
        (name, rate, RATE_SEED) for name in ("base", "post") for rate in (0.001, 0.01)
    ]
    for name in ("base", "post"):
        ranks = {
            (r["scores"]["bleu"], -r["scores"]["loss"]): r["rate"] for r in tried if r["variant"] == name
        }
        best = ranks[max(ranks)]
        used = {r["rate"] for r in lines(folder / "records.jsonl") if r["variant"] == name}
        recipe = json.loads((folder / f"runs/{name}-1/recipe.json").read_text())
        assert used == {best} and recipe["train"]["learning_rate"] == best
        assert recipe["train"]["seed"] == 1
        row = next(row for row in table(folder) if row["variant"] == name)
        assert float(row["learning_rate"]) == best
    assert "learning rate" in out.splitlines()[0] and out.count(") used") == 2
    assert f"tried with seed {RATE_SEED}, and the best was used (by BLEU, then by loss)" in out
    assert len(table(folder, "trials.csv")) == 6
    assert compared(folder, "loss").text() in out
    monkeypatch.setattr(trainer, "start", refuse)
    assert main(["compare", "--resume", str(folder)]) == 0
    again, err = capsys.readouterr()
    assert again == out and "4 trials with seed 100 choose learning rates, 4 of them finished" in err
    found = compared(folder, "loss").as_json()["learning_rates"]
    assert sorted(r["rate"] for r in found) == [0.001, 0.001, 0.01, 0.01]


def test_learning_rates_go_on_after_a_kill_and_end_the_same(texts, tmp_path, capsys, monkeypatch):
    assert main(words(texts, tmp_path / "whole", *VARIANTS, *RATES)) == 0
    folder = tmp_path / "twice"
    with monkeypatch.context() as patched:
        patched.setattr(training, "Stop", AtOnce)
        assert main(words(texts, folder, *VARIANTS, *RATES)) == 75
    (folder / "rates.jsonl").write_text('{"variant": "base", "se')  # as a kill leaves it
    assert main(["compare", "--resume", str(folder)]) == 0
    capsys.readouterr()
    for name in ("table.csv", "trials.csv"):
        both = [table(tmp_path / which, name) for which in ("whole", "twice")]
        assert without_times(both[0]) == without_times(both[1])
    other = [word.replace("1e-3,1e-2", "1e-3,2e-2") for word in RATES]
    assert main(words(texts, folder, *VARIANTS, *other)) == 2
    assert "holds a comparison with another base" in capsys.readouterr().err


def test_other_learning_rates_of_a_variant_are_refused(texts, tmp_path, capsys):
    def typed(rates):
        variant = f"fast: model.norm=post train.learning_rate={rates}"
        return words(
            texts, tmp_path / "c", "--variant", "base", "--variant", variant, "--seeds", "1", steps=2
        )

    assert main(typed("1e-3,1e-2")) == 0
    assert main(typed("1e-3,2e-2")) == 2
    assert "has a variant fast with other learning rates: give this one another" in capsys.readouterr().err


def test_a_learning_rate_that_fails_is_not_used(texts, tmp_path, capsys, monkeypatch):
    start = trainer.start

    def begin(recipe, *args, **more):
        if recipe.train.learning_rate == 0.001:
            raise NotFinite("step 3: the loss is nan")
        return start(recipe, *args, **more)

    monkeypatch.setattr(trainer, "start", begin)
    assert main(words(texts, tmp_path / "c", *VARIANTS, *RATES)) == 0
    out = capsys.readouterr().out
    assert "0.001 (failed), 0.01 (BLEU" in out
    assert {r["rate"] for r in lines(tmp_path / "c/records.jsonl")} == {0.01}
