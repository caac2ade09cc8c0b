"""Fine-tuning in three ways: the whole model, a head, LoRA; and what a run of each holds and loads."""

import json
import shutil

import pytest
import torch
import torch.nn.functional as F
from helpers import tiny
from helpers.classify_cases import CPU, TINY, Quiet, asked, files, job_of, origin_of  # noqa: F401 (fixtures)
from helpers.tuning_cases import (  # noqa: F401 (fixtures)
    FEW,
    PAIRS,
    TREE,
    WAYS,
    data_for,
    lora_run,
    texts,
    translator,
)
from torch import nn

import heedful
from heedful.errors import BadInput
from heedful.interop.hf.weights import find_weights
from heedful.models import albert, family
from heedful.parts import lora as parts
from heedful.parts.lora import Lora
from heedful.runs import checkpoint, setup, trainer
from heedful.tasks import choose, recipe, span
from heedful.tasks.classify import encoder_row, one_segment_row
from heedful.tasks.origin import Origin, with_head
from heedful.tasks.recipe import TUNING
from heedful.train import optimizer

SMALL = Lora(rank=3, alpha=5.0, dropout=0.0, layers=("query", "value"))


def trained(model: nn.Module) -> set[str]:
    return {name for name, weight in model.named_parameters() if weight.requires_grad}


def stirred(model: nn.Module, seed: int = 0) -> nn.Module:
    """Every adapter with something learned."""
    torch.manual_seed(seed)
    for layer in parts.adapters(model).values():
        nn.init.normal_(layer.B, std=0.3)
    return model


# The layer


@pytest.mark.parametrize("bias", [True, False])
def test_an_adapted_layer_is_the_formula_and_begins_as_the_layer(bias):
    torch.manual_seed(1)
    base, x = nn.Linear(7, 5, bias=bias), torch.randn(2, 3, 7)
    layer = parts.LoraLinear(base, SMALL)
    assert torch.equal(layer(x), base(x)) and layer.weight is base.weight
    nn.init.normal_(layer.B)
    expected = x @ base.weight.T + (base.bias if bias else 0) + 5 / 3 * (x @ layer.A.T @ layer.B.T)
    torch.testing.assert_close(layer(x), expected)
    torch.testing.assert_close(layer.merged()(x), layer(x))
    assert type(layer.merged()) is nn.Linear and (layer.merged().bias is None) == (not bias)


def test_dropout_is_of_what_the_adapter_reads_and_not_of_the_layer():
    layer = parts.LoraLinear(nn.Linear(400, 2), Lora(2, 2.0, 0.5))
    nn.init.normal_(layer.B)
    x = torch.ones(1, 400)
    seen = torch.stack([layer(x) for _ in range(64)])
    alone = F.linear(x, layer.weight, layer.bias)
    assert seen.std(0).min() > 0 and torch.equal(layer.eval()(x), layer(x))
    assert (seen.mean(0) - layer(x)).abs().max() < 4 * seen.std(0).max() / 8  # the mean is what it is without
    assert not torch.allclose(layer(x), alone)


@pytest.mark.parametrize("name", [*tiny.DECODERS, *tiny.ENCODER_DECODERS])
def test_every_family_begins_as_its_base_and_merges_into_one_model(name):
    every = {**tiny.DECODERS, **tiny.ENCODER_DECODERS}
    model = tiny.build(every[name])
    names = set(dict(model.named_parameters()))
    source, target = torch.randint(9, (2, 5)), torch.randint(9, (2, 4))
    ask = (lambda: model(source, target)) if name in tiny.ENCODER_DECODERS else (lambda: model(source))
    before = ask()
    found = parts.adapt(model, SMALL)
    if not found:  # nothing in it is called query
        return
    assert torch.equal(ask(), before) and names < set(dict(model.named_parameters()))
    after = stirred(model) and ask()
    assert not torch.allclose(after, before, atol=1e-3)
    parts.merge(model)
    torch.testing.assert_close(ask(), after, atol=1e-5 if after.dtype == torch.float32 else 1e-9, rtol=1e-5)
    assert set(dict(model.named_parameters())) == names and not parts.adapters(model)


