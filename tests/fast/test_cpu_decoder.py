"""Packed models: the same answers from weights in another order, and the measured cost of fewer bits."""

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from helpers import tiny
from helpers.decoding_cases import BOS, EOS, FAMILIES, Case

from heedful import watch
from heedful.decode.beam import beam_search
from heedful.decode.beam_settings import BeamSettings
from heedful.decode.greedy import greedy
from heedful.decode.step import step_of
from heedful.errors import BadInput
from heedful.fast import cpu_decoder as packed
from heedful.fast import cpu_weights as matrices
from heedful.fast.cpu_weights import BlockedMatrix, Fp16Matrix, Int8Matrix, LinearWeights, PlainMatrix
from heedful.models.base.shells import EncoderDecoder
from heedful.models.gpt2 import GPT2Config
from heedful.models.gpt2 import build as build_gpt2
from heedful.parts.attention import Additive
from heedful.parts.multihead import MultiHeadAttention
from heedful.parts.places import Lengths

B, S, T, N = 3, 7, 5, 9  # N: tokens to write
EVERY = {**tiny.DECODERS, **tiny.ENCODER_DECODERS}
WEIGHTS = ["fp32", "fp16", "int8"]


@pytest.fixture(params=[0, 10**9], ids=["many heads", "few heads"])
def ways_to_attend(request, monkeypatch):
    """One query a row by a formula over all heads together, or by torch's kernel: whatever the sizes."""
    monkeypatch.setattr(packed, "FEW", request.param)


@pytest.fixture(autouse=True)
def even_the_smallest(monkeypatch):
    """Tiny models have tiny matrices, which would stay as they are."""
    monkeypatch.setattr(matrices, "FEW", 0)


def build(name, seed=11):
    return tiny.build(EVERY[name], torch.float32, seed)


def given(model):
    made = torch.Generator().manual_seed(2)
    tokens, places = torch.randint(17, (B, T), generator=made), Lengths(torch.tensor([5, 2, 4]))
    if isinstance(model, EncoderDecoder):
        return torch.randint(17, (B, S), generator=made), tokens, Lengths(torch.tensor([7, 3, 6])), places
    return tokens, places


@torch.no_grad()
def scores(model):
    """[real tokens, V]: unequal lengths everywhere."""
    *_, places = inputs = given(model)
    return model(*inputs)[places.real(T)]


def test_sizes_in_these_tests_differ():
    assert len({B, S, T, N}) == 4


# The same model.


@pytest.mark.parametrize("name", EVERY)
def test_packed_in_fp32_the_scores_are_the_same(name):
    model = build(name)
    torch.testing.assert_close(scores(packed.packed(model)), scores(model), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", EVERY)
def test_token_by_token_too(name, ways_to_attend):
    model = build(name)
    both = []
    for one in (model, packed.packed(model)):
        if isinstance(one, EncoderDecoder):
            source, tokens, source_places, _ = given(one)
            step = step_of(one, source, source_places.lengths_B)
        else:
            step, (tokens, _) = step_of(one), given(one)
        both.append(torch.stack([step.last(tokens[:, t : t + 1]) for t in range(T)]))
        step.reorder(torch.tensor([2, 0, 0, 1]))
        both[-1] = (both[-1], step.last(tokens[[2, 0, 0, 1], :1]))
    for ours, theirs in zip(*both, strict=True):
        torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=1e-5)


class Float(Case):
    """In fp32, and sharp enough that rounding decides nothing."""

    def __init__(self, name):
        super().__init__(name, sharper=3.0)
        self.model = self.model.float()

    def packed(self, weights):
        return step_of(packed.packed(self.model, weights), self.source, self.source_lengths)


@pytest.mark.parametrize("weights", ["fp32", "fp16"])
@pytest.mark.parametrize("name", FAMILIES)
def test_greedy_writes_the_same_tokens(name, weights, ways_to_attend):
    case = Float(name)
    found = [
        greedy(step, case.prompts, case.lengths, longest=N, eos=EOS)
        for step in (case.step(), case.packed(weights))
    ]
    assert [one.tokens for one in found[0]] == [one.tokens for one in found[1]]
    assert any(len(one.tokens) == N for one in found[0]) and len({tuple(one.tokens) for one in found[0]}) > 1


