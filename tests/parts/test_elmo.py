"""ELMo: letters, two language models, the mix of their layers and its readers, each against its formula."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.letters import SpelledVocab, as_read, spelled
from heedful.data.vocab import SPECIALS, train_vocab
from heedful.errors import BadInput
from heedful.models import elmo, elmo_reader
from heedful.models.base.heads import MaxOverTokens
from heedful.models.base.skeleton import skeleton
from heedful.parts.before.characters import (
    BEGIN,
    END,
    NO_LETTER,
    TEXT_BEGINS,
    TEXT_ENDS,
    CharacterCNN,
    numbers_of,
)
from heedful.parts.before.mix import ScalarMix, scalar_mix
from heedful.parts.places import Lengths
from heedful.tasks import elmo as task
from heedful.tasks.features import describe_mixes, penalized
from heedful.train.loss import Loss

B, T, V, D, CELLS, LAYERS, LETTERS = 3, 7, 29, 5, 9, 3, 11
LENGTHS = torch.tensor([7, 4, 1])
SIZES = {
    "vocab": V,
    "context": 17,
    "layers": LAYERS,
    "width": D,
    "cell_width": CELLS,
    "max_characters": LETTERS,
    "character_width": 4,
    "filters": (2, 3, 4),
    "highways": 2,
    "dropout": 0.0,
}


def model_of(**more):
    """With weights that are nowhere zero, in double precision."""
    torch.manual_seed(3)
    model = elmo.build(elmo.ElmoConfig(**{**SIZES, **more})).double().eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.4)
    return model


def tokens_of(rows=B, length=T, letters=LETTERS):
    """Words of some letters each, and their numbers."""
    torch.manual_seed(7)
    tokens = torch.randint(256, (rows, length, 1 + letters))
    tokens[..., 0] = torch.randint(V, (rows, length))
    for b in range(rows):
        for t in range(length):
            size = 1 + (3 * b + 5 * t) % (letters - 2)
            tokens[b, t, 1 + size :] = NO_LETTER
    return tokens


# Letters


def test_a_word_is_its_bytes_between_two_letters_of_its_own():
    assert spelled("cat", 7) == [BEGIN, *b"cat", END, NO_LETTER, NO_LETTER]
    assert spelled("é", 5) == [BEGIN, 0xC3, 0xA9, END, NO_LETTER]


def test_a_long_word_is_cut_and_keeps_its_end():
    assert spelled("a" * 48, 50) == [BEGIN, *b"a" * 48, END]
    assert spelled("a" * 48 + "b", 50) == spelled("a" * 48, 50)
    assert len(spelled("猫" * 400, 50)) == 50


@pytest.mark.parametrize(
    ("word", "why"), [("", "an empty word has no letters"), ("\ud800", "half a character")]
)
def test_words_that_cannot_be_spelled_are_refused(word, why):
    with pytest.raises(BadInput, match=why):
        spelled(word, 50)


def vocab_of(kind="spaced", **more):
    return train_vocab(
        kind, ["the cat sat on the mat . the dog didn't"], 12 if kind == "spaced" else 280, **more
    )


def test_unknown_words_keep_their_letters_and_nothing_else():
    vocab = SpelledVocab(vocab_of(), 9)
    (row,) = vocab.encode_batch(["the zebra and the yak , the zebra"])
    assert row[1] == row[7] == vocab.size and vocab.size < row[4] < vocab.size + len(vocab.unknown)
    read = vocab.tokens(torch.tensor([[vocab.cls, *row, vocab.sep, vocab.pad]]))
    assert read.shape == (1, len(row) + 3, 10)
    assert read[0, 2].tolist() == [vocab.unk, *spelled("zebra", 9)]
    assert read[0, 1].tolist() == [row[0], *spelled("the", 9)]
    assert read[0, 0, 1:4].tolist() == [BEGIN, TEXT_BEGINS, END] and read[0, -2, 2] == TEXT_ENDS
    assert read[0, -1].tolist() == [vocab.pad, *[NO_LETTER] * 9]
    assert numbers_of(read).max() < vocab.size


def test_words_between_spaces_are_words():
    vocab = vocab_of()
    assert vocab.decode(vocab.encode_batch(["the  dog\tdidn't"])[0]) == "the dog didn't"
    assert len(vocab.encode_batch(["the dog didn't"])[0]) == 3


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), min_size=1, max_size=4))
def test_the_same_texts_give_the_same_numbers_however_the_vocabulary_cuts(texts):
    for kind in ("spaced", "bpe", "word"):
        plain = vocab_of(kind)
        one, other = SpelledVocab(plain, 8), SpelledVocab(plain, 8)
        rows = one.encode_batch(texts)
        assert rows == other.encode_batch(texts) == SpelledVocab(plain, 8, one.unknown).encode_batch(texts)
        assert [[min(n, plain.size) == plain.size for n in row] for row in rows] == [
            [n == plain.unk for n in row] for row in plain.encode_batch(texts)
        ]
        for row in rows:
            assert row == [] or one.tokens(torch.tensor([row])).shape == (1, len(row), 9)


def test_lower_case_is_lower_case_in_letters_too():
    vocab = SpelledVocab(vocab_of(lower=True), 8)
    a, b = vocab.encode_batch(["Zebra", "zebra"])
    assert a == b and list(vocab.unknown) == ["zebra"]


def test_a_plain_vocabulary_reads_numbers_as_they_are():
    numbers = torch.tensor([[len(SPECIALS), 2]])
    assert as_read(vocab_of(), numbers) is numbers


# The formulas, number by number


def by_hand_word(cnn, letters):
    """A word's vector by loops: every filter at every place, the best one, highways, projection."""
    x = [cnn.letters.weight[letter] for letter in letters.tolist()]
    best = []
    for size, convolution in enumerate(cnn.convolutions, 1):
        for f in range(convolution.out_channels):
            fits = [
                sum((convolution.weight[f, :, k] * x[place + k]).sum() for k in range(size))
                + convolution.bias[f]
                for place in range(len(x) - size + 1)
            ]
            best.append(max(0.0, *(float(fit) for fit in fits)))
    y = torch.tensor(best, dtype=torch.float64)
    for highway in cnn.highways:
        t = 1 / (1 + torch.exp(-(highway.gate.weight @ y + highway.gate.bias)))
        y = t * (highway.change.weight @ y + highway.change.bias).clamp(min=0) + (1 - t) * y
    return cnn.projection.weight @ y + cnn.projection.bias


