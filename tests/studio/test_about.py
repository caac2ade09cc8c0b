"""What the studio says of a model before a page shows it, and pictures in place of texts."""

import base64
import io

import numpy as np
import pytest
import torch
from helpers.studio_cases import local_studio, ran
from PIL import Image

import heedful
from heedful.corpora.shapes import split
from heedful.data.images.preprocessing import PictureSize, Preprocessing
from heedful.interop.loaded import Loaded
from heedful.models import vit
from heedful.studio.pictures import PictureFiles, named


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A studio with one small Vision Transformer of random weights."""
    folder = tmp_path_factory.mktemp("images")
    torch.manual_seed(3)
    sizes = {"image_size": 24, "patch_size": 6, "width": 16, "layers": 2, "heads": 2, "ffn_width": 24}
    config = vit.ViTConfig(**sizes, prediction_heads=("classify",), labels=3)
    ready = Preprocessing(size=PictureSize(height=24, width=24))
    made = Loaded("vit", config, vit.build(config), None, {}, labels=("a", "b", "c"), preprocessing=ready)
    heedful.save(made, folder / "vit")
    with local_studio(folder) as client:
        yield client


@pytest.mark.parametrize(
    ("name", "writes", "kinds"),
    [
        ("demo", "translate", ["cross", "self", "encoder"]),
        ("lm", "generate", ["self"]),
        ("mlm", None, ["self"]),
        ("classify", None, ["self"]),
    ],
)
def test_a_model_says_what_it_reads_writes_and_attends_with(studio, name, writes, kinds):
    found = studio.get(f"/api/runs/{studio.id(name)}/about").json
    assert (found["writes"], found["kinds"], found["reads"]) == (writes, kinds, "texts")
    traced = studio.trace(name, found["example"])  # the text of the first screen fits the model
    assert list(traced["kinds"]) == kinds


def test_the_recorded_example_says_the_same_as_the_demo(studio):
    recorded, demo = (studio.get(f"/api/runs/{id}/about").json for id in ("recorded", studio.id("demo")))
    assert {name: recorded[name] for name in ("architecture", "can", "kinds", "writes")} == {
        name: demo[name] for name in ("architecture", "can", "kinds", "writes")
    }


def png(pixels_HWC) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels_HWC).save(file, "PNG")
    return file.getvalue()


def test_a_built_in_picture_is_traced(images):
    found = images.get(f"/api/runs/{images.id('vit')}/about").json
    assert (found["reads"], found["example"], found["kinds"]) == ("pictures", "shapes:1", ["self"])
    traced = images.trace("vit", "shapes:3")
    pixels_HWC = images.numbers(f"/api/trace/{traced['id']}/tensor?name=pixels&layer=1")
    assert (pixels_HWC == split("test", 24, 1)[2].pixels_HWC).all()
    assert traced["picture"]["grid"] == 4 and len(traced["kinds"]["self"]["down"]) == 17
    flow = images.get(f"/api/trace/{traced['id']}/flow").json
    rolled = ran(flow["codes"]["rollout"], "found").tolist()
    assert np.allclose(rolled, flow["rollout"]["rollout"], atol=1e-6)
    model = heedful.load(images.studio.folder(images.id("vit")).path)
    own = model.trace(pixels_HWC)
    shares = own.outputs["classify"].double().softmax(-1).sort(descending=True).values
    assert [share for _, share in traced["labels"]] == pytest.approx(shares.tolist(), abs=1e-6)
    weights_TS = images.numbers(f"/api/trace/{traced['id']}/tensor?name=weights&layer=2&head=1&dtype=f32")
    assert np.abs(weights_TS - own.detail("self", 2).weights_HTS[0].numpy()).max() < 1e-6


def test_a_picture_that_is_sent_can_be_named(images):
    pixels_HWC = np.random.default_rng(5).integers(0, 255, (24, 24, 3), np.uint8)
    data = base64.b64encode(png(pixels_HWC)).decode()
    sent = images.post("/api/picture", {"picture": f"data:image/png;base64,{data}"}).json
    traced = images.trace("vit", sent["text"])
    found = images.numbers(f"/api/trace/{traced['id']}/tensor?name=pixels&layer=1")
    assert (found == pixels_HWC).all()
    flow = images.get(f"/api/trace/{traced['id']}/flow").json
    assert 'open("picture.png", "rb")' in traced["code"]
    assert np.allclose(np.sum(flow["rollout"]["rollout"], 1), 1, atol=2**-10)  # weights are kept in fp16


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a cat", "reads pictures"),
        ("shapes:0", "reads pictures"),
        ("shapes:1001", "reads pictures"),
        ("shapes:a", "reads pictures"),
        ("picture:0123456789abcdef", "no longer in the studio's memory"),
    ],
)
def test_what_names_no_picture_is_refused(images, text, words):
    reply = images.post("/api/trace", {"run": images.id("vit"), "text": text})
    assert reply.status == 400 and words in reply.json["error"]["message"]


@pytest.mark.parametrize(
    "data", ["", "data:image/png,abc", "not base64!", base64.b64encode(b"text").decode()]
)
def test_files_that_are_no_pictures_are_refused(images, data):
    sent = images.post("/api/picture", {"picture": data})
    if sent.status == 200:  # only the worker reads it
        sent = images.post("/api/trace", {"run": images.id("vit"), "text": sent.json["text"]})
    assert sent.status == 400 and sent.json["error"]["message"]


def test_files_leave_memory_when_there_are_too_many():
    files = PictureFiles(most=10)
    first, second = files.add(b"123456"), files.add(b"abcdef")
    assert files.of(f"picture:{first}") == b"" and files.of(f"picture:{second}") == b"abcdef"
    assert files.of("a text") == b"" and named("picture:../x") == ("", "")
