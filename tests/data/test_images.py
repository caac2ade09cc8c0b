"""Image files and folders: what is read, what is refused and in which words, how pictures are made ready."""

import gzip
import io
import json
import re

import numpy as np
import pytest
import torch
from helpers.image_files import H, W, by_class, huge_png, idx, pixels, put
from PIL import Image

from heedful.data.images import augment, folders, prepare, resample
from heedful.data.images import files as images
from heedful.data.images.preprocessing import in_channels
from heedful.data.report import Report
from heedful.errors import BadInput
from heedful.tasks.image_classify import ImageData


def encoded(image, kind="PNG"):
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


# Files


def test_png_ppm_and_jpeg_are_read(tmp_path):
    for channels, letter in ((1, 5), (3, 6)):
        known = pixels(channels)
        (tmp_path / "a.png").write_bytes(images.png_bytes(known))
        (tmp_path / "a.ppm").write_bytes(
            b"P%d # made by hand\n%d %d\n255\n" % (letter, W, H) + known.tobytes()
        )
        for name in ("a.png", "a.ppm"):
            assert np.array_equal(images.read_image(tmp_path / name), known), name
    smooth = np.full((8, 12, 3), (200, 40, 90), np.uint8)
    (tmp_path / "a.jpg").write_bytes(encoded(Image.fromarray(smooth), "JPEG"))
    found = images.read_image(tmp_path / "a.jpg")
    assert found.shape == (8, 12, 3) and np.abs(found.astype(int) - smooth).max() < 6


def test_a_png_that_is_written_is_the_one_that_others_read():
    for channels in (1, 3):
        known = pixels(channels)
        found = np.array(Image.open(io.BytesIO(images.png_bytes(known))))
        assert np.array_equal(found, known.squeeze())
    with pytest.raises(TypeError, match="uint8"):
        images.png_bytes(np.zeros((3, 4, 3)))


def test_other_modes_become_gray_or_color_and_what_is_transparent_lies_on_white(tmp_path):
    rgb = Image.fromarray(pixels())
    clear = Image.new("RGBA", (3, 2), (255, 0, 0, 0))
    cases = {
        "palette": (rgb.convert("P", palette=Image.Palette.ADAPTIVE), 3, None),
        "black and white": (Image.new("1", (3, 2), 1), 1, (255,)),
        "transparent": (clear, 3, (255, 255, 255)),
        "gray with a mask": (Image.new("LA", (3, 2), (0, 255)), 3, (0, 0, 0)),
    }
    for name, (image, channels, all_of_it) in cases.items():
        path = tmp_path / "a.png"
        path.write_bytes(encoded(image))
        found = images.read_image(path)
        assert found.shape[-1] == channels, name
        assert all_of_it is None or (found == all_of_it).all(), name
    (tmp_path / "a.jpg").write_bytes(encoded(rgb.convert("CMYK"), "JPEG"))
    assert images.read_image(tmp_path / "a.jpg").shape == (H, W, 3)


def test_a_photograph_taken_sideways_is_turned_upright(tmp_path):
    known = np.zeros((16, 32, 3), np.uint8)
    known[:, :16] = 255
    turned = Image.Exif()
    turned[0x0112] = 6  # a quarter turn to the right makes it upright
    Image.fromarray(known).save(tmp_path / "a.jpg", exif=turned, quality=95)
    found = images.read_image(tmp_path / "a.jpg")
    assert found.shape == (32, 16, 3) and (found[:14] > 200).all() and (found[18:] < 50).all()


