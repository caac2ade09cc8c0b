"""Checkpoints from strangers: whatever lies there runs no code, and is refused before it takes memory.

A stranger can seal any manifest, so hashes are no defense here: each test seals what it has altered.
"""

import io
import os
import pickle
import random
import zipfile

import pytest
import torch
from helpers import shares
from helpers.hostile_files import mutate
from helpers.refusals import at_most

from heedful.errors import BadInput, NoCheckpoint
from heedful.runs import checkpoint
from heedful.runs.checkpoint import Saved

SHARE = "model-{:05d}-of-00003.safetensors"


@pytest.fixture
def folder(tmp_path):
    return shares.save(tmp_path)


def same(found):
    return found.keys() == shares.WHOLE.keys() and all(
        torch.equal(found[n], t) for n, t in shares.WHOLE.items()
    )


def refused(folder, words):
    """Both ways of reading refuse it in one sentence that names the checkpoint."""
    empty = {name: torch.zeros_like(tensor) for name, tensor in shares.WHOLE.items()}
    for read in (checkpoint.load, lambda path: Saved.open(path).read("model", empty)):
        with at_most(5), pytest.raises(BadInput) as caught:
            read(folder)
        said = str(caught.value)
        assert folder.name in said and words in said and said.isprintable() and len(said) <= 2000, said


def test_shares_are_put_together(folder):
    assert sorted(path.name for path in folder.iterdir())[1:4] == [SHARE.format(n) for n in (1, 2, 3)]
    assert same(checkpoint.load(folder)[0]["model"])
    rows = {"a": torch.zeros(6, 4)}
    Saved.open(folder).read("model", rows)  # a part is read alone
    assert torch.equal(rows["a"], shares.WHOLE["a"])


ROWS = torch.arange(8.0).view(2, 4)
PLACES = [
    ({"a": {"shape": [6, 4], "offsets": [1, 0]}}, "over the piece in"),
    ({"a": {"shape": [6, 4], "offsets": [5, 0]}}, "sticks out"),
    ({"a": {"shape": [6, 4], "offsets": [-2, 0]}}, "in a place that cannot be"),
    ({"a": {"shape": [6, 4], "offsets": [2.0, 0]}}, "in a place that cannot be"),
    ({"a": {"shape": [6, 4], "offsets": [True, 0]}}, "in a place that cannot be"),
    ({"a": {"shape": [6, 4], "offsets": [2]}}, "in a place that cannot be"),
    ({"a": {"shape": [1 << 61, 4], "offsets": [2, 0]}}, "and model-00001-of-00003.safetensors as 6 x 4"),
    ({"a": {"shape": [10**400, 4], "offsets": [2, 0]}}, "in a place that cannot be"),
    ({"a": {"shape": [6, 4] + [1] * 10_000, "offsets": [2, 0] + [0] * 10_000}}, "in a place that cannot be"),
    ({"a": {"offsets": [2, 0]}}, "in a place that cannot be"),
    ({"a": "__import__('os')"}, "in a place that cannot be"),
    ({"a": {"shape": [6, 4], "offsets": [2, 0]}, "z": {}}, "which the file does not hold"),
    (None, "as 2 x 4 of torch.float32, and model-00001-of-00003.safetensors as 6 x 4"),
    ("[" * 100_000, "nested too deeply"),
    ('{"a": NaN}', "is not valid JSON"),
    ("[]", "where an object"),
]


@pytest.mark.parametrize("told, words", PLACES)
def test_a_piece_in_a_place_that_cannot_be_is_refused(told, words, folder):
    shares.rewrite(folder / SHARE.format(2), {"a": ROWS, "c": shares.WHOLE["c"]}, told)
    refused(folder, words)


def test_other_types_and_gaps_are_refused(folder):
    place = {"a": {"shape": [6, 4], "offsets": [2, 0]}}
    shares.rewrite(folder / SHARE.format(2), {"a": ROWS.double(), "c": shares.WHOLE["c"]}, place)
    refused(
        folder, "as 6 x 4 of torch.float64, and model-00001-of-00003.safetensors as 6 x 4 of torch.float32"
    )
    shares.rewrite(folder / SHARE.format(2), {"c": shares.WHOLE["c"]}, None)
    refused(folder, "in pieces of 16 numbers in all, where 6 x 4 has 24")
    (folder / SHARE.format(2)).unlink()
    shares.seal(folder)
    refused(folder, "in pieces of 16 numbers in all, where 6 x 4 has 24")


