"""Vision Transformer: patches, permutations, and another resolution."""

import pytest
import torch
import transformers as hf
from helpers import tiny
from torch import nn

import heedful
from heedful.models import vit

B, C, P = 2, 3, 4


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(9)


def test_patches_through_a_matrix_equal_a_convolution():
    conv = nn.Conv2d(C, 5, kernel_size=P, stride=P).double()
    images = torch.randn(B, C, 3 * P, 3 * P, dtype=torch.float64)
    expected = conv(images).flatten(2).mT
    found = vit.patches(images, P) @ conv.weight.flatten(1).T + conv.bias
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)


def test_permuting_patches_with_their_positions_changes_nothing():
    model = tiny.build((vit, tiny.VIT))
    images = torch.randn(B, C, 12, 12, dtype=torch.float64)
    before = model(images)["class_token"]
    order = torch.randperm(9)
    grid = images.unfold(2, P, P).unfold(3, P, P).flatten(2, 3)[:, :, order]
    shuffled = grid.unflatten(2, (3, 3)).permute(0, 1, 2, 4, 3, 5).reshape(B, C, 12, 12)
    assert not torch.allclose(model(shuffled)["class_token"], before)
    with torch.no_grad():
        table = model.encoder.inputs.position.table
        table[1:] = table[1:][order].clone()
    torch.testing.assert_close(model(shuffled)["class_token"], before, atol=1e-12, rtol=0)


def test_heads_read_the_class_token_or_the_mean_of_the_patches():
    config = vit.ViTConfig(
        **{**vars(tiny.VIT), "prediction_heads": ("class_token", "classify_mean", "classify")}
    )
    model = tiny.build((vit, config))
    images = torch.randn(B, C, 12, 12, dtype=torch.float64)
    hidden, out = model.encoder(images), model(images)
    assert torch.equal(out["class_token"], hidden[:, 0])
    torch.testing.assert_close(out["classify"], model.heads["classify"].linear(hidden[:, 0]))
    torch.testing.assert_close(
        out["classify_mean"], model.heads["classify_mean"].linear(hidden[:, 1:].mean(1))
    )
    fresh = vit.build(config)
    assert (fresh(images.float())["classify"] == 0).all()


@pytest.mark.parametrize("image", [8, 12, 20])
def test_another_resolution_equals_hugging_faces_interpolation(image, tmp_path):
    config = hf.ViTConfig(
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=20,
        image_size=12,
        patch_size=4,
    )
    theirs = hf.ViTModel(config).eval()
    nn.init.normal_(theirs.embeddings.position_embeddings)
    theirs.save_pretrained(tmp_path)
    loaded = heedful.load(tmp_path)
    images = torch.randn(B, C, image, image)
    with torch.no_grad():
        expected = theirs(images, interpolate_pos_encoding=True).last_hidden_state
        model, resized = vit.resized(loaded.model, loaded.config, image)
        assert resized.grid == image // 4
        torch.testing.assert_close(model.eval().encoder(images), expected, atol=1e-5, rtol=0)


def test_images_of_the_wrong_size_are_refused_with_both_sizes():
    with pytest.raises(ValueError, match="12 x 12 pixels, not 8 x 16"):
        tiny.build((vit, tiny.VIT))(torch.randn(B, C, 8, 16, dtype=torch.float64))
    with pytest.raises(ValueError, match="10 pixels .* patches of 4"):
        vit.ViTConfig(image_size=10, patch_size=4)
    with pytest.raises(ValueError, match='no head "clasify"'):
        vit.build(
            vit.ViTConfig(
                image_size=8,
                patch_size=4,
                layers=1,
                width=12,
                heads=3,
                ffn_width=9,
                prediction_heads=("clasify",),
            )
        )
