"""What must hold for every architecture: definitions.md section 20, on tiny fp64 models."""

import pytest
import torch
from helpers import tiny
from helpers.invariant_cases import B, S, T, close, future_leaks, tokens

from heedful.models.base.shells import Decoder, EncoderDecoder
from heedful.parts.places import At, Lengths, Packed, Source
from heedful.parts.view import left_padded, right_padded


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(5)


decoders = pytest.mark.parametrize("name", tiny.DECODERS)
encoder_decoders = pytest.mark.parametrize("name", tiny.ENCODER_DECODERS)


@decoders
def test_the_future_does_not_leak_into_a_decoder(name):
    model = tiny.build(tiny.DECODERS[name])
    leaks = future_leaks(model, model, tokens(1, T))
    assert torch.equal(leaks, torch.ones(T, T).tril().bool())


@encoder_decoders
def test_the_future_does_not_leak_into_the_target(name):
    model = tiny.build(tiny.ENCODER_DECODERS[name])
    source = tokens(1, S)
    leaks = future_leaks(model.decoder, lambda ids: model(source, ids), tokens(1, T))
    assert torch.equal(leaks, torch.ones(T, T).tril().bool())


def test_banded_layers_see_no_farther_than_their_band():
    model = tiny.build(tiny.DECODERS["gpt3"])
    banded = model.masks[1].dense(torch.arange(9), torch.arange(9))[0, 0]
    assert banded.sum(-1).tolist() == [1, 2, 3, 4, 4, 4, 4, 4, 4]
    model.masks = model.masks[1:]  # all four layers banded: sight is 1 + layers * (band - 1)
    seen = future_leaks(model, model, tokens(1, 17))
    distance = torch.arange(17)[:, None] - torch.arange(17)
    assert torch.equal(seen, (distance >= 0) & (distance <= 4 * 3))


@decoders
@pytest.mark.parametrize("side", ["left", "right", "right by lengths"])
def test_padding_changes_nothing_in_a_decoder(name, side):
    model = tiny.build(tiny.DECODERS[name])
    lengths = torch.tensor([7, 2, 5])
    rows = [tokens(1, int(n)) for n in lengths]
    positions = (left_padded if side == "left" else right_padded)(lengths, T)
    batch = tokens(B, T)  # what stands in the padding is arbitrary
    for row, ids, places in zip(batch, rows, positions, strict=True):
        row[places >= 0] = ids[0]
    found = model(batch, Lengths(lengths)) if side == "right by lengths" else model(batch, At(positions))
    for b, ids in enumerate(rows):
        close(found[b][positions[b] >= 0], model(ids)[0])


@encoder_decoders
def test_padding_changes_nothing_in_an_encoder_decoder(name):
    model = tiny.build(tiny.ENCODER_DECODERS[name])
    source_lengths, target_lengths = torch.tensor([9, 1, 4]), torch.tensor([3, 7, 1])
    source, target = tokens(B, S), tokens(B, T)
    found = model(source, target, Lengths(source_lengths), Lengths(target_lengths))
    for b, (s, t) in enumerate(zip(source_lengths, target_lengths, strict=True)):
        close(found[b, :t], model(source[b : b + 1, :s], target[b : b + 1, :t])[0])


def segments_of(name, shape):
    """Numbers of segments that an encoder knows; zeros where it knows one or none."""
    return torch.randint(getattr(tiny.ENCODERS[name][1], "segments", None) or 1, shape)


