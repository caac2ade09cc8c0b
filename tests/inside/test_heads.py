"""Importance of heads: equal to brute force, in every family, with intervals over texts."""

import pytest
import torch
import torch.nn.functional as F
from helpers import before_cases, tiny
from helpers.look_cases import imported

from heedful.errors import BadInput
from heedful.inside.ablation import attentions
from heedful.inside.corpus import samples_of, texts_in, with_reference
from heedful.inside.heads import heads, measure_heads
from heedful.inside.measuring import Measurer
from heedful.inside.scan import scan
from heedful.interop.loaded import Loaded
from heedful.models.base.shells import Decoder, EncoderDecoder
from heedful.tasks.student import quantile
from heedful.train.loss import NOTHING

TEXTS = ["the cat sat on the mat", "a dog ate", "the old man and the dog sat on a boat", "fish"]
TARGETS = ["the mat", "ate a dog and fish", "boat", "the fish sat"]
NUMBERS = ["5 3 8 8 4", "11 7", "6 5 4 3 9 10 12", "3 17 4"]


def pairs(texts):
    return list(zip(texts, TARGETS, strict=True))


@torch.no_grad()
def unpadded_loss(model, sample):
    """The summed loss of one sample, by the model's own forward and torch's cross-entropy."""
    ids = torch.tensor([sample.fed or sample.ids])
    if isinstance(model, EncoderDecoder):
        scores = model(ids, torch.tensor([sample.written]))
    else:
        scores = model(ids) if isinstance(model, Decoder) else model(ids)["masked_lm"]
    answers = torch.tensor(sample.answers)
    return float(F.cross_entropy(scores[0].double(), answers, ignore_index=NOTHING, reduction="sum"))


@torch.no_grad()
def brute_force(loaded, samples, by="zero"):
    """{head: (rise of the loss, half its interval)} by zeroed columns of W^O, text by text."""
    model, found = loaded.model, {}
    counts = torch.tensor([sum(a != NOTHING for a in each.answers) for each in samples]).double()
    plain = torch.tensor([unpadded_loss(model, each) for each in samples])
    for (kind, layer), path in attentions(model).items():
        out = model.get_submodule(path).out
        heads_here = model.get_submodule(path).heads
        mean = mean_input(model, out, samples) if by == "mean" else None
        width = out.weight.shape[1] // heads_here
        for head in range(heads_here):
            columns, kept = slice(head * width, (head + 1) * width), out.weight.clone()
            bias = None if out.bias is None else out.bias.clone()
            if mean is not None:
                out.bias += kept[:, columns] @ mean[columns]
            out.weight[:, columns] = 0
            changed = torch.tensor([unpadded_loss(model, each) for each in samples])
            out.weight.copy_(kept)
            if bias is not None:
                out.bias.copy_(bias)
            rise = float((changed - plain).sum() / counts.sum())
            off = changed - plain - rise * counts
            n = int((counts > 0).sum())  # texts with something to predict
            half = quantile(n - 1) * float((off.square().sum() * n / (n - 1)).sqrt() / counts.sum())
            found[f"{kind}.{layer}.{head + 1}"] = rise, half
    return found, float(plain.sum() / counts.sum())


def mean_input(model, out, samples):
    """The mean of what a projection reads, over all tokens of all samples."""
    seen = []
    handle = out.register_forward_pre_hook(lambda _, args: seen.append(args[0].flatten(0, 1)))
    for each in samples:
        unpadded_loss(model, each)
    handle.remove()
    return torch.cat(seen).mean(0)


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "t5", "transformer"])
def test_importance_equals_the_loss_with_zeroed_columns_of_the_output_projection(name):
    loaded = imported(name)
    texts = pairs(TEXTS) if isinstance(loaded.model, EncoderDecoder) else TEXTS
    samples = samples_of(loaded, texts=texts)
    table = heads(loaded, samples)
    expected, loss = brute_force(loaded, samples.samples)
    assert table.loss == pytest.approx(loss, rel=1e-5) and len(expected) == len(table.heads)
    for head in table.heads:
        rise, half = expected[str(head.name)]
        assert head.importance == pytest.approx(rise, abs=2e-5)
        assert head.high - head.importance == pytest.approx(half, abs=2e-5)
        assert abs(head.importance) > 1e-4  # so that the comparison can fail