def test_a_new_head_brings_the_pooling_layer_only_where_it_reads_it():
    sizes = {"vocab": 19, "context": 23, "layers": 1, "width": 8, "heads": 2, "ffn_width": 7}
    expected = {"bert": ("pooled", "classify"), "roberta": ("classify",), "deberta": ("classify",)}
    for name, heads in expected.items():
        more = {"buckets": 4} if name == "deberta" else {}
        config = type(next(iter(family(name).PRESETS.values())))(**sizes, **more)
        origin = Origin("folder", "", name, config, {})
        assert with_head(origin, "classify", 3).prediction_heads == heads and with_head(
            origin, "tag"
        ).prediction_heads == ("tag",)
        layout = encoder_row if name == "bert" else one_segment_row
        assert (
            span.model_of(recipe.make("span", settings={"data.corpus": "facts"}), None, origin)[1] is layout
        )
        made = recipe.make("choose", settings={"data.corpus": "facts"})
        assert choose.model_of(made, None, origin)[1].layout is layout
        with pytest.raises(BadInput, match=f"a {name}, which has no head nothing"):
            with_head(origin, "nothing")


def test_layers_with_one_weight_in_common_have_one_adapter_in_common():
    torch.manual_seed(0)
    config = albert.AlbertConfig(**{**tiny_albert(), "layers": 3})
    model = albert.build(config).eval()
    ids, names = torch.randint(9, (2, 5)), set(dict(model.named_parameters()))
    before = model(ids)
    paths = parts.adapt(model, SMALL)
    new = set(dict(model.named_parameters())) - names
    assert len(new) == 4  # A and B of query and value, once for all layers
    for head, out in model(ids).items():
        assert torch.equal(out, before[head])
    after = stirred(model)(ids)
    parts.merge(model)
    assert set(dict(model.named_parameters())) == names and len(paths) >= 2
    for head, out in model(ids).items():
        torch.testing.assert_close(out, after[head], atol=1e-6, rtol=1e-5)
        assert not torch.allclose(out, before[head], atol=1e-4)


def tiny_albert() -> dict:
    """Sizes of its own, all different."""
    usual = vars(next(iter(albert.PRESETS.values())))
    small = {"vocab": 13, "context": 11, "width": 12, "heads": 3, "ffn_width": 20, "embedding_width": 7}
    return {**usual, **{name: value for name, value in small.items() if name in usual}}


# Runs


@pytest.mark.parametrize("way", ["head", "lora"])
@pytest.mark.parametrize("kind", ["mlm", "lm", "bert", "gpt2"])
def test_only_what_is_new_learns(kind, way, origin_of, files, tmp_path):
    folder = origin_of(kind)
    settings = {"train.from": str(folder), **WAYS[way]}
    job = job_of(files, tmp_path / "look", **settings)
    made = asked(files, **settings)
    model = setup.new_model(job, made, CPU)
    job.begin(model)
    head = {name for name, _ in model.named_parameters() if name.startswith(("heads.", "linear"))}
    new = head if kind in ("mlm", "lm", "gpt2") else {name for name in head if "pooled" not in name}
    adapters = {f"{path}.{part}" for path in parts.adapters(model) for part in "AB"}
    assert trained(model) == new | adapters and bool(adapters) == (way == "lora")
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    optimizers = setup.make_optimizers(made, model)
    (batch,) = job.batches(0)
    job.loss(model.train(), batch).total.backward()
    touched = {name for name, weight in model.named_parameters() if weight.grad is not None}
    assert touched == trained(model)
    for one in optimizers:
        one.step()
    state = {name.rpartition(":")[0] for name in optimizer.state_tensors(model, optimizers)}
    assert state == trained(model)
    moved = {name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])}
    # A has no gradient as long as B is zero, but decay pulls at it.
    assert moved == trained(model) or moved == trained(model) - {f"{p}.A" for p in parts.adapters(model)}


