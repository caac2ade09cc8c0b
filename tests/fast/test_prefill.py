"""What prefill reads into a runner is what the step reads by itself: the same scores, and the same text after
them.

Without a GPU the kernels run in Triton's interpreter, number by number: sizes are very small.
"""

import pytest
import torch
from helpers.kernel_cases import (
    DEVICE,
    MODELS,
    Eager,
    fast,
    plain,
    shaken,
    tiny_gpt2,
    tiny_llama,
    tiny_transformer,
)

from heedful import watch
from heedful.decode.beam import beam_search
from heedful.decode.beam_settings import BeamSettings
from heedful.decode.greedy import greedy
from heedful.decode.prompts import pad
from heedful.decode.sampling import sample
from heedful.decode.speculative import speculative_greedy
from heedful.decode.step import step_of
from heedful.fast import cuda_graph as graph
from heedful.fast import prefill as reading
from heedful.fast.cuda_graph import RunnerPool
from heedful.fast.decoding import FastModel
from heedful.fast.gpu_decoder import GPUDecoder
from heedful.fast.prefill import Prefill, can_prefill, padded_length
from heedful.parts.layers import FeedForward
from heedful.parts.masks import causal
from heedful.parts.positions.absolute import Learned
from heedful.parts.positions.relative import ALiBi

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in exp")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(3)


def texts(*lengths, vocab=23):
    return [torch.randint(vocab, (n,)).tolist() for n in lengths]


def step_on(runners, source=None, room=8, kind=Eager):
    return kind(runners, room, *(() if source is None else pad(source, DEVICE)))


def runners_for(model):
    if hasattr(model, "decoder"):
        return RunnerPool(GPUDecoder(model.decoder), model.encoder)
    return RunnerPool(GPUDecoder(model))


def close(one, other):
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def check_same(step, other, prompts, lengths=None, more=2):
    """The same scores after the prompts, and after some tokens more."""
    tokens = torch.randint(23, (len(prompts), more), device=DEVICE)
    with torch.no_grad():
        close(step.last(prompts, lengths), other.last(prompts, lengths))
        assert step.runner is not None and "inner" not in step.__dict__, "not read by prefill"
        for n in range(more):
            close(step.last(tokens[:, n : n + 1]), other.last(tokens[:, n : n + 1]))


# The same scores


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_prompts_and_sources_of_unequal_length(name, rows):
    model = shaken(MODELS[name]())
    source = None if name in ("gpt2", "llama") else texts(*[7, 3, 9, 1, 4][:rows])
    prompts, lengths = pad(texts(*[4, 6, 1, 5, 2][:rows]), DEVICE)
    check_same(fast(model, source), plain(model, source), prompts, lengths)


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 63, 64, 65, 128, 129])
def test_prompts_around_the_lengths_that_they_are_padded_to(length):
    model, prompts = shaken(tiny_llama()), torch.randint(23, (2, length), device=DEVICE)
    check_same(fast(model, room=1), plain(model), prompts, more=1)


@pytest.mark.parametrize("length", [63, 64, 65])
def test_sources_around_the_lengths_that_they_are_padded_to(length):
    model, source = shaken(tiny_transformer("pre", "sinusoidal+rotary")), texts(length, 2)
    check_same(fast(model, source), plain(model, source), torch.ones(2, 1, dtype=torch.long, device=DEVICE))


def test_lengths_come_in_few_sizes():
    lengths, padded = (1, 2, 16, 17, 48, 64, 65, 128, 129), [1, 16, 16, 32, 48, 64, 128, 128, 192]
    assert [padded_length(n) for n in lengths] == padded


def test_a_source_without_lengths_is_all_there():
    model, source_BS = shaken(tiny_transformer()), torch.randint(23, (3, 5), device=DEVICE)
    step = Eager(runners_for(model), 8, source_BS)
    check_same(step, step_of(model, source_BS), torch.ones(3, 2, dtype=torch.long, device=DEVICE))


@pytest.mark.filterwarnings(
    "ignore:invalid value encountered"
)  # 0 / 0 of an empty source, which is not taken
def test_a_row_may_wait_and_a_source_may_be_empty():
    model, source = shaken(tiny_transformer()), pad([[3, 4, 5], []], DEVICE)
    step, other = Eager(runners_for(model), 8, *source), step_of(model, *source)
    prompts, lengths = torch.tensor([[1, 2], [3, 4]], device=DEVICE), torch.tensor([2, 0], device=DEVICE)
    with torch.no_grad():
        close(step.last(prompts, lengths)[:1], other.last(prompts, lengths)[:1])
        close(step.last(prompts[:, :1]), other.last(prompts[:, :1]))


def test_many_tokens_are_read_as_they_are_and_few_are_padded(monkeypatch):
    """Where a graph would gain nothing, nothing is padded."""
    sizes = []
    monkeypatch.setattr(Prefill, "__call__", lambda self, runner, T: sizes.append(T) or runner.score())
    model = shaken(tiny_llama())
    for most in (64, 63):
        monkeypatch.setattr(graph, "MOST", most)
        fast(model).last(torch.ones(4, 3, dtype=torch.long, device=DEVICE))
    assert sizes == [16, 3]