def test_a_tensor_of_astronomic_size_is_refused_before_it_is_made(folder):
    for number in (1, 2, 3):
        place = {"a": {"shape": [1 << 40, 1 << 20], "offsets": [2 * number, 0]}}
        shares.rewrite(folder / SHARE.format(number), {"a": ROWS}, place)
    refused(folder, f"in pieces of 24 numbers in all, where {1 << 40} x {1 << 20} has {1 << 60}")


def test_a_tensor_of_another_shape_or_type_than_the_models_is_refused(folder):
    for target, words in (
        (torch.zeros(4, 6), "where 4 x 6"),
        (torch.zeros(6, 4).half(), "where 6 x 4 of torch.float16"),
    ):
        with pytest.raises(BadInput, match=words):
            Saved.open(folder).read("model", {"a": target})
    with pytest.raises(BadInput, match="holds no q among the tensors of model"):
        Saved.open(folder).read("model", {"q": torch.zeros(2)})


NAMES = ["../../outside", "/etc/passwd", "..", "sub/model.safetensors", "a\0b", "model\n.safetensors"]


@pytest.mark.parametrize("name", NAMES)
def test_names_that_lead_elsewhere_are_refused(name, folder):
    shares.seal(folder, **{name: {"bytes": 1, "sha256": "0"}})
    refused(folder, "manifest.json")


def test_a_share_that_is_a_link_is_refused(folder, tmp_path):
    path = folder / SHARE.format(2)
    path.rename(tmp_path / "outside")
    path.symlink_to(tmp_path / "outside")
    refused(folder, "is a link that leads out of its folder")


# Code.


class Payload:
    """What a pickle of it does when it is read."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def planted(kind, mark):
    """Files that run code in whoever unpickles them."""
    if kind == "pickle":
        return pickle.dumps(Payload(mark))
    file = io.BytesIO()
    if kind == "torch":
        torch.save({"a": Payload(mark)}, file)
    else:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps(Payload(mark)))
            archive.writestr("__main__.py", f"import os; os.mkdir({str(mark)!r})")
    return file.getvalue()


@pytest.mark.parametrize("kind", ["pickle", "torch", "zip"])
def test_no_file_of_a_checkpoint_runs_code(kind, folder, tmp_path):
    mark = tmp_path / "ran"
    data = planted(kind, mark)
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name in (
        *whole,
        ".metadata",
        "__0_0.distcp",
        "model.pt",
        "model.bin",
        "x.py",
        "model-00004-of-00003.safetensors",
    ):
        (folder / name).write_bytes(data)
        if name != checkpoint.MANIFEST:
            shares.seal(folder)
        with pytest.raises((BadInput, NoCheckpoint)):
            path, _ = checkpoint.latest(tmp_path)
            checkpoint.load(path)  # a stranger's file that nothing reads is no harm
            assert name in (".metadata", "__0_0.distcp", "model.pt", "model.bin", "x.py")
            raise BadInput("was left alone")
        (folder / name).unlink()
        for kept, text in whole.items():
            (folder / kept).write_bytes(text)
    assert not mark.exists() and same(checkpoint.load(folder)[0]["model"])


def test_shares_altered_at_random_under_a_new_seal_are_refused_or_read(folder):
    """Five hundred times: one sentence, or tensors of the shapes that the files hold."""
    whole = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != checkpoint.MANIFEST}
    rng, outcomes = random.Random(7), {True: 0, False: 0}
    for _ in range(500):
        name = rng.choice(sorted(whole))
        head = rng.random() < 0.8  # most of a share is its header
        size = 8 + int.from_bytes(whole[name][:8], "little") if head and name.startswith("model") else None
        (folder / name).write_bytes(mutate(whole[name][:size], rng) + (whole[name][size:] if size else b""))
        shares.seal(folder)
        try:
            with at_most(5):
                found = checkpoint.load(folder)[0]["model"]
            assert sum(tensor.numel() for tensor in found.values()) < 1000
            outcomes[True] += 1
        except BadInput as error:
            assert folder.name in str(error) and str(error).isprintable() and len(str(error)) <= 2000
            outcomes[False] += 1
        (folder / name).write_bytes(whole[name])
    assert outcomes[False] > 150 and outcomes[True] > 5, outcomes
