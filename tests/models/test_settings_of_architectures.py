"""The settings of every architecture: with help, range and what the data decide."""

import subprocess
import sys

import pytest

from heedful import models
from heedful.models.base.settings import settings_of

FROM_DATA = {"vocab", "target_vocab", "share_embeddings", "labels", "relations", "image_size", "channels"}


@pytest.mark.parametrize("name", models.FAMILIES)
def test_every_setting_has_help_and_every_number_a_range(name):
    for setting in settings_of(models.config_class(name)).values():
        assert setting.help and setting.help == setting.help.strip(". "), setting
        assert setting.kind in (bool, str) or setting.limits is not None, setting
        assert setting.kind is not str or setting.choices or setting.name == "layer_pattern", setting


@pytest.mark.parametrize("name", models.FAMILIES)
def test_what_the_data_decide_is_marked(name):
    given = {setting.name for setting in settings_of(models.config_class(name)).values() if setting.given}
    assert given >= FROM_DATA & set(settings_of(models.config_class(name))), name


def test_kinds_are_known_without_torch():
    code = (
        "import sys; from heedful import models\n"
        "print(models.kind_of('gpt2'), models.kind_of('t5'), models.kind_of('bert'), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Decoder", "EncoderDecoder", "WithHeads", "False"]


@pytest.mark.parametrize("name", models.FAMILIES)
def test_the_kind_is_that_of_the_model_which_is_built(name):
    from heedful.models.base import skeleton

    config, kind = models.config_class(name), models.kind_of(name)
    built = skeleton.skeleton(name, config())
    assert type(built) is getattr(models.family(name), kind) and name in models.of_kind(kind)


def test_models_of_pictures_are_kinds_of_their_own():
    assert models.kind_of("bert") != models.kind_of("vit")
    assert models.kind_of("transformer") != models.kind_of("captioner")


def test_defaults_follow_from_other_fields():
    kind = models.config_class("transformer")
    config = kind(width=24, layers=3, heads=4)
    assert (config.ffn_width, config.decoder_ffn_width) == (96, 96)
    assert (config.decoder_layers, config.decoder_heads) == (3, 4)
    assert kind(width=24, ffn_width=7).decoder_ffn_width == 7
    assert str(settings_of(kind)["decoder_layers"].default) == "as layers"


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("layers", 0, "layers must be a whole number from 1 to"),
        ("layers", "3", "layers must be a whole number from 1 to 2,147,483,647, not '3'"),
        ("layers", True, "layers must be a whole number"),
        ("dropout", 1.0, "dropout must be a number of at least 0 and below 1, not 1.0"),
        ("dropout", float("nan"), "dropout must be a number"),
        ("norm", "no", "norm must be one of pre, post, not 'no'"),
        ("positions", "lunar", "positions must be one of none, .*rotary.*, not 'lunar'"),
        ("scale_embeddings", "yes", "scale_embeddings must be true or false, not 'yes'"),
    ],
)
def test_impossible_values_are_refused_with_their_name(field, value, why):
    with pytest.raises(ValueError, match=why):
        models.config_class("transformer")(**{field: value})