@pytest.mark.parametrize("name", ["llama", "transformer"])
def test_many_tokens_are_read_the_same(name, monkeypatch):
    monkeypatch.setattr(graph, "MOST", 1)
    test_prompts_and_sources_of_unequal_length(name, 3)


# The same text


def beam_of_2(*given, **options):
    return [some[0] for some in beam_search(*given, **options, settings=BeamSettings(2))]


@pytest.mark.parametrize("name", ["llama", "transformer"])
def test_every_search_writes_the_same_on_lanes_that_held_other_texts(name):
    """Longer ones before, and whatever else may lie about: nothing of it is left."""
    model = shaken(MODELS[name]())
    runners = runners_for(model)
    for sizes in ((9, 12, 7), (3, 1, 5)):
        source = None if name == "llama" else texts(*(n + 2 for n in sizes))
        prompts, lengths = pad(texts(*sizes), DEVICE)
        for search in (greedy, sample, beam_of_2):
            found, expected = (
                search(step, prompts, lengths, longest=[4, 1, 3], eos=0)
                for step in (step_on(runners, source, room=20), plain(model, source))
            )
            assert [h.tokens for h in found] == [h.tokens for h in expected]
            assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=1e-4)
        for runner in runners.free:  # NaN spoils whatever touches it
            for buffers in (runner.past, runner.sources):
                if buffers is not None:
                    buffers.fill_(torch.nan)
    assert runners.free


def test_rows_of_a_lane_that_shared_their_past_have_their_own_again():
    model, token = shaken(tiny_llama()), torch.tensor([[1], [2]], device=DEVICE)
    runners = runners_for(model)
    step = step_on(runners)
    step.last(token), step.reorder(torch.tensor([1, 0], device=DEVICE), siblings=True)
    runner = step.runner
    del step
    check_same(other := step_on(runners), plain(model), token)
    assert other.runner is runner


def test_rows_change_places_are_copied_and_cut_short_after_they_were_read():
    model, source = shaken(tiny_transformer()), texts(4, 6)
    step, other = fast(model, source), plain(model, source)
    prompts, lengths = pad(texts(3, 5), DEVICE)
    rows, kept = torch.tensor([1, 0, 1], device=DEVICE), torch.tensor([4, 2, 5], device=DEVICE)
    token = torch.tensor([[3], [4], [5]], device=DEVICE)
    with torch.no_grad():
        close(step.last(prompts, lengths), other.last(prompts, lengths))
        for one in (step, other):
            one.reorder(rows)
            one.rewind(kept)
        close(step.last(token), other.last(token))
        three = token.expand(3, 3)
        close(step(three), other(three))  # without the runner
        close(step.last(token), other.last(token))  # and back on it
        step.leave()
        close(step.last(token), other.last(token))
        step.reorder(rows), other.reorder(rows)
        close(step.last(token), other.last(token))


def test_a_beam_reads_its_sources_once():
    """By the runner; and the step that works without one is never made."""
    model, source = shaken(tiny_transformer()), texts(4, 6)
    step = fast(model, source)
    found = beam_search(
        step, torch.ones(2, 1, dtype=torch.long, device=DEVICE), longest=3, eos=0, settings=BeamSettings(2)
    )
    assert len(found) == 2 and "inner" not in step.__dict__


def test_a_draft_may_guess_for_a_step_on_a_lane():
    model, draft = shaken(tiny_gpt2()), shaken(tiny_gpt2())
    prompts, lengths = pad(texts(3, 5), DEVICE)
    given = {"longest": 6, "eos": 0}
    found = speculative_greedy(fast(model), plain(draft), prompts, lengths, **given)
    assert [h.tokens for h in found] == [h.tokens for h in greedy(plain(model), prompts, lengths, **given)]


# What is not read by prefill


def test_prompts_too_long_for_the_table_are_refused_in_the_same_words():
    model = shaken(tiny_gpt2())  # 20 positions
    full = torch.ones(2, 20, dtype=torch.long, device=DEVICE)
    check_same(fast(model), plain(model), full, torch.tensor([19, 7], device=DEVICE), more=1)
    with pytest.raises(ValueError, match="21 tokens does not fit the learned position table of 20"):
        fast(model).last(torch.ones(2, 21, dtype=torch.long, device=DEVICE))
    wide = torch.ones(2, 25, dtype=torch.long, device=DEVICE)  # of which nothing real is too long
    lengths = torch.tensor([4, 20], device=DEVICE)
    with torch.no_grad():
        close(fast(model).last(wide, lengths), plain(model).last(wide, lengths))


def test_sources_too_long_for_the_table_are_refused_in_the_same_words():
    model = tiny_transformer()
    model.encoder.inputs.position = Learned(6, 12)
    source = texts(6, 4)
    check_same(
        fast(shaken(model), source),
        plain(model, source),
        torch.ones(2, 1, dtype=torch.long, device=DEVICE),
    )
    with pytest.raises(ValueError, match="7 tokens does not fit the learned position table of 6"):
        fast(model, texts(7, 2)).last(torch.ones(2, 1, dtype=torch.long, device=DEVICE))


