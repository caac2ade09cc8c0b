"""Packed pairs: side by side in a row, and yet each as if it were alone."""

import json

import numpy as np
import pytest
import torch
from helpers.runs import CPU, TINY, Quiet, losses
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.packing import Fitted
from heedful.errors import BadInput
from heedful.models import mixture_transformer, transformer
from heedful.models.transformer import TransformerConfig
from heedful.parts.places import Packed, Source
from heedful.runs import setup, trainer
from heedful.tasks import recipe, translate, translate_data, translate_rows
from heedful.train.loss import NOTHING

BOS, EOS, PAD = 1, 2, 0


def some_pairs(sizes, seed=0):
    rng = np.random.default_rng(seed)
    return [(rng.integers(7, 17, s), rng.integers(7, 17, t)) for s, t in sizes]


def model_with(positions="sinusoidal", **more):
    torch.manual_seed(1)
    config = TransformerConfig(
        vocab=17,
        target_vocab=17,
        layers=2,
        decoder_layers=3,
        width=12,
        heads=3,
        decoder_heads=3,
        ffn_width=20,
        decoder_ffn_width=20,
        positions=positions,
        dropout=0.0,
        **more,
    )
    return transformer.build(config).double()


def gradients(model, total):
    model.zero_grad()
    total.backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "sinusoidal+rotary", "shaw"])
def test_packed_pairs_have_the_loss_and_the_gradients_of_pairs_alone(positions):
    model = model_with(positions)
    rows = [some_pairs([(5, 3), (2, 6), (1, 1)]), some_pairs([(4, 0), (3, 5)], 1), some_pairs([(11, 10)], 2)]
    packed = translate_rows.side_by_side(rows, 13, BOS, EOS, PAD)
    pairs = [pair for row in rows for pair in row]
    alone = [translate_rows.collate([s], [t], BOS, EOS, PAD) for s, t in pairs]
    assert packed.count == sum(batch.count for batch in alone) == sum(len(t) + 1 for _, t in pairs)
    whole = translate.loss_of(model, packed, 0.1)
    apart = [translate.loss_of(model, batch, 0.1) for batch in alone]
    torch.testing.assert_close(whole.total, sum(one.total for one in apart))
    torch.testing.assert_close(whole.nll, sum(one.nll for one in apart))
    for a, b in zip(
        gradients(model, whole.total), gradients(model, sum(one.total for one in apart)), strict=True
    ):
        torch.testing.assert_close(a, b)


def test_no_pair_sees_another():
    model = model_with()
    row = some_pairs([(5, 3), (2, 6), (1, 1)])
    batch = translate_rows.side_by_side([row], 13, BOS, EOS, PAD)
    vectors = model.encoder.inputs.tokens(batch.source_BS).detach().requires_grad_()
    model.encoder.inputs.tokens.forward = lambda tokens: vectors  # the source's alone
    memory = model.encoder(batch.source_BS, Packed(batch.source_documents_BS))
    del model.encoder.inputs.tokens.forward
    hidden = model.decoder.hidden(
        batch.target_BT,
        Packed(batch.target_documents_BT),
        source=Source(memory, Packed(batch.source_documents_BS)),
    )
    for pair in range(3):
        chosen = hidden[batch.target_documents_BT == pair].square().sum()
        (slope,) = torch.autograd.grad(chosen, vectors, retain_graph=True)
        reached = slope.abs().sum(-1) > 0
        assert torch.equal(reached, batch.source_documents_BS == pair)


def test_a_batch_is_laid_out_side_by_side():
    (s0, t0), (s1, t1) = row = some_pairs([(2, 3), (3, 1)])
    batch = translate_rows.side_by_side([row], 8, BOS, EOS, PAD, [4, 9])
    assert batch.source_BS[0].tolist() == [*s0, *s1, 0, 0, 0]
    assert batch.source_documents_BS[0].tolist() == [0, 0, 1, 1, 1, -1, -1, -1]
    assert batch.target_BT[0].tolist() == [BOS, *t0, BOS, *t1, 0, 0]
    assert batch.answers_BT[0].tolist() == [*t0, EOS, *t1, EOS, NOTHING, NOTHING]
    assert batch.target_documents_BT[0].tolist() == [0, 0, 0, 0, 1, 1, -1, -1]
    assert batch.ids == (4, 9) and batch.count == 6


@settings(deadline=None)
@given(st.lists(st.integers(1, 19), min_size=1, max_size=80), st.integers(19, 40))
def test_every_piece_stands_in_one_row_that_has_room_for_it(sizes, length):
    fitted = Fitted(np.array(sizes), length)
    rows = [fitted.pieces(row) for row in range(fitted.rows)]
    assert sorted(piece for row in rows for piece in row) == list(range(len(sizes)))
    assert all(sum(sizes[piece] for piece in row) <= length for row in rows)
    assert fitted.filled == sum(sizes) / (fitted.rows * length)