def by_hand_lstm(kernel, xs):
    """h = P (o tanh(c)), word by word."""
    h, c, said = torch.zeros(D, dtype=torch.float64), torch.zeros(CELLS, dtype=torch.float64), []
    for x in xs:
        gates = kernel.weight_ih_l0 @ x + kernel.weight_hh_l0 @ h + kernel.bias_ih_l0 + kernel.bias_hh_l0
        i, f, g, o = gates.split(CELLS)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = kernel.weight_hr_l0 @ (torch.sigmoid(o) * torch.tanh(c))
        said.append(h)
    return said


def by_hand(model, words):
    """All layers of one sentence, [T, (1 + L) 2 D]."""
    xs = [by_hand_word(model.encoder.inputs.words, word[1:]) for word in words]
    layers = [[torch.cat([x, x]) for x in xs]]
    left, right = xs, xs[::-1]
    for i in range(LAYERS):
        new_left = by_hand_lstm(model.encoder.stack.forwards[i].kernel, left)
        new_right = by_hand_lstm(model.encoder.stack.backwards[i].kernel, right)
        if i:
            new_left = [a + b for a, b in zip(new_left, left, strict=True)]
            new_right = [a + b for a, b in zip(new_right, right, strict=True)]
        left, right = new_left, new_right
        layers.append([torch.cat([a, b]) for a, b in zip(left, right[::-1], strict=True)])
    return torch.cat([torch.stack(layer) for layer in layers], -1)


