"""Attributions, each against a computation by brute force: sliced matrices, values set to 0 by hand, finite
differences."""

from dataclasses import replace

import pytest
import torch
from helpers import tiny
from helpers.look_cases import imported

from heedful.cli.main import main
from heedful.errors import BadInput
from heedful.inside.attribute import alignment_errors, attribute
from heedful.inside.look.attention import look
from heedful.interop.formats import load
from heedful.interop.loaded import Loaded
from heedful.models import bahdanau, transformer
from heedful.parts.watch import watch
from heedful.tasks.alignment import error_rates

TEXT, TARGET = "The cat sat", "the mat"


def exact(name):
    loaded = imported(name)
    loaded.model.double()
    return loaded


def target_of(loaded):
    return TARGET if loaded.architecture in ("t5", "transformer") else None


def run(loaded, seen):
    """The whole model on the tokens that were looked at: scores [1, T, V]."""
    ids = torch.tensor([seen.words.ids])
    if seen.words.read:
        return loaded.model(ids, torch.tensor([seen.words.read]))
    found = loaded.model(ids)
    return found["masked_lm"] if isinstance(found, dict) else found


CASES = [
    ("gpt2", "self"),
    ("llama", "self"),
    ("bert", "self"),
    ("t5", "cross"),
    ("t5", "self"),
    ("transformer", "encoder"),
]


@pytest.mark.parametrize("name, which", CASES)
def test_norms_are_those_of_values_times_the_slice_of_the_output_matrix(name, which):
    loaded = exact(name)
    seen = attribute(loaded, TEXT, by="norm", target=target_of(loaded), which=which)
    mean = attribute(loaded, TEXT, by="norm", target=target_of(loaded), which=which, head="mean")
    for layer in mean.chosen:
        attention, values = loaded.model.get_submodule(layer.path), []
        handle = attention.value.register_forward_hook(lambda _, given, out, kept=values: kept.append(out[0]))
        with torch.no_grad():
            run(loaded, seen)
        handle.remove()
        group, L = attention.heads // attention.kv_heads, attention.value_width
        total_TSD = 0
        for head in (one for one in seen.chosen if one.layer == layer.layer):
            g = (head.head - 1) // group
            v_SL = values[0][:, g * L : (g + 1) * L]
            W_DL = attention.out.weight[:, (head.head - 1) * L : head.head * L]
            a_TS = seen.weights[head.path][head.head - 1].double()
            each_TSD = a_TS[:, :, None] * (v_SL @ W_DL.mT)[None]
            torch.testing.assert_close(head.weights_TS.double(), each_TSD.norm(dim=-1), rtol=1e-5, atol=1e-6)
            total_TSD = total_TSD + each_TSD
        torch.testing.assert_close(layer.weights_TS.double(), total_TSD.norm(dim=-1), rtol=1e-5, atol=1e-6)