@pytest.mark.parametrize("kind", ["bert", "lm"])
def test_a_run_of_lora_is_small_loads_merged_and_goes_on_exactly(kind, origin_of, files, tmp_path):
    folder = origin_of(kind)
    settings = asked(files, **{"train.from": str(folder), **WAYS["lora"], "train.learning_rate": 0.01})
    outcome = trainer.start(settings, tmp_path / "whole", Quiet(), CPU)
    stored = find_weights(tmp_path / "whole")
    assert set(stored) == trained(outcome.model)
    kept = checkpoint.load(tmp_path / "whole" / "checkpoints" / "step-4")[0]
    assert set(kept["model"]) == set(stored)
    loaded = heedful.load(tmp_path / "whole")
    assert not parts.adapters(loaded.model)
    text = "the food was fine"
    batch = outcome.job.batches(0)[0]
    with torch.no_grad():
        from heedful.tasks import classify

        scores = classify.encoder_scores if kind == "bert" else classify.decoder_scores
        torch.testing.assert_close(scores(loaded.model, batch), scores(outcome.model, batch))
    assert loaded.classify(text) in ("good", "bad", "so so")
    base = dict(heedful.load(folder).model.named_parameters())
    changed = {
        name
        for name, weight in loaded.model.named_parameters()
        if name.removeprefix("decoder.") in base
        and not torch.equal(weight, base[name.removeprefix("decoder.")])
    }
    assert changed == {f"{path}.weight" for path in parts.adapters(outcome.model)}

    with pytest.raises(InterruptedError):
        trainer.start(settings, tmp_path / "cut", Quiet(until=3), CPU)
    trainer.resume(tmp_path / "cut", Quiet(), CPU)
    for name in ("model.safetensors", "metrics.jsonl", "recipe.json", "config.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    if kind == "bert":
        heedful.save(loaded, tmp_path / "saved")
        again = heedful.load(tmp_path / "saved")
        for a, b in zip(again.model.parameters(), loaded.model.parameters(), strict=True):
            assert torch.equal(a, b)


def test_what_is_held_fast_needs_no_room_for_gradients(origin_of, files, tmp_path):
    from heedful.runs.memory import memory_needed
    from heedful.train.parallel.way import ProcessGrid
    from heedful.train.processes import World

    needed = {}
    for way, more in WAYS.items():
        settings = {"train.from": str(origin_of("bert")), **more}
        job, made = job_of(files, tmp_path / f"look-{way}", **settings), asked(files, **settings)
        model = setup.new_model(job, made, CPU)
        needed[way] = memory_needed(made, job, model, World(), CPU).at(ProcessGrid())
        held = sum(weight.numel() for weight in model.parameters() if not weight.requires_grad)
        assert way == "whole" or needed["whole"] - needed[way] == pytest.approx(3 * 4 * held, rel=0.2)
    assert needed["head"] < needed["lora"] < needed["whole"]


def test_a_head_alone_lies_whole_in_its_run_and_goes_on_exactly(origin_of, files, tmp_path):
    folder = origin_of("bert")
    settings = asked(files, **{"train.from": str(folder), **WAYS["head"]})
    outcome = trainer.start(settings, tmp_path / "whole", Quiet(), CPU)
    source = dict(heedful.load(folder).model.named_parameters())
    for name, weight in outcome.model.named_parameters():
        assert name not in source or torch.equal(weight, source[name]), name
    with pytest.raises(InterruptedError):
        trainer.start(settings, tmp_path / "cut", Quiet(until=3), CPU)
    folder.rename(tmp_path / "moved")
    trainer.resume(tmp_path / "cut", Quiet(), CPU)
    assert heedful.load(tmp_path / "cut").classify("the food was fine")
    for name in ("model.safetensors", "metrics.jsonl"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_adapters_over_adapters_and_a_base_that_is_gone_or_another(origin_of, files, tmp_path):
    lora = {**WAYS["lora"], "train.steps": 2, "train.learning_rate": 0.01}
    trainer.start(asked(files, **{"train.from": str(origin_of("mlm")), **lora}), tmp_path / "a", Quiet(), CPU)
    trainer.start(asked(files, **{"train.from": str(tmp_path / "a"), **lora}), tmp_path / "b", Quiet(), CPU)
    assert heedful.load(tmp_path / "b").classify("the food was fine")
    said = json.loads((tmp_path / "b" / "from.json").read_text())
    (tmp_path / "b" / "from.json").write_text(json.dumps({**said, "folder": str(tmp_path / "gone")}))
    with pytest.raises(BadInput, match="holds only the adapters of .*gone, which is missing"):
        heedful.load(tmp_path / "b")
    (tmp_path / "b" / "from.json").write_text(json.dumps({**said, "folder": str(tmp_path / "mlm")}))
    with pytest.raises(BadInput, match="mlm does not have the weights that .* was trained with"):
        heedful.load(tmp_path / "b")
    from heedful.interop.run.read import weights_hash

    itself = {**said, "folder": str(tmp_path / "b"), "sha256": weights_hash(tmp_path / "b")}
    (tmp_path / "b" / "from.json").write_text(json.dumps(itself))
    with pytest.raises(BadInput, match="says that it began from itself"):
        heedful.load(tmp_path / "b")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (7, "lora is 7, which does not describe adapters"),
        ({"rank": 3}, "does not describe adapters"),
        ({"rank": 0, "alpha": 1, "dropout": 0, "layers": ["query"]}, "does not describe adapters"),
        ({"rank": 3, "alpha": 1, "dropout": 1, "layers": ["query"]}, "does not describe adapters"),
        ({"rank": 3, "alpha": "x", "dropout": 0, "layers": ["query"]}, "does not describe adapters"),
        ({"rank": 3, "alpha": 1, "dropout": 0, "layers": ["keys"]}, "there are query, key, value"),
        (
            {"rank": 4, "alpha": 1.0, "dropout": 0, "layers": ["query", "value"]},
            "is 3 x 12, but config.json asks",
        ),
        ({"rank": 3, "alpha": 1.0, "dropout": 0, "layers": ["key"]}, "disagree about"),
    ],
)
def test_a_damaged_description_of_adapters_is_one_sentence(said, told, lora_run, tmp_path):
    shutil.copytree(lora_run, tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    (tmp_path / "run" / "config.json").write_text(json.dumps({**config, "lora": said}))
    with pytest.raises(BadInput, match=told) as caught:
        heedful.load(tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_what_makes_no_sense_is_refused(origin_of, files, tmp_path):
    folder = {"train.from": str(origin_of("mlm"))}
    cases = {
        "needs a model to start from": {"train.tune": "lora"},
        "train.lora_rank is for LoRA: give --tune lora too": {**folder, "train.lora_rank": 4},
        "names layers of a block": {**folder, "train.tune": "lora", "train.lora_layers": "query,nothing"},
        "not ','": {**folder, "train.tune": "lora", "train.lora_layers": ","},
        "blocks have no layer gate": {**folder, "train.tune": "lora", "train.lora_layers": "gate"},
    }
    for number, (told, settings) in enumerate(cases.items()):
        with pytest.raises(BadInput, match=told):
            trainer.start(asked(files, **settings), tmp_path / f"run{number}", Quiet(), CPU)
        assert not (tmp_path / f"run{number}").exists()


def test_what_is_new_learns_faster_unless_told_otherwise():
    settings = {"train.from": "runs/mlm"}
    for way, more in TUNING.items():
        made = recipe.make("tag", settings=settings | {"train.tune": way})
        assert (made.train.learning_rate, made.train.optimizer) == (more["train.learning_rate"], "adamw")
    made = recipe.make("classify", settings=settings | {"train.tune": "lora", "train.learning_rate": 0.25})
    assert made.train.learning_rate == 0.25


# Every task that can start from a model


STARTS = [
    ("lm", "lm"),
    ("lm", "gpt2"),
    ("mlm", "mlm"),
    ("mlm", "bert"),
    ("tag", "mlm"),
    ("tag", "bert"),
    ("translate", "run"),
    ("translate", "separate"),
    ("translate", "saved"),
]


@pytest.mark.parametrize("way", ["whole", "lora"])
@pytest.mark.parametrize(("task", "kind"), STARTS)
def test_every_task_starts_from_a_model_is_judged_and_goes_on_exactly(
    task,
    kind,
    way,
    texts,
    origin_of,
    translator,
    tmp_path,
    capsys,
):
    from heedful.cli.main import main

    folder = translator(kind) if task == "translate" else origin_of(kind)
    source = heedful.load(folder)
    settings = {
        **FEW,
        **data_for(task, texts),
        "train.from": str(folder),
        **WAYS[way],
        "train.learning_rate": 1e-3,
    }
    made = recipe.make(task, settings=settings)
    begun = setup.make_job(made, (tmp_path / "look").mkdir() or tmp_path / "look", Quiet())
    model = setup.new_model(begun, made, CPU)
    begun.begin(model)
    old, new = dict(source.model.named_parameters()), dict(model.named_parameters())
    same = {name for name in new if name in old and torch.equal(new[name], old[name])}
    assert {name for name in old if not name.startswith("heads.")} <= same
    if (task, kind) in (("lm", "lm"), ("mlm", "mlm"), ("translate", "run")):
        assert set(old) == same

    outcome = trainer.start(made, tmp_path / "whole", Quiet(), CPU)
    assert outcome.finished and outcome.job.special == begun.special
    with pytest.raises(InterruptedError):
        trainer.start(made, tmp_path / "cut", Quiet(until=3), CPU)
    trainer.resume(tmp_path / "cut", Quiet(), CPU)
    for name in ("model.safetensors", "metrics.jsonl", "config.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()

    loaded = heedful.load(tmp_path / "whole")
    assert loaded.tokenizer.get_vocab() == source.tokenizer.get_vocab()
    if task == "lm":
        assert isinstance(loaded.generate("the food", max_new_tokens=3), str)
    elif task == "mlm":
        assert "[MASK]" not in loaded.fill("the [MASK] was")
    elif task == "tag":
        assert loaded.tag("the cat sleeps").words == ["the", "cat", "sleeps"]
    else:
        assert loaded.special["decoder_start"] == source.special["decoder_start"]
        with torch.no_grad():
            direct = outcome.job.evaluate(loaded.model)
        assert direct["loss"] == pytest.approx(outcome.best.scores["loss"], abs=1e-5)
        found = [str(loaded.translate(a, beam=1)) for a, _ in PAIRS[:4]]
        from heedful.tasks.translate import translate

        assert found == translate(loaded.model, outcome.job.vocab, [a for a, _ in PAIRS[:4]])
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "whole"), "--json"]) == 0, capsys.readouterr().err
    scores = json.loads(capsys.readouterr().out)["metrics"]
    assert scores["loss"] == pytest.approx(outcome.best.scores["loss"], rel=1e-4)


