"""Every part that is a setting of an open architecture: it builds, is causal, decodes step by step as in one
pass, keeps packed rows apart, learns, and fast paths agree or decline."""

from itertools import product

import pytest
import torch
from helpers.invariant_cases import close, future_leaks, tokens

from heedful.fast.cpu_decoder import packed
from heedful.fast.training import for_training
from heedful.interop.ctranslate2.layout import unlike
from heedful.interop.hf import write as to_hugging_face
from heedful.interop.loaded import Loaded
from heedful.models import decoder, encoder, transformer
from heedful.models.base.fields import keys_of, plain_position_names, position_names
from heedful.parts.places import Lengths, Packed, Source
from heedful.tasks import lm, translate, translate_rows

V, T = 29, 7
SIZES = {"vocab": V, "context": 31, "layers": 2, "width": 24, "heads": 3, "ffn_width": 20, "dropout": 0.0}
NORMS = list(product(keys_of("layers.py", "NORMS"), (True, False), ("pre", "post")))
WIDTHS = [(None, None), (6, None), (None, 5), (4, 7)]
SCORES = keys_of("attention.py", "SCORES")


def choice(number, positions):
    """One combination: every position, and the other choices in turns of unequal length."""
    kind, affine, norm = NORMS[number % len(NORMS)]
    key_width, value_width = WIDTHS[number // 3 % len(WIDTHS)]
    return {
        "positions": positions, "score": SCORES[number % len(SCORES)], "key_width": key_width,
        "value_width": value_width, "norm_kind": kind, "norm_affine": affine, "norm": norm,
        "sinusoid_layout": ("interleaved", "halves")[number // 2 % 2], "max_distance": 20,
    }  # fmt: skip


def combinations(names):
    made = [choice(number, names[number % len(names)]) for number in range(4 * len(names))]
    made = [one for one in made if "rotary" not in one["positions"] or one["score"] in ("scaled", "dot")]
    return [pytest.param(one, id="-".join(str(value) for value in one.values())) for one in made]


PLAIN = combinations(plain_position_names())
EVERY = combinations([name for name in position_names() if not name.startswith("structural")])


def build(kind, config, seed=3):
    torch.manual_seed(seed)
    model = kind.build(config).double().eval()
    for weight in model.parameters():  # no part may hide behind a zero
        torch.nn.init.normal_(weight, std=0.3)
    return model


def open_decoder(chosen):
    return build(decoder, decoder.DecoderConfig(**SIZES, **chosen))


def open_transformer(chosen):
    return build(transformer, transformer.TransformerConfig(**SIZES, target_vocab=V, **chosen))


def test_every_choice_is_met():
    met = [param.values[0] for param in PLAIN]
    assert {one["positions"] for one in met} == set(plain_position_names()) and len(met) >= 24
    assert {one["score"] for one in met} == set(SCORES)
    assert {(one["norm_kind"], one["norm_affine"], one["norm"]) for one in met} == set(NORMS)
    assert {(one["key_width"], one["value_width"]) for one in met} == set(WIDTHS)


@pytest.mark.parametrize("score", ["bilinear", "additive"])
def test_rotary_positions_are_refused_where_they_would_not_be_relative(score):
    for kind in (decoder.DecoderConfig, encoder.EncoderConfig, transformer.TransformerConfig):
        with pytest.raises(ValueError, match=f"set score to scaled or dot, not {score}"):
            kind(positions="rotary", score=score)


@pytest.mark.parametrize("chosen", PLAIN)
def test_a_decoder_of_any_parts_is_causal_and_decodes_as_it_reads(chosen):
    model, ids = open_decoder(chosen), tokens(2, T)
    assert torch.equal(future_leaks(model, model, tokens(1, T)), torch.ones(T, T).tril().bool())
    whole = model(ids)
    for cache in (model.growing_cache(), model.static_cache(2, 11)):
        parts = [model(part, cache=cache) for part in ids.split((3, 1, 2, 1), dim=1)]
        close(torch.cat(parts, 1), whole)


@pytest.mark.parametrize("chosen", EVERY)
def test_an_encoder_decoder_of_any_parts_is_causal_and_decodes_as_it_reads(chosen):
    model, source, ids = open_transformer(chosen), tokens(2, 5), tokens(2, T)
    leaks = future_leaks(model.decoder, lambda one: model(source[:1], one), tokens(1, T))
    assert torch.equal(leaks, torch.ones(T, T).tril().bool())
    lengths = Lengths(torch.tensor([5, 3]))
    whole = model(source, ids, lengths)
    read, cache = model.read(source, lengths), model.decoder.growing_cache()
    parts = [model.decode(read, part, cache=cache) for part in ids.split((3, 1, 2, 1), dim=1)]
    close(torch.cat(parts, 1), whole)


@pytest.mark.parametrize("chosen", PLAIN)
def test_packed_documents_equal_separate_ones_whatever_the_parts(chosen):
    model, ids = open_decoder(chosen), tokens(1, T)
    found = model(ids, Packed(torch.tensor([[0, 0, 0, 1, 1, 2, 2]])))
    for here in (slice(0, 3), slice(3, 5), slice(5, 7)):
        close(found[:, here], model(ids[:, here]))


@pytest.mark.parametrize("chosen", EVERY)
def test_packed_pairs_equal_separate_ones_whatever_the_parts(chosen):
    model, source, ids = open_transformer(chosen), tokens(1, 6), tokens(1, T)
    of_source, of_target = (
        Packed(torch.tensor([row])) for row in ([0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1])
    )
    read = Source(model.encoder(source, of_source), of_source)
    found = model.decode(read, ids, of_target)
    close(found[:, :4], model(source[:, :2], ids[:, :4]))
    close(found[:, 4:], model(source[:, 2:], ids[:, 4:]))


@pytest.mark.parametrize("chosen", PLAIN)
def test_an_encoder_of_any_parts_reads_padded_and_packed_rows(chosen):
    heads = ("pooled", "masked_lm", "next_sentence", "classify", "tag", "span")
    model = build(encoder, encoder.EncoderConfig(**SIZES, **chosen, prediction_heads=heads, labels=5))
    ids = tokens(2, T)
    assert model(ids)["masked_lm"].shape == (2, T, V) and set(model(ids)) == set(heads)
    found = model.encoder(ids, Lengths(torch.tensor([7, 4])))
    close(found[1, :4], model.encoder(ids[1:, :4])[0])
    close(
        model.encoder(ids[:1], Packed(torch.tensor([[0] * 3 + [1] * 4])))[:, 3:], model.encoder(ids[:1, 3:])
    )


def steps(model, loss, count=12):
    """Losses a token of so many steps on one batch; every weight must learn."""
    learner, found = torch.optim.Adam(model.parameters(), 0.01), []
    for _ in range(count):
        learner.zero_grad()
        value = loss(model)
        (value.total / value.count).backward()
        assert all(weight.grad is not None for weight in model.parameters())
        learner.step()
        found.append(float(value.nll.detach()) / value.count)
    return found


@pytest.mark.parametrize("chosen", PLAIN[::2])
def test_a_decoder_of_any_parts_learns_packed_rows_and_by_fast_twins_alike(chosen):
    batch = documents_of(tokens(2, 2 * T))

    def losses(change):
        torch.manual_seed(4)
        model = decoder.build(decoder.DecoderConfig(**SIZES, **chosen)).train()
        return steps(change(model), lambda made: lm.loss_of(made, batch))

    plain = losses(lambda model: model)
    assert plain[-1] < 0.9 * plain[0]
    torch.testing.assert_close(losses(for_training), plain, rtol=1e-4, atol=1e-4)


def documents_of(ids):
    rows = ids.shape[0]
    documents = torch.tensor([[0] * 4 + [1] * (ids.shape[1] - 5)] * rows)
    answers = ids[:, 1:].clone()
    answers[:, 3] = lm.NOTHING
    return lm.PackedBatch(ids[:, :-1], answers, documents, int((answers != lm.NOTHING).sum()))


@pytest.mark.parametrize("chosen", EVERY[::3])
def test_an_encoder_decoder_of_any_parts_learns(chosen):
    torch.manual_seed(4)
    model = transformer.build(transformer.TransformerConfig(**SIZES, target_vocab=V, **chosen)).train()
    rows = [
        [(row[:3].numpy(), row[3:7].numpy()), (row[7:9].numpy(), row[9:12].numpy())] for row in tokens(2, 12)
    ]
    batch = translate_rows.side_by_side(rows, 9, 1, 2, 0)
    found = steps(model, lambda made: translate.loss_of(made, batch))
    assert found[-1] < 0.9 * found[0]


@pytest.mark.parametrize("chosen", PLAIN[::2])
def test_weights_packed_for_a_cpu_write_as_the_model_does(chosen):
    torch.manual_seed(4)
    model = decoder.build(decoder.DecoderConfig(**SIZES, **chosen)).eval()
    quick, ids = packed(model), tokens(2, T)
    whole = model(ids)
    cache = quick.growing_cache()
    found = torch.cat([quick(part, cache=cache) for part in ids.split((4, 1, 1, 1), dim=1)], 1)
    torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-4)


OTHERS = [
    {"score": "dot"},
    {"key_width": 6},
    {"value_width": 5},
    {"norm_kind": "rmsnorm"},
    {"norm_affine": False},
]


@pytest.mark.parametrize("other", OTHERS, ids=[next(iter(other)) for other in OTHERS])
def test_other_parts_are_not_saved_as_marian_and_the_reason_names_the_setting(other):
    config = transformer.TransformerConfig(**SIZES, target_vocab=V, **other)
    loaded = Loaded("transformer", config, transformer.build(config), None, {})
    ((name, value),) = other.items()
    assert f"({name}={value})" in to_hugging_face.refuse(loaded)
    usual = transformer.TransformerConfig(**SIZES, target_vocab=V)
    assert to_hugging_face.refuse(Loaded("transformer", usual, transformer.build(usual), None, {})) is None


def test_norms_without_gain_have_no_place_in_ctranslate2():
    config = transformer.TransformerConfig(**SIZES, target_vocab=V, norm_affine=False)
    assert unlike(transformer.build(config)) == "its norms have no gain"
