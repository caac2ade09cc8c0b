"""Families from Hugging Face by packed weights: what `generate` writes, by greedy and by beam search."""

import pytest
from helpers.decoding_cases import Pair
from helpers.encoder_cases import _no_progress_bars  # noqa: F401 (fixtures)

from heedful.decode.beam import beam_search
from heedful.decode.beam_settings import BeamSettings
from heedful.decode.greedy import greedy
from heedful.fast.cpu_decoder import UnpackedBlock
from heedful.fast.decoding import for_decoding
from heedful.models.base.shells import decoder_of

CASES = [("mt5", 1), ("m2m100", 4), ("opt", 3), ("gpt_neox", 2), ("gptj", 2), ("bloom", 3)]


@pytest.mark.parametrize("name, seed", CASES)
def test_packed_weights_write_what_generate_writes(name, seed, tmp_path):
    pair = Pair(name, seed, tmp_path)
    fast = for_decoding(pair.ours)
    assert not any(isinstance(block, UnpackedBlock) for block in decoder_of(fast.model).stack.packed)

    def begun():
        _, prompts, lengths = pair.step(False)
        given = (pair.inputs, pair.lengths) if pair.translates else ()
        return fast.step(*given), prompts, lengths

    expected, _ = pair.generate(False, max_new_tokens=7, do_sample=False)
    found = greedy(*begun(), longest=7, eos=pair.ends())
    assert [h.tokens for h in found] == expected
    width = {"num_beams": 3, "num_return_sequences": 3}
    expected, scores = pair.generate(False, max_new_tokens=7, length_penalty=1.0, **width)
    rows = beam_search(*begun(), longest=7, eos=pair.ends(), settings=BeamSettings(3, 3, "power", 1.0))
    assert [h.tokens for row in rows for h in row] == expected
    assert [h.score for row in rows for h in row] == pytest.approx(scores, abs=1e-4)
