"""Recurrence by torch's kernels and cells equals the formulas, in fp64; so do attention and both decoders."""

import pytest
import torch
from helpers.before_cases import EVERY, build
from helpers.invariant_cases import close, tokens

from heedful.inside.costs import costs
from heedful.models.base.skeleton import skeleton, with_room
from heedful.models.seq2seq import Seq2SeqConfig
from heedful.parts.attention import Additive, Bilinear, Dot
from heedful.parts.before.attentive_decoders import maxout
from heedful.parts.before.lookup import Lookup
from heedful.parts.before.recurrent import (
    CELLS,
    BidirectionalStack,
    BothWays,
    CandidateGRU,
    elman,
    gru,
    lstm,
    reverse,
)
from heedful.parts.masks import full
from heedful.parts.places import Source
from heedful.parts.view import View, left_padded, right_padded
from heedful.train.optimizer import muon

B, T, S, I, H, A = 3, 5, 6, 4, 7, 2
every_cell = pytest.mark.parametrize("name", CELLS)


@pytest.fixture(autouse=True)
def _double():
    torch.manual_seed(5)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def cell(name, inputs=I, width=H):
    made = CELLS[name](inputs, width)
    with torch.no_grad():
        for weight in made.parameters():
            weight.normal_()
    return made


def by_formula(layer, x_TI, state_X):
    """[T, state_width]: one token after another."""
    W, U, b, b_h = (w if w.ndim == 1 else w.T for w in layer.weights)
    h, c = state_X[: layer.width], state_X[layer.width :]
    states = []
    for x in x_TI:
        if isinstance(layer, CELLS["lstm"]):
            h, c = lstm(x, h, c, W, U, b + b_h)
        else:
            h = gru(x, h, W, U, b, b_h) if isinstance(layer, CELLS["gru"]) else elman(x, h, W, U, b + b_h)
        states.append(torch.cat([h, c]))
    return torch.stack(states)


# Cells.


@every_cell
def test_kernels_and_cells_equal_the_formulas(name):
    layer, x = cell(name), torch.randn(B, T, I)
    state = torch.randn(B, layer.state_width)
    expected = torch.stack([by_formula(layer, x[b], state[b]) for b in range(B)])
    close(layer.states(x, state), expected)
    close(layer(x, state), expected[..., :H])
    close(layer.step(x[:, 0], state), expected[:, 0])


@every_cell
def test_the_last_state_is_each_rows_own(name):
    layer, x, lengths = cell(name), torch.randn(B, T, I), torch.tensor([5, 0, 3])
    out, last = layer.read(x, lengths)
    nothing = torch.zeros(layer.state_width)
    for b, n in enumerate(lengths.tolist()):
        states = by_formula(layer, x[b, :n], nothing) if n else nothing[None]
        close(last[b], states[-1])
        close(out[b, :n], states[:n, :H])


def test_torchs_gru_and_the_papers_differ_in_the_sense_of_z():
    """With open gates both are tanh of the input; with r = 1, the paper's at 1 - z is torch's at z."""
    x, h = torch.randn(I), torch.randn(H)
    W, U = torch.randn(I, 3 * H), torch.randn(H, 3 * H)
    b = torch.cat([torch.full((H,), 50.0), torch.zeros(2 * H)])  # r = 1
    _, x_z, x_n = (x @ W).chunk(3)
    block = CandidateGRU(I, 1, H)
    with torch.no_grad():
        block.context.weight.zero_()
        block.gates.weight.copy_(torch.cat([-U.T[H : 2 * H], torch.zeros(H, H)]))
        block.candidate.weight.copy_(U.T[2 * H :])
    read = torch.cat([-x_z, torch.full((H,), 50.0), x_n])
    W = torch.cat([torch.zeros(I, H), W[:, H:]], 1)
    U = torch.cat([torch.zeros(H, H), U[:, H:]], 1)
    close(block(read, h, torch.zeros(1)), gru(x, h, W, U, b, torch.zeros(3 * H)))


