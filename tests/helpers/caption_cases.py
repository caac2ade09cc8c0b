"""A tiny captioner, for tests of the network and of what looks into it; and pictures to train one with."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import numpy as np

from heedful.data.images.files import png_bytes
from heedful.models import captioner
from helpers import tiny

CONFIG = captioner.CaptionerConfig(
    vocab=17,
    image_size=12,
    patch_size=4,
    channels=3,
    layers=2,
    decoder_layers=3,
    width=12,
    heads=3,
    ffn_width=20,
    dropout=0.0,
)


def built(sees="grid", seed=5):
    """A tiny captioner in fp64."""
    return tiny.build((captioner, replace(CONFIG, source=sees)), seed=seed)


SMALL = {
    "model.layers": 1,
    "model.width": 16,
    "model.heads": 2,
    "model.ffn_width": 24,
    "model.patch_size": 4,
    "data.image_size": 8,
    "train.batch_tokens": 100,
    "train.steps": 90,
    "train.learning_rate": 2e-2,
    "train.warmup_steps": 3,
    "evaluate.every": 90,
    "evaluate.examples": 1,
    "evaluate.rows": 9,
}
COLORS = {"red": (220, 30, 40), "green": (30, 200, 60), "blue": (20, 50, 210)}


def write_pictures(folder, each=6, kind="tsv"):
    """Pictures of two colors, one above the other, with captions that say so."""
    folder.mkdir(parents=True)
    lines = []
    for i, (top, bottom) in product(range(each), product(COLORS, COLORS)):
        noise = np.random.default_rng(i).integers(-20, 20, (8, 8, 3))
        halves = np.repeat([COLORS[top], COLORS[bottom]], 4, axis=0)[:, None]
        name = f"{top}-{bottom}-{i}.png"
        (folder / name).write_bytes(png_bytes((halves + noise).clip(0, 255).astype(np.uint8)))
        said = f"{top} above {bottom}" if top != bottom else f"all {top}"
        lines.append(f"{name}\t{said}" if kind == "tsv" else json.dumps({"file": name, "caption": said}))
    (folder / f"captions.{kind}").write_text("\n".join(lines) + "\n")
    return folder