PACKED = {**TINY, "data.packed": True, "data.max_length": 24, "train.batch_tokens": 96, "train.steps": 40}


def asked(**more):
    return recipe.make("translate", "tiny", "phrasebook", {**PACKED, **more})


def test_a_packed_run_trains_and_its_batches_have_one_shape(tmp_path):
    made = asked()
    outcome = trainer.start(made, tmp_path / "run", Quiet(), CPU)
    assert outcome.finished and outcome.job.steady
    found = [line["loss"] for line in losses(tmp_path / "run") if "loss" in line]
    assert found[-1] < found[0]
    shapes, seen = set(), []
    for step in range(outcome.job.steps_per_epoch):
        (batch,) = outcome.job.batches(step)
        shapes.add(tuple(batch.source_BS.shape))
        seen += batch.ids
    assert shapes == {(4, 24)}
    assert len(seen) == len(set(seen))  # no pair twice in an epoch
    told = json.loads((tmp_path / "run" / "recipe.json").read_text())
    assert told["data"]["packed"] is True


def test_packed_batches_hold_the_pairs_of_the_store(tmp_path):
    job = setup.make_job(asked(), tmp_path, Quiet())
    pairs = list(translate_data.pairs_of(asked(), "train", translate.Report("drop")))
    (batch,) = job.batches(0)
    texts = translate_data.encoded(job.vocab, [pairs[i] for i in batch.ids])
    found = sorted(
        (
            batch.source_BS[b][batch.source_documents_BS[b] == n].tolist(),
            batch.answers_BT[b][batch.target_documents_BT[b] == n].tolist()[:-1],
        )
        for b in range(len(batch.source_BS))
        for n in range(int(batch.source_documents_BS[b].max()) + 1)
    )
    assert found == sorted(zip(*texts, strict=True))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"model.architecture": "bahdanau"}, "bahdanau cannot keep packed pairs apart"),
        ({"model.positions": "structural"}, "structural positions cannot keep packed pairs apart"),
    ],
)
def test_what_cannot_be_packed_is_refused(settings, told):
    with pytest.raises(BadInput, match=told):
        recipe.make("translate", "tiny", "phrasebook", {"data.packed": True, **settings})


def test_pairs_longer_than_a_row_are_left_out_and_told(tmp_path):
    job = setup.make_job(asked(**{"data.max_length": 9}), tmp_path, Quiet())
    assert any("left out: " in line and "over data.max_length, 9 tokens" in line for line in job.plan)
    lengths = [np.array([4, 5]), np.array([3, 2])]
    with pytest.raises(BadInput, match="no pair is left to train on: 2 of 2 are over 3 tokens"):
        translate_rows.PackedRows(None, job.vocab, lengths, 3, asked().train)


def test_the_mixture_sends_no_padding_to_its_experts():
    torch.manual_seed(0)
    config = mixture_transformer.MixtureTransformerConfig(
        vocab=17,
        target_vocab=17,
        layers=1,
        decoder_layers=1,
        width=12,
        heads=2,
        decoder_heads=2,
        ffn_width=20,
        decoder_ffn_width=20,
        dropout=0.0,
        experts=3,
        top_k=2,
    )
    model = mixture_transformer.build(config)
    rows = [some_pairs([(5, 3), (2, 6)]), some_pairs([(4, 2)], 1)]
    loss = translate.loss_of(model, translate_rows.side_by_side(rows, 13, BOS, EOS, PAD))
    read, written = 5 + 2 + 4, 4 + 7 + 3
    assert sorted(loss.expert_load_LE.sum(1).tolist()) == [2 * read, 2 * written]


def test_a_batch_goes_to_a_device_with_all_of_its_tensors_and_nothing_else_changed():
    batch = translate_rows.side_by_side([some_pairs([(2, 3)])], 8, BOS, EOS, PAD, [4])
    there = batch.to(torch.device("meta"))
    assert {name: tensor.device.type for name, tensor in there.tensors().items()} == dict.fromkeys(
        ("source_BS", "source_documents_BS", "target_BT", "target_documents_BT", "answers_BT"), "meta"
    )
    assert (there.count, there.ids) == (batch.count, batch.ids) and batch.to(CPU) is batch
    pairs = translate_rows.collate(*zip(*some_pairs([(2, 3), (1, 4)]), strict=True), BOS, EOS, PAD)
    assert pairs.to(torch.device("meta")).heads_BW is None
