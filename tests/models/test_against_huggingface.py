"""Every family gives Hugging Face's logits on random tiny models, and its weights survive the round trip."""

import pytest
import torch
from helpers import hf_zoo
from safetensors.torch import load_file

import heedful
from heedful.models import family

EVERY = [(name, seed) for name in hf_zoo.FAMILIES for seed in range(hf_zoo.CASES_PER_FAMILY)]


@pytest.fixture(autouse=True)
def _no_progress_bars():
    from transformers.utils import logging

    logging.disable_progress_bar()


@pytest.mark.parametrize("name, seed", EVERY)
def test_logits_equal_and_weights_round_trip(name, seed, tmp_path):
    case = hf_zoo.make(name, seed)
    hf_zoo.write(case, tmp_path / "theirs")
    loaded = heedful.load(tmp_path / "theirs")
    with torch.no_grad():
        for expected, found in case.compare(case.theirs, loaded.model):
            assert expected.abs().max() > 1e-2, "a comparison of nothing"
            assert (expected - found).abs().max() < 1e-5

    # to_theirs(from_theirs(w)) == w, exactly
    stored = load_file(tmp_path / "theirs" / "model.safetensors")
    table = family(loaded.architecture).names(loaded.config)
    stored = {name: tensor for name, tensor in stored.items() if name not in table.fixed}
    back = table.to_theirs(table.to_ours(stored))
    assert back.keys() == stored.keys()
    assert all(torch.equal(back[key], stored[key]) for key in stored)

    # and the other way: our weights, theirs again, ours again
    ours = dict(loaded.model.named_parameters())
    again = table.to_ours(table.to_theirs(ours))
    assert again.keys() == ours.keys() and all(torch.equal(again[key], ours[key]) for key in ours)


@pytest.mark.parametrize("name, seed", [(name, seed) for name in hf_zoo.FAMILIES for seed in (1, 2)])
def test_what_we_save_they_load(name, seed, tmp_path):
    case = hf_zoo.make(name, seed)
    hf_zoo.write(case, tmp_path / "theirs")
    loaded = heedful.load(tmp_path / "theirs")
    heedful.save(loaded, tmp_path / "ours")
    again = type(case.theirs).from_pretrained(tmp_path / "ours").eval()
    first, second = case.theirs.state_dict(), again.state_dict()
    assert first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)
    with torch.no_grad():
        pairs = zip(case.compare(case.theirs, loaded.model), case.compare(again, loaded.model), strict=True)
        for (before, _), (after, found) in pairs:
            assert (before - after).abs().max() < 1e-6  # of one weight, sums depend on where it lies
            assert (after - found).abs().max() < 1e-5