WHOLE = images.png_bytes(pixels())
DEEP = Image.fromarray(np.arange(54, dtype=np.uint16).reshape(H, W))
BROKEN = {
    "empty": (b"", "the file is empty: remove it"),
    "text": (b"not an image at all", "it is no PNG, JPEG, PPM or PGM"),
    "cut in its header": (WHOLE[:20], "it is no PNG, JPEG, PPM or PGM"),
    "cut off": (WHOLE[: len(WHOLE) // 2], "damaged or cut off"),
    "altered": (WHOLE[:60] + bytes([WHOLE[60] ^ 0xFF]) + WHOLE[61:], "damaged or cut off"),
    "huge": (huge_png(9_000, 8_000), "9,000 x 8,000 pixels; at most 50,000,000 are decoded"),
    "beyond all measure": (huge_png(2**31 - 1, 2**31 - 1), "asks for more than 50,000,000 pixels"),
    "sixteen bits": (encoded(DEEP), 'of the kind "I;16": save it with 8 bits'),
    "cut PPM": (b"P6\n4 3\n255\n" + bytes(35), "36 bytes of pixels and has 35"),
    "huge PPM": (b"P6\n99999 99999\n255\n", "99,999 x 99,999 pixels"),
    "deep PPM": (b"P6\n4 3\n65535\n" + bytes(72), "65535: save it with 8 bits"),
    "flat PPM": (b"P6\n0 3\n255\n", "0 x 3 pixels: there is nothing to see"),
    "odd PPM": (b"P6\nfour 3\n255\n", "the header is no PGM's or PPM's"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_read_is_refused_in_one_sentence_that_names_the_file(name, tmp_path):
    data, told = BROKEN[name]
    path = tmp_path / "odd.png"
    path.write_bytes(data)
    with pytest.raises(BadInput, match=re.escape(told)) as caught:
        images.read_image(path)
    assert str(caught.value).startswith(str(path)) and str(caught.value).isprintable()


def test_huge_dimensions_are_refused_before_decoding(tmp_path, monkeypatch):
    from PIL import ImageFile

    def decode(self):
        raise AssertionError("it was decoded")

    monkeypatch.setattr(ImageFile.ImageFile, "load", decode)
    (tmp_path / "a.png").write_bytes(huge_png(9_000, 8_000))
    with pytest.raises(BadInput, match="9,000 x 8,000"):
        images.read_image(tmp_path / "a.png")


def test_what_is_no_file_is_refused(tmp_path):
    for path, told in ((tmp_path / "no.png", "is not there"), (tmp_path, "is not a file")):
        with pytest.raises(BadInput, match=told):
            images.read_image(path)


# IDX


def test_idx_files_are_read_plain_and_compressed(tmp_path):
    known = pixels(4).reshape(4, H, W)
    (tmp_path / "a").write_bytes(idx(known))
    (tmp_path / "a.gz").write_bytes(gzip.compress(idx(known)))
    assert np.array_equal(images.read_idx(tmp_path / "a"), known)
    assert np.array_equal(images.read_idx(tmp_path / "a.gz"), known)


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("a", b"\0\0\x0d\x01\0\0\0\x01\0\0\0\0", "it is no IDX file of bytes"),
        ("a", b"\0\0\x08\x03\0\0", "its header is cut off"),
        ("a", idx(pixels())[:-1], "speaks of 162 bytes, and there are fewer"),
        ("a", idx(pixels()) + b"x", "speaks of 162 bytes, and there are more"),
        ("a", b"\0\0\x08\x03" + b"\xff" * 12, "asks for 4294967295 x 4294967295 x 4294967295 bytes"),
        ("a", b"\0\0\x08\x01\0\0\0\0", "asks for 0 bytes"),
        ("a.gz", gzip.compress(idx(pixels()))[:-20], "the gzip file is damaged or cut off"),
        ("a.gz", b"plain", "the gzip file is damaged or cut off"),
    ],
)
def test_odd_idx_files_are_refused(name, data, told, tmp_path):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(BadInput, match=re.escape(told)) as caught:
        images.read_idx(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)


# Folders


REFUSE = Report("refuse", "image")


def test_folders_by_class_give_each_image_its_folder_as_class(tmp_path):
    by_class(tmp_path, cat=3, dog=2)
    (tmp_path / ".DS_Store").write_bytes(b"x")
    (tmp_path / "cat" / "Thumbs.db").write_bytes(b"x")
    found = folders.items_of(tmp_path, False, REFUSE)
    assert [item.label for item in found] == ["cat"] * 3 + ["dog"] * 2
    assert np.array_equal(found[4].read(), pixels(seed=1))


FOLDERS = {
    "other files": (lambda f: (f / "cat" / "notes.txt").write_text("x"), "notes.txt is no image (.png"),
    "a file beside the classes": (lambda f: (f / "README").write_text("x"), "README is no folder of a class"),
    "a folder in a class": (lambda f: (f / "cat" / "more").mkdir(), "more is no image"),
    "one image": (lambda f: put(f / "owl" / "0.png"), "the class owl has one image in"),
    "no image": (lambda f: (f / "owl").mkdir(), "the class owl has no image in"),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_odd_folders_are_refused_with_a_remedy(name, tmp_path):
    spoil, told = FOLDERS[name]
    by_class(tmp_path, cat=3, dog=2)
    spoil(tmp_path)
    with pytest.raises(BadInput, match=re.escape(told)) as caught:
        folders.items_of(tmp_path, False, REFUSE)
    assert "remove" in str(caught.value) or "add some" in str(caught.value)


def test_what_is_dropped_is_counted_and_named(tmp_path):
    by_class(tmp_path, cat=3, dog=2)
    (tmp_path / "cat" / "notes.txt").write_text("x")
    (tmp_path / "dog" / "9.png").write_bytes(b"")
    report = Report("drop", "image")
    items = folders.items_of(tmp_path, False, report)
    assert len(list(folders.read_all(items, report))) == 5
    told = report.sentence()
    assert told.startswith("2 images dropped: ") and "notes.txt)" in told and "1 unreadable" in told
    with pytest.raises(BadInput, match="9.png: the file is empty"):
        list(folders.read_all(items, REFUSE))


def test_no_folder_and_one_class_are_refused(tmp_path):
    put(tmp_path / "only" / "cat" / "0.png"), put(tmp_path / "only" / "cat" / "1.png")
    for path, told in (
        (tmp_path / "none", "is not there: give a folder of images"),
        (tmp_path / "only" / "cat" / "0.png", "is a file: give a folder"),
        (tmp_path / "only", "has 1 folders: give one with a folder of images for each class"),
    ):
        with pytest.raises(BadInput, match=told):
            folders.items_of(path, False, REFUSE)


@pytest.mark.parametrize("kind", folders.CAPTIONS)
def test_captions_are_read_from_tsv_and_json(kind, tmp_path):
    put(tmp_path / "b.png", seed=2), put(tmp_path / "more" / "a.png", seed=1)
    lines = {"b.png": "a red  cat", "more/a.png": "a dog\t or two"}
    if kind.endswith("tsv"):
        text = "".join(f"{name}\t{caption}\n" for name, caption in lines.items())
    else:
        text = "".join(json.dumps({"file_name": n, "text": c, "id": 3}) + "\n" for n, c in lines.items())
    (tmp_path / kind).write_text(text)
    found = folders.items_of(tmp_path, True, REFUSE)
    assert [item.caption for item in found] == ["a red cat", "a dog or two"]
    assert np.array_equal(found[0].read(), pixels(seed=2))


CAPTIONED = {
    "empty": ("b.png\t \n", "captions.tsv:1: b.png has no caption: write one"),
    "no tab": ("b.png a cat\n", "captions.tsv:1: there is no tab"),
    "missing": ("b.png\tx\nc.png\ty\n", "c.png is not there: put it there, or remove the line"),
    "outside": ("../b.png\tx\n", "is no name of a file in"),
    "one without": ("a.png\tx\n", "b.png has no caption in captions.tsv"),
    "two files": ("a.png\tx\nb.png\ty\n", "has two files of captions"),
    "none": (None, "has no captions: put one there, captions.tsv or captions.jsonl"),
}


@pytest.mark.parametrize("name", CAPTIONED)
def test_missing_captions_and_images_are_refused(name, tmp_path):
    text, told = CAPTIONED[name]
    put(tmp_path / "images" / "b.png")
    if name in ("one without", "two files"):
        put(tmp_path / "images" / "a.png")
    if name == "two files":
        (tmp_path / "images" / "captions.jsonl").write_text("{}\n")
    if text is not None:
        (tmp_path / "images" / "captions.tsv").write_text(text)
    with pytest.raises(BadInput, match=re.escape(told)):
        folders.items_of(tmp_path / "images", True, REFUSE)


def test_json_lines_that_are_no_captions_are_refused(tmp_path):
    for line, told in (
        ("[1]", "not a JSON object"),
        ('{"caption": "x"}', "there is no file or file_name or image"),
        ('{"file": "a.png"}', "there is no caption or text"),
        ('{"file": 3, "caption": "x"}', '"file" is no text'),
    ):
        (tmp_path / "captions.jsonl").write_text(line + "\n")
        with pytest.raises(BadInput, match=re.escape(f"captions.jsonl:1: {told}")):
            folders.items_of(tmp_path, True, REFUSE)


# Made ready


@pytest.mark.parametrize("name", resample.FILTERS)
def test_resizing_without_pillow_equals_pillows(name):
    rng = np.random.default_rng(3)
    for height, width, side in ((31, 17, 8), (7, 12, 29), (40, 41, 13), (1, 3, 2)):
        known = (rng.integers(0, 2, (height, width, 3)) * 255).astype(np.uint8)
        for size in ((height, side), (side, width)):  # one direction at a time: Pillow chooses the first
            theirs = np.array(Image.fromarray(known).resize(size[::-1], resample.FILTERS.index(name)))
            assert np.array_equal(resample.without_pillow(known, *size, name), theirs)
            assert np.array_equal(resample.resample(known, *size, name), theirs)
    smooth = np.array(Image.fromarray(pixels(3, 40, 40)).resize((80, 80), Image.Resampling.BICUBIC))
    theirs = np.array(Image.fromarray(smooth).resize((32, 17), resample.FILTERS.index(name))).astype(int)
    assert np.abs(resample.without_pillow(smooth, 17, 32, name) - theirs).max() <= 1
    assert np.array_equal(resample.resample(smooth[..., :1], 17, 32, name)[..., 0], theirs[..., 0])
    assert np.array_equal(resample.resample(smooth, 80, 80, name), smooth)


def test_what_is_no_square_is_cropped_padded_or_stretched():
    wide = np.zeros((4, 8, 1), np.uint8)
    wide[:, 2:6] = 100
    wide[:, 6:] = 200

    def resized(side, resize):
        return prepare.ready(wide, ImageData(image_size=side, resize=resize, color=False))

    assert (resized(4, "crop") == 100).all()
    padded = resized(8, "pad")
    assert (
        padded.shape == (8, 8, 1)
        and np.array_equal(padded[0], wide[0])
        and np.array_equal(padded[7], wide[3])
    )
    stretched = resized(4, "stretch")
    assert stretched[0, 0] == 0 or stretched[0, 0] < stretched[0, 3] and stretched.shape == (4, 4, 1)
    assert (stretched[:, 3] > stretched[:, 0]).all()


def test_channels_are_joined_or_repeated():
    gray = prepare.ready(pixels(), ImageData(image_size=5, color=False))
    assert gray.shape == (5, 5, 1) and gray.dtype == np.uint8
    known = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [9, 9, 9]]], np.uint8)
    assert in_channels(known, False)[0, :, 0].tolist() == [76, 150, 29, 9]
    many = pixels(3, 40, 40)
    assert np.array_equal(in_channels(many, False)[..., 0], np.array(Image.fromarray(many).convert("L")))
    assert in_channels(known[..., :1], True).tolist() == [[[255] * 3, [0] * 3, [0] * 3, [9] * 3]]