def test_norms_count_the_vectors_that_relative_positions_add():
    """Shaw et al. add a vector for each distance to the values: all parts together are the layer's output."""
    config = transformer.TransformerConfig(
        vocab=19, target_vocab=19, width=12, heads=3, layers=1, ffn_width=20, positions="shaw", max_distance=2
    )
    model = tiny.build((transformer, config), torch.float64)
    loaded = Loaded("transformer", config, model, None, {"bos": 1, "eos": 2, "decoder_start": 1})
    seen = attribute(loaded, "5 9 3", by="norm", target="4 7", which="encoder", head=2)
    attention = model.get_submodule(seen.chosen[0].path)
    with torch.no_grad(), watch(model, ("v",)) as trace:
        model(torch.tensor([[5, 9, 3]]), torch.tensor([[1, 4]]))
    record, position = trace[seen.chosen[0].path], attention.position
    places = torch.arange(3)
    one_key = record.weights[0] * torch.tensor([0.0, 0.0, 1.0])
    added_TL = position.values(one_key, places, places)[0, 1]
    vector_TL = record.weights[0][0, 1, :, 2:] * record.v[0][0, 1, 2] + added_TL
    expected_T = (vector_TL @ attention.out.weight[:, 4:8].mT).norm(dim=-1)
    torch.testing.assert_close(seen.chosen[0].weights_TS[:, 2].double(), expected_T, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name, which", CASES)
def test_zeroing_is_what_happens_when_the_value_is_set_to_0_by_hand(name, which):
    loaded = exact(name)
    how = {"target": target_of(loaded), "which": which, "layer": 2, "by": "zeroing"}
    whole = attribute(loaded, TEXT, **how).chosen[0]
    attention = loaded.model.get_submodule(whole.path)
    alone = (
        attribute(loaded, TEXT, **how, head=2).chosen[0] if name != "llama" else None
    )  # heads share values
    L = attention.value_width
    block = loaded.model.get_submodule(whole.path.rsplit(".", 2)[0])
    for head, columns in ((whole, slice(None)), (alone, slice(L, 2 * L))):
        if head is None:
            continue
        outputs, seen = [], look(loaded, TEXT, target=target_of(loaded))
        kept = block.register_forward_hook(lambda _, given, out, found=outputs: found.append(out[0]))
        for s in (None, *range(head.weights_TS.shape[1])):

            def zero(_, given, out, s=s, columns=columns):
                if s is not None:
                    out = out.clone()
                    out[0, s, columns] = 0
                return out

            handle = attention.value.register_forward_hook(zero)
            with torch.no_grad():
                run(loaded, seen)
            handle.remove()
        kept.remove()
        before, *after = outputs
        expected_TS = torch.stack([1 - torch.cosine_similarity(each, before, dim=-1) for each in after], 1)
        torch.testing.assert_close(head.weights_TS.double(), expected_TS, rtol=1e-5, atol=1e-7)
        assert head.weights_TS.max() > 1e-6


@pytest.mark.parametrize("name, which", CASES)
def test_gradients_are_those_of_finite_differences(name, which):
    loaded = exact(name)
    seen = attribute(loaded, TEXT, by="gradient", target=target_of(loaded), which=which)
    every_row = which == "encoder"  # one number for all predictions
    with torch.no_grad():
        scores_TV = run(loaded, seen)[0]
    wanted = seen.words.answers or scores_TV.argmax(-1).tolist()
    for number, (head, t, s) in enumerate([(seen.chosen[1], 2, 1), (seen.chosen[-1], 1, 1)]):
        found = []
        for step in (1e-5, -1e-5):

            def move(path, weights, head=head, t=t, s=s, step=step):
                moved = weights.clone()
                if path == head.path:
                    moved[0, head.head - 1, t, s] += step
                return moved

            with torch.no_grad(), watch(loaded.model, change=move):
                scores_TV = run(loaded, seen)[0]
            picked = [scores_TV[row, token] for row, token in enumerate(wanted)]
            found.append(sum(picked) if every_row else picked[t])
        weight = float(seen.weights[head.path][head.head - 1, t, s])
        slope = float(found[0] - found[1]) / 2e-5
        assert slope != 0, number
        assert float(head.weights_TS[t, s]) == pytest.approx(slope * weight, rel=1e-4, abs=1e-9)
    mean = attribute(loaded, TEXT, by="gradient", target=target_of(loaded), which=which, head="mean").chosen[
        0
    ]
    heads = [head.weights_TS for head in seen.chosen if head.layer == 1]
    torch.testing.assert_close(mean.weights_TS, torch.stack(heads).mean(0))


def test_a_classifier_is_explained_by_the_score_of_its_label(runs):
    for kind in ("classify", "decoder"):
        loaded = load(runs(kind))
        found = attribute(loaded, "ba de fi", by="gradient", head=1).chosen[0].weights_TS
        assert found.abs().max() > 0
        zeroed = attribute(loaded, "ba de fi", by="zeroing").chosen[0].weights_TS
        assert zeroed.shape == found.shape


# Alignment


def test_the_row_of_the_input_is_one_further_than_that_of_the_prediction():
    loaded = imported("t5")
    for by in ("weight", "norm"):
        predicted, read = (
            attribute(loaded, TEXT, by=by, target=TARGET, row=row, head=2) for row in ("prediction", "input")
        )
        assert read.down == predicted.down[:-1] and read.row == "input"
        torch.testing.assert_close(read.chosen[0].weights_TS, predicted.chosen[0].weights_TS[1:])
    with pytest.raises(BadInput, match="cross-attention"):
        attribute(loaded, TEXT, which="self", row="input")


def test_error_rates_of_weights_are_those_of_the_task(phrases):
    loaded, vocab, pairs = phrases
    some = pairs[:4]
    found = alignment_errors(loaded, some)
    expected = error_rates(loaded.model, vocab, some)
    assert list(found) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert list(found.values()) == pytest.approx(expected.tolist())
    assert list(alignment_errors(loaded, some[:2], by="norm", row="input", head="mean")) == [
        (1, None),
        (2, None),
    ]
    with pytest.raises(BadInput, match="no sentences"):
        alignment_errors(loaded, [])


# Pictures and refusals


def test_what_is_drawn_are_shares_of_the_positive_sum_and_json_has_the_values():
    loaded = imported("gpt2")
    seen = attribute(loaded, TEXT, by="gradient", layer=1, head=2)
    table = seen.chosen[0].weights_TS
    assert table.min() < 0
    shares = seen.shares(seen.chosen[0])
    sums = shares.sum(-1)
    assert bool(((sums - 1).abs() < 1e-5).logical_or(sums == 0).all()) and shares.min() == 0
    assert seen.as_json()["by"] == "gradient" and seen.as_json()["heads"][0]["weights"] == table.tolist()
    assert "gradient × weight" in seen._repr_html_() and "█" in seen.text()
    several = attribute(loaded, TEXT, by="norm")
    assert "bits" in several.text() and several.best in several.chosen


def test_what_has_no_answer_is_refused_with_the_reason():
    loaded = imported("bert")
    with pytest.raises(BadInput, match="weight, norm, zeroing, gradient"):
        attribute(loaded, TEXT, by="rollout")
    with pytest.raises(BadInput, match="prediction or input"):
        attribute(loaded, TEXT, row="first")
    bare = replace(loaded, model=loaded.model.__class__(loaded.model.encoder, {}))
    with pytest.raises(BadInput, match="no head"):
        attribute(bare, TEXT, by="gradient")


def test_a_recurrent_decoder_has_norms_and_gradients_and_no_block_to_zero_in():
    sizes = {"vocab": 19, "target_vocab": 19, "width": 7, "embedding_width": 5, "maxout_width": 6}
    config = bahdanau.BahdanauConfig(**sizes, score_width=4)
    model = tiny.build((bahdanau, config), torch.float64)
    loaded = Loaded("bahdanau", config, model, None, {"bos": 1, "eos": 2, "decoder_start": 1})
    how = {"target": "4 7 8", "which": "cross"}
    seen = attribute(loaded, "5 9 3", **how, by="gradient")
    found = []
    for step in (1e-5, -1e-5):
        calls = []

        def move(path, weights, step=step, calls=calls):
            calls.append(path)
            moved = weights.clone()
            if len(calls) == 3:  # the third query
                moved[0, 0, 0, 1] += step
            return moved

        with torch.no_grad(), watch(model, change=move):
            found.append(float(run(loaded, seen)[0, 2, seen.words.answers[2]]))
    head = seen.chosen[0]
    slope = (found[0] - found[1]) / 2e-5
    expected = slope * float(seen.weights[head.path][0, 2, 1])
    assert slope != 0 and float(head.weights_TS[2, 1]) == pytest.approx(expected, rel=1e-4)
    with torch.no_grad(), watch(model, "v") as trace:
        run(loaded, seen)
    norms_S = trace[head.path].v[-1][0, 0].norm(dim=-1)
    expected_TS = seen.weights[head.path][0] * norms_S.float()
    torch.testing.assert_close(attribute(loaded, "5 9 3", **how, by="norm").chosen[0].weights_TS, expected_TS)
    with pytest.raises(BadInput, match="residual stream"):
        attribute(loaded, "5 9 3", **how, by="zeroing")


def test_the_command_shows_every_measure(runs, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    line = ["look", str(runs("translate")), "ba de fi"]
    for more, expected in {
        "--by norm": "weight × norm of the projected value",
        "--by zeroing": "all its heads",
        "--by gradient --head 1": "gradient × weight",
        "--row input --head 1": "layer 1, head 1",
    }.items():
        assert main([*line, *more.split()]) == 0
        assert expected in capsys.readouterr().out
    assert main([*line, "--by", "norm", "--query", "1"]) == 2
    assert "leave --by out" in capsys.readouterr().err
    assert main(["look", "--positions", line[1], "--by", "norm"]) == 2