@pytest.mark.parametrize("weights", ["fp32", "fp16"])
@pytest.mark.parametrize("name", FAMILIES)
def test_beams_find_the_same_hypotheses(name, weights, ways_to_attend):
    """Sources of unequal length, some done before others; rows of one sentence share its source."""
    case, settings = Float(name), BeamSettings(width=4, n_best=3)
    ends = list(range(EOS, case.vocab, 6))
    plain, ours = (
        beam_search(step, case.prompts, case.lengths, longest=[N, 4, 6], eos=ends, settings=settings)
        for step in (case.step(), case.packed(weights))
    )
    for some, others in zip(plain, ours, strict=True):
        assert [one.tokens for one in some] == [one.tokens for one in others]
        close = {"fp32": 1e-4, "fp16": 0.02}[weights]
        assert [one.score for one in others] == pytest.approx([one.score for one in some], abs=close)


def test_beams_of_a_sentence_read_one_copy_of_its_source():
    case = Float("transformer")
    step = case.packed("fp32")
    step.last(torch.full((3, 1), BOS))
    step.reorder(torch.tensor([0, 0, 1, 1, 2, 2]))
    layer = step.cache.layers[0]
    assert layer.sharing == 2 and len(layer.source_kv[0]) == 3 and len(layer.kv[0]) == 6
    before = layer.source_kv[0]
    step.reorder(torch.tensor([1, 1, 2, 3, 5, 4]))
    assert layer.sharing == 2 and layer.source_kv[0] is before
    step.reorder(torch.tensor([0, 1, 4, 5]))
    assert layer.sharing == 2 and len(layer.source_kv[0]) == 2
    step.reorder(torch.tensor([0, 1, 2]))  # no longer equally many: each its own
    assert layer.sharing == 1 and len(layer.source_kv[0]) == 3


@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_static_cache_serves_too(weights):
    model = packed.packed(build("llama"), weights)
    tokens, _ = given(model)
    with torch.no_grad():
        whole, cache = model(tokens), model.static_cache(B, T)
        pieces = torch.cat([model(tokens[:, t : t + 1], cache=cache) for t in range(T)], 1)
    torch.testing.assert_close(pieces, whole, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["transformer", "t5"])
