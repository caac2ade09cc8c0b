"""Models that tests of use/ share."""

import pytest
import torch
from helpers.loaded_models import make_theirs, spread
from helpers.small_runs import (
    small_run,  # noqa: F401 (fixtures)
)

import heedful
import heedful.use.model


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def load(small_run):
    kept = {}

    def get(name: str) -> heedful.Model:
        if name not in kept:
            kept[name] = heedful.load(small_run(name))
        return kept[name]

    return get


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """(their model, our model, the tokenizer) of a Hugging Face folder."""
    folder, kept = tmp_path_factory.mktemp("theirs"), {}

    def get(name: str):
        if name not in kept:
            model, tokenizer = make_theirs(name)
            spread(model, 3).save_pretrained(folder / name)
            tokenizer.save(str(folder / name / "tokenizer.json"))
            kept[name] = model, heedful.load(folder / name), tokenizer
        return kept[name]

    return get
