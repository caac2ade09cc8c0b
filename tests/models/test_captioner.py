"""The captioner: a Vision Transformer that reads, a Transformer decoder that writes; one vector or a grid."""

from itertools import product

import pytest
import torch
from helpers import tiny
from helpers.caption_cases import CONFIG, built

from heedful.data.images.prepare import normal
from heedful.decode.greedy import greedy
from heedful.decode.step import step_of
from heedful.fast.cpu_decoder import packed
from heedful.inside.costs import costs, default_length
from heedful.inside.look.layers import paths_of
from heedful.models import captioner, transformer, vit
from heedful.parts.places import Source
from heedful.parts.positions.absolute import Sinusoidal
from heedful.parts.watch import watch
from heedful.tasks import caption
from heedful.tasks.caption import CaptionData


def images(count=2, seed=1):
    return torch.randn(count, 3, 12, 12, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tokens(rows=2, length=5, seed=2):
    return torch.randint(CONFIG.vocab, (rows, length), generator=torch.Generator().manual_seed(seed))


# The model


@pytest.mark.parametrize("sees", captioner.SEES)
def test_it_is_the_encoder_of_a_vision_transformer_and_the_decoder_of_the_transformer(sees):
    model, x, target = built(sees), images(), tokens()
    eye = tiny.build((vit, CONFIG.reading), seed=8)
    eye.encoder.load_state_dict(model.encoder.state_dict())
    writer = tiny.build((transformer, CONFIG.writing), seed=9)
    weights = model.decoder.state_dict()
    last = weights.pop("head.linear.weight")  # scores have a matrix of their own
    writer.decoder.load_state_dict(weights)
    hidden = eye.encoder(x)
    places = captioner.rows_and_columns(3, 12)
    memory = {
        "grid": hidden[:, 1:] + places,
        "class": hidden[:, :1],
        "mean": hidden[:, 1:].mean(1, keepdim=True),
    }[sees]
    torch.testing.assert_close(model.encoder(x), memory)
    hidden = writer.decoder.hidden(target, source=Source(memory))
    torch.testing.assert_close(model(x, target), hidden @ last.T)
    assert memory.shape[1] == (9 if sees == "grid" else 1)


@pytest.mark.parametrize("sees", ["class", "mean"])
def test_attention_to_one_vector_has_nothing_to_choose_from(sees):
    """Its weight is 1 whatever the query: every word is given the same, out(value(vector))."""
    model, x = built(sees), images()
    path = paths_of(model, "cross")[2]
    layer, memory = model.get_submodule(path), model.encoder(x)
    same = layer.out(layer.value(memory))
    seen = []
    hook = layer.register_forward_hook(lambda module, given, found: seen.append(found))
    with watch(model) as trace:
        model.decoder(tokens(), source=Source(memory))
    hook.remove()
    assert torch.equal(trace[path].weights[-1], torch.ones_like(trace[path].weights[-1]))
    torch.testing.assert_close(seen[0], same.expand(-1, 5, -1))


def test_a_word_sees_the_words_before_it_and_the_whole_picture():
    model, x, target = built(), images(1), tokens(1)
    before = model(x, target)
    later = target.clone()
    later[0, 3] = (target[0, 3] + 1) % CONFIG.vocab
    after = model(x, later)
    assert torch.equal(before[:, :3], after[:, :3]) and not torch.allclose(before[:, 3], after[:, 3])
    x[0, 1, -1, -1] += 1
    assert (model(x, target) - before).abs().amax(-1).min() > 1e-9


def test_captions_of_unequal_length_together_are_each_alone():
    model, data, pixels = (
        built(),
        CaptionData(image_size=12),
        torch.randint(256, (3, 12, 12, 3), dtype=torch.uint8),
    )
    rows = [[5, 6, 7, 8], [9], [10, 11]]
    model, whole = model.float(), caption.batch_of(pixels, rows, CONFIG)
    together = caption.caption_loss(model, whole, data)
    alone = [
        caption.caption_loss(model, caption.batch_of(pixels[i : i + 1], rows[i : i + 1], CONFIG), data)
        for i in range(3)
    ]
    assert together.count == sum(one.count for one in alone) == 10
    torch.testing.assert_close(together.nll, sum(one.nll for one in alone))
    filled = caption.batch_of(pixels, [[*row, *[3] * (4 - len(row))] for row in rows], CONFIG)
    scores = [model(normal(pixels, data), batch.target_BT) for batch in (whole, filled)]
    torch.testing.assert_close(scores[0][1, :2], scores[1][1, :2])


@pytest.mark.parametrize("sees", captioner.SEES)
def test_cached_equals_uncached(sees):
    model, x = built(sees).requires_grad_(False), images(3)
    start = torch.full((3, 1), 1)
    found = greedy(step_of(model, x), start, longest=6, eos=2)
    for row, hypothesis in enumerate(found):
        written = [1]
        for token, log_p in zip(hypothesis.tokens, hypothesis.log_probabilities, strict=True):
            scores = model(x[row : row + 1], torch.tensor([written]))[0, -1].log_softmax(-1)
            assert int(scores.argmax()) == token and float(scores.max()) == pytest.approx(log_p, abs=1e-9)
            written.append(token)
    quick = packed(model.float())
    torch.testing.assert_close(quick.encoder(x.float()), model.encoder(x.float()), atol=1e-5, rtol=1e-5)


def test_places_of_a_grid_are_sinusoids_of_row_and_column():
    table = captioner.rows_and_columns(3, 14)
    rows, columns = (Sinusoidal(size, base=100.0).encode(torch.arange(3)) for size in (6, 8))
    for row, column in product(range(3), range(3)):
        assert torch.equal(table[3 * row + column], torch.cat([rows[row], columns[column]]))


def test_patches_that_do_not_fit_and_words_that_are_none_are_refused():
    with pytest.raises(ValueError, match="13 pixels cannot be cut into patches of 4"):
        captioner.CaptionerConfig(image_size=13, patch_size=4)
    with pytest.raises(ValueError, match="source must be one of grid, class, mean, not 'all'"):
        captioner.CaptionerConfig(source="all")


@pytest.mark.parametrize("sees", captioner.SEES)
def test_costs_are_of_what_is_there(sees):
    model = built(sees)
    found = costs(model, batch=2, length=5)
    assert found.parameters == sum(weight.numel() for weight in model.parameters())
    assert found.source_length == 10 and default_length(model, CONFIG) == 64
    assert found.memory["cache"] == 4 * 2 * 3 * 2 * 12 * (5 + (9 if sees == "grid" else 1))
    with pytest.raises(ValueError, match="12 x 12 pixels are always 10 tokens .* never 7"):
        costs(model, source_length=7)