@pytest.mark.parametrize("name", tiny.ENCODERS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing_in_an_encoder(name, side):
    model = tiny.build(tiny.ENCODERS[name]).encoder
    lengths = torch.tensor([7, 2, 5])
    positions = (left_padded if side == "left" else right_padded)(lengths, T)
    batch, segments = tokens(B, T), segments_of(name, (B, T))
    found = model(batch, At(positions), segments)
    for b in range(B):
        real = positions[b] >= 0
        close(found[b, real], model(batch[b : b + 1, real], segments_BT=segments[b : b + 1, real])[0])
    if side == "right":
        close(model(batch, Lengths(lengths), segments)[positions >= 0], found[positions >= 0])


def test_an_empty_source_is_harmless():
    for entry in tiny.ENCODER_DECODERS.values():
        model = tiny.build(entry)
        scores = model(tokens(2, S), tokens(2, T), Lengths(torch.tensor([0, 4])))
        assert scores.isfinite().all()
        scores.sum().backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@decoders
def test_a_batch_equals_its_rows_one_by_one(name):
    model = tiny.build(tiny.DECODERS[name])
    ids = tokens(B, T)
    close(model(ids), torch.cat([model(row[None]) for row in ids]))


@pytest.mark.parametrize("name", tiny.ENCODER_DECODERS)
def test_a_left_padded_source_changes_nothing(name):
    model = tiny.build(tiny.ENCODER_DECODERS[name])
    lengths, source, target = torch.tensor([9, 2, 5]), tokens(B, S), tokens(B, T)
    found = model(source, target, At(left_padded(lengths, S)))
    for b, n in enumerate(lengths):
        close(found[b], model(source[b : b + 1, S - n :], target[b : b + 1])[0])


@pytest.mark.parametrize("name", [name for name in tiny.ENCODERS if name != "deberta"])
def test_packed_sentences_equal_separate_ones_in_an_encoder(name):
    model = tiny.build(tiny.ENCODERS[name]).encoder
    documents = torch.tensor([[3, 3, 3, 1, 1, 3, 3]])  # the number 3 again: another document
    ids = tokens(1, T)
    found = model(ids, Packed(documents))
    for here in (slice(0, 3), slice(3, 5), slice(5, 7)):
        close(found[:, here], model(ids[:, here]))


def test_packed_rows_may_be_longer_than_the_table_their_documents_fit():
    model = tiny.build(tiny.DECODERS["gpt2"])
    documents = torch.arange(40)[None] // 20
    assert model(tokens(1, 40), Packed(documents)).shape == (1, 40, tiny.VOCAB)


@decoders
def test_packed_documents_equal_separate_ones(name):
    model = tiny.build(tiny.DECODERS[name])
    documents = torch.tensor([[0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 2], [4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 7]])
    ids = tokens(2, 11)
    packed = model(ids, Packed(documents))
    for b in range(2):
        for document in documents[b].unique():
            here = documents[b] == document
            close(packed[b, here], model(ids[b : b + 1, here])[0])


# Caches: decoding with one equals computing everything anew.


def with_cache(decode, cache, ids, pieces):
    """Scores of all tokens, fed a few at a time."""
    return torch.cat([decode(piece, cache) for piece in ids.split(pieces, dim=1)], dim=1)


def caches(decoder: Decoder, batch: int = B, capacity: int = 20):
    return {"growing": decoder.growing_cache(), "static": decoder.static_cache(batch, capacity)}


@decoders
@pytest.mark.parametrize("kind", ["growing", "static"])
@pytest.mark.parametrize("pieces", [[1] * T, [3, 1, 1, 2], [T]])
def test_cached_equals_uncached_in_a_decoder(name, kind, pieces):
    model = tiny.build(tiny.DECODERS[name])
    ids = tokens(B, T)
    found = with_cache(lambda piece, cache: model(piece, cache=cache), caches(model)[kind], ids, pieces)
    close(found, model(ids))


@encoder_decoders
@pytest.mark.parametrize("kind", ["growing", "static"])
def test_cached_equals_uncached_in_an_encoder_decoder(name, kind):
    model: EncoderDecoder = tiny.build(tiny.ENCODER_DECODERS[name])
    source, target, lengths = tokens(B, S), tokens(B, T), torch.tensor([9, 2, 5])
    said = model.read(source, Lengths(lengths))
    found = with_cache(
        lambda piece, cache: model.decode(said, piece, cache=cache),
        caches(model.decoder)[kind],
        target,
        [2, 1, 1, 3],
    )
    close(found, model(source, target, Lengths(lengths)))


@decoders
@pytest.mark.parametrize("kind", ["growing", "static"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_unequal_prompts_continue_as_if_alone(name, kind, side):
    model = tiny.build(tiny.DECODERS[name])
    lengths = torch.tensor([4, 1, 3])
    cache = caches(model)[kind]
    prompts, more = tokens(B, 4), tokens(B, 3)
    positions = (left_padded if side == "left" else right_padded)(lengths, 4)
    if side == "left":
        first = model(prompts, At(positions), cache=cache)
    else:
        first = model(prompts, Lengths(lengths), cache=cache)
    then = with_cache(lambda piece, cache: model(piece, cache=cache), cache, more, [1, 2])
    for b in range(B):
        real = positions[b] >= 0
        alone = model(torch.cat([prompts[b, real], more[b]])[None])[0]
        close(torch.cat([first[b, real], then[b]]), alone)


@decoders
@pytest.mark.parametrize("kind", ["growing", "static"])
def test_reordered_and_rewound_caches_continue_from_there(name, kind):
    model = tiny.build(tiny.DECODERS[name])
    ids, more = tokens(B, 5), tokens(B, 2)
    cache = caches(model)[kind]
    model(ids, cache=cache)
    rows = torch.tensor([2, 0, 0])
    cache.reorder(rows)
    keep = torch.tensor([5, 2, 4])
    cache.rewind(keep)
    found = model(more, cache=cache)
    for b in range(B):
        whole = torch.cat([ids[rows[b], : keep[b]], more[b]])
        close(found[b], model(whole[None])[0, keep[b] :])


def test_a_growing_cache_can_change_its_number_of_rows():
    model = tiny.build(tiny.ENCODER_DECODERS["transformer"])
    source, target, lengths = tokens(2, S), tokens(2, 3), torch.tensor([9, 4])
    said, cache = model.read(source, Lengths(lengths)), model.decoder.growing_cache()
    model.decode(said, target, cache=cache)
    rows = torch.tensor([0, 0, 0, 1, 1, 1])
    cache.reorder(rows)
    step = tokens(6, 1)
    places = Lengths(lengths[rows])
    found = model.decode(Source(said.vectors_BSD[rows], places), step, cache=cache)
    close(found, model(source[rows], torch.cat([target[rows], step], 1), places)[:, -1:])


def test_a_full_static_cache_says_so():
    model = tiny.build(tiny.DECODERS["llama"])
    cache = model.static_cache(1, 4)
    model(tokens(1, 4), cache=cache)
    with pytest.raises(ValueError, match="position 4 .* cache of 4"):
        model(tokens(1, 1), cache=cache)


@pytest.mark.parametrize("kind", ["growing", "static"])
@decoders
def test_a_failed_call_leaves_the_cache_as_it_was(name, kind):
    model = tiny.build(tiny.DECODERS[name])
    ids, cache = tokens(B, T), caches(model)[kind]
    model(ids[:, :4], cache=cache)
    with pytest.raises(IndexError):
        model(torch.full((B, 1), 99), cache=cache)
    last = model.stack.blocks[-1].feed_forward
    hook = last.register_forward_hook(lambda *_: (_ for _ in ()).throw(RuntimeError("out of memory")))
    with pytest.raises(RuntimeError, match="out of memory"):
        model(ids[:, 4:], cache=cache)
    hook.remove()
    close(model(ids[:, 4:], cache=cache), model(ids)[:, 4:])


def test_rows_that_do_not_match_are_refused_with_both_numbers():
    model, ids = tiny.build(tiny.DECODERS["gpt2"]), tokens(B, T)
    pair = tiny.build(tiny.ENCODER_DECODERS["t5"])
    grown = model.growing_cache()
    model(ids, cache=grown)
    static = model.static_cache(4, 9)
    for attempt in (
        lambda: model(ids, Lengths(torch.tensor([3, 1]))),
        lambda: model(ids[:2], cache=grown),
        lambda: model(ids, cache=static),
        lambda: static.reorder(torch.tensor([0, 1])),
        lambda: pair(ids, ids[:2]),
        lambda: pair.encoder(ids, Lengths(torch.tensor([3]))),
    ):
        with pytest.raises(ValueError, match="has [234] rows, but [123] were given"):
            attempt()


def test_a_block_and_its_source_go_together():
    with pytest.raises(ValueError, match="reads a source, but none"):
        tiny.build(tiny.ENCODER_DECODERS["t5"]).decoder(tokens(1, 3))
    with pytest.raises(ValueError, match="reads no source, but one"):
        tiny.build(tiny.DECODERS["gpt2"])(
            tokens(1, 3), source=Source(torch.zeros(1, 4, 12, dtype=torch.float64))
        )


def test_a_row_of_several_documents_is_not_decoded_with_a_cache():
    model, ids = tiny.build(tiny.DECODERS["gpt2"]), tokens(1, 3)
    with pytest.raises(ValueError, match="its own row"):
        model(ids, Packed(torch.zeros(1, 3, dtype=torch.long)), cache=model.growing_cache())


def test_fresh_and_emptied_caches_behave():
    model, ids = tiny.build(tiny.DECODERS["llama"]), tokens(B, T)
    cache = model.growing_cache()
    cache.rewind(torch.zeros(B, dtype=torch.long))
    cache.reorder(torch.arange(B))
    model(ids, At(torch.arange(T)), cache=cache)
    cache.reorder(torch.tensor([1, 1, 0, 2]))
    for _ in range(3):  # what is rewound is freed
        cache.rewind(torch.tensor([2, 3, 1, 2]))
        assert cache.size == 3
        model(ids[[1, 1, 0, 2], 3:6], cache=cache)
    cache.rewind(torch.zeros(4, dtype=torch.long))
    assert cache.size == 0
    close(model(ids[[1, 1, 0, 2]], cache=cache), model(ids)[[1, 1, 0, 2]])


def test_a_static_cache_works_under_autocast():
    model = tiny.build(tiny.DECODERS["llama"], torch.float32)
    ids = tokens(B, T)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        cache = model.static_cache(B, 9)
        assert cache.layers[0].k.dtype == torch.bfloat16
        found = with_cache(lambda piece, cache: model(piece, cache=cache), cache, ids, [3, 1, 3])
        assert (found - model(ids)).abs().max() < 0.1


def test_too_long_for_a_learned_table_is_refused_with_both_numbers():
    model = tiny.build(tiny.DECODERS["gpt2"])
    encoder = tiny.build(tiny.ENCODERS["bert"]).encoder
    for attempt in (
        lambda: encoder(tokens(1, 32)),
        lambda: model(tokens(1, 32)),
        lambda: model.static_cache(1, 32),
        lambda: with_cache(
            lambda piece, cache: model(piece, cache=cache), model.growing_cache(), tokens(1, 32), [31, 1]
        ),
        lambda: model(tokens(1, 3), At(torch.tensor([[0, 1, 31]]))),
    ):
        with pytest.raises(ValueError, match="32 tokens .* table of 31"):
            attempt()


# Training


def test_first_loss_is_near_ln_v():
    vocab, limits = 1000, {}
    for name, (file, config) in {**tiny.DECODERS, **tiny.ENCODER_DECODERS}.items():
        sizes = {"vocab": vocab, "width": 48} | (
            {"target_vocab": vocab} if hasattr(config, "target_vocab") else {}
        )
        heads = {"heads": 4} | ({"decoder_heads": 4} if hasattr(config, "decoder_heads") else {})
        heads |= {"kv_heads": 2} if hasattr(config, "kv_heads") else {}
        model = file.build(type(config)(**{**vars(config), **sizes, **heads}))
        ids, targets = tokens(32, 30, vocab=vocab), tokens(32, 30, vocab=vocab)
        scores = model(ids) if isinstance(model, Decoder) else model(tokens(32, 9, vocab=vocab), ids)
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten())
        limits[name] = abs(loss.item() - torch.tensor(float(vocab)).log().item())
    assert all(limits[name] < 0.1 for name in tiny.DECODERS), limits
    assert {n: x for n, x in limits.items() if x >= 0.7} == {}


@pytest.mark.parametrize("name", [*tiny.DECODERS, *tiny.ENCODER_DECODERS])
def test_one_batch_can_be_overfitted(name):
    file, config = {**tiny.DECODERS, **tiny.ENCODER_DECODERS}[name]
    torch.manual_seed(0)
    model = file.build(config).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    source, ids = tokens(4, 6), tokens(4, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(150):
        scores = model(ids[:, :-1]) if isinstance(model, Decoder) else model(source, ids[:, :-1])
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1


@pytest.mark.parametrize("name", [*tiny.DECODERS, *tiny.ENCODER_DECODERS, *tiny.ENCODERS])
def test_every_weight_gets_a_gradient(name):
    """A weight that nothing reads is a part that is not connected."""
    entry = {**tiny.DECODERS, **tiny.ENCODER_DECODERS, **tiny.ENCODERS}[name]
    model = tiny.build(entry).train("mixture" in name)  # gates have noise in training only
    if name in tiny.ENCODERS:
        heads = model(tokens(2, T), segments_BT=segments_of(name, (2, T))).values()
        out = sum(head.square().sum() for head in heads)
    elif isinstance(model, Decoder):
        out = model(tokens(2, T)).square().sum()
    else:
        out = model(tokens(2, S), tokens(2, T)).square().sum()
    out.backward()
    idle = [n for n, p in model.named_parameters() if p.grad is None or (p.grad == 0).all()]
    # A key's bias adds the same to every score of a row, which the softmax takes away again.
    assert [n for n in idle if not n.endswith("key.bias")] == []
