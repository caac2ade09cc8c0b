"""The lectures' examples of training and of writing, with models that are trained here."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers import tiny
from torch import Tensor

from heedful.data.vocab import train_vocab
from heedful.lab.claims.d_extrapolation import LONGEST, SCHEMES, end_of_text, short_text
from heedful.lab.training import accuracy, trained
from heedful.models import gpt2, transformer
from heedful.tasks import lm, translate
from heedful.tasks.translate_rows import PairBatch, collate, numbers, side_by_side

PAD, BOS, EOS = 0, 1, 2
SOURCE, TARGET = [5, 7, 9], [4, 8, 6, 10]


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)


def batch_of(*pairs: tuple[list[int], list[int]]) -> PairBatch:
    sources, targets = ([np.array(side) for side in sides] for sides in zip(*pairs, strict=True))
    return collate(sources, targets, BOS, EOS, PAD)


# Order


def test_longer_sentences_fail_as_long_as_training_never_shows_their_positions():
    """Repeat the word three words back. The hope: sinusoids go on past the longest text of the training."""

    def train(model: torch.nn.Module, steps: int) -> float:
        return trained(model, lambda step: short_text(0, step, 3), steps)[-1]

    def right(model: torch.nn.Module) -> tuple[float, float]:
        known, longer = (accuracy(model, end_of_text(0, n, 3)) for n in (LONGEST, LONGEST * 3 // 2))
        return known, longer

    torch.manual_seed(0)
    model = SCHEMES["sinusoidal"]()
    first, (known, longer) = train(model, 200), right(model)
    assert known > 0.95 and longer < 0.3
    assert train(model, 200) < first / 5  # more training: better at what it knows, and no better beyond
    known, longer = right(model)
    assert known > 0.95 and longer < 0.3

    shown = SCHEMES["sinusoidal, random start"]()  # the same texts, but they begin anywhere
    train(shown, 400)
    known, longer = right(shown)
    assert known > 0.8 and longer > 0.8


# The block


def test_the_decoder_reads_the_target_shifted_right():
    """At place t the decoder reads word t - 1, and the loss compares its scores with word t."""
    model, batch = tiny.build(tiny.ENCODER_DECODERS["transformer"]), batch_of((SOURCE, TARGET))
    assert batch.target_BT.tolist() == [[BOS, 4, 8, 6, 10]]
    assert batch.answers_BT.tolist() == [[4, 8, 6, 10, EOS]]
    scores = model(batch.source_BS, batch.target_BT)[0]
    for t in range(len(TARGET)):
        changed = [*TARGET[:t], 15, *TARGET[t + 1 :]]
        other = model(batch.source_BS, batch_of((SOURCE, changed)).target_BT)[0]
        assert torch.equal(other[: t + 1], scores[: t + 1])  # word t is still to be predicted there
        assert ((other - scores)[t + 1 :].abs().amax(-1) > 1e-3).all()
    shares = scores.log_softmax(-1)
    by_hand = -sum(shares[t, word] for t, word in enumerate([*TARGET, EOS]))
    close(translate.loss_of(model, batch).nll, by_hand)


def test_pairs_that_share_a_row_are_shifted_right_one_by_one():
    model, pairs = tiny.build(tiny.ENCODER_DECODERS["transformer"]), [(SOURCE, TARGET), ([3, 11], [13, 12])]
    row = [tuple(map(np.array, pair)) for pair in pairs]
    packed = side_by_side([row], 9, BOS, EOS, PAD)
    assert packed.target_BT.tolist() == [[BOS, 4, 8, 6, 10, BOS, 13, 12, PAD]]
    assert packed.answers_BT.tolist() == [[4, 8, 6, 10, EOS, 13, 12, EOS, translate.NOTHING]]
    close(translate.loss_of(model, packed).nll, translate.loss_of(model, batch_of(*pairs)).nll)


@pytest.mark.parametrize("kind", ["decoder", "encoder-decoder"])
def test_one_pass_trains_like_one_pass_for_each_prefix(kind):
    """All words of a sentence are learned at once, with the losses and gradients of prefix after prefix."""
    if kind == "decoder":
        model, ids = tiny.build(tiny.DECODERS["gpt2"]), torch.tensor([TARGET + SOURCE, SOURCE + TARGET])
        stack, given, answers = model.stack, ids[:, :-1], ids[:, 1:]
        whole, read = lambda: lm.loss_of(model, lm.WindowBatch(ids)), model
    else:
        model, batch = tiny.build(tiny.ENCODER_DECODERS["transformer"]), batch_of((SOURCE, TARGET))
        stack, given, answers = model.decoder.stack, batch.target_BT, batch.answers_BT
        whole, read = lambda: translate.loss_of(model, batch), lambda x: model(batch.source_BS, x)
    passes: list[int] = []
    stack.register_forward_pre_hook(lambda _, args: passes.append(args[0].shape[1]))
    weights, T = list(model.parameters()), given.shape[1]

    together = whole().nll
    lasts = [read(given[:, : t + 1])[:, -1] for t in range(T)]
    losses = [F.cross_entropy(lasts[t], answers[:, t], reduction="sum") for t in range(T)]
    assert passes == [T, *range(1, T + 1)]
    close(together, sum(losses))
    pairs = zip(*(torch.autograd.grad(loss, weights) for loss in (together, sum(losses))), strict=True)
    for one, other in pairs:
        assert one.abs().max() > 0
        close(one, other)


# The models


def test_je_suis_etudiant_is_written_token_by_token_until_the_end_token():
    pairs = [("Je suis etudiant", "I am a student"), ("Je suis professeur", "I am a teacher")]
    pairs += [("Elle est etudiante", "She is a student"), ("Elle est en retard", "She is late")]
    pairs += [("Merci", "Thank you")]
    vocab = train_vocab("word", [text for pair in pairs for text in pair], 64)
    sizes = {"vocab": vocab.size, "target_vocab": vocab.size, "layers": 1, "width": 32, "heads": 4}
    model, batch = (
        transformer.build(transformer.TransformerConfig(**sizes, dropout=0.0)),
        numbers(vocab, pairs),
    )
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    assert not set(translate.translate(model, vocab, sources)) & set(targets)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(60):
        optimizer.zero_grad()
        translate.loss_of(model, batch).total.backward()
        optimizer.step()

    source, written = model.read(torch.tensor(vocab.encode_batch(["Je suis etudiant"]))), [vocab.bos]
    for word in ("I", "am", "a", "student", ""):
        shares = model.decode(source, torch.tensor([written]))[0, -1].softmax(-1)
        written.append(int(shares.argmax()))
        assert vocab.decode(written[-1:]) == word and shares.max() > 0.8
    assert written[-1] == vocab.eos
    assert translate.translate(model, vocab, sources) == targets


def test_the_next_word_is_predicted_from_the_words_before_it():
    """p(text) is the product of p(next word | words before), so all texts of a length sum to 1."""
    V, model = 4, tiny.build((gpt2, gpt2.GPT2Config(**tiny.ALONE | {"vocab": 4}, heads=3)))
    texts = torch.cartesian_prod(*[torch.arange(V)] * 3)
    total = 0.0
    for text in torch.cat([torch.full((V**3, 1), 2), texts], dim=1):  # each begins with the same word
        log_p = -lm.loss_of(model, lm.WindowBatch(text[None])).nll
        chain = [model(text[None, :t])[0, -1].softmax(-1) for t in (1, 2, 3)]
        close(torch.stack([shares.sum() for shares in chain]), torch.ones(3).double())
        close(log_p, sum(shares[text[t]].log() for t, shares in enumerate(chain, 1)))
        total += log_p.exp().item()
    assert total == pytest.approx(1, abs=1e-10)