@pytest.mark.parametrize("name", ["gpt2", "transformer"])
def test_by_mean_replaces_the_output_by_its_mean_over_real_tokens(name):
    loaded = imported(name)
    texts = pairs(TEXTS) if isinstance(loaded.model, EncoderDecoder) else TEXTS
    samples = samples_of(loaded, texts=texts)
    table = heads(loaded, samples, by="mean", points=0)
    expected, _ = brute_force(loaded, samples.samples, by="mean")
    for head in table.heads:
        assert head.importance == pytest.approx(expected[str(head.name)][0], abs=2e-5)
    assert table.curve == []
    with pytest.raises(BadInput, match='zero or mean, not by "noise"'):
        heads(loaded, samples, by="noise")


@pytest.mark.parametrize("name", ["bahdanau", "luong", "convs2s"])
def test_models_before_the_transformer_have_heads_too(name):
    entry = before_cases.ENCODER_DECODERS[name]
    special = {"decoder_start": 1, "eos": 2}
    loaded = Loaded(name, entry[1], tiny.build(entry, torch.float32), None, special)
    texts = list(zip(NUMBERS, reversed(NUMBERS), strict=True))
    samples = samples_of(loaded, texts=texts)
    table = heads(loaded, samples)
    assert {head.name.kind for head in table.heads} == {"cross"}
    for head in table.heads:
        layer = loaded.model.get_submodule(attentions(loaded.model)["cross", head.name.layer])
        counts = sum(len(each.answers) for each in samples.samples)
        plain = sum(unpadded_loss(loaded.model, each) for each in samples.samples)
        handle = layer.register_forward_hook(lambda *_: torch.zeros_like(_[-1]))
        changed = sum(unpadded_loss(loaded.model, each) for each in samples.samples)
        handle.remove()
        assert head.importance == pytest.approx((changed - plain) / counts, abs=2e-5)


def test_the_only_heads_that_write_are_found_and_a_silent_one_is_idle():
    loaded = imported("gpt2")
    with torch.no_grad():
        for layer, path in enumerate(attentions(loaded.model).values(), 1):
            for head in range(3):
                if (layer, head) not in ((2, 1), (2, 2)):
                    loaded.model.get_submodule(path).out.weight[:, 4 * head : 4 * head + 4] = 0
    table = heads(loaded, samples_of(loaded, texts=TEXTS))
    *others, third, first = sorted(table.heads, key=lambda head: abs(head.importance))
    assert {str(first.name), str(third.name)} == {"self.2.2", "self.2.3"} and abs(third.importance) > 1e-4
    assert all(abs(head.importance) < 1e-6 for head in others)
    assert "idle" in {label.name for label in table["self.2.1"].labels}


def test_the_curve_removes_the_least_important_heads_first():
    loaded = imported("bert")
    samples = samples_of(loaded, texts=TEXTS)
    table = heads(loaded, samples, points=4)
    names = [head.name for head in reversed(table.ranked)]
    measurer = Measurer(loaded, samples.samples)
    assert [point.removed for point in table.curve] == [0, 2, 4, 6]
    for point in table.curve:
        parts = [batch.losses([(), names[: point.removed]]) for batch in measurer.batches]
        plain, without = torch.cat(parts, 1).sum(1) / measurer.counts.sum()
        assert point.rise == pytest.approx(float(without - plain), abs=1e-6)
    assert table.curve[0].rise == 0 and abs(table.curve[-1].rise) > 1e-3


def test_work_comes_in_pieces_and_the_last_says_that_all_is_done():
    loaded = imported("transformer")
    samples = samples_of(loaded, texts=pairs(TEXTS))
    steps = list(measure_heads(loaded, samples, "mean", 3))
    assert [step.done for step in steps] == list(range(steps[-1].total + 1))
    assert len({step.doing for step in steps}) == 4
    began = measure_heads(loaded, samples)
    next(began)
    began.close()  # as a job that is cancelled
    hooks = [m for m in loaded.model.modules() if m._forward_pre_hooks or m._forward_hooks]
    assert hooks == []


