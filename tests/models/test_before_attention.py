"""What must hold for every model from before the Transformer: definitions.md section 20, and decoding."""

from dataclasses import replace

import pytest
import torch
from helpers import before_cases
from helpers.before_cases import ATTENDING, DECODERS, ENCODER_DECODERS, EVERY, VOCAB, Before, build
from helpers.invariant_cases import B, S, T, close, future_leaks, tokens
from torch.utils.flop_counter import FlopCounterMode

from heedful.decode.beam import beam_search
from heedful.decode.beam_settings import BeamSettings
from heedful.decode.greedy import greedy
from heedful.decode.sampling import Sampler
from heedful.decode.speculative import FilteredDistribution, all_on_the_argmax, speculate
from heedful.decode.step import step_of
from heedful.decode.streaming import hypotheses, stream
from heedful.errors import BadInput
from heedful.inside.costs import costs
from heedful.parts.before import state_cache
from heedful.parts.places import At, Lengths, Packed
from heedful.parts.view import left_padded, right_padded
from heedful.parts.watch import watch

EOS = 2
every = pytest.mark.parametrize("name", EVERY)
decoders = pytest.mark.parametrize("name", DECODERS)
encoder_decoders = pytest.mark.parametrize("name", ENCODER_DECODERS)
attending = pytest.mark.parametrize("name", ATTENDING)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(5)


# Invariants.


@every
def test_the_future_does_not_leak(name):
    model, source = build(name), tokens(1, S)
    decoder = getattr(model, "decoder", model)
    leaks = future_leaks(
        decoder, (lambda ids: model(source, ids)) if decoder is not model else model, tokens(1, T)
    )
    sight = 1 + 2 + 2 + 1 + 0 if name == "convs2s" else T  # of its four windows together
    assert torch.equal(leaks, torch.ones(T, T).tril().triu(1 - sight).bool())


@decoders
@pytest.mark.parametrize("side", ["left", "right", "right by lengths"])
def test_padding_changes_nothing_in_a_decoder(name, side):
    model, lengths = build(name), torch.tensor([7, 2, 5])
    rows = [tokens(1, int(n)) for n in lengths]
    positions = (left_padded if side == "left" else right_padded)(lengths, T)
    batch = tokens(B, T)
    for row, ids, places in zip(batch, rows, positions, strict=True):
        row[places >= 0] = ids[0]
    found = model(batch, Lengths(lengths)) if side == "right by lengths" else model(batch, At(positions))
    for b, ids in enumerate(rows):
        close(found[b][positions[b] >= 0], model(ids)[0])


@encoder_decoders
def test_padding_changes_nothing_in_source_and_target(name):
    model = build(name)
    source_lengths, target_lengths = torch.tensor([9, 1, 4]), torch.tensor([3, 7, 1])
    source, target = tokens(B, S), tokens(B, T)
    found = model(source, target, Lengths(source_lengths), Lengths(target_lengths))
    for b, (s, t) in enumerate(zip(source_lengths, target_lengths, strict=True)):
        close(found[b, :t], model(source[b : b + 1, :s], target[b : b + 1, :t])[0])


@encoder_decoders
def test_a_left_padded_source_changes_nothing(name):
    model = build(name)
    lengths, source, target = torch.tensor([9, 2, 5]), tokens(B, S), tokens(B, T)
    found = model(source, target, At(left_padded(lengths, S)))
    for b, n in enumerate(lengths):
        close(found[b], model(source[b : b + 1, S - n :], target[b : b + 1])[0])


@encoder_decoders
def test_an_empty_source_is_harmless(name):
    model = build(name)
    scores = model(tokens(2, S), tokens(2, T), Lengths(torch.tensor([0, 4])))
    assert scores.isfinite().all()
    scores.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@every
def test_a_batch_equals_its_rows_one_by_one(name):
    model, source, ids = build(name), tokens(B, S), tokens(B, T)
    if name in DECODERS:
        close(model(ids), torch.cat([model(row[None]) for row in ids]))
    else:
        rows = [model(s[None], t[None]) for s, t in zip(source, ids, strict=True)]
        close(model(source, ids), torch.cat(rows))


@decoders
def test_packed_documents_equal_separate_ones(name):
    model, ids = build(name), tokens(2, T)
    documents = torch.tensor([[3, 3, 3, 1, 1, 3, 3], [3, 3, 3, 3, 3, 3, -1]])
    found = model(ids, Packed(documents))
    for here in (slice(0, 3), slice(3, 5), slice(5, 7)):
        close(found[:1, here], model(ids[:1, here]))
    close(found[1:, :6], model(ids[1:, :6]))