def test_a_source_of_which_nothing_is_real_is_not_looked_at(name, ways_to_attend):
    model = build(name)
    source, tokens, *_ = given(model)
    plain, ours = (step_of(one, source, torch.tensor([4, 0, 7])) for one in (model, packed.packed(model)))
    for t in range(T):
        some = tokens[:, t : t + 1]
        torch.testing.assert_close(ours.last(some), plain.last(some), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", ["transformer", "t5"])
def test_an_empty_source_is_harmless(name, weights):
    model = build(name)
    _, tokens, _, places = given(model)
    none = Lengths(torch.zeros(B, dtype=torch.long))
    nothing = torch.zeros(B, 0, dtype=torch.long), tokens, none, places
    with torch.no_grad():
        torch.testing.assert_close(
            packed.packed(model, weights)(*nothing), model(*nothing), atol=0.5, rtol=0.1
        )


def test_a_block_that_is_made_otherwise_stays_as_it_is():
    model = build("gpt2")
    torch.manual_seed(5)
    odd = MultiHeadAttention(12, 3, value_width=5)
    model.stack.blocks[1].attention.layer = odd
    made = packed.packed(model)
    assert [type(block) for block in made.stack.packed] == [packed.PackedBlock, packed.UnpackedBlock]
    torch.testing.assert_close(scores(made), scores(model), atol=1e-5, rtol=1e-5)


def test_scores_that_are_no_dot_product_go_to_the_layer(ways_to_attend):
    model = build("gpt2")
    torch.manual_seed(5)
    layer = model.stack.blocks[1].attention.layer
    layer.score = Additive(4, 4, 6)
    tokens, _ = given(model)
    step, plain = step_of(packed.packed(model)), step_of(model)
    for t in range(T):
        torch.testing.assert_close(
            step.last(tokens[:, t : t + 1]), plain.last(tokens[:, t : t + 1]), atol=1e-5, rtol=1e-5
        )


# Looking, and what stays of the model.


@pytest.mark.parametrize("weights", ["fp32", "int8"])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_packed_model_can_be_watched_under_the_same_names(name, weights):
    model = build(name)
    made = packed.packed(model, weights)
    with watch(model) as plain, torch.no_grad():
        model(*given(model))
    with watch(made) as trace:
        made(*given(made))
    assert list(trace) == list(plain)
    close = {"atol": 1e-5 if weights == "fp32" else 0.25, "rtol": 0}
    for path, seen in trace.weights().items():
        torch.testing.assert_close(seen, plain.weights()[path], **close)


@pytest.mark.parametrize("layout", ["halves", "interleaved"])
def test_whoever_looks_sees_queries_and_keys_in_the_order_of_the_model(layout):
    """Pairs of rotary coordinates stand side by side in a packed model."""
    model = build("llama")
    for layer in model.attentions():
        layer.position.layout = layout
    made = packed.packed(model)
    tokens, _ = given(model)
    with watch(model, also=("q", "k")) as plain, torch.no_grad():
        model(tokens)
    with watch(made, also=("q", "k")) as ours:
        made(tokens)
    for path, record in plain.items():
        torch.testing.assert_close(ours[path].q, record.q, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(ours[path].k, record.k, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_somebody_may_look_at_some_tokens_only(name):
    """A watch that begins in the middle of a text goes on with the cache, and so does the text after it."""
    case = Float(name)
    steps, found = (case.step(), case.packed("fp32")), []
    for step, model in zip(steps, (case.model, steps[1].decoder), strict=True):
        written = [step.last(case.prompts[:, :1]) for _ in range(2)]
        with watch(model):
            written.append(step.last(case.prompts[:, :1]))
        step.reorder(torch.tensor([1, 0, 2]))
        written += [step.last(case.prompts[:, :1]) for _ in range(3)]
        found.append(torch.stack(written))
    torch.testing.assert_close(found[1], found[0], atol=1e-4, rtol=1e-4)


def test_a_watched_step_looks_at_a_shared_source():
    """The coverage penalty needs the weights of every row, while rows share what they look at."""
    case, settings = Float("transformer"), BeamSettings(width=3, coverage_penalty=0.3)
    steps = (
        case.step(watched=True),
        step_of(packed.packed(case.model), case.source, case.source_lengths, watched=True),
    )
    plain, ours = (
        beam_search(step, case.prompts[:, :1], longest=N, eos=EOS, settings=settings) for step in steps
    )
    assert [one[0].tokens for one in plain] == [one[0].tokens for one in ours]


@pytest.mark.parametrize("weights", WEIGHTS)
def test_the_model_itself_is_not_changed(weights):
    model = build("transformer")
    before, weights_before = scores(model), {name: w.clone() for name, w in model.state_dict().items()}
    scores(packed.packed(model, weights))
    assert torch.equal(scores(model), before)
    assert all(torch.equal(w, weights_before[name]) for name, w in model.state_dict().items())


def test_packed_has_no_gradient_and_no_dropout():
    model = build("gpt2").train()
    tokens, _ = given(model)
    made = packed.packed(model)
    assert not made(tokens).requires_grad and torch.equal(made(tokens), made(tokens))


# Matrices.


def layer_of(N=11, K=6, bias=True, seed=3, parts=1):
    made = torch.Generator().manual_seed(seed)
    weights = [torch.randn(N + i, K, generator=made) * 3**i for i in range(parts)]
    return LinearWeights(weights, [torch.randn(len(w), generator=made) if bias else None for w in weights])


def rows(R=4, K=6):
    """Of very different size, one of them nothing at all."""
    x = torch.randn(R, K, generator=torch.Generator().manual_seed(4)) * torch.logspace(-3, 3, R)[:, None]
    x[1 : R // 2 + 1] = 0
    return x


@pytest.mark.parametrize("R", [1, 2, 5])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [PlainMatrix, BlockedMatrix])
def test_another_order_is_the_same_product(kind, bias, R):
    for layer in (layer_of(bias=bias), layer_of(5, 8, bias), layer_of(bias=bias, parts=3)):
        K = layer.weight_NK.shape[1]
        expected = F.linear(rows(R, K), layer.weight_NK, layer.bias_N)
        torch.testing.assert_close(kind(layer)(rows(R, K)), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("R", [1, 2, 5])
@pytest.mark.parametrize("bias", [True, False])
def test_halves_move_a_weight_by_a_2048th_at_most(bias, R):
    layer, x = layer_of(bias=bias, parts=2), rows(R)
    error = (Fp16Matrix(layer)(x) - F.linear(x, layer.weight_NK, layer.bias_N)).abs()
    assert (error <= F.linear(x.abs(), layer.weight_NK.abs()) / 2048 + 1e-5).all() and error.max() > 0


@pytest.mark.parametrize("levels", [127, 63])
@pytest.mark.parametrize("R", [1, 2, 5])
@pytest.mark.parametrize("bias", [True, False])
def test_bytes_move_weights_and_inputs_by_half_a_step_at_most(bias, R, levels, monkeypatch):
    monkeypatch.setattr(matrices, "levels", lambda: levels)
    layer, x = layer_of(bias=bias, parts=2), rows(R)
    weight, K = layer.weight_NK, 6
    error = (Int8Matrix(layer)(x) - F.linear(x, weight, layer.bias_N)).abs()
    of_weight = weight.abs().amax(1) / 254
    of_input = x.abs().amax(1, keepdim=True) / (2 * levels)
    bound = x.abs().sum(1, keepdim=True) * of_weight + of_input * (weight.abs().sum(1) + K * of_weight)
    assert (error <= 1.001 * bound + 1e-5).all() and error.max() > 0


@pytest.fixture(params=["by fbgemm", "by oneDNN"])
def by(request, monkeypatch):
    """Which library multiplies bytes: oneDNN, if a matrix is wide and has many rows."""
    if request.param == "by oneDNN":  # or fbgemm after all, where oneDNN is not exact
        monkeypatch.setattr(matrices, "WIDE", 1)
        monkeypatch.setattr(matrices, "BATCH", 1)
    return request.param


@pytest.mark.parametrize("R", [1, 2, 5])
@pytest.mark.parametrize("bias", [True, False])
def test_both_libraries_multiply_bytes_alike(bias, R, monkeypatch):
    layer, x = layer_of(bias=bias, parts=2), rows(R)
    narrow = Int8Matrix(layer)(x)
    monkeypatch.setattr(matrices, "WIDE", 1)
    monkeypatch.setattr(matrices, "BATCH", 1)
    wide = Int8Matrix(layer)
    assert wide.wide == matrices.one_dnn_agrees()
    if wide.wide:
        monkeypatch.setattr(wide, "multiply", None)  # fbgemm's product is not called
    torch.testing.assert_close(wide(x), narrow, rtol=1e-6, atol=1e-6)


def test_bytes_of_a_row_do_not_depend_on_the_others(by):
    """A sentence in a batch is what it is alone: exactly, since no row has a say in another's steps."""
    matrix, x = Int8Matrix(layer_of()), rows(5)
    assert torch.equal(matrix(x), torch.cat([matrix(row[None]) for row in x]))


def test_bytes_do_not_hide_what_is_no_number(by):
    x = rows(4)
    x[1, 2], x[3, 0] = float("nan"), float("inf")
    found = Int8Matrix(layer_of())(x)
    assert found[1].isnan().all() and not found[3].isfinite().any() and found[[0, 2]].isfinite().all()


def test_layers_with_and_without_bias_are_not_joined():
    with pytest.raises(ValueError, match="cannot be joined"):
        LinearWeights([torch.ones(2, 3), torch.ones(2, 3)], [torch.ones(2), None])


@pytest.mark.parametrize(
    "weights, kind", [("fp32", BlockedMatrix), ("fp16", Fp16Matrix), ("int8", Int8Matrix)]
)
def test_small_matrices_stay_as_they_are(weights, kind, monkeypatch):
    monkeypatch.setattr(matrices, "FEW", 70)
    make = matrices.matrices(weights)
    assert type(make(layer_of(11, 6))) is PlainMatrix and type(make(layer_of(12, 6))) is kind


# What fewer bits cost a model that has learned something.


def trained():
    """A decoder that has learned three tables of what follows what; the first token says which one holds."""
    torch.manual_seed(0)
    made, V, length = torch.Generator().manual_seed(1), 19, 9
    sizes = GPT2Config(vocab=V, context=length, layers=2, width=48, heads=4, ffn_width=96, dropout=0.0)
    model = build_gpt2(sizes)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    tables = torch.stack([torch.randperm(V, generator=made) for _ in range(3)])

    def texts(count):
        which = torch.randint(3, (count,), generator=made)
        tokens = [which, torch.randint(V, (count,), generator=made)]
        while len(tokens) < length:
            tokens.append(tables[which, tokens[-1]])
        return torch.stack(tokens, 1)

    for _ in range(100):
        tokens = texts(64)
        loss = F.cross_entropy(model(tokens[:, :-1])[:, 1:].flatten(0, 1), tokens[:, 2:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval(), texts(64)


def test_what_fewer_bits_cost_a_trained_model():
    model, tokens = trained()
    with torch.no_grad():
        plain = model(tokens)

    def written(one):
        found = greedy(step_of(one), tokens[:, :2], longest=tokens.shape[1] - 2)
        return torch.tensor([hypothesis.tokens for hypothesis in found])

    assert (written(model) == tokens[:, 2:]).float().mean() > 0.95, "it has not learned its tables"
    for weights, cosine, same in (("fp32", 0.999999, 1.0), ("fp16", 0.99999, 1.0), ("int8", 0.999, 0.99)):
        made = packed.packed(model, weights)
        assert F.cosine_similarity(made(tokens), plain, dim=-1).min() > cosine, weights
        assert (written(made) == written(model)).float().mean() >= same, weights


def test_int8_in_a_batch_is_int8_alone():
    case = Float("transformer")
    model = packed.packed(case.model, "int8")
    together = greedy(
        step_of(model, case.source, case.source_lengths), case.prompts, case.lengths, longest=N, eos=EOS
    )
    for row in range(3):
        source = case.source[row : row + 1, : case.source_lengths[row]]
        (alone,) = greedy(
            step_of(model, source), case.prompts[row : row + 1, : case.lengths[row]], longest=N, eos=EOS
        )
        assert alone.tokens == together[row].tokens
        assert alone.log_probabilities == pytest.approx(together[row].log_probabilities, abs=1e-5)


# What cannot be.


def test_what_cannot_be_packed_is_refused_with_a_remedy():
    with pytest.raises(BadInput, match='weights are fp32, fp16, int8, not "int4"'):
        packed.packed(build("gpt2"), "int4")
    with pytest.raises(
        BadInput, match="made from float32, not from torch.float64 on cpu: load the model with"
    ):
        packed.packed(tiny.build(EVERY["gpt2"]))
    with pytest.raises(BadInput, match="only models that write can be packed, not WithHeads"):
        packed.packed(tiny.build(tiny.ENCODERS["bert"], torch.float32))


def test_without_fbgemm_fewer_bits_are_refused_and_without_onednn_fp32_stays_plain(monkeypatch):
    def broken(layer):
        raise RuntimeError("no such operator\nand a long story")

    monkeypatch.setitem(matrices.KINDS, "int8", broken)
    monkeypatch.setitem(matrices.NEEDS, broken, "something")
    with pytest.raises(BadInput, match=r'weights="int8" needs something \(no such operator\): leave it out'):
        packed.packed(build("gpt2"), "int8")
    monkeypatch.setattr(matrices, "missing", lambda kind: "what is not here")
    with pytest.warns(UserWarning, match="packing needs what is not here: matrices stay as they are"):
        made = packed.packed(build("gpt2"))
    assert type(made.head.matrix) is PlainMatrix
    torch.testing.assert_close(scores(made), scores(build("gpt2")), atol=1e-5, rtol=1e-5)


def test_packing_imports_no_compiler_and_warns_of_nothing():
    code = """
import sys, warnings
warnings.simplefilter("error")
import torch
from heedful.fast import cpu_weights as matrices
from heedful.fast.cpu_decoder import packed
from heedful.models.gpt2 import GPT2Config, build
matrices.FEW, engine = 0, torch.backends.quantized.engine
model = build(GPT2Config(vocab=29, context=9, layers=1, width=12, heads=3, ffn_width=20))
for weights in ("fp32", "fp16", "int8"):
    packed(model, weights)(torch.zeros(2, 5, dtype=torch.long))
print("torch._dynamo" in sys.modules, torch.backends.quantized.engine == engine)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False True\n", "")


@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e-6, 1.0, 1e6])
@pytest.mark.parametrize("R, D", [(1, 576), (5, 7)])
def test_the_root_mean_square_norm_is_its_formula(R, D, scale):
    x_RD, gain_D = torch.randn(R, D) * scale, torch.randn(D)
    mean_R1 = x_RD.double().square().mean(-1, keepdim=True)
    right = x_RD.double() / (mean_R1 + 1e-6).sqrt() * gain_D.double()
    found = packed.root_mean_square_norm(gain_D, 1e-6)(x_RD)
    torch.testing.assert_close(found.double(), right, rtol=1e-5, atol=1e-12)