def test_a_head_that_attends_one_back_is_found_by_scan_and_by_label():
    loaded = imported("gpt2")
    path = attentions(loaded.model)["self", 1]
    layer = loaded.model.get_submodule(path)

    def one_before(q_BHTK, k_BHSK):  # head 2 of layer 1 scores the key before each query highest
        scores = q_BHTK @ k_BHSK.mT
        T = scores.shape[-1]
        scores[:, 1] = 30.0 * torch.ones(T, T).tril(-1).triu(-1)
        return scores

    class OneBefore(torch.nn.Module):
        forward = staticmethod(one_before)

        def as_dot(self, q, k):
            return None

    layer.score = OneBefore()
    samples = samples_of(loaded, texts=TEXTS)
    found = scan(loaded, samples, ["offset:-1", "offset:-30"])
    best = found.ranked("offset:-1")[0]
    share, low, high, chance = found.row("offset:-1", best)
    assert str(best) == "self.1.2" and share > 0.99 and low <= share <= high and chance < 0.5
    most, least = found.extremes("offset:-1", best, 2)
    assert len(most) == 2 and most[0].share >= most[1].share >= least[0].share
    table = heads(loaded, samples, points=0)
    assert "one before" in {label.name for label in table["self.1.2"].labels}
    assert "self.1.2" in found.text().splitlines()[2] and "does not occur" in found.text()


def test_gold_and_trees_of_the_phrasebook_are_patterns(phrases):
    loaded, _, some = phrases
    texts = [(pair.source, pair.target) for pair in some[:5]]
    samples = samples_of(loaded, texts=texts)
    for pattern in ("gold", "parent"):
        with pytest.raises(BadInput, match=f"pattern.* {pattern}"):
            scan(loaded, samples, [pattern])
    known = [with_reference(sample, pair) for sample, pair in zip(samples.samples, some, strict=False)]
    found = scan(loaded, type(samples)(known, "the phrasebook"), ["gold", "parent", "child"])
    assert {name.kind for name in found.ranked("gold")} == {"cross"}
    assert {name.kind for name in found.ranked("parent")} == {"encoder"}
    assert len(found.ranked("gold")) == 4


def test_files_have_texts_pairs_or_trees(tmp_path):
    (tmp_path / "lines.txt").write_text("the cat\n\na dog ate\n")
    (tmp_path / "pairs.tsv").write_text("the cat\tle chat\nthe dog\tle chien\n")
    (tmp_path / "trees.conllu").write_text("1\ta\t_\t_\t_\t_\t2\t_\t_\t_\n2\tdog\t_\t_\t_\t_\t0\t_\t_\t_\n\n")
    assert list(texts_in(str(tmp_path / "lines.txt"))) == ["the cat", "a dog ate"]
    assert list(texts_in(str(tmp_path / "pairs.tsv"))) == [("the cat", "le chat"), ("the dog", "le chien")]
    (tree,) = texts_in(str(tmp_path / "trees.conllu"))
    assert tree == "a dog" and tree.heads == (1, -1)


def test_what_cannot_be_measured_is_refused_in_a_sentence():
    gpt2 = imported("gpt2")
    for texts, why in (
        (["one text"], "at least 2 texts"),
        ([("the", "cat"), ("a", "dog")], "for encoder-decoders"),
    ):
        with pytest.raises(BadInput, match=why):
            samples_of(gpt2, texts=texts)
    entry = tiny.DECODERS["gpt2"]
    numbers = Loaded("gpt2", entry[1], tiny.build(entry, torch.float32), None, {})
    with pytest.raises(BadInput, match="no tokenizer: give --data"):
        samples_of(numbers)
    with pytest.raises(BadInput, match="no attention heads"):
        entry = before_cases.DECODERS["lstm"]
        samples_of(Loaded("lstm", entry[1], tiny.build(entry, torch.float32), None, {}), texts=NUMBERS)
