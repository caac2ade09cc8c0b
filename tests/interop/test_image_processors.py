"""preprocessor_config.json: heedful sees the pixels of a file that transformers sees, and says what it lacks.

The reference is transformers' image processor that computes with Pillow (backend "pil").
"""

import json

import numpy as np
import pytest
import torch
import transformers as hf
from helpers.loaded_models import spread
from helpers.runs import CPU, Quiet
from PIL import Image, ImageOps
from transformers.image_utils import load_image

import heedful
from heedful.cli.main import main
from heedful.errors import BadInput
from heedful.interop.formats import load
from heedful.runs import trainer
from heedful.tasks import recipe

SIDE = 12
SIZES = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 20}
NAMES = {0: "cat", 1: "dog", 2: "bird"}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Files of odd sizes and modes."""
    folder = tmp_path_factory.mktemp("pictures")
    made = np.random.default_rng(5).integers(0, 256, (37, 53, 4)).astype(np.uint8)
    made[..., 3] = made[..., 3] // 2
    color = Image.fromarray(made[..., :3])
    color.save(folder / "wide.png")
    color.rotate(90, expand=True).save(folder / "tall.jpg", quality=95)
    Image.fromarray(made[:9, :7, 0]).save(folder / "gray.png")
    color.quantize(16).save(folder / "palette.png", transparency=3)
    Image.fromarray(made).save(folder / "clear.png")
    exif = Image.Exif()
    exif[0x0112] = 6
    color.save(folder / "turned.jpg", exif=exif)
    return sorted(map(str, folder.iterdir()))


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """The folders of a tiny ViT and a tiny DeiT with random weights."""
    folder = tmp_path_factory.mktemp("weights")
    hf.utils.logging.disable_progress_bar()
    with torch.no_grad():
        for name, config, kind in (
            ("vit", hf.ViTConfig, hf.ViTForImageClassification),
            ("deit", hf.DeiTConfig, hf.DeiTForImageClassificationWithTeacher),
        ):
            made = config(**SIZES, image_size=SIDE, patch_size=4, id2label=NAMES)
            spread(kind(made), 3).save_pretrained(folder / name)
    return folder


def with_processor(folder, said):
    (folder / "preprocessor_config.json").write_text(json.dumps(said))
    return folder


def opened(file: str, processor) -> Image.Image:
    """A picture as people open it: where the processor lays transparency on white, it must still be there."""
    return ImageOps.exif_transpose(Image.open(file)) if processor.do_convert_rgb else load_image(file)


MEANS = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
PROCESSORS = [
    ("vit", {"image_processor_type": "ViTImageProcessor", "size": {"height": SIDE, "width": SIDE}}),
    ("vit", {"feature_extractor_type": "ViTFeatureExtractor", "size": SIDE, "resample": 3, **MEANS}),
    (
        "vit",
        {
            "size": [SIDE, SIDE],
            "resample": 1,
            "do_convert_rgb": False,
            "do_rescale": False,
            "image_mean": 127.0,
            "image_std": 50,
        },
    ),
    ("deit", {"size": 17, "crop_size": SIDE, "resample": 0, "do_convert_rgb": True}),
    ("deit", {"do_resize": False, "crop_size": {"height": SIDE, "width": SIDE}, "do_normalize": False}),
    ("vit", {"image_processor_type": "CLIPImageProcessor", "size": 15, "crop_size": SIDE, "do_pad": None}),
    (
        "vit",
        {
            "image_processor_type": "BitImageProcessorFast",
            "size": {"shortest_edge": 14, "longest_edge": 17},
            "crop_size": [SIDE, SIDE],
            "rescale_factor": 0.01,
            "resample": 4,
        },
    ),
    (
        "vit",
        {
            "size": {"max_height": 19, "max_width": 16},
            "crop_size": SIDE,
            "do_center_crop": True,
            "resample": 5,
        },
    ),
]


@pytest.mark.parametrize(("kind", "said"), PROCESSORS)
def test_a_file_becomes_the_pixels_and_the_probabilities_of_transformers(
    kind, said, weights, pictures, tmp_path
):
    folder = with_processor(weights / kind, said)
    theirs = hf.AutoModelForImageClassification.from_pretrained(folder)
    heedful.save(heedful.load(folder), tmp_path / "saved")
    for place in (folder, tmp_path / "saved"):
        processor, ours = hf.AutoImageProcessor.from_pretrained(place, backend="pil"), heedful.load(place)
        for file in pictures:
            pixels_1CHW = processor(opened(file, processor), return_tensors="pt").pixel_values
            found = ours.preprocessing.numbers(torch.from_numpy(ours.read_picture(file))[None])
            assert torch.allclose(found, pixels_1CHW, atol=1e-6), file
            with torch.no_grad():
                shares = theirs(pixels_1CHW).logits[0].softmax(-1).tolist()
            label = ours.classify(file)
            assert label.probabilities == pytest.approx(
                dict(zip(NAMES.values(), shares, strict=True)), abs=1e-5
            )
    assert heedful.load(folder).loaded.preprocessing == ours.loaded.preprocessing


def test_the_command_classifies_by_a_deit(weights, pictures, capsys):
    folder = with_processor(weights / "deit", {"size": 17, "crop_size": SIDE})
    assert main(["classify", str(folder), pictures[0], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["label"] in NAMES.values()


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ({"image_processor_type": "ConvNextImageProcessor"}, "heedful knows ViTImageProcessor"),
        ({"do_flip_channel_order": True}, "do_flip_channel_order is True, which heedful does not do"),
        ({"do_pad": True}, "do_pad is True"),
        ({"crop_pct": 0.9}, "crop_pct is 0.9"),
        ({"resample": 9}, "resample is 9"),
        ({"size": {"longest_edge": 12}}, "size is {'longest_edge': 12}"),
        ({"image_mean": [0.5]}, "image_mean has 1 numbers, and the model reads 3 channels"),
        ({"image_std": 0}, "image_std must be a number"),
        ({"do_resize": "yes"}, "do_resize must be true or false"),
    ],
)
def test_what_heedful_does_not_do_to_pictures_is_refused(said, fault, weights):
    with pytest.raises(BadInput, match=fault):
        load(with_processor(weights / "vit", said))


def test_pictures_of_the_wrong_size_and_folders_that_do_not_say_are_refused(weights, pictures):
    model = heedful.load(with_processor(weights / "vit", {"size": {"shortest_edge": SIDE}}))
    with pytest.raises(BadInput, match=r"becomes 12 x 17 pixels .* reads 12 x 12"):
        model.classify(next(name for name in pictures if name.endswith("wide.png")))
    (weights / "vit" / "preprocessor_config.json").unlink()
    with pytest.raises(BadInput, match="has no preprocessor_config.json"):
        heedful.load(weights / "vit").classify(pictures[0])


@pytest.fixture(scope="module")
def run_of(tmp_path_factory):
    """Trains a run of image-classify for one step, on pictures of odd sizes."""
    folder = tmp_path_factory.mktemp("runs")
    made = np.random.default_rng(7).integers(0, 256, (8, 23, 31, 3)).astype(np.uint8)
    for i, pixels in enumerate(made):
        place = folder / "images" / ("cat" if i % 2 else "dog")
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(place / f"{i}.png")

    def train(**data):
        run = folder / "-".join(map(str, data.values()))
        if run.exists():
            return run
        sizes = {"model.layers": 1, "model.width": 12, "model.heads": 3, "model.ffn_width": 20}
        settings = {
            **sizes,
            "data.images": str(folder / "images"),
            "data.image_size": SIDE,
            "model.patch_size": 4,
            "train.steps": 1,
            "train.batch_tokens": 40,
            "data.mean": 0.4,
            "data.std": 0.3,
        } | {f"data.{name}": value for name, value in data.items()}
        trainer.start(recipe.make("image-classify", settings=settings), run, Quiet(), CPU)
        return run

    return train


@pytest.mark.parametrize(
    "data", [{"resize": "crop"}, {"resize": "stretch"}, {"resize": "crop", "color": False}]
)
def test_transformers_sees_the_pixels_that_a_run_of_heedfuls_own_sees(data, run_of, pictures, tmp_path):
    run = run_of(**data)
    ours = heedful.load(run)
    heedful.save(ours, tmp_path)
    processor = hf.AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
    theirs, again = hf.AutoModelForImageClassification.from_pretrained(tmp_path), heedful.load(tmp_path)
    for file in pictures:
        picture = opened(file, processor).convert("RGB" if ours.config.channels == 3 else "L")
        if "clear" in file or "palette" in file:
            picture = opened(file, processor)
            if ours.config.channels == 1:
                continue  # transformers has no way to lay a transparent picture on white and make it gray
        pixels_1CHW = processor(picture, return_tensors="pt").pixel_values
        found = ours.preprocessing.numbers(torch.from_numpy(ours.read_picture(file))[None])
        assert torch.allclose(found, pixels_1CHW, atol=1e-6), file
        with torch.no_grad():
            shares = theirs(pixels_1CHW).logits[0].softmax(-1).tolist()
        expected = dict(zip(["cat", "dog"], shares, strict=True))
        assert ours.classify(file).probabilities == pytest.approx(expected, abs=1e-5)
        assert again.classify(file).probabilities == pytest.approx(expected, abs=1e-5)


def test_pictures_that_are_padded_with_their_edges_are_not_exported(run_of, tmp_path):
    with pytest.raises(BadInput, match="padded with the color of their edges .*data.resize=pad"):
        heedful.save(heedful.load(run_of(resize="pad")), tmp_path)


def test_a_run_that_starts_from_a_folder_makes_pictures_ready_as_it_does(weights, run_of, tmp_path):
    said = {"size": SIDE, **MEANS, "image_std": [0.2, 0.25, 0.3], "resample": 3}
    folder, images = with_processor(weights / "vit", said), run_of(resize="stretch").parent / "images"
    settings = {"data.images": str(images), "data.image_size": SIDE, "train.from": str(folder)}
    settings |= {"train.steps": 1, "train.batch_tokens": 40, "data.std": 0.26}
    quiet = Quiet()
    trainer.start(recipe.make("image-classify", settings=settings), tmp_path / "run", quiet, CPU)
    how = heedful.load(tmp_path / "run").preprocessing
    assert (how.size.height, how.crop, how.mean, how.std) == (SIDE, None, (0.449,), (0.26,))
    told = [line for line in quiet.lines if "reads pictures otherwise" in line]
    assert [line.partition("otherwise: ")[2] for line in told] == [
        "pictures are resampled bilinearly, and its own by bicubic",
        "data.mean is 0.449, and its own 0.485, 0.456, 0.406",
        "data.std is 0.26, and its own 0.2, 0.25, 0.3",
    ]


def drawn(rng) -> tuple[str, dict]:
    """A processor at random: (class, the rest of its file)."""
    kind = rng.choice(["ViTImageProcessor", "DeiTImageProcessor", "CLIPImageProcessor", "BitImageProcessor"])
    low, high = sorted(int(n) for n in rng.integers(SIDE, 40, 2))
    sizes = [low, [low, high], {"height": high, "width": low}, {"shortest_edge": low}]
    sizes += [{"shortest_edge": low, "longest_edge": high}, {"max_height": high, "max_width": low}]
    said = {
        "size": sizes[rng.integers(len(sizes))],
        "crop_size": SIDE,
        "do_center_crop": True,
        "resample": int(rng.integers(6)),
        "do_resize": bool(rng.random() < 0.8),
        "do_rescale": bool(rng.random() < 0.8),
        "do_normalize": bool(rng.random() < 0.8),
        "do_convert_rgb": bool(rng.random() < 0.5),
        "rescale_factor": float(rng.choice([1 / 255, 0.01])),
        "image_mean": rng.random(3).round(3).tolist(),
        "image_std": (rng.random(3) + 0.1).round(3).tolist(),
    }
    kept = {key: value for key, value in said.items() if rng.random() < 0.8 or key in ("size", "crop_size")}
    return kind, kept | {"do_center_crop": True}


@pytest.mark.slow
def test_two_hundred_random_processors_see_the_same_pixels(weights, tmp_path):
    rng = np.random.default_rng(20)

    for number in range(200):
        kind, said = drawn(rng)
        folder = with_processor(weights / "vit", {"image_processor_type": kind, **said})
        height, width = rng.integers(3, 90, 2)
        Image.fromarray(rng.integers(0, 256, (height, width, 3)).astype(np.uint8)).save(tmp_path / "a.png")
        ours = heedful.load(folder)
        processor = hf.AutoImageProcessor.from_pretrained(folder, backend="pil")
        expected = processor(opened(str(tmp_path / "a.png"), processor), return_tensors="pt").pixel_values
        found = ours.preprocessing.numbers(
            torch.from_numpy(ours.preprocessing.read(tmp_path / "a.png").copy())[None]
        )
        assert found.shape == expected.shape, (number, kind, said)
        assert torch.allclose(found, expected.float(), atol=1e-5, rtol=1e-5), (number, kind, said)