def test_recurrent_matrices_start_orthogonal():
    model = EVERY["luong"][0].build(EVERY["luong"][1])
    for weight in (w for n, w in model.named_parameters() if n.endswith("weight_hh_l0")):
        for gate in weight.split(weight.shape[1]):
            close(gate @ gate.T, torch.eye(len(gate)), 1e-9)
    forget = model.decoder.stack.blocks[0].kernel.bias_ih_l0.chunk(4)[1]
    assert (forget == 1).all()


# Both ways.


def test_the_backward_direction_starts_at_each_rows_own_end():
    block = BothWays(cell("gru"), cell("gru", width=H))
    stack, x, lengths = BidirectionalStack([block]), torch.randn(B, T, I), torch.tensor([5, 1, 3])
    nothing = torch.zeros(H)
    for positions in (right_padded(lengths, T), left_padded(lengths, T)):
        found = stack(x, [View(full(), T, T, None, positions, positions)])
        for b in range(B):
            real = positions[b] >= 0
            words = x[b, real]
            from_left = by_formula(block.from_left, words, nothing)
            from_right = by_formula(block.from_right, words.flip(0), nothing).flip(0)
            expected = [from_left, from_right]
            close(found[b, real], torch.cat(expected, -1))
            assert not found[b, ~real].any()


def test_reversing_leaves_padding_where_it_is():
    x = torch.arange(10.0).view(2, 5, 1)
    assert reverse(x, torch.tensor([3, 5]))[..., 0].tolist() == [[2, 1, 0, 3, 4], [9, 8, 7, 6, 5]]
    assert torch.equal(reverse(x, None), x.flip(1))


# Scores and lookups.


@pytest.mark.parametrize(
    "score", [Additive(H, I, A), Bilinear(H, I), Dot()], ids=lambda score: type(score).__name__
)
def test_a_lookup_equals_the_open_formula(score):
    score = score.double()
    key = H if isinstance(score, Dot) else I
    q, k, v = torch.randn(B, 1, T, H), torch.randn(B, 1, S, key), torch.randn(B, 1, S, 2)
    lengths = torch.tensor([6, 2, 4])
    found = Lookup(score)(q, score.prepared(k), v, View(full(), T, S, None, None, right_padded(lengths, S)))
    for b, n in enumerate(lengths.tolist()):
        for t in range(T):
            if isinstance(score, Additive):
                query = q[b, 0, t] @ score.query.weight.T
                hidden = [query + k[b, 0, j] @ score.key.weight.T + score.key.bias for j in range(n)]
                e = torch.stack([torch.tanh(one) @ score.score.weight[0] for one in hidden])
            else:
                W = score.W if isinstance(score, Bilinear) else torch.eye(H)
                e = torch.stack([q[b, 0, t] @ W @ k[b, 0, j] for j in range(n)])
            a = e.exp() / e.exp().sum()
            close(found[b, 0, t], sum(a[j] * v[b, 0, j] for j in range(n)))
    close(score.between(q, score.prepared(k)), score(q, k), 0)


# Whole decoders, word by word.


def softmax(e):
    return e.exp() / e.exp().sum(0)


def test_bahdanaus_decoder_equals_the_papers_formulas():
    model = build("bahdanau")
    source, target = tokens(1, S), tokens(1, T)
    found = model(source, target)[0]
    stack, head = model.decoder.stack, model.decoder.head.linear
    h_SC = model.encoder(source)[0]
    block, score, width = stack.blocks[0], stack.cross.layer.score, stack.blocks[0].width
    W_z, W_r, W = block.input.weight.T.chunk(3, -1)
    b_z, b_r, b = block.input.bias.chunk(3)
    C_z, C_r, C = block.context.weight.T.chunk(3, -1)
    U_z, U_r = block.gates.weight.T.chunk(2, -1)
    U = block.candidate.weight.T
    s = torch.tanh(h_SC[0, width:] @ stack.start.weight.T + stack.start.bias)
    for t, y in enumerate(target[0]):
        Ey = model.decoder.inputs.tokens.weight[y]
        query, key = score.query.weight @ s, score.key
        hidden = [torch.tanh(query + key.weight @ h + key.bias) for h in h_SC]
        e = torch.stack([score.score.weight[0] @ each for each in hidden])
        c = softmax(e) @ h_SC
        mixed = s @ stack.from_state.weight.T + stack.from_state.bias
        mixed = mixed + Ey @ stack.from_word.weight.T + c @ stack.from_context.weight.T
        close(found[t], mixed.view(-1, 2).amax(-1) @ head.weight.T + head.bias)
        z = torch.sigmoid(Ey @ W_z + b_z + s @ U_z + c @ C_z)
        r = torch.sigmoid(Ey @ W_r + b_r + s @ U_r + c @ C_r)
        new = torch.tanh(Ey @ W + b + (r * s) @ U + c @ C)
        s = (1 - z) * s + z * new


