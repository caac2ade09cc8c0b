"""Architectures that a task can choose learn by its own loss; packed rows are read as separate ones."""

import numpy as np
import pytest
import torch
from helpers import before_cases, long_cases, tiny
from helpers.invariant_cases import close

from heedful.models import config_class, family, kind_of
from heedful.models.base.shells import Decoder, keeps_packed_rows
from heedful.parts.places import Packed, Source
from heedful.tasks import lm, translate, translate_rows

V = 29
SIZES = {"vocab": V, "layers": 2, "width": 24, "heads": 3, "dropout": 0.0}
DECODERS = ("gpt1", "gpt2", "gpt3", "llama", "modern", "decoder")
TRANSLATORS = ("transformer", "bart", "t5")
EVERY = tiny.DECODERS | tiny.ENCODER_DECODERS | before_cases.EVERY | long_cases.ALL


def build(name):
    fields = config_class(name).__dataclass_fields__
    sizes = SIZES | {"context": 31, "target_vocab": V, "attention_dropout": 0.0, "activation_dropout": 0.0}
    torch.manual_seed(3)
    return (
        family(name).build(config_class(name)(**{key: sizes[key] for key in sizes if key in fields})).train()
    )


def losses(model, loss, count=15):
    learner, found = torch.optim.Adam(model.parameters(), 0.01), []
    for _ in range(count):
        learner.zero_grad()
        value = loss(model)
        (value.total / value.count).backward()
        learner.step()
        found.append(float(value.nll.detach()) / value.count)
    return found


def draw(*shape):
    return np.random.default_rng(5).integers(3, V, shape)


@pytest.mark.parametrize("name", DECODERS)
def test_a_language_model_of_every_name_learns_windows(name):
    assert kind_of(name) == "Decoder"
    batch = lm.WindowBatch(torch.from_numpy(draw(3, 12)))
    found = losses(build(name), lambda model: lm.loss_of(model, batch))
    assert found[-1] < 0.7 * found[0]


@pytest.mark.parametrize("name", TRANSLATORS)
@pytest.mark.parametrize("packed", [True, False])
def test_a_translator_of_every_name_learns_packed_and_padded_pairs(name, packed):
    assert kind_of(name) == "EncoderDecoder"
    batch = pairs_of(packed)
    found = losses(build(name), lambda model: translate.loss_of(model, batch))
    assert found[-1] < 0.7 * found[0]


def pairs_of(packed):
    rows = draw(3, 12)
    pairs = [(row[:5], row[5:12]) for row in rows] + [(row[:2], row[2:5]) for row in rows]
    if packed:
        return translate_rows.side_by_side([pairs[:2], pairs[2:4], pairs[4:]], 17, 1, 2, 0)
    return translate_rows.collate([s for s, _ in pairs], [t for _, t in pairs], 1, 2, 0)


@pytest.mark.parametrize("name", TRANSLATORS)
def test_packed_and_padded_pairs_have_one_loss(name):
    model = build(name).double()
    one, other = (translate.loss_of(model, pairs_of(packed)) for packed in (True, False))
    assert one.count == other.count
    close(one.nll, other.nll)


def packed_equals_separate(model):
    ids, source = torch.from_numpy(draw(1, 7) % 17), torch.from_numpy(draw(1, 6) % 17)
    if isinstance(model, Decoder):
        found = model(ids, Packed(torch.tensor([[0, 0, 0, 1, 1, 2, 2]])))
        return all(
            torch.allclose(found[:, here], model(ids[:, here]), atol=1e-8)
            for here in (slice(0, 3), slice(3, 5), slice(5, 7))
        )
    read = Packed(torch.tensor([[0, 0, 1, 1, 1, 1]]))
    found = model.decode(
        Source(model.encoder(source, read), read), ids, Packed(torch.tensor([[0, 0, 0, 0, 1, 1, 1]]))
    )
    first, second = model(source[:, :2], ids[:, :4]), model(source[:, 2:], ids[:, 4:])
    return torch.allclose(found, torch.cat([first, second], 1), atol=1e-8)


@pytest.mark.parametrize("name", EVERY)
def test_models_that_say_so_keep_packed_rows_apart(name):
    model = tiny.build(EVERY[name])
    if keeps_packed_rows(model):
        assert packed_equals_separate(model)
    else:
        assert name.partition(",")[0].partition(" ")[0] in {"xl", "seq2seq", "bahdanau", "luong", "convs2s"}


def test_encoders_say_whether_they_keep_packed_rows_apart():
    found = {name: keeps_packed_rows(tiny.build(case)) for name, case in tiny.ENCODERS.items()}
    assert [name for name, keeps in found.items() if not keeps] == ["deberta"]
