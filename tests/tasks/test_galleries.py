"""The pictures of a recipe: from folders, IDX files and the built-in corpus, made ready once."""

import numpy as np
import pytest
from helpers.image_files import by_class, write_idx

from heedful.corpora import shapes
from heedful.data.report import Report
from heedful.errors import BadInput
from heedful.tasks import galleries
from heedful.tasks.recipe import make
from heedful.tasks.recipe.settings import PictureSettings

REFUSE = Report("refuse", "image")


def test_galleries_are_made_once_and_mapped(tmp_path):
    by_class(tmp_path / "images", cat=23, dog=12)
    data = PictureSettings(images=str(tmp_path / "images"), image_size=8)
    made = galleries.galleries(data, tmp_path / "data", False, REFUSE)
    assert {name: len(gallery) for name, gallery in made.items()} == {"train": 32, "valid": 3}
    labels = [made["valid"].label(i) for i in range(3)]
    assert sorted(labels) == ["cat", "cat", "dog"]  # a tenth of each class
    (tmp_path / "images").rename(tmp_path / "gone")
    again = galleries.galleries(data, tmp_path / "data", False, REFUSE)
    assert again["train"].hash == made["train"].hash
    assert again["train"].pixels_NHWC.base is not None and again["train"].pixels_NHWC.dtype == np.uint8
    shown = again["train"].pixels([5, 2])
    assert shown.shape == (2, 8, 8, 3) and np.array_equal(shown[1].numpy(), again["train"].row(2).pixels_HWC)
    with (tmp_path / "data" / "train" / "pixels.bin").open("r+b") as file:
        file.seek(100)
        byte = file.read(1)
        file.seek(100)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(BadInput, match="pixels.bin is damaged"):
        galleries.galleries(data, tmp_path / "data", False, REFUSE)


def test_idx_folders_hold_out_a_part_of_the_training_images_and_keep_those_for_testing(tmp_path):
    data = PictureSettings(images=str(write_idx(tmp_path / "idx")), image_size=6, color=False)
    made = galleries.galleries(data, tmp_path / "data", False, REFUSE)
    assert [len(made["train"]), len(made["valid"])] == [22, 3]
    assert sorted(made["valid"].label(i) for i in range(3)) == ["0", "1", "2"]
    test = list(galleries.split_rows(data, "test", False, REFUSE))
    assert len(test) == 7 and test[0].pixels_HWC.shape == (6, 6, 1)
    with pytest.raises(BadInput, match="has no t10k-labels-idx1-ubyte, nor"):
        (tmp_path / "idx" / "t10k-labels-idx1-ubyte").unlink()
        galleries.split_rows(data, "test", False, REFUSE)


def test_held_out_images_can_be_given(tmp_path):
    by_class(tmp_path / "a", cat=3, dog=4)
    by_class(tmp_path / "b", cat=2, dog=3)
    data = PictureSettings(images=str(tmp_path / "a"), valid_images=str(tmp_path / "b"), image_size=8)
    made = galleries.galleries(data, tmp_path / "data", False, REFUSE)
    assert [len(made["train"]), len(made["valid"])] == [7, 5]


def test_the_corpus_has_captions_or_classes(monkeypatch):
    monkeypatch.setattr(shapes, "COUNTS", {"train": 5, "valid": 4, "test": 3})
    told = list(galleries.split_rows(PictureSettings(corpus="shapes", image_size=24), "test", True, REFUSE))
    kinds = list(galleries.split_rows(PictureSettings(corpus="shapes", image_size=24), "test", False, REFUSE))
    assert [row.caption for row in told] == [p.caption for p in shapes.split("test")]
    assert all(row.label in shapes.labels() and row.pixels_HWC.shape == (24, 24, 3) for row in kinds)
    with pytest.raises(BadInput, match='has no built-in corpus "shape"; it has shapes'):
        make("caption", corpus="shape")
    with pytest.raises(BadInput, match="give --images FOLDER, or --corpus shapes"):
        galleries.sources_of(PictureSettings(), True, REFUSE)


def test_settings_of_pictures_are_for_pictures():
    assert make("image-classify", settings={"data.image_size": 28}).data.image_size == 28
    with pytest.raises(BadInput, match='lm has no setting "data.image_size"'):
        make("lm", settings={"data.image_size": 28})
    with pytest.raises(BadInput, match='image-classify has no setting "data.tokenizer"'):
        make("image-classify", settings={"data.tokenizer": "word"})