@pytest.mark.parametrize("name", ["luong", "luong dot", "luong concat"])
def test_luongs_decoder_equals_the_papers_formulas(name):
    model = build(name)
    source, target = tokens(1, S), tokens(1, T)
    found = model(source, target)[0]
    stack, head = model.decoder.stack, model.decoder.head.linear
    h_SC = model.encoder(source)[0]
    width = stack.combine.out_features
    first = torch.tanh(h_SC[0, h_SC.shape[1] // 2 :] @ stack.start.weight.T + stack.start.bias)
    states, seen = list(first.split(stack.widths)), torch.zeros(width)
    for t, y in enumerate(target[0]):
        x = model.decoder.inputs.tokens.weight[y]
        x = torch.cat([x, seen]) if stack.input_feeding else x
        for i, block in enumerate(stack.blocks):
            states[i] = by_formula(block, x[None], states[i])[0]
            x = states[i][: block.width]
        score = stack.cross.layer.score
        c = softmax(score(x[None, None, None], h_SC[None, None])[0, 0, 0]) @ h_SC
        seen = torch.tanh(torch.cat([c, x]) @ stack.combine.weight.T)
        close(found[t], seen @ head.weight.T + head.bias)


def test_without_attention_all_that_is_known_of_the_source_is_one_vector():
    model = build("seq2seq")
    memory = model.encoder(tokens(B, S))
    assert memory.shape == (B, 1, 2 * 2 * 7)
    source, target = tokens(1, S), tokens(1, T)
    found = model(source, target)[0]
    layers = model.encoder.stack.blocks
    x, states = model.encoder.inputs.tokens.weight[source[0].flip(0)], []  # read from its end
    for layer in layers:
        all_of_them = by_formula(layer, x, torch.zeros(layer.state_width))
        states.append(all_of_them[-1])
        x = all_of_them[:, : layer.width]
    x = model.decoder.inputs.tokens.weight[target[0]]
    for layer, state in zip(model.decoder.stack.blocks, states, strict=True):
        x = by_formula(layer, x, state)[:, : layer.width]
    close(found, x @ model.decoder.head.linear.weight.T + model.decoder.head.linear.bias)


def test_every_step_reads_the_encoders_last_word():
    model = build("seq2seq, every step")
    memory, target = model.encoder(tokens(1, S)), tokens(1, T)
    other = memory.clone()
    other[..., -1] += 1  # the top layer's state
    decoder = model.decoder
    seen = []
    decoder.stack.blocks[0].register_forward_hook(lambda module, given, out: seen.append(given[0]))
    for each in (memory, other):
        decoder(target, source=Source(each))
    assert (seen[0][..., -1] + 1 - seen[1][..., -1]).abs().max() < 1e-12
    assert torch.equal(seen[0][..., :-1], seen[1][..., :-1])


def test_maxout_takes_the_larger_of_each_pair():
    assert maxout(torch.tensor([1.0, 3.0, -2.0, -5.0])).tolist() == [3.0, -2.0]


# Loading.


@pytest.mark.parametrize("name", EVERY)
def test_a_model_without_numbers_gets_room_for_them(name):
    """torch's kernels keep a list of their weights, which must not keep pointing at those without numbers."""
    file, config = EVERY[name]
    model = with_room(skeleton(file.__name__.rpartition(".")[2], config), "cpu")
    trained = file.build(config)
    with torch.no_grad():
        for weight, value in zip(model.parameters(), trained.parameters(), strict=True):
            weight.copy_(value)
    ids, source = tokens(2, T), tokens(2, S)
    args = (ids,) if not hasattr(model, "encoder") else (source, ids)
    close(model.eval()(*args), trained.eval()(*args), 0)


def test_luongs_words_are_loud_and_his_encoder_is_as_wide_as_told():
    luong, config = EVERY["luong"][0], type(EVERY["luong"][1])
    for score, direction, annotation in (("general", 9, 18), ("concat", None, 6), ("dot", None, 6)):
        model = luong.build(
            config(500, 400, layers=1, width=6, embedding_width=5, score=score, encoder_width=direction)
        )
        for side in (model.encoder, model.decoder):
            assert 0.9 < side.inputs.tokens.weight.std() < 1.1
        assert model.encoder(torch.zeros(1, 3, dtype=torch.long)).shape == (1, 3, annotation)


@pytest.mark.parametrize("name", ["luong", "bahdanau", "convs2s"])
def test_muon_has_every_matrix_between_embeddings_and_scores(name):
    """Also those outside the blocks: at Muon's rates, AdamW destroys a matrix that feeds a state back."""
    model = build(name)
    matrices, _ = muon(model, 6e-3, 0.0)
    names = {id(weight): path for path, weight in model.named_parameters()}
    found = {names[id(weight)] for group in matrices.param_groups for weight in group["params"]}
    assert {path.rpartition(".stack.")[0] for path in found} == {"encoder", "decoder"}
    assert found == {
        path for path, weight in model.named_parameters() if ".stack." in path and weight.ndim == 2
    }


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="cell must be one of rnn, gru, lstm"):
        Seq2SeqConfig(cell="elman")
    with pytest.raises(ValueError, match="one size"):
        Seq2SeqConfig(vocab=5, target_vocab=7, share_embeddings=True)
    luong = type(EVERY["luong"][1])
    with pytest.raises(ValueError, match="score must be one of dot, general, concat"):
        luong(score="additive")
    with pytest.raises(ValueError, match="odd"):
        luong(width=7)
    with pytest.raises(ValueError, match="a state has 8 numbers, an annotation 10"):
        luong(width=8, encoder_width=5, score="dot")


# What recurrence cannot do well (L1, L5).


def gradients(layer, length):
    """How much the last state depends on each word."""
    x = torch.randn(1, length, I, requires_grad=True)
    last = layer(x, layer.nothing(x))[0, -1]
    (grad,) = torch.autograd.grad(last.sum(), x)
    return grad[0].norm(dim=-1)


def test_the_farther_a_word_the_smaller_its_gradient():
    layer = CELLS["rnn"](I, H)
    size_T = gradients(layer, 60)
    by_distance = size_T.view(4, 15).mean(1)
    assert (by_distance.diff() > 0).all()  # the last words count most
    assert by_distance[0] < 1e-3 * by_distance[-1]


def depth(tensor):
    """Operations that wait for one another, from a result back to the first of them."""
    depths = {}
    todo = [(tensor.grad_fn, False)]
    while todo:
        node, ready = todo.pop()
        before = [one for one, _ in node.next_functions if one is not None]
        if ready:
            depths[node] = 1 + max((depths[one] for one in before), default=0)
        elif node not in depths:
            todo += [(node, True), *((one, False) for one in before if one not in depths)]
    return depths[tensor.grad_fn]


@every_cell
def test_twice_the_words_are_twice_the_steps(name):
    layer = cell(name)
    depths = [
        depth(layer.states(torch.randn(1, n, I), torch.zeros(1, layer.state_width))) for n in (8, 16, 32)
    ]
    assert depths[2] - depths[1] == 2 * (depths[1] - depths[0]) > 0


@every_cell
def test_order_is_baked_in(name):
    """The same words in another order leave another state, and no word knows of those after it."""
    layer, x = cell(name), torch.randn(1, T, I)
    out, other = (layer(each, layer.nothing(x)) for each in (x, x[:, [0, 1, 3, 2, 4]]))
    close(out[:, :2], other[:, :2], 0)
    assert (out[:, 2:] - other[:, 2:]).abs().amax(-1).min() > 1e-6


def test_recurrent_models_grow_linearly():
    model = build("gru")
    flops = [costs(model, 1, length).whole.flops for length in (10, 20, 40)]
    assert flops == [flops[0], 2 * flops[0], 4 * flops[0]]
    assert costs(model, 1, 10).memory["cache"] == costs(model, 1, 1000).memory["cache"] == 2 * 7 * 4