@torch.no_grad()
def test_all_layers_equal_a_loop_over_everything():
    model, tokens = model_of(), tokens_of()
    layers = model.encoder(tokens, Lengths(LENGTHS))
    assert layers.shape == (B, T, (1 + LAYERS) * 2 * D)
    for b, length in enumerate(LENGTHS.tolist()):
        torch.testing.assert_close(
            layers[b, :length], by_hand(model, tokens[b, :length]), rtol=1e-10, atol=1e-10
        )
        assert (layers[b, length:] == 0).all()


@torch.no_grad()
def test_a_filling_that_is_left_out_changes_nothing():
    torch.manual_seed(1)
    cnn = CharacterCNN(4, (3, 2, 5), 1, 6).double()
    for longest in (1, 5, 9, 12):
        letters = torch.randint(256, (12, 12))
        for row, word in enumerate(letters):
            word[1 + row % longest :] = NO_LETTER
        kept = cnn.without_tail(letters)
        assert kept.shape[1] == min(12, longest + 3)
        found, cnn.without_tail = cnn(letters), lambda whole: whole
        torch.testing.assert_close(found, cnn(letters), rtol=0, atol=0)
        del cnn.without_tail


@torch.no_grad()
def test_the_loss_is_that_of_every_neighbor():
    model, tokens = model_of(), tokens_of()
    batch = task.SentenceBatch(tokens, LENGTHS, 2 * int((LENGTHS - 1).sum()))
    head, left, right = model.heads["neighbors"].words.linear, 0.0, 0.0
    for b, length in enumerate(LENGTHS.tolist()):
        top, numbers = by_hand(model, tokens[b, :length])[:, -2 * D :], tokens[b, :, 0]
        for t in range(length):
            if t + 1 < length:
                left -= float((head.weight @ top[t, :D] + head.bias).log_softmax(0)[numbers[t + 1]])
            if t:
                right -= float((head.weight @ top[t, D:] + head.bias).log_softmax(0)[numbers[t - 1]])
    found = task.both_losses(model, batch)
    assert [float(loss.nll) for loss in found] == pytest.approx([left, right])
    both = task.loss_of(model, batch)
    assert both.count == 18 and float(both.total) == pytest.approx(left + right)
    scores = task.evaluate(model, [batch])
    assert scores["loss"] == pytest.approx((left + right) / 18)
    assert scores["perplexity"] == pytest.approx(math.exp((left + right) / 18))
    assert scores["forward"] == pytest.approx(math.exp(left / 9))
    assert scores["backward"] == pytest.approx(math.exp(right / 9))
    assert scores["perplexity"] == pytest.approx(math.sqrt(scores["forward"] * scores["backward"]))


# Who sees whom


@pytest.mark.parametrize("reads", ["characters", "pieces"])
def test_neither_direction_sees_what_it_predicts(reads):
    """d score / d word is exactly 0 for words not yet read, through letters as well, and nowhere else."""
    model = model_of(input=reads)
    tokens = tokens_of(1) if reads == "characters" else tokens_of(1)[..., 0]
    words = []

    def keep(module, given, out):
        words.append(out.detach().requires_grad_())
        return words[-1]

    hook = model.encoder.inputs.register_forward_hook(keep)
    scores = model(tokens)["neighbors"][0]
    hook.remove()
    for t in range(T):
        for direction, score in enumerate(scores[t].chunk(2)):
            mixed = score @ torch.randn(V, dtype=torch.float64)
            (grad,) = torch.autograd.grad(mixed, words[0], retain_graph=True)
            seen = [s for s in range(T) if (grad[0, s] != 0).any()]
            assert seen == (list(range(t, T)) if direction else list(range(t + 1)))


@torch.no_grad()
def test_another_letter_is_seen_on_one_side_only():
    model, tokens = model_of(), tokens_of(1)
    other = tokens.clone()
    other[0, 3, 1] = (tokens[0, 3, 1] + 1) % 256
    before, after = (model(some)["neighbors"][0].chunk(2, -1) for some in (tokens, other))
    for t in range(T):
        assert torch.equal(before[0][t], after[0][t]) == (t < 3)
        assert torch.equal(before[1][t], after[1][t]) == (t > 3)


