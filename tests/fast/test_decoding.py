"""The entry for decoding chooses the step: packed weights on a CPU, or the plain step."""

import pytest
import torch
from helpers.decoding_cases import Case

from heedful.decode.greedy import greedy
from heedful.decode.options import batch_for
from heedful.decode.step import DecoderStep
from heedful.errors import BadInput
from heedful.fast.decoding import FastModel, FirstTokens, for_decoding


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


def test_kernels_are_made_ready_only_once_the_plain_step_has_written_enough():
    """On a GPU; here what stands for runners counts how often it is made."""
    model, made = Case("gpt2").model, []

    class Runners:
        def step(self, room, source, source_lengths_B):
            return f"kernels for {room} tokens"

    fast = FastModel(model, lambda: made.append(Runners()) or made[-1], first=FirstTokens(20))
    assert isinstance(fast.step(room=15), DecoderStep) and isinstance(fast.step(room=15), DecoderStep)
    assert not made
    assert fast.step(room=15) == fast.step(room=15) == "kernels for 15 tokens"
    assert len(made) == 1
    assert isinstance(fast.step(room=15, model=Case("gpt2", seed=3).model), DecoderStep)


def test_a_model_on_a_cpu_and_benchmarks_wait_for_nothing():
    assert not FirstTokens().take(room=9)
    assert isinstance(for_decoding(Case("gpt2").model.float()).step(room=5000), DecoderStep)


def test_a_gpu_writes_more_texts_at_once_unless_somebody_says_how_many():
    assert [batch_for(None, device) for device in ("cpu", "cuda")] == [32, 256]
    assert batch_for(7, "cuda") == batch_for(7, "cpu") == 7
