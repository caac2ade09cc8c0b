"""The stages of text-to-image: each an ordinary run, in one folder that can be resumed; then paint."""

import json
import math
import re

import numpy as np
import pytest
import torch
from helpers.painters import ALL, few_pictures, painter, stage_recipe, train_all  # noqa: F401 (fixtures)
from helpers.runs import CPU, Interrupted, Quiet, state_of

from heedful.corpora.shapes import parse_caption
from heedful.errors import BadInput
from heedful.models.dalle import DalleConfig
from heedful.models.dalle import build as build_dalle
from heedful.runs import painting, stages, trainer
from heedful.tasks import STAGES, find_task, recipe
from heedful.tasks.captioned import padded
from heedful.tasks.evaluation import EvaluationRequest
from heedful.tasks.text_to_image import decoder, judge

# Stages


@pytest.mark.parametrize("stage", ["codes", "decoder", "ranker", "judge"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_every_stage_resumed_equals_uninterrupted_byte_for_byte(stage, accumulate, painter, tmp_path):
    asked = stage_recipe(stage, str(painter / "all" / "codes"), **{"train.accumulation_steps": accumulate})
    trainer.start(asked, tmp_path / "whole", Quiet(), CPU)
    for step in (1, 4):
        with pytest.raises(Interrupted):
            trainer.start(asked, tmp_path / f"cut-{step}", Quiet(until=step), CPU)
        assert trainer.resume(tmp_path / f"cut-{step}", Quiet(), CPU).finished
        assert state_of(tmp_path / f"cut-{step}") == state_of(tmp_path / "whole")


@pytest.mark.parametrize("stage", ["codes", "decoder", "ranker", "judge"])
def test_every_stage_says_its_baseline_and_is_measured_on_all_held_out_pictures(stage, painter):
    path = painter / "judge" if stage == "judge" else painter / "all" / stage
    rules = painting.read_recipe(path)
    model = painting.load_run(path, CPU, torch.float32).model
    with torch.no_grad():
        found = find_task(rules.task).measure(model, EvaluationRequest(path, rules, "test"))
    assert found.examples == 5 and found.unit == "pictures"
    assert all(math.isfinite(score) for score in found.metrics.values()) and "loss" in found.metrics
    status = json.loads((path / "status.json").read_text())
    assert status["best"].keys() == found.metrics.keys()


class Counting(Quiet):
    """Keeps what was seen in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, str]] = []

    def step(self, progress, steps):
        self.seen.append(progress.seen)


@pytest.mark.parametrize("stage", ["codes", "decoder", "ranker", "judge"])
def test_the_speed_of_every_stage_is_told_in_pictures(stage, painter, tmp_path):
    more = {"train.steps": 1, "train.accumulation_steps": 2}
    talk = Counting()
    trainer.start(stage_recipe(stage, str(painter / "all" / "codes"), **more), tmp_path / "run", talk, CPU)
    (planned,) = re.findall(r"(\d+) (?:captions and )?pictures a step", "\n".join(talk.lines))
    assert talk.seen == [(int(planned), "pictures")]


class UntilStage(Quiet):
    """Stops at a step of one stage."""

    def __init__(self, stage: str) -> None:
        super().__init__()
        self.stage = stage

    def step(self, progress, steps):
        super().step(progress, steps)
        newest = [line for line in self.lines if line.startswith("stage ")][-1]
        if progress.step == 3 and newest.endswith(f", {self.stage}"):
            raise Interrupted


def test_stages_are_trained_in_order_and_a_stopped_folder_goes_on_to_the_same_bytes(painter, tmp_path):
    path = tmp_path / "cut"
    asked = stages.recipes_of("tiny", "shapes", ALL, path)
    with pytest.raises(Interrupted):
        stages.start(asked, path, UntilStage("codes"), CPU)
    for stage in ("decoder", "ranker"):
        with pytest.raises(Interrupted):
            stages.resume(path, UntilStage(stage), CPU)
        assert stages.is_done(path / "codes") and not stages.is_done(path / stage)
    talk = Quiet()
    assert stages.resume(path, talk, CPU).finished
    assert [line for line in talk.lines if line.startswith("stage ")] == [
        "stage 1 of 3, codes: done already",
        "stage 2 of 3, decoder: done already",
        "stage 3 of 3, ranker",
    ]
    for stage in STAGES:
        assert state_of(path / stage) == state_of(painter / "all" / stage)


def test_a_folder_that_was_moved_goes_on(tmp_path):
    path = tmp_path / "old"
    with pytest.raises(Interrupted):
        stages.start(stages.recipes_of("tiny", "shapes", ALL, path), path, UntilStage("codes"), CPU)
    (tmp_path / "old").rename(tmp_path / "new")
    assert stages.resume(tmp_path / "new", Quiet(), CPU).finished


def test_pictures_are_made_ready_once(painter):
    made = painter / "all" / "pictures" / "data" / "train"
    for stage in STAGES:
        for file in made.iterdir():
            assert (painter / "all" / stage / "data" / "train" / file.name).samefile(file)


def test_a_setting_is_for_every_stage_that_has_a_use_for_it_or_for_the_one_it_names(tmp_path):
    asked = {
        "train.steps": 9,
        "decoder.train.steps": 4,
        "model.codes": 33,
        "data.image_size": 16,
        "ranker.model.patch_size": 8,
    }
    found = stages.recipes_of("tiny", "shapes", asked, tmp_path / "run")
    assert [r.train.steps for r in found.values()] == [9, 4, 9]
    assert found["codes"].model.codes == 33 and {r.data.image_size for r in found.values()} == {16}
    assert found["ranker"].model.patch_size == 8 and found["decoder"].train.from_ == str(
        tmp_path / "run" / "codes"
    )
    for wrong, told in {
        "codes.data.image_size": "set data.image_size, not codes.data.image_size",
        "train.from": "the decoder writes codes of this run. Leave it out",
        "decoder.train.from": "the decoder writes codes of this run. Leave it out",
        "data.random_flip": 'text-to-image has no setting "data.random_flip"; data has ',
        "train.kl_wieght": 'text-to-image has no setting "train.kl_wieght"; did you mean "train.kl_weight"?',
        "decoder.model.codes": 'text-to-image-decoder with dalle has no setting "model.codes"; model has ',
        "codes.model.widht": 'no setting "model.widht"; did you mean "model.width"?',
    }.items():
        with pytest.raises(BadInput, match=re.escape(told)):
            stages.recipes_of("tiny", "shapes", {wrong: 8}, tmp_path / "run")


DEFAULTS = {  # architecture, optimizer, learning rate, tokens a step, steps
    "codes": ("dvae", "adamw", 1e-3, 1024, 1500),
    "decoder": ("dalle", "muon", 2e-3, 2048, 2800),
    "ranker": ("clip", "muon", 4e-3, 2080, 2000),
    "judge": ("judge", "adamw", 2e-3, 2048, 5000),
}


@pytest.mark.parametrize("stage", DEFAULTS)
def test_every_stage_has_settings_and_sizes_of_its_own(stage):
    found = recipe.make(f"text-to-image-{stage}", "tiny", "shapes")
    t, m = found.train, found.model
    assert (m.architecture, t.optimizer, t.learning_rate, t.batch_tokens, t.steps) == DEFAULTS[stage]
    widths = {"codes": (1, 96), "decoder": (4, 96), "ranker": (2, 96), "judge": (3, 16)}
    assert (m.layers, m.width) == widths[stage] and found.data.bad_lines == "refuse"
    assert hasattr(found.data, "max_length") == (stage in ("decoder", "ranker"))
    assert hasattr(found.data, "mean") == (stage in ("ranker", "judge"))
    assert hasattr(t, "label_smoothing") == (stage == "judge") and hasattr(t, "kl_weight") == (
        stage == "codes"
    )
    if stage == "ranker":
        assert m.projection_width == m.width and m.patch_size == 4


def test_what_was_asked_for_in_vain_leaves_nothing_behind(tmp_path):
    for more, told in (
        ({"data.image_size": 10}, "cells of 4 do not divide"),
        ({"data.corpus": "facts"}, 'has no built-in corpus "facts"; it has shapes'),
    ):
        with pytest.raises(BadInput, match=told):
            train_all(tmp_path / "runs" / "new", **more)
        assert not (tmp_path / "runs").exists()


def test_a_decoder_needs_codes(tmp_path):
    with pytest.raises(BadInput, match="give --from RUN, that of its codes"):
        trainer.start(stage_recipe("decoder"), tmp_path / "run", Quiet(), CPU)


def test_a_decoder_is_not_begun_with_another_model_of_codes(painter, tmp_path):
    with pytest.raises(BadInput, match="is a clip: codes are written by the stage codes"):
        trainer.start(
            stage_recipe("decoder", str(painter / "all" / "ranker")), tmp_path / "run", Quiet(), CPU
        )


# Losses


def test_the_caption_counts_an_eighth_and_the_picture_the_rest():
    torch.manual_seed(0)
    sizes = dict.fromkeys(("rows", "columns", "layers"), 2)
    model = build_dalle(
        DalleConfig(
            vocab=6, text_length=3, codes=5, width=8, heads=2, ffn_width=9, window=1, dropout=0.0, **sizes
        )
    )
    words_BL, lengths_B = padded([[1, 2], [3, 4, 5], [0]], 3)
    codes_BN = torch.randint(5, (3, 4))
    batch = decoder.StreamBatch(
        words_BL=words_BL, lengths_B=lengths_B, codes_BN=codes_BN, length=8, ids=(0, 1, 2)
    )
    tokens_BT = model.stream(words_BL, lengths_B, codes_BN)
    log_p = model(tokens_BT[:, :-1]).log_softmax(-1).gather(-1, tokens_BT[:, 1:, None])[..., 0]
    text, picture = -log_p[:, :3].mean(), -log_p[:, 3:].mean()
    loss = decoder.stream_loss(model, batch, 1 / 8)
    assert loss.count == 12 and torch.allclose(loss.total / 12, text / 8 + 7 * picture / 8, atol=1e-6)


# The judge


def test_answers_say_what_a_caption_says_in_one_way():
    for text in (
        "a small red circle above a blue square",
        "a large blue square right of a black cross",
        "a green diamond",
    ):
        said = parse_caption(text)
        answers = judge.answers_of(said)
        assert judge.said_by([max(0, a) for a in answers]) == said.plain
        assert [a < 0 for a in answers] == [False] * 4 + [not said.relation] * 3


@pytest.mark.parametrize(
    "found, things, relation",
    [
        ("a red circle above a blue square", True, True),
        ("a blue square below a large red circle", True, True),  # the same, and sizes are not asked for
        ("a red circle below a blue square", True, False),
        ("a blue square above a red circle", True, False),
        ("a red circle left of a blue square", True, False),
        ("a red circle above a red square", False, False),
        ("a red circle", False, False),
    ],
)
def test_a_picture_is_right_if_its_things_and_where_they_are_are(found, things, relation):
    right = judge.compare(parse_caption(found), parse_caption("a red circle above a blue square"))
    assert (right.things, right.relation) == (things, relation)


def test_choosing_gains_what_it_gains_caption_by_caption():
    right = np.array([[1, 0, 0], [0, 0, 1], [0, 1, 1], [0, 0, 0]])
    fits = np.array([[3, 1, 2], [1, 2, 3], [3, 2, 1], [1, 2, 3]])
    found = painting.share_of(right, fits)
    gains = [1 - 1 / 3, 1 - 1 / 3, 0 - 2 / 3, 0]
    assert (found.one, found.best, found.captions) == (pytest.approx(4 / 12), 0.5, 4)
    assert found.gain == pytest.approx(np.mean(gains)) == pytest.approx(found.best - found.one)
    half = 1.96 * np.std(gains, ddof=1) / 2
    assert found.interval == (pytest.approx(found.gain - half), pytest.approx(found.gain + half))