@pytest.mark.parametrize("reads", ["characters", "pieces"])
@torch.no_grad()
def test_padding_changes_nothing(reads):
    model = model_of(input=reads)
    tokens = tokens_of() if reads == "characters" else tokens_of()[..., 0]
    together = model.encoder(tokens, Lengths(LENGTHS))
    for b, length in enumerate(LENGTHS.tolist()):
        alone = model.encoder(tokens[b : b + 1, :length])
        torch.testing.assert_close(together[b, :length], alone[0], rtol=1e-12, atol=1e-12)
    longer = torch.cat([tokens, tokens[:, :2]], 1)
    torch.testing.assert_close(
        model.encoder(longer, Lengths(LENGTHS))[:, :T], together, rtol=1e-12, atol=1e-12
    )


# The mix


def test_the_mix_is_its_formula_and_its_weights_sum_to_one():
    torch.manual_seed(2)
    layers, weights, gamma = torch.randn(2, 3, 4, 6), torch.randn(4), torch.tensor([1.7])
    e = [math.exp(float(w)) for w in weights]
    s = [one / sum(e) for one in e]
    torch.testing.assert_close(scalar_mix(torch.ones(1, 1, 4, 6), weights, gamma), torch.full((1, 1, 6), 1.7))
    expected = 1.7 * sum(s[j] * layers[:, :, j].double() for j in range(4))
    torch.testing.assert_close(scalar_mix(layers, weights, gamma).double(), expected, rtol=1e-5, atol=1e-6)
    mix = ScalarMix(4)
    with torch.no_grad():
        mix.weights.copy_(weights)
        mix.gamma.copy_(gamma)
    torch.testing.assert_close(mix(layers.flatten(-2)).double(), expected, rtol=1e-5, atol=1e-6)
    assert mix.penalty().item() == pytest.approx(sum(float(w) ** 2 for w in weights))


def test_a_fresh_mix_is_the_mean_and_gamma_scales_it():
    layers, mix = torch.randn(2, 3, 4, 6, dtype=torch.float64), ScalarMix(4).double()
    torch.testing.assert_close(mix(layers.flatten(-2)), layers.mean(2))
    with torch.no_grad():
        mix.gamma.fill_(-2.5)
    torch.testing.assert_close(mix(layers.flatten(-2)), -2.5 * layers.mean(2))


def test_a_norm_is_of_each_vector_by_itself():
    layers, mix = torch.randn(2, 3, 4, 6, dtype=torch.float64), ScalarMix(4, norm=True).double()
    centered = layers - layers.mean(-1, keepdim=True)
    normed = centered / (centered.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(mix(layers.flatten(-2)), normed.mean(2))
    torch.testing.assert_close(mix(layers.flatten(-2))[:1], mix(layers[:1].flatten(-2)))


# What reads it


def reader_of(heads=("tag",), **more):
    torch.manual_seed(4)
    sizes = {"reader_layers": 2, "reader_width": 6, "labels": 4, "reader_dropout": 0.0, "mix_dropout": 0.0}
    config = elmo_reader.ElmoReaderConfig(**{**SIZES, **sizes, "prediction_heads": heads, **more})
    model = elmo_reader.build(config).double()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.4)
    return model


@pytest.mark.parametrize("at_output", [False, True])
@torch.no_grad()
def test_the_network_reads_its_own_vector_beside_elmos(at_output):
    model, tokens = reader_of(at_output=at_output).eval(), tokens_of()
    encoder = model.encoder
    layers = encoder.features.model(tokens, Lengths(LENGTHS))
    parts = layers.unflatten(-1, (1 + LAYERS, 2 * D))

    def mixed(mix):
        s = mix.weights.softmax(0)
        return mix.gamma * sum(s[j] * parts[:, :, j] for j in range(1 + LAYERS))

    own = F.embedding(tokens[..., 0], encoder.inputs.tokens.weight)
    torch_lstm = torch.nn.LSTM(6 + 2 * D, 6, 2, batch_first=True, bidirectional=True).double()
    for i, block in enumerate(encoder.stack.blocks):
        for way, end in ((block.from_left, ""), (block.from_right, "_reverse")):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(torch_lstm, f"{name}_l{i}{end}").copy_(getattr(way.kernel, f"{name}_l0"))
    found = encoder(tokens, Lengths(LENGTHS))
    for b, length in enumerate(LENGTHS.tolist()):
        h = torch_lstm(torch.cat([own, mixed(encoder.mix)], -1)[b : b + 1, :length])[0][0]
        expected = torch.cat([h, mixed(encoder.output)[b, :length]], -1) if at_output else h
        torch.testing.assert_close(found[b, :length], expected)
        assert (found[b, length:] == 0).all()
    assert (encoder.output is not None) == at_output
    if at_output:
        assert encoder.output.weights is not encoder.mix.weights


