"""Peers of one's own: a file with two functions, given by name and path."""

import json

import pytest
from helpers.bench_cases import PEER, TRAINING

from heedful.bench import peers
from heedful.bench.peers import Contender
from heedful.errors import BadInput

pytestmark = pytest.mark.usefixtures("no_pause")


def test_a_peer_of_ones_own_is_a_file_with_two_functions(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(PEER)
    paths = peers.given([f"mine={path}"])
    there, absent = peers.field_of(paths)
    assert "mine" in there and "nanogpt" in absent and "torch.nn" in there
    mine = [c for c in peers.contenders(TRAINING, there, paths) if c.peer == "mine"]
    assert [c.name for c in mine] == ["mine, x"] and len(mine[0].version) == 12
    assert Contender.from_json(json.loads(json.dumps(mine[0].as_json()))) == mine[0]


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("def variants(work): return []", "the file defines no function build"),
        ("1 / 0", "cannot be run: ZeroDivisionError"),
        (None, "there is no such file"),
    ],
)
def test_a_peer_that_is_none(tmp_path, text, sentence):
    path = tmp_path / "mine.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BadInput, match=sentence):
        peers.given([f"mine={path}"])


@pytest.mark.parametrize("asked", ["nanogpt", "=x", "x=", "heedful=x", "transformers=x"])
def test_peers_are_given_as_name_and_path(asked):
    with pytest.raises(BadInput, match="--peer"):
        peers.given([asked])


def test_peers_that_are_not_there_are_named_with_how_to_get_them(monkeypatch):
    file = peers.find("ctranslate2", None)
    monkeypatch.setattr(file, "PACKAGE", "no_such_package_anywhere")
    absent = peers.field_of({})[1]
    assert absent["ctranslate2"] == "not installed: pip install ctranslate2 transformers"
    assert "github.com/karpathy/nanoGPT" in absent["nanogpt"]