@every
def test_every_weight_learns(name):
    model = build(name)
    ids = tokens(B, T)
    scores = model(ids) if name in DECODERS else model(tokens(B, S), ids, Lengths(torch.tensor([9, 2, 5])))
    scores.square().sum().backward()
    idle = [path for path, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert not [path for path in idle if path != "encoder.inputs.position.table"]


# Decoding.


@every
def test_cached_equals_uncached_in_unequal_rows(name):
    case = Before(name)
    step, forgetful = case.step(), case.forgetful()
    for lengths in (case.lengths, torch.tensor([1, 0, 3]), None):
        fed = case.prompts if lengths is not None else case.prompts[:, :1]
        found, expected = step(fed, lengths), forgetful(fed, lengths)
        for b in range(3):
            n = fed.shape[1] if lengths is None else int(lengths[b])
            close(found[b, :n], expected[b, :n])


@every
def test_rows_are_reordered_copied_and_dropped(name):
    case = Before(name)
    step, forgetful = case.step(), case.forgetful()
    for each in (step, forgetful):
        each(case.prompts, case.lengths)
    for rows in ([2, 0, 1], [1, 1, 0, 2], [3, 0]):
        for each in (step, forgetful):
            each.reorder(torch.tensor(rows))
        ids = tokens(len(rows), 2, vocab=VOCAB)
        close(step(ids), forgetful(ids))


@every
def test_what_was_fed_can_be_forgotten(name):
    case = Before(name)
    step, forgetful = case.step(), case.forgetful()

    def both(do):
        return do(step), do(forgetful)

    both(lambda each: each(case.prompts, case.lengths))  # 2, 4, 1
    for lengths in ([1, 4, 1], [3, 2, 2]):
        ids = tokens(3, 3, vocab=VOCAB)
        both(lambda each: each(ids, torch.tensor([3, 1, 2])))  # noqa: B023
        both(lambda each: each(ids[:, :1]))  # noqa: B023
        both(lambda each: each.reorder(torch.tensor([0, 2, 1])))
        both(lambda each: each.rewind(torch.tensor(lengths)))  # noqa: B023
        close(*both(lambda each: each(ids[:, :2])))  # noqa: B023
    both(lambda each: each.rewind(torch.tensor([0, 1, 0])))
    close(*both(lambda each: each(ids)))


def test_what_was_fed_long_ago_cannot(monkeypatch):
    monkeypatch.setattr(state_cache, "KEPT", 3)
    step = step_of(build("gru"))
    for _ in range(9):
        step(tokens(2, 1))
    step.rewind(torch.tensor([7, 8]))
    with pytest.raises(BadInput, match="keeps a state, not its text"):
        step.rewind(torch.tensor([1, 5]))


@every
def test_a_state_does_not_grow(name):
    case = Before(name)
    step = case.step()
    for _ in range(5):
        step(case.prompts)
    sizes = [layer.tail_BRX.shape[1] for layer in step.cache.layers]
    assert sizes == [layer.reach for layer in step.cache.layers] and max(sizes) <= 2


@every
def test_greedy_writes_what_full_forwards_write(name):
    case = Before(name, sharper=4.0)
    written = greedy(case.step(), case.prompts, case.lengths, longest=6, eos=EOS)
    for b, one in enumerate(written):
        expected = []
        while len(expected) < 6 and EOS not in expected:
            expected.append(int(case.next(b, tuple(expected)).argmax()))
        assert one.tokens == expected


@every
def test_beam_search_is_the_same_with_and_without_a_cache(name):
    case, settings = Before(name, sharper=3.0), BeamSettings(width=3, n_best=2)
    found, expected = (
        beam_search(step, case.prompts, case.lengths, longest=5, eos=EOS, settings=settings)
        for step in (case.step(), case.forgetful())
    )
    assert [[one.tokens for one in row] for row in found] == [[one.tokens for one in row] for row in expected]
    scores = [torch.tensor([[one.score for one in row] for row in rows]) for rows in (found, expected)]
    close(*scores, 1e-9)


@pytest.mark.parametrize("name", ["lstm", "bahdanau", "convs2s"])
def test_sampling_draws_the_same_from_a_cache(name):
    case = Before(name)
    rows = [
        hypotheses(
            stream(
                each, case.prompts, case.lengths, choose=Sampler([3, 4, 5], torch.device("cpu")), longest=6
            ),
            3,
        )
        for each in (case.step(), case.forgetful())
    ]
    assert [one.tokens for one in rows[0]] == [one.tokens for one in rows[1]]


@decoders
def test_speculation_changes_nothing(name):
    case, draft = Before(name, sharper=4.0), Before("gru", seed=4)
    plain = greedy(case.step(), case.prompts, case.lengths, longest=9)
    distribution = FilteredDistribution(all_on_the_argmax)
    rounds = speculate(
        case.step(), draft.step(), case.prompts, case.lengths, distribution=distribution, longest=9, ahead=3
    )
    assert [one.tokens for one in hypotheses(rounds, 3)] == [one.tokens for one in plain]


# Watching.


@attending
def test_watching_shows_every_word_at_once_and_changes_nothing(name):
    model, source, target = build(name), tokens(B, S), tokens(B, T)
    lengths = torch.tensor([9, 2, 5])
    plain = model(source, target, Lengths(lengths))
    with watch(model) as trace:
        close(model(source, target, Lengths(lengths)), plain, 0)
    assert all(".cross." in path for path in trace)
    for weights in trace.weights().values():
        assert weights.shape == (B, 1, T, S)
        close(weights.sum(-1), torch.ones(B, 1, T, dtype=torch.float64))
        assert not weights[1, :, :, 2:].any()


@attending
def test_coverage_sees_what_each_word_looked_at(name):
    case = Before(name)
    step = case.step(watched=True)
    step(case.prompts[:, :1])
    with watch(case.model) as trace:
        case.model(case.source, case.prompts[:, :1], Lengths(case.source_lengths))
    *_, weights = trace.weights().values()
    real = torch.arange(6) < case.source_lengths[:, None]
    close(step.attention, weights[:, :, 0].masked_fill(~real[:, None], -1))
    settings = BeamSettings(width=2, coverage_penalty=0.3)
    assert beam_search(case.step(watched=True), case.prompts[:, :1], longest=4, eos=EOS, settings=settings)


@attending
def test_a_decoder_that_reads_a_source_needs_one(name):
    with pytest.raises(ValueError, match="none was given"):
        build(name).decoder(tokens(1, T))


def test_without_attention_there_is_nothing_to_watch():
    for name in set(EVERY) - set(ATTENDING):
        with pytest.raises(ValueError, match="no attention to watch"), watch(build(name)):
            pass
    with pytest.raises(BadInput, match="no cross-attention"):
        Before("seq2seq").step(watched=True)


@every
def test_the_first_loss_is_near_ln_v(name):
    file, config = EVERY[name]
    torch.manual_seed(3)
    sizes = {"vocab": 1000, "target_vocab": 1000} if name in ENCODER_DECODERS else {"vocab": 1000}
    model = file.build(replace(config, **sizes)).eval()
    ids = torch.randint(1000, (8, T))
    with torch.no_grad():
        scores = model(ids) if name in DECODERS else model(torch.randint(1000, (8, S)), ids)
    loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), torch.randint(1000, (8 * T,)))
    assert abs(float(loss) - 6.9078) < (0.7 if name == "convs2s" else 0.1)


def test_every_architecture_has_a_case():
    files = {file.__name__.rpartition(".")[2] for file, _ in before_cases.EVERY.values()}
    assert files == {"rnn", "gru", "lstm", "seq2seq", "bahdanau", "luong", "convs2s"}


# Costs.


@every
def test_costs_are_what_torch_counts(name):
    model, source, ids = build(name), tokens(B, S), tokens(B, T)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(ids) if name in DECODERS else model(source, ids)
    found = costs(model, B, T, None if name in DECODERS else S)
    assert found.whole.flops == counter.get_total_flops()
    assert found.parameters == sum(weight.numel() for weight in model.parameters())


@every
def test_what_is_remembered_is_what_costs_say(name):
    case = Before(name)
    step = case.step()
    step(case.prompts)
    kept = sum(layer.tail_BRX.numel() for layer in step.cache.layers)
    kept += sum(x.numel() for layer in step.cache.layers for x in layer.source_kv or ())
    source = None if name in DECODERS else 6
    assert costs(case.model, 3, 4, source).memory["cache"] == 4 * kept