@pytest.mark.parametrize("head", ["tag", "classify"])
def test_frozen_weights_have_no_gradient_and_all_others_do(head):
    model = reader_of((head,), at_output=True)
    model.train()
    assert not model.encoder.features.training and not any(
        m.training for m in model.encoder.features.modules()
    )
    model(tokens_of(), Lengths(LENGTHS))[head].sum().backward()
    frozen = {id(weight) for weight in model.encoder.features.parameters()}
    used = {id(model.encoder.inputs.tokens.weight), *(id(w) for w in model.parameters())} - frozen
    for name, weight in model.named_parameters():
        assert (weight.grad is None) == (id(weight) in frozen), name
        assert id(weight) in used or not weight.requires_grad


@torch.no_grad()
def test_a_label_does_not_depend_on_padding():
    model, tokens = reader_of(("classify",), at_output=True, mix_norm=True).eval(), tokens_of()
    together = model(tokens, Lengths(LENGTHS))["classify"]
    assert together.shape == (B, 4)
    for b, length in enumerate(LENGTHS.tolist()):
        torch.testing.assert_close(together[b], model(tokens[b : b + 1, :length])["classify"][0])
    hidden = torch.randn(2, 3, 4)
    assert torch.equal(MaxOverTokens()(hidden, None), hidden.clamp(min=0).max(1).values)


def test_the_weights_of_mixes_cost_what_they_are_asked_to():
    model = reader_of(at_output=True)
    plain = Loss(torch.tensor(5.0, dtype=torch.float64), torch.tensor(5.0), 7)
    weights = [w for mix in (model.encoder.mix, model.encoder.output) for w in mix.weights.tolist()]
    found = penalized(plain, model, 0.3)
    assert found.total.item() == pytest.approx(5 + 7 * 0.3 * sum(w * w for w in weights))
    assert found.nll is plain.nll
    assert penalized(plain, model, 0.0) is plain
    told = describe_mixes(model)
    assert len(told) == 2 and "ELMo at the output" in told[1] and describe_mixes(model_of()) == []


# Sizes


def test_the_paper_has_so_many_weights():
    """93.6 million, of which torch has a second bias for every gate."""
    config = elmo.PRESETS["elmo"]
    model = skeleton("elmo", config)
    count = sum(weight.numel() for weight in model.encoder.parameters())
    assert round((count - 4 * 4 * config.cell_width) / 1e6, 1) == 93.6
    assert sum(config.filters) == 2048 and config.width == 512 and config.cell_width == 4096
    assert elmo.share_filters(2048) == config.filters and sum(elmo.share_filters(100)) == 100


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"input": "letters"}, "input must be one of characters, pieces"),
        ({"cell_width": D}, "5 cells are projected to fewer numbers"),
        ({"filters": ()}, "filters are as many whole numbers"),
        ({"filters": (2, 0)}, "filters are as many whole numbers"),
        ({"max_characters": 2}, "too short for its filters"),
    ],
)
def test_impossible_sizes_are_refused(more, why):
    with pytest.raises(ValueError, match=why):
        elmo.ElmoConfig(**{**SIZES, **more})


def test_a_head_that_is_none_is_refused():
    with pytest.raises(ValueError, match='no head "arcs" beside ELMo'):
        elmo_reader.build(elmo_reader.ElmoReaderConfig(**SIZES, prediction_heads=("arcs",)))