def test_normalizing_goes_there_and_back():
    data = ImageData(mean=0.3, std=0.25)
    known = torch.from_numpy(pixels()[None])
    x_BCHW = prepare.normal(known, data)
    assert x_BCHW.shape == (1, 3, H, W)
    torch.testing.assert_close(x_BCHW[0, 1, 2, 3], (known[0, 2, 3, 1] / 255 - 0.3) / 0.25)
    assert np.array_equal(prepare.shown(x_BCHW, data), known.numpy())


def test_moves_follow_from_seed_and_step_and_move_as_they_say():
    still = ImageData(random_shift=0.0, random_zoom=0.0)
    assert augment.moves(still, 1, 2, 3) is None
    data = ImageData(random_shift=0.25, random_zoom=0.5, random_flip=True)
    found = augment.moves(data, 1, 2, 500)
    assert torch.equal(found, augment.moves(data, 1, 2, 500))
    assert not torch.equal(found, augment.moves(data, 1, 3, 500)) and not torch.equal(
        found, augment.moves(data, 2, 2, 500)
    )
    assert found[:, :, 2].abs().max() <= 0.5 and found[:, :, 2].abs().max() > 0.45
    assert (
        found[:, 1, 1].max() <= 1.5
        and found[:, 1, 1].min() >= 1 / 1.5
        and (found[:, 0, 0].abs() == found[:, 1, 1]).all()
    )
    assert 0.4 < (found[:, 0, 0] < 0).float().mean() < 0.6
    assert (augment.moves(ImageData(random_shift=0.25, random_zoom=0.0), 1, 2, 500)[:, 0, 0] == 1).all()

    x_BCHW = torch.rand(2, 3, 8, 8)
    one = torch.tensor([[[1.0, 0, 0], [0, 1, 0]], [[-1.0, 0, 0], [0, 1, 0]]])
    same, mirror = augment.moved(x_BCHW, one)
    torch.testing.assert_close(same, x_BCHW[0])
    torch.testing.assert_close(mirror, x_BCHW[1].flip(-1))
    zoomed = torch.tensor([[[1.2, 0, 0.1], [0, 1.3, -0.2]], [[-0.8, 0, 0.0], [0, 0.9, 0.3]]])
    grid = torch.nn.functional.affine_grid(zoomed, [2, 3, 8, 8], align_corners=False)
    expected = torch.nn.functional.grid_sample(x_BCHW, grid, padding_mode="border", align_corners=False)
    torch.testing.assert_close(augment.moved(x_BCHW, zoomed), expected)
    right = augment.moved(x_BCHW, torch.tensor([[[1.0, 0, 0.5], [0, 1, 0]]] * 2))  # two pixels of eight
    torch.testing.assert_close(right[..., :6], x_BCHW[..., 2:])
    torch.testing.assert_close(right[..., 6:], x_BCHW[..., 7:].expand(-1, -1, -1, 2))  # the edge goes on