def test_what_a_task_cannot_start_from_is_one_sentence(texts, origin_of, translator, tmp_path):
    cases = [
        ("lm", origin_of("bert"), "is a bert: a language model goes on from a decoder like GPT-2"),
        ("mlm", origin_of("gpt2"), "is a gpt2: only an encoder like BERT can be started from here"),
        ("tag", tmp_path / "gpt2", "is a gpt2: only an encoder like BERT"),
        ("translate", tmp_path / "gpt2", "is a gpt2: a translator goes on from an encoder-decoder"),
        ("lm", translator("run"), "is a transformer: a language model goes on from a decoder"),
    ]
    for number, (task, folder, told) in enumerate(cases):
        settings = {**FEW, **data_for(task, texts), "train.from": str(folder)}
        with pytest.raises(BadInput, match=told):
            trainer.start(recipe.make(task, settings=settings), tmp_path / f"no{number}", Quiet(), CPU)
    settings = {**FEW, **data_for("lm", texts), "train.from": str(tmp_path / "gpt2")}
    for more, told in (
        ({"model.width": 24}, "model.width cannot be set with --from: sizes come with the model"),
        ({"data.tokenizer": "char"}, "data.tokenizer cannot be set with --from: the tokenizer comes with"),
    ):
        with pytest.raises(BadInput, match=told):
            recipe.make("lm", settings=settings | more)
    head = recipe.make("lm", settings=settings | {"train.tune": "head"})
    with pytest.raises(BadInput, match="its head too, so train.tune=head leaves nothing to learn"):
        trainer.start(head, tmp_path / "head", Quiet(), CPU)
