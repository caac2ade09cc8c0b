"""Small stages of text-to-image, for the tests of their training and of painting."""

import pytest

from heedful.corpora import shapes
from heedful.runs import stages, trainer
from heedful.tasks import recipe
from helpers.runs import CPU, Quiet

SMALL = {
    "data.image_size": 8,
    "model.layers": 1,
    "model.width": 12,
    "train.steps": 6,
    "train.batch_tokens": 40,
    "checkpoint.every": 2,
    "evaluate.every": 3,
    "evaluate.rows": 5,
    "train.warmup_steps": 1,
}


TRANSFORMERS = {"model.heads": 3, "model.ffn_width": 10}


ALL = {**SMALL, **TRANSFORMERS, "model.codes": 9}


@pytest.fixture(autouse=True)
def few_pictures(monkeypatch):
    monkeypatch.setattr(shapes, "COUNTS", {"train": 14, "valid": 6, "test": 5})


def train_all(path, **more):
    return stages.start(stages.recipes_of("tiny", "shapes", {**ALL, **more}, path), path, Quiet(), CPU)


def stage_recipe(stage, codes="", **more):
    own = TRANSFORMERS if stage in ("decoder", "ranker") else {}
    own = {**own, **({"train.from": codes} if stage == "decoder" else {}), **more}
    return recipe.make(f"text-to-image-{stage}", "tiny", "shapes", {**SMALL, **own})


@pytest.fixture(scope="module")
def painter(tmp_path_factory):
    """A folder of all stages, and a judge."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "COUNTS", {"train": 14, "valid": 6, "test": 5})
        folder = tmp_path_factory.mktemp("painter")
        train_all(folder / "all")
        trainer.start(stage_recipe("judge", **{"train.steps": 2}), folder / "judge", Quiet(), CPU)
    return folder
