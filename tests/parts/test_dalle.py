"""DALL-E's parts against their definitions: codes, masks, places, allowed tokens, decoding with a cache."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from heedful.decode.pictures import PictureStep, draw_codes
from heedful.models import clip, dalle, dvae
from heedful.models.clip import ClipConfig, contrast
from heedful.models.dalle import DalleConfig
from heedful.models.dvae import DVAEConfig, k_means, nearest
from heedful.parts.masks import Window
from heedful.parts.picture_masks import Neighborhood, picture_column, picture_convolution, picture_row
from heedful.parts.positions.absolute import CaptionAndGrid
from heedful.parts.sparse_masks import EveryNth

TEXT, ROWS, COLUMNS = 5, 4, 3  # the start included
SIZES = DalleConfig(
    vocab=11,
    text_length=TEXT - 1,
    codes=7,
    rows=ROWS,
    columns=COLUMNS,
    layers=5,
    width=24,
    heads=3,
    ffn_width=20,
    window=1,
    dropout=0.0,
)


@pytest.fixture
def model() -> dalle.Dalle:
    torch.manual_seed(5)
    made = dalle.build(SIZES).eval()
    with torch.no_grad():
        for weight in made.parameters():  # far from the small numbers it begins with
            weight.add_(0.3 * torch.randn_like(weight))
    return made


def streams(model, B=2, seed=0):
    """Whole streams of captions of unequal lengths and pictures."""
    g = torch.Generator().manual_seed(seed)
    words_BL = torch.randint(SIZES.vocab, (B, SIZES.text_length), generator=g)
    codes_BN = torch.randint(SIZES.codes, (B, SIZES.cells), generator=g)
    return model.stream(words_BL, torch.tensor([3, 1, 4, 2][:B]), codes_BN)


# Masks and places


def table(mask) -> list[list[bool]]:
    here = torch.arange(TEXT + ROWS * COLUMNS)
    return mask.dense(here, here)[0, 0].tolist()


def by_definition(near) -> list[list[bool]]:
    """Text sees the text before it; a cell n sees all text, and those cells m <= n that are near."""
    size = TEXT + ROWS * COLUMNS
    return [
        [k <= q if q < TEXT else k < TEXT or (k <= q and near(q - TEXT, k - TEXT)) for k in range(size)]
        for q in range(size)
    ]


def test_a_row_is_the_cells_read_last():
    assert table(picture_row(TEXT, COLUMNS)) == by_definition(lambda n, m: n - COLUMNS <= m <= n)


def test_a_column_is_the_cells_above():
    same = by_definition(lambda n, m: n % COLUMNS == m % COLUMNS)
    assert table(picture_column(TEXT, COLUMNS)) == same


@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_a_convolution_sees_a_square_as_far_as_it_was_read(kernel):
    def near(n, m):
        rows, columns = abs(n // COLUMNS - m // COLUMNS), abs(n % COLUMNS - m % COLUMNS)
        return max(rows, columns) <= kernel // 2

    assert table(picture_convolution(TEXT, COLUMNS, kernel)) == by_definition(near)


def test_a_kernel_has_a_center():
    with pytest.raises(ValueError, match="odd"):
        picture_convolution(TEXT, COLUMNS, 4)


def test_layers_take_turns_and_the_last_is_a_convolution():
    kinds = {Window: "row", EveryNth: "column", Neighborhood: "convolution"}
    masks = dalle.masks_of(DalleConfig(layers=10))
    found = [kinds[type(mask.masks[1].masks[1])] for mask in masks]
    # Ramesh et al.: column where (i - 2) mod 4 is 0, i from 1 on.
    assert found == [*("column" if (i - 2) % 4 == 0 else "row" for i in range(1, 10)), "convolution"]


def test_every_position_of_a_cell_is_its_row_and_its_column():
    position = CaptionAndGrid(TEXT, ROWS, COLUMNS, width=6)
    found = position.encode(torch.arange(TEXT + ROWS * COLUMNS))
    assert torch.equal(found[:TEXT], position.text.table)
    for n in range(ROWS * COLUMNS):
        row, column = position.row.table[n // COLUMNS], position.column.table[n % COLUMNS]
        assert torch.equal(found[TEXT + n], row + column)
    with pytest.raises(ValueError, match="18 tokens does not fit the learned position table of 17"):
        dalle.build(SIZES)(torch.zeros(1, 18, dtype=torch.long))


# What stands where


def test_each_place_that_a_caption_leaves_empty_has_a_pad_of_its_own(model):
    words_BL = torch.tensor([[4, 9, 2], [10, 0, 1]])
    tokens_BT = model.stream(words_BL, torch.tensor([2, 0]), torch.zeros(2, SIZES.cells, dtype=torch.long))
    first_code = SIZES.vocab + SIZES.text_length
    assert tokens_BT[:, :TEXT].tolist() == [[22, 4, 9, 13, 14], [22, 11, 12, 13, 14]]
    assert (tokens_BT[:, TEXT:] == first_code).all() and tokens_BT.shape == (2, SIZES.context)
    assert SIZES.start == 22 == SIZES.vocab + SIZES.text_length + SIZES.codes
    with pytest.raises(ValueError, match="5 tokens does not fit the 4 places"):
        model.stream(torch.zeros(1, 5, dtype=torch.long), torch.tensor([5]))


def test_only_words_and_pads_follow_in_a_caption_and_only_codes_in_a_picture(model):
    scores_BTV = model(streams(model))
    kept_BTV = scores_BTV > -math.inf
    words, codes = range(SIZES.first_code), range(SIZES.first_code, SIZES.start)
    for t in range(SIZES.context):
        allowed = words if t + 1 < TEXT else codes
        assert [v for v, kept in enumerate(kept_BTV[0, t].tolist()) if kept] == list(allowed)


def test_scores_by_modality_are_those_of_the_whole(model):
    tokens_BT = streams(model, B=3)
    whole_BTV, (words, codes) = model(tokens_BT[:, :-1]), model.both(tokens_BT)
    assert torch.allclose(words, whole_BTV[:, : SIZES.text_length, : SIZES.first_code], atol=1e-5)
    assert torch.allclose(codes, whole_BTV[:, SIZES.text_length :, SIZES.first_code : SIZES.start], atol=1e-5)


def gradient(model, tokens_BT, choose):
    """How much what `choose` takes of (scores of words, of codes) depends on each token, [T]."""
    embedding = model.decoder.inputs.tokens
    seen: list[torch.Tensor] = []

    def keep(_, __, output):
        output.retain_grad()
        seen.append(output)

    hook = embedding.register_forward_hook(keep)
    choose(*model.both(tokens_BT)).sum().backward()
    hook.remove()
    return seen[0].grad.abs().sum((0, 2))


def test_no_score_of_a_word_depends_on_the_picture(model):
    tokens_BT = streams(model)
    found_T = gradient(model, tokens_BT, lambda words, codes: words)
    assert (found_T[: TEXT - 1] > 0).all() and (found_T[TEXT - 1 :] == 0).all()
    assert (gradient(model, tokens_BT, lambda words, codes: codes[:, 5])[: TEXT + 6] > 0).any()


@pytest.mark.parametrize("cell", [0, 1, 5, 10])
def test_no_score_of_a_cell_depends_on_later_ones_and_every_one_on_the_caption(model, cell):
    found_T = gradient(model, streams(model), lambda words, codes: codes[:, cell])
    assert (found_T[:TEXT] > 0).all()
    assert (found_T[TEXT + cell :] == 0).all()
    assert cell == 0 or found_T[TEXT + cell - 1] > 0


def test_other_pads_leave_the_words_as_they_are_and_change_the_picture(model):
    """Nothing in a caption comes after its pads; the picture sees them."""
    tokens_BT = streams(model, B=1)
    other_BT = tokens_BT.clone()
    other_BT[0, 4] = SIZES.vocab  # the place of the last pad, after 3 words
    (words, codes), (same, changed) = model.both(tokens_BT), model.both(other_BT)
    assert torch.equal(words, same) and not torch.allclose(codes[:, 0], changed[:, 0], atol=1e-3)


# Writing


def test_written_with_a_cache_equals_written_without(model):
    tokens_BT = streams(model, B=3)
    whole_BTV = model(tokens_BT)
    for first in (1, TEXT, TEXT + 4):
        step = PictureStep(model)
        with torch.no_grad():
            found = [step(tokens_BT[:, :first])]
            found += [step(tokens_BT[:, t : t + 1]) for t in range(first, tokens_BT.shape[1])]
        assert torch.allclose(torch.cat(found, 1), whole_BTV, atol=1e-4)
    for first in (1, TEXT - 1, TEXT, TEXT + 4):
        with torch.no_grad():
            last_BV = PictureStep(model).last(tokens_BT[:, :first])
        assert torch.allclose(last_BV, whole_BTV[:, first - 1], atol=1e-4)
    cache = model.decoder.growing_cache()
    halves = [model(tokens_BT[:, :7], cache=cache), model(tokens_BT[:, 7:], cache=cache)]
    assert torch.allclose(torch.cat(halves, 1), whole_BTV, atol=1e-4)


def test_a_picture_is_drawn_as_by_asking_for_each_cell_anew(model):
    """The likeliest of each cell, without any cache."""
    words_BL, lengths_B = torch.tensor([[3, 1, 8, 8], [2, 2, 0, 0]]), torch.tensor([3, 2])
    found = draw_codes(model, words_BL, lengths_B, k=1)
    tokens_BT = model.stream(words_BL, lengths_B)
    for _ in range(SIZES.cells):
        tokens_BT = torch.cat([tokens_BT, model(tokens_BT)[:, -1:].argmax(-1)], 1)
    expected = (tokens_BT[:, TEXT:] - SIZES.first_code).unflatten(1, (ROWS, COLUMNS))
    assert torch.equal(found, expected) and found.shape == (2, ROWS, COLUMNS)


def test_pictures_follow_from_the_seed_and_are_as_odd_as_the_heat(model):
    words_BL, lengths_B = torch.tensor([[3, 1]] * 40), torch.tensor([2] * 40)
    hot, again = (draw_codes(model, words_BL, lengths_B, seed=4, heat=3.0) for _ in range(2))
    cold = draw_codes(model, words_BL, lengths_B, seed=4, heat=0.02)
    assert torch.equal(hot, again) and not torch.equal(hot, draw_codes(model, words_BL, lengths_B, heat=3.0))
    assert len(hot.unique(dim=0)) > 30 and len(cold.unique(dim=0)) < 5
    few = draw_codes(model, words_BL, lengths_B, heat=3.0, k=2)
    assert all(len(few[:, r, c].unique()) <= 7 for r in range(ROWS) for c in range(COLUMNS))
    assert len(few[:, 0, 0].unique()) == 2 and hot.min() >= 0 and hot.max() < SIZES.codes


def test_unequal_captions_are_for_pads(model):
    with pytest.raises(ValueError, match="one length"):
        PictureStep(model)(torch.zeros(2, 3, dtype=torch.long), torch.tensor([3, 2]))


# The discrete VAE


@pytest.mark.parametrize("center, scale", [(0.0, 1.0), (1.7, 0.4), (-2.0, 0.1)])
def test_the_density_of_a_pixel_integrates_to_one(center, scale):
    y = torch.linspace(0, 1, 400_001, dtype=torch.float64)[1:-1]
    log_p = dvae.logit_laplace(y, torch.tensor(center), torch.tensor(math.log(scale), dtype=torch.float64))
    assert torch.trapezoid(log_p.exp(), y).item() == pytest.approx(1, abs=2e-3)
    median = y[torch.searchsorted(log_p.exp().cumsum(0), log_p.exp().sum() / 2)]
    assert median.item() == pytest.approx(1 / (1 + math.exp(-center)), abs=1e-3)


def test_pixels_are_kept_off_the_ends_and_come_back():
    x = torch.linspace(0, 1, 11)
    y = dvae.inside(x)
    assert y.min().item() == pytest.approx(0.1) and y.max().item() == pytest.approx(0.9)
    assert torch.allclose(dvae.outside(y), x, atol=1e-6)
    assert dvae.outside(torch.tensor([0.01, 0.99])).tolist() == [0, 1]


def test_the_relaxation_is_one_hot_as_it_cools_and_uniform_as_it_warms():
    torch.manual_seed(1)
    scores = torch.randn(3, 5, 2, 4)
    noise = dvae.gumbel_noise(scores)
    for heat in (0.1, 1.0, 10.0):
        assert torch.allclose(dvae.gumbel_softmax(scores, heat, noise).sum(1), torch.ones(3, 2, 4))
    cold = dvae.gumbel_softmax(scores, 1e-4, noise)
    assert torch.allclose(cold, F.one_hot((scores + noise).argmax(1), 5).movedim(-1, 1).float(), atol=1e-4)
    assert torch.allclose(dvae.gumbel_softmax(scores, 1e5, noise), torch.tensor(0.2), atol=1e-3)


def test_a_cold_draw_is_each_code_as_often_as_its_probability():
    torch.manual_seed(2)
    scores = torch.tensor([2.0, 0.5, -1.0, 0.0])[None, :, None, None].expand(20_000, 4, 1, 1)
    drawn = dvae.gumbel_softmax(scores, 0.01, dvae.gumbel_noise(scores)).argmax(1).flatten()
    shares = torch.bincount(drawn, minlength=4) / len(drawn)
    assert torch.allclose(shares, scores[0, :, 0, 0].softmax(0), atol=0.015)


def test_the_divergence_is_that_from_the_uniform_distribution():
    scores = torch.randn(2, 6, 3, 4)
    uniform = torch.distributions.Categorical(torch.ones(6))
    q = torch.distributions.Categorical(logits=scores.movedim(1, -1))
    assert torch.allclose(dvae.divergence(scores), torch.distributions.kl_divergence(q, uniform), atol=1e-5)


def small_vae(**more) -> dvae.DVAE:
    torch.manual_seed(3)
    return dvae.build(
        DVAEConfig(**{"channels": 3, "codes": 10, "patch_size": 4, "layers": 1, "width": 12, **more})
    )


@pytest.mark.parametrize("patch, channels", [(1, 1), (4, 3), (8, 1)])
def test_codes_are_a_grid_of_cells_and_make_a_picture_again(patch, channels):
    model = small_vae(patch_size=patch, channels=channels)
    x_BCHW = torch.rand(2, channels, 24, 16)
    codes_Bhw = model.encode(x_BCHW)
    assert codes_Bhw.shape == (2, 24 // patch, 16 // patch)
    assert codes_Bhw.min() >= 0 and codes_Bhw.max() < 10
    found = model.decode(codes_Bhw)
    assert found.shape == x_BCHW.shape and found.min() >= 0 and found.max() <= 1
    log_p_B, kl_B = model(x_BCHW, 1.0)
    assert log_p_B.shape == kl_B.shape == (2,) and (kl_B >= 0).all()


def test_codes_have_no_noise_and_a_cold_draw_becomes_them():
    model = small_vae()
    with torch.no_grad():
        model.encoder[-1].weight.mul_(1000)  # sure of every code
        x_BCHW = torch.rand(3, 3, 8, 12)
        codes_Bhw = model.encode(x_BCHW)
        assert torch.equal(codes_Bhw, model.encode(x_BCHW))
        assert torch.equal(codes_Bhw, model.scores(x_BCHW).argmax(1))
        hard_B = model.likelihood(x_BCHW, model.one_hot(codes_Bhw))
        assert torch.allclose(model(x_BCHW, 1e-3)[0], hard_B, rtol=0.02)


def test_k_means_finds_what_lies_together_and_counts_equal_points_once():
    torch.manual_seed(4)
    places = torch.tensor([[0.0, 0, 9], [9, 0, 0], [0, 9, 0], [5, 5, 5]])
    points = (places[:, None] + 0.1 * torch.randn(4, 30, 3)).flatten(0, 1)
    centers, off = k_means(
        torch.cat([points, points[:1].repeat(500, 1)]), 16, torch.Generator().manual_seed(1)
    )
    near = torch.cdist(points, centers).argmin(1)
    assert torch.equal(nearest(points, centers), near)
    for k in near.unique():  # where it ends, every center is the mean of what is nearest to it
        assert torch.allclose(centers[k], points[near == k].mean(0), atol=1e-4)
    assert off == pytest.approx((points - centers[near]).square().mean().item(), rel=1e-4)
    assert off < 0.1**2  # four would leave that, one at each place
    few, none = k_means(points[:3], 7, torch.Generator().manual_seed(1))
    assert few.shape == (7, 3) and none == 0


@pytest.mark.parametrize("width", [60, 48])
def test_codes_begin_as_the_patches_that_pictures_are_made_of(width):
    model = small_vae(width=width, codes=9)
    torch.manual_seed(5)
    kinds = torch.rand(9, 3, 4, 4)
    which = torch.randint(9, (6, 5, 7))
    x_BCHW = kinds[which].permute(0, 3, 1, 4, 2, 5).reshape(6, 3, 20, 28)
    dvae.begin_with(model, x_BCHW, seed=2)
    codes = model.encode(x_BCHW)
    assert len({(a, b) for a, b in zip(which.flatten().tolist(), codes.flatten().tolist(), strict=True)}) == 9
    assert torch.allclose(model.decode(codes), x_BCHW, atol=1e-3)
    # The score is that of a Gaussian around each code's patch.
    other = torch.rand(2, 3, 8, 8)
    found = model.scores(other).flatten(2)
    patch_BXN = F.unfold(torch.logit(dvae.inside(other)), 4, stride=4)
    drawn = model.decode(torch.arange(9).view(9, 1, 1))  # what each code is
    center_KX = torch.logit(dvae.inside(drawn)).flatten(1)
    distance_BKN = (patch_BXN[:, None] - center_KX[None, :, :, None]).square().sum(2)
    expected = -distance_BKN / (2 * dvae.LEAST_SPREAD**2)
    shift = (found - expected).mean(1, keepdim=True)
    assert torch.allclose(found - shift, expected, rtol=1e-3, atol=1.0)


def test_codes_begin_the_same_in_half_precision():
    model = small_vae(width=60, codes=40)
    torch.manual_seed(7)
    x_BCHW = (0.9 + 0.1 * torch.rand(40, 3, 4, 4)).repeat(
        2, 1, 1, 1
    )  # alike, and far from where logits are small
    dvae.begin_with(model, x_BCHW, seed=2)
    codes = model.encode(x_BCHW)
    assert len(codes.unique()) == 40
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(model.encode(x_BCHW), codes)


def test_with_fewer_channels_than_directions_scores_are_gaussian_in_those_that_are_kept():
    model = small_vae(width=6, codes=30)
    torch.manual_seed(8)
    x_BCHW = torch.rand(30, 3, 4, 4)
    dvae.begin_with(model, x_BCHW, seed=4)
    kept_BD = model.encoder[0](torch.logit(dvae.inside(x_BCHW)))[:, :, 0, 0]
    own_KD = model.decoder[0].weight[:, :, 0, 0].T
    distance_BK = torch.cdist(kept_BD, own_KD).square()
    found_BK = model.scores(x_BCHW)[:, :, 0, 0]
    expected_BK = -distance_BK / (2 * dvae.LEAST_SPREAD**2)
    shift_B1 = (found_BK - expected_BK).mean(1, keepdim=True)
    assert torch.allclose(found_BK - shift_B1, expected_BK, rtol=1e-3, atol=1.0)
    assert (
        torch.equal(model.encode(x_BCHW).flatten(), distance_BK.argmin(1))
        and len(distance_BK.argmin(1).unique()) == 30
    )


def test_with_few_channels_codes_begin_with_the_directions_in_which_patches_differ_most():
    model = small_vae(width=5, codes=9)
    torch.manual_seed(6)
    shades = torch.rand(9, 3, 1, 1).expand(9, 3, 4, 4)  # three directions are all there is
    x_BCHW = shades[torch.randint(9, (4, 2, 2))].permute(0, 3, 1, 4, 2, 5).reshape(4, 3, 8, 8)
    dvae.begin_with(model, x_BCHW, seed=3)
    assert torch.allclose(model.decode(model.encode(x_BCHW)), x_BCHW, atol=1e-3)


def test_schedules_begin_and_end_where_they_should():
    falling = [dvae.annealed(step, 50) for step in range(80)]
    assert falling[0] == 1 and falling[50] == falling[79] == 1 / 16
    assert all(a >= b for a, b in itertools.pairwise(falling))
    assert falling[25] == pytest.approx((1 + 1 / 16) / 2)
    growing = [dvae.rising(step, 10, 6.6) for step in range(20)]
    assert growing[0] == 0 and growing[10] == growing[19] == 6.6 and growing[5] == pytest.approx(3.3)
    assert dvae.rising(0, 0, 2.0) == 0 and dvae.rising(1, 0, 2.0) == 2.0


def test_a_few_pictures_can_be_learned_by_heart():
    torch.manual_seed(0)
    model = small_vae(width=24)
    x_BCHW = torch.rand(3, 3, 2, 2).repeat_interleave(4, 2).repeat_interleave(4, 3)  # a color a cell
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for step in range(250):
        log_p_B, kl_B = model(x_BCHW, dvae.annealed(step, 200))
        optimizer.zero_grad()
        (-log_p_B + 0.1 * kl_B).mean().backward()
        optimizer.step()
    wrong = (model.decode(model.encode(x_BCHW)) - x_BCHW).abs().mean().item()
    assert wrong < 0.08 < (x_BCHW.mean((0, 2, 3), keepdim=True) - x_BCHW).abs().mean().item() / 2


# The contrastive model


def two_towers() -> clip.Clip:
    torch.manual_seed(7)
    sizes = {
        "vocab": 9,
        "text_length": 6,
        "image_size": 8,
        "patch_size": 4,
        "channels": 3,
        "layers": 2,
        "width": 12,
        "heads": 3,
        "ffn_width": 10,
        "projection_width": 7,
    }
    return clip.build(ClipConfig(**sizes)).eval()


def test_captions_and_pictures_become_unit_vectors_and_padding_changes_nothing():
    model = two_towers()
    words_BT, lengths_B, x_BCHW = torch.randint(9, (4, 6)), torch.tensor([6, 2, 3, 1]), torch.rand(4, 3, 8, 8)
    words_BE, pictures_BE = model.read_words(words_BT, lengths_B), model.read_pictures(x_BCHW)
    assert words_BE.shape == pictures_BE.shape == (4, 7)
    assert torch.allclose(words_BE.norm(dim=-1), torch.ones(4)) and torch.allclose(
        pictures_BE.norm(dim=-1), torch.ones(4)
    )
    alone = model.read_words(words_BT[1:2, :2], torch.tensor([2]))
    assert torch.allclose(alone, words_BE[1:2], atol=1e-5)
    fit_B = model.fit(words_BT, lengths_B, x_BCHW)
    scores_BB = model(words_BT, lengths_B, x_BCHW)
    assert torch.allclose(scores_BB.diagonal(), fit_B / 0.07, atol=1e-4)


def test_the_loss_is_that_of_finding_the_other_half():
    scores_BB = torch.randn(5, 5)
    rows = [-scores_BB.log_softmax(1)[i, i] for i in range(5)]
    columns = [-scores_BB.log_softmax(0)[i, i] for i in range(5)]
    assert contrast(scores_BB).item() == pytest.approx(sum(rows + columns).item() / 2, abs=1e-4)
    assert contrast(torch.zeros(5, 5)).item() == pytest.approx(5 * math.log(5), abs=1e-4)


def test_equal_captions_need_not_be_told_apart():
    scores_BB = torch.randn(3, 3)
    same_BB = torch.tensor([[1, 0, 1], [0, 1, 0], [1, 0, 1]], dtype=torch.bool)
    expected = sum(
        -scores_BB[i, i] + torch.logsumexp(line[~same_BB[i] | (torch.arange(3) == i)], 0)
        for i in range(3)
        for line in (scores_BB[i], scores_BB[:, i])
    )
    assert contrast(scores_BB, same_BB).item() == pytest.approx(expected.item() / 2, abs=1e-4)