def test_rows_of_prompts_and_sources_must_match():
    model = shaken(tiny_transformer())
    for step in (fast(model, texts(4, 3)), plain(model, texts(4, 3))):
        with pytest.raises(RuntimeError, match="must match"):
            step.last(torch.ones(3, 2, dtype=torch.long, device=DEVICE))


def test_who_is_watched_reads_openly():
    model, prompts = shaken(tiny_llama()), torch.ones(1, 3, dtype=torch.long, device=DEVICE)
    step = fast(model)
    with torch.no_grad(), watch(model) as trace:
        close(step.last(prompts), plain(model).last(prompts))
    assert step.runner is None and all(len(record.weights) == 2 for record in trace.values())


def test_under_autocast_the_step_reads_as_ever():
    model, prompts = shaken(tiny_llama()), torch.ones(1, 3, dtype=torch.long, device=DEVICE)
    step = fast(model)
    with torch.no_grad(), torch.autocast(DEVICE, torch.bfloat16):
        assert torch.equal(step.last(prompts), plain(model).last(prompts))
    assert step.runner is None


def test_rows_that_change_places_first_are_read_as_ever():
    model, source = shaken(tiny_transformer()), texts(4, 2)
    rows, prompts = torch.tensor([1, 1, 0], device=DEVICE), torch.ones(3, 2, dtype=torch.long, device=DEVICE)
    step, other = fast(model, source), plain(model, source)
    with torch.no_grad():
        step.reorder(rows), other.reorder(rows)
        close(step.last(prompts), other.last(prompts))
        close(step.last(prompts[:, :1]), other.last(prompts[:, :1]))


@pytest.mark.parametrize("what", ["mask", "positions", "segments", "layer"])
def test_a_model_that_might_ask_the_host_reads_as_ever(what):
    model = tiny_transformer()
    assert can_prefill(model.decoder.eval(), model.encoder.eval())
    assert not can_prefill(model.decoder, model.encoder.train())
    if what == "mask":
        model.encoder.masks = (causal(),)
    elif what == "positions":
        model.encoder.stack.blocks[0].attention.layer.position = ALiBi(2)
    elif what == "segments":
        model.encoder.inputs.segments = torch.nn.Embedding(2, 12)
    else:
        block = model.decoder.stack.blocks[0].feed_forward
        block.layer = type("Experts", (FeedForward,), {})(12, 20)
    runners = runners_for(shaken(model))
    assert runners.prefill is None
    source, prompts = texts(4, 2), torch.ones(2, 2, dtype=torch.long, device=DEVICE)
    with torch.no_grad():
        close(step_on(runners, source).last(prompts), plain(model, source).last(prompts))


def test_a_model_is_given_lanes_that_read_its_sources():
    model = shaken(tiny_transformer())
    source = torch.tensor([[3, 4, 5]], device=DEVICE)
    fast = FastModel(model, lambda: runners_for(model))
    step = fast.step(source, room=9)
    assert isinstance(step, graph.GraphStep) and step.fresh
    assert not isinstance(fast.step(source, watched=True), graph.GraphStep)


# Nothing asks the host


LOOKS = ("item", "tolist", "nonzero", "equal", "tensor", "cpu", "numpy", "unique", "masked_select")
LOOKS += ("__bool__", "__int__", "__float__", "__index__")
FACTORIES = ("arange", "zeros", "ones", "full", "empty", "linspace", "eye")


class Listener(torch.overrides.TorchFunctionMode):
    """Hears whatever would make a host wait for its device, or a device for its host."""

    def __init__(self):
        super().__init__()
        self.heard = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        by_truth = name == "__getitem__" and any(
            isinstance(at, torch.Tensor) and at.dtype == torch.bool
            for at in (args[1] if isinstance(args[1], tuple) else (args[1],))
        )
        if name in LOOKS or by_truth or name in FACTORIES and kwargs.get("device") is None:
            self.heard.append(name)
        return func(*args, **kwargs)


@pytest.mark.parametrize("name", MODELS)
def test_nothing_asks_the_host_while_it_reads(name, monkeypatch):
    """Else no graph could be captured. (That a CPU may look where it likes is switched off.)"""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    monkeypatch.setattr(
        reading.GPUDecoder, "scores", lambda self, x_RD: x_RD
    )  # kernels, which Python interprets here
    model = shaken(MODELS[name]())
    step = fast(model, None if name in ("gpt2", "llama") else texts(4, 2))
    prompts, lengths = pad(texts(3, 5), DEVICE)
    step.last(prompts, lengths)
    with Listener() as listener:
        step.runners.prefill(step.runner, 16)
    assert listener.heard == []
    with Listener() as listener:  # a position that nobody has looked up before
        step.runners.prefill.angles.clear()
        step.runners.prefill(step.runner, 16)
    assert listener.heard == []


def test_a_listener_hears_the_host_being_asked():
    with Listener() as listener:
        torch.arange(3)[torch.tensor([True, False, True])].tolist()
    assert listener.heard == ["arange", "tensor", "__getitem__", "tolist"]