def test_a_square_of_each_picture_is_painted_over():
    assert augment.holes(ImageData(random_erase=0.0), 1, 2, 3) is None
    data = ImageData(random_erase=0.5)
    found = augment.holes(data, 1, 2, 500)
    assert torch.equal(found, augment.holes(data, 1, 2, 500)) and not torch.equal(
        found, augment.holes(data, 1, 3, 500)
    )
    assert 0.24 < found[:, 2].max() <= 0.25 and found[:, :2].max() <= 1
    x_BCHW = torch.ones(2, 3, 8, 12)
    some = augment.erased(x_BCHW, torch.tensor([[0.5, 0.25, 0.25], [0.0, 1.0, 0.1]]))
    expected = torch.ones(8, 12)
    expected[0:4, 3:9] = 0
    assert torch.equal(some[0], expected.expand(3, 8, 12))
    expected = torch.ones(8, 12)
    expected[7:, :1] = 0
    assert torch.equal(some[1], expected.expand(3, 8, 12))


def test_pictures_do_without_pillow_where_they_can(monkeypatch, tmp_path):
    def gone(name):
        raise ImportError(name)

    monkeypatch.setattr(images, "import_module", gone)
    put(tmp_path / "a.png")
    (tmp_path / "a.ppm").write_bytes(b"P6\n4 3\n255\n" + bytes(36))
    assert images.read_image(tmp_path / "a.ppm").shape == (3, 4, 3)
    with pytest.raises(BadInput, match=re.escape("pip install heedful[vision]")):
        images.read_image(tmp_path / "a.png")
