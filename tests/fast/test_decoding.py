"""The entry for decoding chooses the step: packed weights on a CPU, or the plain step."""

import pytest
import torch
from helpers.decoding_cases import Case

from heedful.decode.greedy import greedy
from heedful.decode.step import DecoderStep
from heedful.errors import BadInput
from heedful.fast.decoding import FastModel, for_decoding


@pytest.mark.parametrize("name", ["gpt2", "transformer"])
def test_a_float_model_on_a_cpu_is_packed_and_writes_the_same(name):
    case = Case(name, sharper=3)
    model = case.model.float()
    fast = for_decoding(model)
    assert fast.model is not model and fast.runners is None
    step = fast.step(case.source, case.source_lengths, room=9)
    found, expected = (greedy(one, case.prompts, case.lengths, longest=5) for one in (step, case.step()))
    assert [one.tokens for one in found] == [one.tokens for one in expected]


def test_a_model_in_another_precision_stays_as_it_is():
    model = Case("gpt2").model
    assert next(model.parameters()).dtype == torch.float64 and for_decoding(model).model is model


def test_a_model_that_reads_a_batch_in_a_way_of_its_own_takes_the_plain_step():
    fast, other = FastModel(Case("gpt2").model), Case("gpt2", seed=3).model
    step = fast.step(model=other)
    assert isinstance(step, DecoderStep) and step.decoder is other


def test_a_source_is_for_encoder_decoders_only():
    with pytest.raises(BadInput, match="a decoder alone reads no source"):
        FastModel(Case("gpt2").model).step(torch.ones(1, 2, dtype=torch.long))
    with pytest.raises(BadInput, match="an encoder-decoder needs a source"):
        FastModel(Case("transformer").model).step()
